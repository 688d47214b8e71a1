//! The repository's files that are generated from the table, in whole or in part.

use super::render::{render, render_absent, render_fpm, render_runtime};
use super::sample;
use super::sections::Section;

/// The files, by their paths in the repository.
pub const FILES: &[&str] = &[
    "conf/forkyard.toml",
    "conf/php-fpm.conf",
    "docs/reference/configuration.md",
    "docs/reference/forkyard-fpm.md",
    "docs/reference/runtimes.md",
    "docs/reference/application-pool.md",
    "docs/reference/jobs.md",
];

/// Returns the right content of one of [`FILES`] that now has `text`. Returns `None` if it has no place for a table.
pub fn renewed(file: &str, text: &str) -> Option<String> {
    match file {
        "conf/forkyard.toml" => Some(sample::toml()),
        "conf/php-fpm.conf" => Some(sample::php_fpm()),
        "docs/reference/configuration.md" => {
            let text = with_table(text, 0, &render(Section::Global))?;
            let text = with_table(&text, 1, &render(Section::Pool))?;
            let text = with_table(&text, 2, &render(Section::Php))?;
            with_table(&text, 0, &render_absent())
        }
        "docs/reference/forkyard-fpm.md" => {
            let (before, _) = text.split_once("\n### In [global]\n")?;
            Some(format!("{before}{}", render_fpm()))
        }
        "docs/reference/application-pool.md" => with_table(text, 0, &render_runtime(Section::Applications)),
        "docs/reference/jobs.md" => {
            let text = below(text, "\n## `[jobs]`\n", &render_runtime(Section::Jobs))?;
            let text = below(
                &text,
                "\n## `[jobs.queue.NAME]`\n",
                &render_runtime(Section::JobQueue),
            )?;
            below(
                &text,
                "\n## `[jobs.schedule.NAME]`\n",
                &render_runtime(Section::JobSchedule),
            )
        }
        "docs/reference/runtimes.md" => {
            let runtimes = Section::ALL.into_iter();
            let mut tables = runtimes.filter_map(|section| Some((section.about().runtime?, section)));
            tables.try_fold(text.to_owned(), |text, (heading, section)| {
                below(&text, &format!("\n{heading}\n"), &render_runtime(section))
            })
        }
        _ => None,
    }
}

/// Replaces the first table below a heading that has the same first line.
fn below(text: &str, heading: &str, table: &str) -> Option<String> {
    let (before, after) = text.split_once(heading)?;
    Some(format!("{before}{heading}{}", with_table(after, 0, table)?))
}

/// Replaces the `nth` table that has the same first line.
fn with_table(text: &str, nth: usize, table: &str) -> Option<String> {
    let (head, _) = table.split_once('\n')?;
    let (start, _) = text.match_indices(&format!("{head}\n")).nth(nth)?;
    let lines = text[start..].split_inclusive('\n');
    let length: usize = lines.take_while(|line| line.starts_with('|')).map(str::len).sum();
    Some(format!("{}{table}{}", &text[..start], &text[start + length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_takes_the_place_of_the_one_that_begins_alike() {
        let text = "A\n\n| a |\n| 1 |\n\nB\n\n| b |\n| 2 |\n\n| a |\n| 3 |\n";
        let second = "A\n\n| a |\n| 1 |\n\nB\n\n| b |\n| 2 |\n\n| a |\n| 4 |\n| 5 |\n";
        assert_eq!(
            with_table(text, 1, "| a |\n| 4 |\n| 5 |\n").as_deref(),
            Some(second)
        );
        assert_eq!(with_table(text, 2, "| a |\n| 4 |\n"), None);
    }

    /// The tables of Python and Ruby are written by hand: the same key has another meaning in each.
    #[test]
    fn each_key_of_python_and_ruby_is_in_their_tables() {
        let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference"));
        let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
        let (python, runtimes) = (read("python.md"), read("runtimes.md"));
        let (_, rack) = runtimes.split_once("\n## Rack\n").unwrap();
        for setting in crate::settings::of(Section::Wrapped) {
            let row = format!("\n| `{}` |", setting.key);
            assert!(python.contains(&row), "python.md lacks {}", setting.key);
            let is_of_ruby = setting.key != "concurrency";
            assert!(
                rack.contains(&row) || !is_of_ruby,
                "runtimes.md lacks {}",
                setting.key
            );
        }
    }

    #[test]
    fn the_files_show_this_table() {
        let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        for file in FILES {
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            let right = renewed(file, &text).unwrap_or_else(|| panic!("{file} lacks a table"));
            assert!(
                text == right,
                "{file} is not up to date: run `forkyard settings --write .`"
            );
        }
    }
}

//! Help and manual texts of each command: group, examples, exit codes and files.

use clap::Command;
use roff::{Roff, bold, roman};
use std::fmt::Write as _;
use std::sync::LazyLock;

/// The width of the help, in columns.
pub(super) const WIDTH: usize = 80;
/// The indent of a command's description, in columns.
const INDENT: usize = 14;

/// The heading of entries that are pages of the manual, and no commands.
const PAGES: &str = "Pages";

/// A text, and its meaning.
type Meant = (&'static str, &'static str);

#[derive(Debug, Default)]
struct Entry {
    name: &'static str,
    /// The heading of its group in the help. A subcommand is not listed there.
    group: &'static str,
    examples: Vec<Meant>,
    codes: Vec<Meant>,
    files: Vec<Meant>,
}

static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| parse(include_str!("guide/commands.txt")));

fn parse(text: &'static str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let (mut codes, mut files) = (Vec::new(), Vec::new());
    let (mut group, mut example) = ("", "");
    for line in text.lines() {
        let (mark, rest) = line.split_once(' ').unwrap_or((line, ""));
        let entry = entries.last_mut();
        match (mark, entry) {
            ("" | "%", _) => {}
            ("#", _) => group = rest,
            ("##", _) => entries.push(Entry {
                name: rest,
                group,
                ..Entry::default()
            }),
            ("$", _) => example = rest,
            ("exit", entry) => read(rest, &mut codes, entry.map(|entry| &mut entry.codes)),
            ("file", entry) => read(rest, &mut files, entry.map(|entry| &mut entry.files)),
            (_, entry) => entry.into_iter().for_each(|it| it.examples.push((example, line))),
        }
    }
    entries
}

/// Reads a text with its meaning, or several texts that have the meanings of the file's head.
fn read(line: &'static str, head: &mut Vec<Meant>, entry: Option<&mut Vec<Meant>>) {
    match (line.split_once(": "), entry) {
        (Some(meant), entry) => entry.unwrap_or(head).push(meant),
        (None, Some(entry)) => {
            let found = line
                .split(' ')
                .flat_map(|text| head.iter().find(|it| it.0 == text));
            entry.extend(found);
        }
        (None, None) => {}
    }
}

fn entry(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

/// Adds groups, examples and the width to a command's help.
pub(super) fn dress(command: Command) -> Command {
    let groups = groups(&command);
    let template =
        format!("{{about}}\n\n{{usage-heading}} {{usage}}\n{groups}\nOptions:\n{{options}}{{after-help}}");
    with_examples(command.max_term_width(WIDTH), "")
        .help_template(template)
        .after_help("'forkyard COMMAND --help' describes a command, as man forkyard-COMMAND does.")
}

fn groups(command: &Command) -> String {
    let mut text = String::new();
    let mut heading = PAGES;
    let is_listed = |entry: &&Entry| entry.group != PAGES && !entry.name.contains(' ');
    for entry in ENTRIES.iter().filter(is_listed) {
        if entry.group != heading {
            heading = entry.group;
            let _ = writeln!(text, "\n{heading}:");
        }
        let about = command.find_subcommand(entry.name).and_then(Command::get_about);
        let about = about.map(ToString::to_string).unwrap_or_default();
        for (at, line) in wrapped(&about, WIDTH - INDENT).iter().enumerate() {
            let name = if at == 0 { entry.name } else { "" };
            let _ = writeln!(text, "  {name:width$}{line}", width = INDENT - 2);
        }
    }
    text
}

/// Adds each command's examples. `above` contains the parent commands.
fn with_examples(command: Command, above: &str) -> Command {
    command.mut_subcommands(|inner| {
        let name = format!("{above}{}", inner.get_name());
        let examples = entry(&name).map(|entry| examples(&entry.examples));
        let inner = with_examples(inner, &format!("{name} "));
        match examples {
            Some(text) if !text.is_empty() => inner.after_help(text),
            _ => inner,
        }
    })
}

fn examples(examples: &[(&str, &str)]) -> String {
    let mut text = String::from("Examples:");
    for (line, does) in examples {
        let _ = write!(text, "\n  {line}");
        for line in wrapped(does, WIDTH - 6) {
            let _ = write!(text, "\n      {line}");
        }
    }
    text
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Adds EXAMPLES, EXIT STATUS and FILES to a page of the manual.
pub(super) fn sections(name: &str, page: &mut Roff) {
    let Some(entry) = entry(name) else { return };
    for (heading, all) in [
        ("EXAMPLES", &entry.examples),
        ("EXIT STATUS", &entry.codes),
        ("FILES", &entry.files),
    ] {
        page.control("SH", [heading]);
        for (text, meaning) in all {
            page.control("TP", []).text([bold(*text)]).text([roman(*meaning)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::texts::{command_line, shown};
    use std::collections::BTreeSet;

    /// Returns the names of all visible commands and subcommands.
    fn names(command: &Command, above: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for inner in command.get_subcommands().filter(|it| it.get_name() != "help") {
            let name = format!("{above}{}", inner.get_name());
            names.extend(self::names(inner, &format!("{name} ")));
            names.insert(name);
        }
        names
    }

    #[test]
    fn every_command_has_an_entry_with_examples_codes_and_files() {
        let commands = ENTRIES.iter().filter(|it| it.group != PAGES);
        let known: BTreeSet<String> = commands.map(|it| it.name.to_owned()).collect();
        assert_eq!(known, names(&shown(), ""));
        for page in ["forkyard", "forkyard-fpm", "forkyard.toml"] {
            assert!(entry(page).is_some_and(|it| it.group == PAGES), "{page}");
        }
        for entry in ENTRIES.iter() {
            let name = entry.name;
            assert!(!entry.examples.is_empty(), "{name} has no example");
            assert!(!entry.files.is_empty(), "{name} has no file");
            let codes: Vec<u8> = entry
                .codes
                .iter()
                .map(|(code, _)| code.parse().unwrap())
                .collect();
            assert!(codes.contains(&0) && codes.is_sorted(), "{name}");
        }
    }

    #[test]
    fn every_word_of_a_list_has_a_meaning() {
        let text = include_str!("guide/commands.txt");
        let is_list = |line: &&str| line.starts_with("exit ") || line.starts_with("file ");
        let words = |line: &str| {
            if line.contains(": ") {
                1
            } else {
                line.split(' ').count() - 1
            }
        };
        let listed: usize = text.lines().filter(is_list).map(words).sum();
        let (head, _) = text.split_once("\n# ").unwrap();
        let shared = head.lines().filter(is_list).count();
        let read: usize = ENTRIES.iter().map(|it| it.codes.len() + it.files.len()).sum();
        assert_eq!(listed, read + shared);
    }

    #[test]
    fn every_example_is_a_command_line() {
        let is_own = |it: &&Entry| it.group != PAGES || it.name == "forkyard";
        for entry in ENTRIES.iter().filter(is_own) {
            let name = Some(entry.name).filter(|_| entry.group != PAGES);
            for (line, does) in &entry.examples {
                // Ignore the file or program of a redirection or pipe.
                let own = line.rsplit(" | ").next().unwrap_or(line);
                let own = own.split(" > ").next().unwrap_or(own);
                let words = own.split('\'').enumerate().flat_map(|(at, part)| match at % 2 {
                    0 => part.split_whitespace().collect(),
                    _ => vec![part],
                });
                let read = command_line().try_get_matches_from(words);
                assert!(read.is_ok(), "{line}: {:?}", read.err());
                assert!(
                    own.starts_with(&format!("forkyard {}", name.unwrap_or(""))),
                    "{line}"
                );
                assert!(does.ends_with('.'), "{does}");
            }
        }
    }

    fn helps(command: &Command, all: &mut Vec<(String, String)>) {
        for inner in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            helps(inner, all);
        }
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
        let mut command = command.clone();
        all.push((name.to_owned(), command.render_help().to_string()));
        all.push((name.to_owned(), command.render_long_help().to_string()));
    }

    #[test]
    fn no_line_of_a_help_is_wider_than_a_terminal() {
        let mut all = Vec::new();
        let mut command = command_line();
        command.build();
        helps(&command, &mut all);
        assert!(all.len() > 80, "{}", all.len());
        let wide: Vec<String> = all
            .iter()
            .flat_map(|(name, text)| text.lines().map(move |line| format!("{name}: {line}")))
            .filter(|line| {
                line.split_once(": ")
                    .is_some_and(|(_, line)| line.chars().count() > WIDTH)
            })
            .collect();
        assert!(wide.is_empty(), "{}", wide.join("\n"));
    }

    #[test]
    fn the_help_shows_every_command_in_one_group() {
        let text = command_line().render_help().to_string();
        for name in names(&shown(), "").iter().filter(|name| !name.contains(' ')) {
            let lines = text
                .lines()
                .filter(|line| line.starts_with(&format!("  {name} ")));
            assert_eq!(lines.count(), 1, "{name} in\n{text}");
        }
        assert!(
            text.contains("\n\nUsage: forkyard <COMMAND>\n\nBegin:\n  init "),
            "{text}"
        );
        let shown = text
            .lines()
            .skip_while(|line| *line != "Begin:")
            .take_while(|line| *line != "Options:");
        for line in shown {
            assert!(
                !line.starts_with("   "),
                "what a command does is one line: {line}"
            );
        }
    }
}

//! Generates completions, manual pages, the schema and the version.

mod pages;

use super::output::refuse;
use super::table::json;
use super::{Arguments, EXIT_SOFTWARE, guide, php};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use forkyard_config::settings;
use roff::{Roff, roman};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// The program's name, version and, if known, commit.
pub(super) use forkyard_daemon::VERSION;

/// Prints forkyard's version and the supported PHP versions.
pub(super) fn version() -> ExitCode {
    println!("forkyard {VERSION}");
    for line in php::lines().unwrap_or_default() {
        println!("PHP {line}");
    }
    ExitCode::SUCCESS
}

pub(super) fn completions(shell: Shell) -> ExitCode {
    written(
        io::stdout().write_all(completing(shell).as_bytes()),
        "standard output",
    )
}

/// Returns clap's completions of commands and options, extended by the names from `forkyard names`.
fn completing(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut shown(), "forkyard", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    match shell {
        Shell::Bash => text + include_str!("texts/names.bash"),
        // The file is the body of a function that ends with clap's lines.
        Shell::Zsh => {
            let own = concat!(include_str!("texts/names.zsh"), "\nif [ \"$funcstack[1]\"");
            text.replace("\n_forkyard() {", "\n_forkyard_words() {").replacen(
                "\nif [ \"$funcstack[1]\"",
                own,
                1,
            )
        }
        Shell::Fish => text + include_str!("texts/names.fish"),
        _ => text,
    }
}

pub(super) fn schema() -> ExitCode {
    let text = json(&settings::schema());
    written(io::stdout().write_all(text.as_bytes()), "standard output")
}

/// Writes the manual pages to a directory, such as `man8/forkyard.8`.
pub(super) fn manual(directory: &Path) -> ExitCode {
    let done = pages().and_then(|pages| {
        for (name, text) in pages {
            let section = name.rsplit('.').next().unwrap_or_default();
            let section_directory = directory.join(format!("man{section}"));
            fs::create_dir_all(&section_directory)?;
            fs::write(section_directory.join(name), text)?;
        }
        Ok(())
    });
    written(done, &directory.display().to_string())
}

fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let whole = shown();
    let mut pages = vec![
        ("forkyard.toml.5".to_owned(), pages::configuration().into_bytes()),
        ("forkyard-fpm.8".to_owned(), pages::fpm().into_bytes()),
        ("forkyard.8".to_owned(), page(&whole, "forkyard", "forkyard")?),
    ];
    for command in whole.get_subcommands() {
        let words = command.get_name();
        let name = format!("forkyard-{words}");
        pages.push((format!("{name}.8"), page(command, &name, words)?));
        for inner in command.get_subcommands().filter(|it| it.get_name() != "help") {
            let words = format!("{words} {}", inner.get_name());
            let name = format!("{name}-{}", inner.get_name());
            pages.push((format!("{name}.8"), page(inner, &name, &words)?));
        }
    }
    Ok(pages)
}

fn page(command: &Command, name: &str, words: &str) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone())
        .title(name)
        .section("8")
        .source(format!("forkyard {}", env!("CARGO_PKG_VERSION")))
        .manual("forkyard")
        .date("");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut more = Roff::new();
    guide::sections(words, &mut more);
    let above = (name != "forkyard").then(|| roman("forkyard(8), "));
    more.control("SH", ["SEE ALSO"]).text(
        above
            .into_iter()
            .chain([roman("forkyard.toml(5)")])
            .collect::<Vec<_>>(),
    );
    more.to_writer(&mut text)?;
    Ok(text)
}

pub(super) fn command_line() -> Command {
    guide::dress(Arguments::command())
}

/// Returns the command line without hidden commands.
pub(super) fn shown() -> Command {
    let whole = Arguments::command();
    let is_shown = |command: &&Command| !command.is_hide_set();
    let commands: Vec<Command> = whole.get_subcommands().filter(is_shown).cloned().collect();
    let about = whole.get_about().cloned().unwrap_or_default();
    let mut command = Command::new("forkyard")
        .version(VERSION)
        .about(about)
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands(commands);
    command.build();
    command
}

fn written(result: io::Result<()>, to: &str) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            refuse(&error, to);
            ExitCode::from(EXIT_SOFTWARE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_is_shown_has_a_page_and_no_other() {
        let names: Vec<String> = pages()
            .expect("pages")
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        for name in [
            "forkyard.8",
            "forkyard-status.8",
            "forkyard-pool-add.8",
            "forkyard.toml.5",
            "forkyard-fpm.8",
        ] {
            assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        }
        for hidden in ["helper", "trace", "settings", "interpreter", "setupper", "manual"] {
            assert!(
                names.iter().all(|name| !name.contains(hidden)),
                "{hidden}: {names:?}"
            );
        }
    }

    #[test]
    fn every_page_says_examples_exit_codes_and_files_once() {
        for (name, text) in pages().expect("pages") {
            let text = String::from_utf8(text).expect("UTF-8");
            for heading in [
                "NAME",
                "DESCRIPTION",
                "EXAMPLES",
                "\"EXIT STATUS\"",
                "FILES",
                "\"SEE ALSO\"",
            ] {
                let line = format!(".SH {heading}\n");
                assert_eq!(text.matches(&line).count(), 1, "{name}: {heading} in\n{text}");
            }
        }
    }

    #[test]
    fn completions_name_the_commands_and_nothing_hidden() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completing(shell);
            assert!(text.contains("names -- "), "{shell}");
            assert!(text.contains("reopen-logs") && text.contains("health"), "{shell}");
            assert!(
                !text.contains("setupper") && !text.contains("interpreter"),
                "{shell}"
            );
        }
    }
}

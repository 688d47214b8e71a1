//! Help and manual texts of each command: group, examples, exit codes and files.

mod applications;
mod busy;
mod jobs;
mod releases;
mod table;

use clap::Command;
use roff::{Roff, bold, roman};
use std::fmt::Write as _;

/// The width of the help, in columns.
pub(super) const WIDTH: usize = 80;
/// The indent of a command's description, in columns.
const INDENT: usize = 14;

/// A group of commands in the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Begin,
    See,
    Change,
    Jobs,
    Applications,
    Tools,
    /// A subcommand of another command.
    Within,
}

/// Groups and headings, in the help's order.
const GROUPS: &[(Group, &str)] = &[
    (Group::Begin, "Begin"),
    (Group::See, "See the running service"),
    (Group::Change, "Change the running service"),
    (Group::Jobs, "Background jobs"),
    (Group::Applications, "Instances of application pools"),
    (Group::Tools, "For tools"),
];

type Code = (u8, &'static str);
type File = (&'static str, &'static str);

#[derive(Debug)]
pub(super) struct Entry {
    name: &'static str,
    group: Group,
    /// Command lines and their descriptions.
    examples: &'static [(&'static str, &'static str)],
    codes: &'static [Code],
    files: &'static [File],
}

pub(super) const WHOLE: Entry = Entry {
    name: "",
    group: Group::Within,
    examples: table::WHOLE,
    codes: table::CODES,
    files: table::FILES,
};

pub(super) const FPM: Entry = Entry {
    name: "",
    group: Group::Within,
    examples: table::FPM,
    codes: table::FPM_CODES,
    files: table::FPM_FILES,
};

pub(super) const CONFIGURATION: Entry = Entry {
    name: "",
    group: Group::Within,
    examples: table::CONFIGURATION,
    codes: table::CONFIGURATION_CODES,
    files: table::FILES,
};

fn entries() -> impl Iterator<Item = &'static Entry> {
    let all = table::COMMANDS
        .iter()
        .chain(busy::COMMANDS)
        .chain(releases::COMMANDS)
        .chain(applications::COMMANDS);
    all.chain(jobs::COMMANDS)
}

pub(super) fn entry(name: &str) -> Option<&'static Entry> {
    entries().find(|entry| entry.name == name)
}

/// Adds groups, examples and the width to a command's help.
pub(super) fn dress(command: Command) -> Command {
    let groups = groups(&command);
    let template =
        format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}\nOptions:\n{{options}}{{after-help}}");
    with_examples(command.max_term_width(WIDTH), "")
        .help_template(template)
        .after_help("'forkyard COMMAND --help' describes a command, as man forkyard-COMMAND does.")
}

fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (group, heading) in GROUPS {
        let _ = writeln!(text, "{heading}:");
        for entry in entries().filter(|entry| entry.group == *group) {
            let about = command.find_subcommand(entry.name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            for (at, line) in wrapped(&about, WIDTH - INDENT).iter().enumerate() {
                let name = if at == 0 { entry.name } else { "" };
                let _ = writeln!(text, "  {name:width$}{line}", width = INDENT - 2);
            }
        }
        text.push('\n');
    }
    text.pop();
    text
}

/// Adds each command's examples. `above` contains the parent commands.
fn with_examples(command: Command, above: &str) -> Command {
    command.mut_subcommands(|inner| {
        let name = format!("{above}{}", inner.get_name());
        let examples = entry(&name).map(|entry| examples(entry.examples));
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
pub(super) fn sections(entry: &Entry, page: &mut Roff) {
    page.control("SH", ["EXAMPLES"]);
    for (line, does) in entry.examples {
        page.control("TP", []).text([bold(*line)]).text([roman(*does)]);
    }
    page.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in entry.codes {
        page.control("TP", [])
            .text([bold(code.to_string())])
            .text([roman(*meaning)]);
    }
    page.control("SH", ["FILES"]);
    for (path, is) in entry.files {
        page.control("TP", []).text([bold(*path)]).text([roman(*is)]);
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
        let known: BTreeSet<String> = entries().map(|it| it.name.to_owned()).collect();
        assert_eq!(known, names(&shown(), ""));
        for entry in entries().chain([&WHOLE, &FPM, &CONFIGURATION]) {
            let name = entry.name;
            assert!(!entry.examples.is_empty(), "{name} has no example");
            assert!(!entry.files.is_empty(), "{name} has no file");
            assert!(entry.codes.iter().any(|(code, _)| *code == 0), "{name}");
            assert!(entry.codes.is_sorted_by_key(|(code, _)| *code), "{name}");
            assert_eq!(
                entry.group == Group::Within,
                name.is_empty() || name.contains(' '),
                "{name}"
            );
        }
    }

    #[test]
    fn every_example_is_a_command_line() {
        for entry in entries().chain([&WHOLE]) {
            for (line, does) in entry.examples {
                // Ignore the file or program of a redirection or pipe.
                let own = line.rsplit(" | ").next().unwrap_or(line);
                let own = own.split(" > ").next().unwrap_or(own);
                let words = own.split('\'').enumerate().flat_map(|(at, part)| match at % 2 {
                    0 => part.split_whitespace().collect(),
                    _ => vec![part],
                });
                let read = command_line().try_get_matches_from(words);
                assert!(read.is_ok(), "{line}: {:?}", read.err());
                assert!(own.starts_with(&format!("forkyard {}", entry.name)), "{line}");
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

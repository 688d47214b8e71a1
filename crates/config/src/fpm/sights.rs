//! What was written, with the place and the comments of each line: for a program that turns it into something else.

use super::directives::Directive;
use super::ini::{self, Statement};
use super::values::{Manager, Value, Values, facility_name};
use super::{Journal, Machine, Options, parse, read, resolve};
use crate::Config;
use crate::fpm::validate::Context;

/// One line that said something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// The pool that it is about; `None`: the global section.
    pub pool: Option<String>,
    /// The directive, in small letters; empty: the line opens the section.
    pub name: String,
    /// The key of a list's entry.
    pub key: Option<String>,
    /// The file.
    pub path: String,
    /// The line in it.
    pub line: usize,
    /// The comments right above it and behind it, a line each, without the mark.
    pub comments: Vec<String>,
}

/// Comments that wait for the line below them.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    above: Vec<String>,
}

impl Remarks {
    /// Takes a line in, and tells of its statements. A line that the grammar can't read has none.
    pub(super) fn take(&mut self, line: &str, mut tell: impl FnMut(&Statement, Vec<String>)) {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix(';') {
            self.above.push(comment.trim_end().to_owned());
            return;
        }
        let statements = statements(line);
        let mut comments = std::mem::take(&mut self.above);
        comments.extend(behind(line, &statements));
        for statement in &statements {
            tell(statement, std::mem::take(&mut comments));
        }
    }
}

fn statements(line: &str) -> Vec<Statement> {
    let (statements, error) = ini::parse(&format!("{line}\n"), &|_| None);
    if error.is_some() { Vec::new() } else { statements }
}

/// The comment behind a statement: what can be left out without a difference.
fn behind(line: &str, whole: &[Statement]) -> Option<String> {
    let mut marks = line.match_indices(';').map(|(at, _)| at);
    let at = marks.find(|at| statements(&line[..*at]) == whole && !whole.is_empty())?;
    let comment = line[at + 1..].trim_end();
    (!comment.trim().is_empty()).then(|| comment.to_owned())
}

/// A value that a rule has passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plain {
    /// It has none.
    Unset,
    /// Text, or one of several words.
    Text(String),
    /// A boolean.
    Flag(bool),
    /// A number.
    Number(i32),
    /// A time in seconds.
    Seconds(i32),
    /// No limit.
    Unlimited,
    /// Entries with their keys, in the order written.
    List(Vec<(String, String)>),
}

/// The values of one section.
pub type Listed = Vec<(&'static Directive, Plain)>;

/// A whole configuration as php-fpm understands it.
#[derive(Debug, Clone)]
pub struct Survey {
    /// What it means.
    pub config: Config,
    /// The global section: paths are completed, and what is not written has its default.
    pub global: Listed,
    /// The pools' names and values, likewise.
    pub pools: Vec<(String, Listed)>,
    /// Where each line was.
    pub sights: Vec<Sight>,
}

/// Reads a configuration to be turned into something else: whether its users exist here does not matter.
pub fn survey(options: &Options, machine: &dyn Machine) -> (Option<Survey>, Journal) {
    let mut journal = Journal::new();
    let survey = read(options, machine, &mut journal, true).and_then(|written| {
        let mut context = Context {
            options,
            machine,
            journal: &mut journal,
        };
        let config = resolve::resolve(&written, &options.path(), &mut context)?;
        Ok(gather(config, written))
    });
    (survey.ok(), journal)
}

fn gather(config: Config, written: parse::Written) -> Survey {
    let pools = written.pools.iter();
    Survey {
        config,
        global: section(&written.global),
        pools: pools
            .map(|pool| (pool.name.clone(), section(&pool.values)))
            .collect(),
        sights: written.sights,
    }
}

fn section(values: &Values) -> Listed {
    values
        .all()
        .map(|(directive, value)| (directive, plain(value)))
        .collect()
}

fn plain(value: &Value) -> Plain {
    let word = |word: &str| Plain::Text(word.to_owned());
    match value {
        Value::Text(None) | Value::Level(None) | Value::Manager(None) => Plain::Unset,
        Value::Text(Some(text)) => Plain::Text(text.clone()),
        Value::Flag(flag) => Plain::Flag(*flag),
        Value::Number(number) => Plain::Number(*number),
        Value::Time(seconds) => Plain::Seconds(*seconds),
        Value::Level(Some(level)) => Plain::Text(format!("{level:?}").to_ascii_lowercase()),
        Value::Facility(number) => word(facility_name(*number)),
        Value::Core(-1) => Plain::Unlimited,
        Value::Core(bytes) => Plain::Number(*bytes),
        Value::Manager(Some(Manager::Static)) => word("static"),
        Value::Manager(Some(Manager::Dynamic)) => word("dynamic"),
        Value::Manager(Some(Manager::Ondemand)) => word("ondemand"),
        Value::List(list) => Plain::List(list.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remarks(text: &str) -> Vec<Vec<String>> {
        let mut remarks = Remarks::default();
        let mut found = Vec::new();
        for line in text.lines() {
            remarks.take(line, |_, comments| found.push(comments));
        }
        found
    }

    #[test]
    fn comments_above_and_behind_belong_to_a_line() {
        let found =
            remarks("; far\n\n; above\n;too\npid = a;b\n[www] ; section\nenv[A] = \"x;y\" ; behind\nb = 1\n");
        assert_eq!(
            found,
            [
                vec![" above", "too", "b"],
                vec![" section"],
                vec![" behind"],
                vec![]
            ]
        );
    }
}

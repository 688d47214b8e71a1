//! Removes secrets (the values of `env_file`) from a report.

use super::Report;
use crate::spawn::handshake::response::Text;
use std::collections::BTreeMap;

const HIDDEN: &str = "<hidden>";
/// Shorter values are hidden only next to their variable, because they may be any word.
const LEAST: usize = 6;

impl Report {
    /// Returns the report without its plan's secrets.
    #[must_use]
    pub fn without_secrets(mut self) -> Report {
        let plan = std::sync::Arc::clone(&self.plan);
        let secrets = &plan.secrets;
        if secrets.is_empty() {
            return self;
        }
        let hide = |text: &mut String| *text = without(text, secrets);
        let failure = &mut self.failure;
        hide(&mut failure.summary);
        for text in [&mut failure.problem, &mut failure.solution] {
            match text {
                Text::Plain(text) | Text::Html(text) => hide(text),
            }
        }
        failure.details.iter_mut().for_each(hide);
        failure
            .source
            .iter_mut()
            .flat_map(|it| &mut it.lines)
            .for_each(hide);
        hide(&mut self.output);
        let known = &mut self.subprocess;
        if let Some(text) = &mut known.envvars {
            hide(text);
            *text = unnamed(text, secrets);
        }
        known.annotations.iter_mut().for_each(|(_, text)| hide(text));
        self
    }
}

fn without(text: &str, secrets: &BTreeMap<String, String>) -> String {
    let mut values: Vec<&str> = secrets.values().map(String::as_str).collect();
    values.retain(|value| value.len() >= LEAST);
    // Longest first: one may contain another.
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    let mut text = text.to_owned();
    for value in values {
        text = text.replace(value, HIDDEN);
    }
    text
}

fn unnamed(text: &str, secrets: &BTreeMap<String, String>) -> String {
    let lines = text.lines().map(|line| match line.split_once('=') {
        Some((name, _)) if secrets.contains_key(name) => format!("{name}={HIDDEN}\n"),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_left_out_wherever_they_are() {
        let secrets = [
            ("KEY", "abcdef"),
            ("LONG", "abcdefgh"),
            ("SHORT", "no"),
            ("LINES", "one\ntwo-three"),
        ];
        let secrets = secrets
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        assert_eq!(without("no abcdefgh, abcdef", &secrets), "no <hidden>, <hidden>");
        let dump = without(
            "KEY=abcdef\nPATH=/bin\nSHORT=no\nLINES=one\ntwo-three\n",
            &secrets,
        );
        assert_eq!(
            unnamed(&dump, &secrets),
            "KEY=<hidden>\nPATH=/bin\nSHORT=<hidden>\nLINES=<hidden>\n"
        );
    }
}

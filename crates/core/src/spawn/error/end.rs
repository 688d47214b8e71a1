//! Errors of processes that exited unexpectedly.

use super::Ended;
use super::category::Category;
use super::headline::{headline, missing_variable};
use super::texts::Failure;
use crate::spawn::step::Step;

/// The headline for a program that came up and exited.
pub const DOES_NOT_STAY: (&str, &str) = (
    "the application does not stay up",
    "The application came up, and ended by itself soon after. It had no request in its hands.",
);

/// Explains such an exit by the output. `step`: the next step. `is_oom`: the OOM killer was active. `what`: the
/// headline; `problem`: the text.
pub fn explain_end(
    step: Step,
    (ended, is_oom): (Ended, bool),
    output: &str,
    is_output_seen: bool,
    (what, problem): (&str, &str),
) -> Failure {
    let is_word = |line: &&str| !line.is_empty() && !line.starts_with(char::is_whitespace);
    let word = headline(output).or_else(|| output.lines().rev().find(is_word));
    // A process killed by a signal has not written why.
    let word = word.filter(|_| matches!(ended, Ended::Code(_)));
    let missing = word.and_then(|word| missing_variable(word, output));
    let (meaning, remedy) = ended.hint(is_oom).unzip();
    let solution = remedy.unwrap_or(match is_output_seen {
        true => "The output shows where: correct the application, or supply the missing part.",
        false => "Set catch_workers_output = true to see the output, which shows where.",
    });
    let silent = if output.is_empty() {
        " and wrote nothing"
    } else {
        ""
    };
    Failure::new(
        Category::Internal,
        step,
        match word {
            Some(word) => format!("{what}: {word}"),
            None => format!("{what}: it {}{silent}", ended.describe()),
        },
        match meaning {
            Some(meaning) => format!("{problem}\n{meaning}"),
            None => problem.to_owned(),
        },
        missing.unwrap_or_else(|| solution.to_owned()),
    )
}

//! Parts of error pages: the journey's diagram, source code, exceptions.

use super::source::Excerpt;
use crate::spawn::journey::{Journey, StepState};
use crate::spawn::step::{Party, Step};
use askama::Template;
use std::time::Duration;

/// A placeholder for unknown source, which a program that runs as the user may replace.
pub const SOURCE_MARK: &str = "<!-- source -->";

pub(super) struct Drawn {
    pub(super) title: &'static str,
    pub(super) state: &'static str,
    pub(super) time: String,
    /// Its share in percent of the longest.
    pub(super) share: u128,
}

pub(super) fn journey(journey: &Journey, failed: Step) -> Vec<Drawn> {
    let is_done = |step: Step| journey.state(step) != StepState::NotStarted;
    let of = |party| journey.steps_of(party).collect::<Vec<Step>>();
    let (kit, own) = (of(Party::Kit), of(Party::Subprocess));
    // The process's steps happen during the handshake.
    let mut order: Vec<Step> = kit
        .iter()
        .copied()
        .take_while(|it| *it != Step::KitHandshakePerform)
        .collect();
    order.extend(own);
    order.extend(kit.into_iter().skip_while(|it| *it != Step::KitHandshakePerform));
    let last = order
        .iter()
        .rposition(|step| is_done(*step) && step.party() == Party::Subprocess);
    let mut shown = order.iter().enumerate().filter(|(index, step)| {
        // The handshake is shown only if it failed.
        if **step == Step::KitHandshakePerform {
            return failed == Step::KitHandshakePerform;
        }
        **step == failed || is_done(**step) || last.is_none_or(|last| *index > last)
    });
    let times = |step: Step| journey.duration(step).unwrap_or_default();
    let longest = order
        .iter()
        .filter(|it| **it != Step::KitHandshakePerform)
        .map(|it| times(*it))
        .max();
    let longest = longest.unwrap_or_default().as_nanos().max(1);
    let mut drawn = Vec::new();
    for (_, step) in shown.by_ref() {
        let took = journey.duration(*step);
        let state = match journey.state(*step) {
            _ if *step == failed => "failed",
            StepState::Performed => "done",
            StepState::Errored => "failed",
            StepState::InProgress => "cut",
            StepState::NotStarted => "none",
        };
        drawn.push(Drawn {
            title: step.title(),
            state,
            time: match (state, took) {
                ("none", _) => "not begun".to_owned(),
                (_, Some(took)) => time(took),
                ("cut", None) => "not finished".to_owned(),
                ("failed", None) => "failed".to_owned(),
                _ => "done".to_owned(),
            },
            share: match *step {
                Step::KitHandshakePerform => 0,
                step => (times(step).as_nanos() * 100 / longest).min(100),
            },
        });
    }
    drawn
}

fn time(took: Duration) -> String {
    match took.as_secs_f64() {
        short if short < 0.001 => "less than 1 ms".to_owned(),
        short if short < 1.0 => format!("{:.0} ms", short * 1000.0),
        long => format!("{long:.1} s"),
    }
}

#[derive(Template)]
#[template(path = "error_source.html")]
struct SourceExcerpt<'a> {
    file: &'a str,
    line: usize,
    lines: Vec<(usize, &'a str, bool)>,
}

/// Returns a page section with the failed line and its context.
pub fn source_section(excerpt: &Excerpt) -> String {
    let section = SourceExcerpt {
        file: &excerpt.file,
        line: excerpt.line,
        lines: excerpt.numbered().collect(),
    };
    section.render().unwrap_or_default()
}

#[derive(Template)]
#[template(path = "exception.html")]
struct Exception<'a> {
    title: &'a str,
    kind: &'a str,
    remedy: &'a str,
    text: &'a str,
    source: Option<String>,
}

/// Returns a page about another error. `kind`: the headline; `remedy` and `text` may be empty.
pub fn exception(kind: &str, title: &str, remedy: &str, text: &str, source: Option<&Excerpt>) -> String {
    let page = Exception {
        title,
        kind,
        remedy,
        text: text.trim_end(),
        source: source.map(source_section),
    };
    page.render().unwrap_or_default()
}

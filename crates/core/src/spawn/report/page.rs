//! Parts that pages about errors share: the journey as a picture, the application's source, an exception.

use super::source::Excerpt;
use crate::spawn::journey::{Journey, StepState};
use crate::spawn::step::{Party, Step};
use askama::Template;
use std::time::Duration;

/// Stands in a report's page where the application's source would be, if it is not known. A program that is the application's
/// user may look for it, and put its section here.
pub const SOURCE_MARK: &str = "<!-- source -->";

/// A step, as it is drawn.
pub(super) struct Drawn {
    pub(super) title: &'static str,
    /// The class of its look.
    pub(super) state: &'static str,
    /// How long it took, or why there is no time.
    pub(super) time: String,
    /// Its part of the time, in percent of the longest.
    pub(super) share: u128,
}

/// The steps in the order in which they are taken. What was passed over is left out.
pub(super) fn journey(journey: &Journey, failed: Step) -> Vec<Drawn> {
    let is_done = |step: Step| journey.state(step) != StepState::NotStarted;
    let of = |party| journey.steps_of(party).collect::<Vec<Step>>();
    let (kit, own) = (of(Party::Kit), of(Party::Subprocess));
    // The process is on its way while it is waited for.
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
        // It is waited for as long as it is on its way: that is no step of its own, unless this is what failed.
        if **step == Step::KitHandshakePerform {
            return failed == Step::KitHandshakePerform;
        }
        // No shell was asked, or the process told nothing of it.
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

/// A section of a page: the line that failed, and those around it.
pub fn source_section(excerpt: &Excerpt) -> String {
    let section = SourceExcerpt {
        file: &excerpt.file,
        line: excerpt.line,
        lines: excerpt.numbered().collect(),
    };
    // Writing into memory does not fail.
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

/// A page about something else than a start that failed. `kind`: what kind of error, in a few words; `remedy`, `text`: may be
/// empty.
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

//! Plain text for a terminal.

use super::Report;
use super::html::{self, Reader};
use crate::spawn::handshake::response::Text;
use forkyard_base::text::is_control;
use std::fmt::Write;

pub(super) fn render(report: &Report) -> String {
    let failure = &report.failure;
    let mut out = String::new();
    section(&mut out, "Error", &failure.summary);
    let facts = format!(
        "id        {}\ncategory  {}\nstep      {}\nprocess   {}",
        report.id,
        failure.category.name(),
        failure.step.name(),
        report.process(),
    );
    section(&mut out, "", &facts);
    section(&mut out, "What happened", shown(&failure.problem).as_str());
    section(&mut out, "How to solve it", shown(&failure.solution).as_str());
    if let Some(source) = &failure.source {
        let lines = source.numbered().map(|(number, text, is_here)| {
            let mark = if is_here { '>' } else { ' ' };
            format!("{mark}{number:>5}  {text}\n")
        });
        section(
            &mut out,
            &format!("{}, line {}", source.file, source.line),
            &lines.collect::<String>(),
        );
    }
    if let Some(details) = &failure.details {
        section(&mut out, "Details", details);
    }
    section(&mut out, "Steps", &steps(report));
    section(&mut out, "Output", &report.output);
    for (title, text) in html::surroundings(report, Reader::Owner) {
        section(&mut out, &title, &text);
    }
    if report.left > 0 {
        section(
            &mut out,
            "Left behind",
            &format!("{} processes could not be ended", report.left),
        );
    }
    out
}

fn steps(report: &Report) -> String {
    let mut lines = String::new();
    for record in report.journey.records() {
        let duration = report.journey.duration(record.step);
        let duration = duration.map_or_else(String::new, |took| format!("{:.3} s", took.as_secs_f64()));
        let state = record.state.name().trim_start_matches("STEP_");
        let _ = writeln!(lines, "{:<48} {:<12} {duration}", record.step.name(), state);
    }
    lines
}

fn shown(text: &Text) -> String {
    match text {
        Text::Plain(text) => text.clone(),
        Text::Html(html) => format!("(as HTML) {html}"),
    }
}

fn section(out: &mut String, title: &str, text: &str) {
    if text.trim().is_empty() {
        return;
    }
    if !title.is_empty() {
        let _ = writeln!(out, "{}:", clean(title));
    }
    for line in text.trim_end().lines() {
        let _ = writeln!(out, "  {}", clean(line));
    }
    out.push('\n');
}

fn clean(line: &str) -> String {
    let chars = line.chars();
    chars
        .map(|c| if c != '\t' && is_control(c) { '\u{FFFD}' } else { c })
        .collect()
}

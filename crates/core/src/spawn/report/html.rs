//! An HTML page. Everything in it is escaped by the template engine; HTML of the application is shown in a frame that may
//! run no scripts, load nothing and belongs to no origin.

use super::Report;
use super::page::{self, Drawn};
use crate::spawn::handshake::response::{Surroundings, Text};
use askama::Template;

#[derive(Template)]
#[template(path = "spawn_error.html")]
struct Page<'a> {
    id: String,
    group: &'a str,
    root: String,
    summary: &'a str,
    category: &'a str,
    step: &'a str,
    process: String,
    problem: Shown<'a>,
    solution: Shown<'a>,
    details: Option<&'a str>,
    steps: Vec<Drawn>,
    source: Option<String>,
    mark: &'static str,
    output: &'a str,
    sections: Vec<(String, &'a str)>,
}

#[derive(Template)]
#[template(path = "spawn_error_brief.html")]
struct Brief {
    id: String,
}

struct Shown<'a> {
    plain: Option<&'a str>,
    /// A document for a frame; escaped once more as an attribute.
    document: Option<String>,
}

impl<'a> Shown<'a> {
    fn new(text: &'a Text) -> Shown<'a> {
        // The policy forbids whatever the frame's own attribute leaves: pictures and styles from elsewhere.
        const POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
                              style-src 'unsafe-inline'\">";
        match text {
            Text::Plain(text) => Shown {
                plain: Some(text),
                document: None,
            },
            Text::Html(html) => Shown {
                plain: None,
                document: Some(format!("{POLICY}{html}")),
            },
        }
    }
}

pub(super) fn render(report: &Report, full: bool) -> String {
    let id = report.id.to_string();
    // Writing into memory does not fail.
    if !full {
        return Brief { id }.render().unwrap_or_default();
    }
    let failure = &report.failure;
    let process = match (report.pid, &report.exit) {
        (None, _) => "none was made".to_owned(),
        (Some(pid), None) => pid.to_string(),
        (Some(pid), Some(exit)) => format!("{pid}, {}", exit.describe()),
    };
    let whole = Page {
        id,
        group: &report.plan.group,
        root: report.plan.app_root.display().to_string(),
        summary: &failure.summary,
        category: failure.category.name(),
        step: failure.step.name(),
        process,
        problem: Shown::new(&failure.problem),
        solution: Shown::new(&failure.solution),
        details: failure.details.as_deref(),
        steps: page::journey(&report.journey, failure.step),
        source: failure.source.as_ref().map(page::source_section),
        mark: page::SOURCE_MARK,
        output: report.output.trim_end(),
        sections: surroundings(&report.subprocess),
    };
    whole.render().unwrap_or_default()
}

fn surroundings(known: &Surroundings) -> Vec<(String, &str)> {
    let parts = [
        ("Environment", &known.envvars),
        ("User", &known.user_info),
        ("Limits", &known.ulimits),
    ];
    let mut sections = Vec::new();
    for (title, text) in parts {
        if let Some(text) = text {
            sections.push((format!("{title} of the process"), text.as_str()));
        }
    }
    for (title, text) in &known.annotations {
        sections.push((format!("{title} (said by the process)"), text.as_str()));
    }
    sections
}

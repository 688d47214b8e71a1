//! The HTML page. The template engine escapes everything; the application's HTML is shown in a sandboxed frame without
//! scripts, resources or origin.

use super::Report;
use super::page::{self, Drawn};
use crate::spawn::handshake::response::Text;
use askama::Template;
use std::borrow::Cow;

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
    sections: Vec<(String, Cow<'a, str>)>,
}

#[derive(Template)]
#[template(path = "spawn_error_brief.html")]
struct Brief {
    id: String,
}

struct Shown<'a> {
    plain: Option<&'a str>,
    /// A frame's document, escaped again as an attribute.
    document: Option<String>,
}

impl<'a> Shown<'a> {
    fn new(text: &'a Text) -> Shown<'a> {
        // The policy forbids what the sandbox allows: external images and styles.
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

/// The reader of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// May read the report: gets everything.
    Owner,
    /// May send requests: gets environment variables without values.
    Browser,
    /// Anybody: gets only the id.
    Stranger,
}

pub(super) fn render(report: &Report, reader: Reader) -> String {
    let id = report.id.to_string();
    // Writing into memory does not fail.
    if reader == Reader::Stranger {
        return Brief { id }.render().unwrap_or_default();
    }
    let failure = &report.failure;
    let whole = Page {
        id,
        group: &report.plan.group,
        root: report.plan.app_root.display().to_string(),
        summary: &failure.summary,
        category: failure.category.name(),
        step: failure.step.name(),
        process: report.process(),
        problem: Shown::new(&failure.problem),
        solution: Shown::new(&failure.solution),
        details: failure.details.as_deref(),
        steps: page::journey(&report.journey, failure.step),
        source: failure.source.as_ref().map(page::source_section),
        mark: page::SOURCE_MARK,
        output: report.output.trim_end(),
        sections: surroundings(report, reader),
    };
    whole.render().unwrap_or_default()
}

/// The sections about the process, with their titles.
pub(super) fn surroundings(report: &Report, reader: Reader) -> Vec<(String, Cow<'_, str>)> {
    let known = &report.subprocess;
    let environment = known.envvars.as_deref().map(|text| match reader {
        Reader::Owner => Cow::Borrowed(text),
        Reader::Browser | Reader::Stranger => Cow::Owned(names(text, &report.id.to_string())),
    });
    let parts = [
        ("Environment", environment),
        ("User", known.user_info.as_deref().map(Cow::Borrowed)),
        ("Limits", known.ulimits.as_deref().map(Cow::Borrowed)),
    ];
    let mut sections = Vec::new();
    for (title, text) in parts {
        if let Some(text) = text {
            sections.push((format!("{title} of the process"), text));
        }
    }
    for (title, text) in &known.annotations {
        sections.push((format!("{title} (reported by the process)"), text.as_str().into()));
    }
    sections
}

/// The names in an environment of one variable a line, and where the values are.
fn names(environment: &str, id: &str) -> String {
    let mut text = format!("`forkyard error {id}` shows the values.\n\n");
    for line in environment.lines() {
        // A line without a name may be part of a value.
        if let Some((name, _)) = line.split_once('=').filter(|(name, _)| is_name(name)) {
            text.push_str(name);
            text.push('\n');
        }
    }
    text
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

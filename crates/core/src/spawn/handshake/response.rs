//! The response in the work directory: its bytes and their meaning.

use super::properties::SocketOwner;
use crate::spawn::error::Category;
use crate::spawn::journey::{Record, StepState};
use crate::spawn::step::Step;
use forkyard_base::tick::Tick;
pub use forkyard_protocol::start_failure::CommandCheck;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The longest `error/category` and step file in bytes.
pub const MOST_SHORT: usize = 32;
/// The longest error text and dump in bytes.
pub const MOST_TEXT: usize = 131_072;
/// The most annotations, and their longest name.
pub const MOST_ANNOTATIONS: usize = 64;

/// The files of one step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StepFiles {
    /// `state`.
    pub state: Option<Vec<u8>>,
    /// `begin_time_monotonic`.
    pub begin_monotonic: Option<Vec<u8>>,
    /// `begin_time`.
    pub begin: Option<Vec<u8>>,
    /// `end_time_monotonic`.
    pub end_monotonic: Option<Vec<u8>>,
    /// `end_time`.
    pub end: Option<Vec<u8>>,
}

/// `response/properties.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Properties {
    #[default]
    Missing,
    TooLong,
    Bytes(Vec<u8>),
}

/// An error text: plain, or the application's HTML.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Text {
    Plain(String),
    /// The application's HTML, shown in a sandboxed frame.
    Html(String),
}

impl Text {
    /// Returns the text as written.
    pub fn as_str(&self) -> &str {
        match self {
            Text::Plain(text) | Text::Html(text) => text,
        }
    }
}

/// An application's error report.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Complaint {
    /// `error/category`.
    pub category: Option<Vec<u8>>,
    /// `error/summary`.
    pub summary: Option<Vec<u8>>,
    /// `error/problem_description.html`.
    pub problem_html: Option<Vec<u8>>,
    /// `error/problem_description.txt`.
    pub problem_text: Option<Vec<u8>>,
    /// `error/solution_description.html`.
    pub solution_html: Option<Vec<u8>>,
    /// `error/solution_description.txt`.
    pub solution_text: Option<Vec<u8>>,
    /// `error/advanced_problem_details`.
    pub details: Option<Vec<u8>>,
    /// `error/source`.
    pub source: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown category {0}")]
pub struct UnknownCategory(pub String);

impl Complaint {
    /// Returns the category.
    ///
    /// # Errors
    /// An unknown category.
    pub fn category(&self) -> Result<Option<Category>, UnknownCategory> {
        let Some(bytes) = &self.category else {
            return Ok(None);
        };
        let text = clean(bytes);
        match Category::parse(&text) {
            Some(category) => Ok(Some(category)),
            None => Err(UnknownCategory(text)),
        }
    }

    pub fn summary(&self) -> Option<String> {
        said(self.summary.as_ref())
    }

    pub fn problem(&self) -> Option<Text> {
        either(&self.problem_html, &self.problem_text)
    }

    pub fn solution(&self) -> Option<Text> {
        either(&self.solution_html, &self.solution_text)
    }

    /// Returns details for developers.
    pub fn details(&self) -> Option<String> {
        said(self.details.as_ref())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Surroundings {
    /// Environment variables, one a line.
    pub envvars: Option<String>,
    pub user_info: Option<String>,
    pub ulimits: Option<String>,
    /// Annotations: title and text.
    pub annotations: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Response {
    pub properties: Properties,
    /// What exists at its unix sockets' paths.
    pub found: BTreeMap<PathBuf, SocketOwner>,
    pub complaint: Complaint,
    pub steps: Vec<(Step, StepFiles)>,
    pub surroundings: Surroundings,
    pub socket: Option<PathBuf>,
    pub port: Option<u16>,
    /// The ports it listens on, checked only if it got one.
    pub listens_on: BTreeSet<u16>,
    /// The check of its command.
    pub command: Option<CommandCheck>,
    /// Standard output and error.
    #[serde(skip)]
    pub output: String,
    /// Whether the OOM killer was active in its cgroup.
    pub out_of_memory: bool,
    /// Wall clock minus monotonic clock in nanoseconds.
    #[serde(skip)]
    pub wall_ahead_ns: i128,
}

/// An unknown state of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadStep {
    pub step: Step,
    pub text: String,
}

impl Response {
    /// Returns the new process's records, and the first invalid state.
    pub fn records(&self) -> (Vec<Record>, Option<BadStep>) {
        let mut records = Vec::new();
        let mut bad = None;
        for (step, files) in &self.steps {
            let Some(bytes) = &files.state else { continue };
            let text = clean(bytes);
            // Prepared but not written.
            if text.is_empty() {
                continue;
            }
            let Some(state) = StepState::parse(&text) else {
                bad.get_or_insert(BadStep { step: *step, text });
                continue;
            };
            records.push(Record {
                step: *step,
                state,
                begin: self.time(files.begin_monotonic.as_ref(), files.begin.as_ref()),
                end: self.time(files.end_monotonic.as_ref(), files.end.as_ref()),
            });
        }
        (records, bad)
    }

    /// Returns the reported monotonic time, otherwise the wall-clock time converted to it.
    fn time(&self, monotonic: Option<&Vec<u8>>, wall: Option<&Vec<u8>>) -> Option<Tick> {
        if let Some(nanos) = monotonic.and_then(|bytes| nanos(bytes)) {
            return u64::try_from(nanos).ok().map(Tick::from_nanos);
        }
        let nanos = nanos(wall?)?;
        u64::try_from(nanos - self.wall_ahead_ns)
            .ok()
            .map(Tick::from_nanos)
    }
}

fn nanos(bytes: &[u8]) -> Option<i128> {
    let seconds: f64 = clean(bytes).parse().ok()?;
    (seconds.is_finite() && (0.0..1e11).contains(&seconds)).then_some((seconds * 1e9) as i128)
}

/// Decodes bytes and trims white space.
pub fn clean(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

fn said(bytes: Option<&Vec<u8>>) -> Option<String> {
    bytes.map(|bytes| clean(bytes)).filter(|text| !text.is_empty())
}

fn either(html: &Option<Vec<u8>>, text: &Option<Vec<u8>>) -> Option<Text> {
    let html = said(html.as_ref()).map(Text::Html);
    html.or_else(|| said(text.as_ref()).map(Text::Plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(files: StepFiles) -> Response {
        Response {
            steps: vec![(Step::SubprocessListen, files)],
            wall_ahead_ns: 1_000_000_000_000,
            ..Response::default()
        }
    }

    #[test]
    fn times_are_monotonic_or_converted() {
        let files = StepFiles {
            state: Some(b"STEP_PERFORMED\n".to_vec()),
            begin: Some(b"1002.5".to_vec()),
            end: Some(b"1009".to_vec()),
            end_monotonic: Some(b"3.25".to_vec()),
            ..StepFiles::default()
        };
        let (records, bad) = with(files).records();
        assert_eq!(bad, None);
        assert_eq!(records[0].begin, Some(Tick::from_nanos(2_500_000_000)));
        assert_eq!(records[0].end, Some(Tick::from_nanos(3_250_000_000)));
    }

    #[test]
    fn garbage_is_named_and_does_no_harm() {
        let files = StepFiles {
            state: Some(b"\xFFSTEP".to_vec()),
            ..StepFiles::default()
        };
        let (records, bad) = with(files).records();
        assert!(records.is_empty());
        assert_eq!(bad.map(|bad| bad.step), Some(Step::SubprocessListen));
        for text in ["", "nan", "inf", "-1", "1e300", "x"] {
            assert_eq!(nanos(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn html_wins_over_text() {
        let complaint = Complaint {
            problem_html: Some(b"<b>a</b>".to_vec()),
            problem_text: Some(b"b".to_vec()),
            solution_text: Some(b" c \n".to_vec()),
            category: Some(b"IO_ERROR\n".to_vec()),
            ..Complaint::default()
        };
        assert_eq!(complaint.problem(), Some(Text::Html("<b>a</b>".to_owned())));
        assert_eq!(complaint.solution(), Some(Text::Plain("c".to_owned())));
        assert_eq!(complaint.category(), Ok(Some(Category::Io)));
        assert_eq!(complaint.summary(), None);
    }
}

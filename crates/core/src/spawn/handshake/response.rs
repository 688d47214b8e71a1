//! What came back in the work directory, as bytes, and what it means.

use super::properties::SocketOwner;
use crate::spawn::error::Category;
use crate::spawn::journey::{Record, StepState};
use crate::spawn::step::Step;
use crate::tick::Tick;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Longest `error/category` and longest file of a step, in bytes.
pub const MOST_SHORT: usize = 32;
/// Longest text of an error and longest dump, in bytes.
pub const MOST_TEXT: usize = 131_072;
/// Most annotations that are read, and longest name of one.
pub const MOST_ANNOTATIONS: usize = 64;

/// The files of one step, as they are.
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

/// `response/properties.json`, as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Properties {
    /// There is none.
    #[default]
    Missing,
    /// Longer than allowed.
    TooLong,
    /// Its bytes.
    Bytes(Vec<u8>),
}

/// What a person may be told about an error: text, or HTML that the application wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Text {
    /// Plain text.
    Plain(String),
    /// HTML of the application: shown in a frame without rights.
    Html(String),
}

impl Text {
    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        match self {
            Text::Plain(text) | Text::Html(text) => text,
        }
    }
}

/// What the application says about its error.
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

impl Complaint {
    /// The category that the application names.
    ///
    /// # Errors
    /// The text that names none.
    pub fn category(&self) -> Result<Option<Category>, String> {
        let Some(bytes) = &self.category else {
            return Ok(None);
        };
        let text = clean(bytes);
        match Category::parse(&text) {
            Some(category) => Ok(Some(category)),
            None => Err(text),
        }
    }

    /// What it says in short.
    pub fn summary(&self) -> Option<String> {
        said(self.summary.as_ref())
    }

    /// What happened, in detail.
    pub fn problem(&self) -> Option<Text> {
        either(&self.problem_html, &self.problem_text)
    }

    /// How to solve it.
    pub fn solution(&self) -> Option<Text> {
        either(&self.solution_html, &self.solution_text)
    }

    /// For developers.
    pub fn details(&self) -> Option<String> {
        said(self.details.as_ref())
    }
}

/// What the env setupper found out about the command before it executed it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CommandCheck {
    /// First word of the command.
    pub word: String,
    /// The file that it names.
    pub path: Option<PathBuf>,
    /// What is wrong with it, if anything.
    pub fault: Option<String>,
    /// What to do about that.
    pub remedy: Option<String>,
}

/// What is known of a process' surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Surroundings {
    /// Its environment, a variable a line.
    pub envvars: Option<String>,
    /// Its user and groups.
    pub user_info: Option<String>,
    /// Its limits.
    pub ulimits: Option<String>,
    /// What it says of itself: title and text.
    pub annotations: Vec<(String, String)>,
}

/// Everything that was read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Response {
    /// Its sockets.
    pub properties: Properties,
    /// What is at the paths of its unix sockets.
    pub found: BTreeMap<PathBuf, SocketOwner>,
    /// Its error.
    pub complaint: Complaint,
    /// Its steps.
    pub steps: Vec<(Step, StepFiles)>,
    /// Its surroundings.
    pub surroundings: Surroundings,
    /// The path of the socket that it was given.
    pub socket: Option<PathBuf>,
    /// The port that it was given.
    pub port: Option<u16>,
    /// The ports that it listens on; looked at only if it was given one.
    pub listens_on: BTreeSet<u16>,
    /// Its command.
    pub command: Option<CommandCheck>,
    /// What it wrote to standard output and error.
    #[serde(skip)]
    pub output: String,
    /// Whether a process of its memory cgroup was killed for want of memory since it was started.
    pub out_of_memory: bool,
    /// The wall clock less the monotonic one, in nanoseconds.
    #[serde(skip)]
    pub wall_ahead_ns: i128,
}

/// A step whose state is no state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadStep {
    /// The step.
    pub step: Step,
    /// What it says.
    pub text: String,
}

impl Response {
    /// What the new process says of its steps, and the first thing that it can't mean.
    pub fn records(&self) -> (Vec<Record>, Option<BadStep>) {
        let mut records = Vec::new();
        let mut bad = None;
        for (step, files) in &self.steps {
            let Some(bytes) = &files.state else { continue };
            let text = clean(bytes);
            // A directory that was just made ready and not written to.
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

    /// A time from the file in monotonic seconds, or else from the one in seconds since 1970.
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

/// Seconds with a fraction, in nanoseconds; `None` for what is no time.
fn nanos(bytes: &[u8]) -> Option<i128> {
    let seconds: f64 = clean(bytes).parse().ok()?;
    // A number far beyond any clock is no time.
    (seconds.is_finite() && (0.0..1e11).contains(&seconds)).then_some((seconds * 1e9) as i128)
}

/// Bytes as text without white space around it.
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

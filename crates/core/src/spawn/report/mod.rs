//! The report of a failed spawn, shown as a log line, JSON, text or HTML.

mod html;
mod json;
mod line;
mod page;
mod refused;
mod secrets;
pub mod source;
mod text;

pub use page::{SOURCE_MARK, exception, source_section};

use super::error::{Ended, Failure};
use super::handshake::response::Surroundings;
use super::journey::Journey;
use super::plan::Plan;
use forkyard_base::tick::Tick;
use html::Reader;
use std::fmt;
use std::sync::Arc;

/// Identifies a report in the log and on pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ErrorId(pub u32);

impl fmt::Display for ErrorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

#[derive(Debug, Clone)]
pub struct Report {
    pub id: ErrorId,
    pub plan: Arc<Plan>,
    pub journey: Journey,
    pub started: Tick,
    pub ended: Tick,
    pub failure: Failure,
    /// The pid, if any.
    pub pid: Option<i32>,
    /// Its own exit, if any.
    pub exit: Option<Ended>,
    pub output: String,
    pub subprocess: Surroundings,
    /// Processes that could not be killed.
    pub left: usize,
}

impl Report {
    /// Returns the report of a failure before anything ran.
    pub(super) fn before_start(
        id: ErrorId,
        plan: Arc<Plan>,
        journey: Journey,
        failure: Failure,
        now: Tick,
    ) -> Report {
        Report {
            id,
            plan,
            journey,
            started: now,
            ended: now,
            failure,
            pid: None,
            exit: None,
            output: String::new(),
            subprocess: Surroundings::default(),
            left: 0,
        }
    }

    /// Returns the log line.
    pub fn line(&self) -> String {
        line::render(self)
    }

    /// Returns the log line without the application's name.
    pub fn sentence(&self) -> String {
        line::sentence(self)
    }

    /// Returns JSON. `epoch_s`: when it happened, in seconds since 1970.
    pub fn json(&self, epoch_s: u64) -> serde_json::Value {
        json::render(self, epoch_s)
    }

    /// Returns plain text for a terminal.
    pub fn text(&self) -> String {
        text::render(self)
    }

    /// Returns a self-contained HTML page for readers of the report.
    pub fn html(&self) -> String {
        html::render(self, Reader::Owner)
    }

    /// Returns the page without values of environment variables.
    pub fn page(&self) -> String {
        html::render(self, Reader::Browser)
    }

    /// Returns the page if its JSON string has at most this many bytes, otherwise the brief one.
    pub fn page_within(&self, most: usize) -> String {
        let page = self.page();
        let is_short = serde_json::to_string(&page).is_ok_and(|text| text.len() <= most);
        if is_short { page } else { self.brief_html() }
    }

    /// The process and how it ended.
    fn process(&self) -> String {
        match (self.pid, &self.exit) {
            (None, _) => "none was made".to_owned(),
            (Some(pid), None) => pid.to_string(),
            (Some(pid), Some(exit)) => format!("{pid}, {}", exit.describe()),
        }
    }

    /// Returns a page with only the id.
    pub fn brief_html(&self) -> String {
        html::render(self, Reader::Stranger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn::error::{Trouble, explain};
    use crate::spawn::handshake::response::{Complaint, Response};
    use crate::spawn::plan::sample;
    use crate::spawn::step::Route;

    fn report(complaint: Complaint) -> Report {
        let journey = Journey::new(Route::SpawnDirectly, false);
        let response = Response {
            complaint,
            ..Response::default()
        };
        let trouble = Trouble::Exited(Ended::Code(3));
        let failure = explain(&trouble, &journey, &sample(), Some(&response));
        Report {
            id: ErrorId(0xab),
            plan: Arc::new(sample()),
            journey,
            started: Tick::ZERO,
            ended: Tick::from_nanos(1_500_000_000),
            failure,
            pid: Some(77),
            exit: Some(Ended::Code(3)),
            output: "<script>alert(1)</script>\nforged line\u{1b}[2J".to_owned(),
            subprocess: Surroundings {
                envvars: Some("SECRET=hunter2".to_owned()),
                ..Surroundings::default()
            },
            left: 0,
        }
    }

    #[test]
    fn a_log_line_is_one_line() {
        let complaint = Complaint {
            summary: Some(b"first\nsecond\x1b[0m".to_vec()),
            ..Complaint::default()
        };
        let line = report(complaint).line();
        assert!(!line.contains('\n') && !line.contains('\u{1b}'), "{line}");
        assert!(line.contains("000000ab") && line.contains("first") && line.contains("shop"));
    }

    #[test]
    fn a_page_shows_markup_and_does_not_run_it() {
        let complaint = Complaint {
            problem_html: Some(b"<img src=x onerror=\"alert(2)\">".to_vec()),
            ..Complaint::default()
        };
        let page = report(complaint).html();
        assert!(page.contains("&#60;script&#62;") || page.contains("&lt;script&gt;"));
        assert!(!page.contains("<script>") && !page.contains("<img"));
        assert!(page.contains("sandbox") && page.contains("srcdoc="));
        let owners = report(Complaint::default()).html();
        assert!(owners.contains("SECRET=hunter2"), "{owners}");
        let browsers = report(Complaint::default()).page();
        assert!(
            browsers.contains("SECRET") && !browsers.contains("hunter2"),
            "{browsers}"
        );
        assert!(browsers.contains("forkyard error 000000ab"), "{browsers}");
        let brief = report(Complaint::default()).brief_html();
        assert!(brief.contains("000000ab") && !brief.contains("hunter2") && !brief.contains("/srv/shop"));
    }

    #[test]
    fn text_for_a_terminal_has_no_control_characters() {
        let text = report(Complaint::default()).text();
        assert!(!text.contains('\u{1b}'));
        assert!(text.contains("SUBPROCESS_BEFORE_FIRST_EXEC") && text.contains("forged line"));
        let json = report(Complaint::default()).json(5);
        assert_eq!(json["error"]["id"], "000000ab");
        assert_eq!(json["error"]["category"], "INTERNAL_ERROR");
        assert_eq!(json["journey"]["type"], "SPAWN_DIRECTLY");
        assert_eq!(json["diagnostics"]["subprocess"]["pid"], 77);
    }
}

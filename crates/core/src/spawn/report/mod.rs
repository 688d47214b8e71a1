//! The report of a spawn that failed: one value, shown as a log line, JSON, plain text or an HTML page.

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
use crate::tick::Tick;
use html::Reader;
use std::fmt;
use std::sync::Arc;

/// Names one report, in the log and on pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorId(pub u32);

impl fmt::Display for ErrorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Everything there is to say of a failure.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its name.
    pub id: ErrorId,
    /// What was to be spawned.
    pub plan: Arc<Plan>,
    /// How far it came.
    pub journey: Journey,
    /// When it began.
    pub started: Tick,
    /// When it was over.
    pub ended: Tick,
    /// What failed, and what to do.
    pub failure: Failure,
    /// The process, where there was one.
    pub pid: Option<i32>,
    /// How it ended, where it ended by itself.
    pub exit: Option<Ended>,
    /// What it wrote.
    pub output: String,
    /// Its surroundings.
    pub subprocess: Surroundings,
    /// Processes of it that are left although everything was done to end them.
    pub left: usize,
}

impl Report {
    /// One line for the log.
    pub fn line(&self) -> String {
        line::render(self)
    }

    /// The same, for a log whose lines say whose they are.
    pub fn sentence(&self) -> String {
        line::sentence(self)
    }

    /// A document for programs. `epoch_s`: when it happened, in seconds since 1970.
    pub fn json(&self, epoch_s: u64) -> serde_json::Value {
        json::render(self, epoch_s)
    }

    /// Plain text for a terminal.
    pub fn text(&self) -> String {
        text::render(self)
    }

    /// An HTML page that needs nothing from elsewhere, for who may read the report.
    pub fn html(&self) -> String {
        html::render(self, Reader::Owner)
    }

    /// The same as an answer to a request: the environment's variables have no values.
    pub fn page(&self) -> String {
        html::render(self, Reader::Browser)
    }

    /// The same, not longer than this as JSON text, in bytes; if it is longer, what strangers get.
    pub fn page_within(&self, most: usize) -> String {
        let page = self.page();
        // Text can always be written as JSON.
        let is_short = serde_json::to_string(&page).is_ok_and(|text| text.len() <= most);
        if is_short { page } else { self.brief_html() }
    }

    /// An HTML page for strangers: nothing but the id.
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

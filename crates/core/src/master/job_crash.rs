//! The report of a worker that died during a background job.

use crate::spawn::error::Ended;
use crate::spawn::report::ErrorId;
use forkyard_base::text::is_control;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// The crash. Its texts come from the worker.
#[derive(Debug, Clone)]
pub struct JobCrash {
    pub id: ErrorId,
    /// Seconds since 1970.
    pub epoch_s: u64,
    /// The pool and its user.
    pub pool: String,
    pub uid: u32,
    /// The job's request path and query.
    pub path: String,
    pub query: String,
    pub script: String,
    /// The worker, its exit, and the time since it took the job.
    pub pid: i32,
    pub ended: Ended,
    pub after: Duration,
}

impl JobCrash {
    fn job(&self) -> Option<&str> {
        let number = self.query.strip_prefix("job=")?.split('&').next()?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then_some(number)
    }

    fn summary(&self) -> String {
        format!(
            "worker {} {} while it ran {}?{}",
            self.pid,
            self.ended.describe(),
            self.path,
            self.query
        )
    }

    fn words(&self) -> (&'static str, String) {
        let (problem, solution) = match self.ended {
            // These exit codes have other meanings at a start.
            Ended::Code(_) | Ended::Unknown => None,
            Ended::Signal { .. } => self.ended.hint(false),
        }
        .unwrap_or((
            "The worker ended before it had answered for the job.",
            "Look for the cause in the script and the code that it loads.",
        ));
        let job = self.job().unwrap_or("ID");
        let more = format!(
            "\"forkyard jobs show {job}\" has what the job wrote to its error stream in earlier starts and how those ended; the \
             pool's log has what the worker wrote. A job that is quarantined waits again after \"forkyard jobs retry {job}\"."
        );
        (problem, format!("{solution} {more}"))
    }

    /// Returns plain text for a terminal.
    pub fn text(&self) -> String {
        let (problem, solution) = self.words();
        let mut text = String::new();
        let facts = [
            ("id", self.id.to_string()),
            ("pool", self.pool.clone()),
            ("script", self.script.clone()),
            ("process", format!("{}, {}", self.pid, self.ended.describe())),
            ("after", format!("{:.3} s", self.after.as_secs_f64())),
        ];
        let _ = writeln!(text, "Error:\n  {}\n", clean(&self.summary()));
        for (name, fact) in facts {
            let _ = writeln!(text, "  {name:<9} {}", clean(&fact));
        }
        let _ = writeln!(
            text,
            "\nWhat happened:\n  {problem}\n\nHow to solve it:\n  {}",
            clean(&solution)
        );
        text
    }

    pub fn json(&self) -> Value {
        let (problem, solution) = self.words();
        json!({
            "program_name": "forkyard",
            "version": env!("CARGO_PKG_VERSION"),
            "time": self.epoch_s,
            "job": { "pool": self.pool, "path": self.path, "query": self.query, "script": self.script },
            "error": {
                "id": self.id.to_string(),
                "category": "INTERNAL_ERROR",
                "summary": self.summary(),
                "problem_description": problem,
                "solution_description": solution,
            },
            "diagnostics": {
                "duration": self.after.as_secs_f64(),
                "subprocess": { "pid": self.pid, "exit": self.ended.describe() },
            },
        })
    }

    /// Returns a self-contained HTML page.
    pub fn html(&self) -> String {
        let text = self
            .text()
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        format!(
            "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Error {}</title>\n<pre>{text}</pre>\n",
            self.id
        )
    }
}

/// Replaces line breaks and terminal control characters.
fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if is_control(c) { '\u{FFFD}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crash() -> JobCrash {
        JobCrash {
            id: ErrorId(0xab),
            epoch_s: 5,
            pool: "www".into(),
            uid: 33,
            path: "/jobs/mail/<b>".into(),
            query: "job=7&attempt=2".into(),
            script: "/srv/a.php\nforged\u{1b}[2J".into(),
            pid: 77,
            ended: Ended::killed(11),
            after: Duration::from_millis(1_500),
        }
    }

    #[test]
    fn a_report_says_what_ended_and_what_to_do_and_nothing_is_forged() {
        let text = crash().text();
        assert!(
            text.contains("id        000000ab") && text.contains("SIGSEGV") && text.contains("1.500 s"),
            "{text}"
        );
        assert!(
            text.contains("native library") && text.contains("forkyard jobs retry 7"),
            "{text}"
        );
        assert!(!text.contains("\nforged") && !text.contains('\u{1b}'), "{text}");
        let page = crash().html();
        assert!(!page.contains("<b>") && page.contains("000000ab"), "{page}");
        let json = crash().json();
        assert_eq!(
            (&json["error"]["id"], &json["diagnostics"]["subprocess"]["pid"]),
            (&"000000ab".into(), &77.into())
        );
        let exited = JobCrash {
            query: "job=x".into(),
            ended: Ended::Code(255),
            ..crash()
        };
        assert!(exited.text().contains("exited with code 255") && exited.text().contains("jobs show ID"));
    }
}

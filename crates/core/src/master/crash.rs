//! The report of a worker that died at work: during a request, or during a background job.

use super::crash_cause::CrashCause;
use super::secrets;
use crate::spawn::error::Ended;
use crate::spawn::report::ErrorId;
use forkyard_base::text::is_control;
use forkyard_protocol::control::CrashLine;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// The crash. Its texts come from the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Crash {
    pub id: ErrorId,
    /// Seconds since 1970.
    pub epoch_s: u64,
    /// The pool and its user.
    pub pool: String,
    pub uid: u32,
    pub work: Work,
    pub cause: CrashCause,
    /// The worker, its exit, and the time since it took the request.
    pub pid: i32,
    pub ended: Ended,
    pub after: Duration,
    /// The most memory that the process had, in bytes.
    pub peak_memory: Option<u64>,
    /// The end of its output, if the master reads it.
    pub output: String,
    /// The calls of the request, if it was slow and they were read in time, and when: after it was taken.
    #[serde(default)]
    pub calls: String,
    #[serde(default)]
    pub calls_after: Duration,
    /// Earlier deaths with the same pool, cause and script.
    pub earlier: u64,
    /// It belongs to the pool's program, which gets its requests from workers.
    pub is_program: bool,
}

/// The worker's request or job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The request's number in its worker's count.
    pub number: u64,
    pub stage: Cow<'static, str>,
    pub method: String,
    pub path: String,
    /// The query, without the values of secrets.
    pub query: String,
    pub script: String,
    pub content_length: u64,
    /// All parameters without secrets; none if the worker could not keep its request.
    pub params: Vec<(String, String)>,
    /// More requests that the worker had at the same time.
    pub others: u64,
    /// A text is longer than the scoreboard's room.
    pub is_cut: bool,
    pub is_job: bool,
}

impl Work {
    /// Returns the request's line: `GET /x.php?a=b`.
    pub fn request(&self) -> String {
        let mark = if self.query.is_empty() { "" } else { "?" };
        let line = format!("{} {}{mark}{}", self.method, self.path, self.query);
        line.trim().to_owned()
    }

    fn job(&self) -> Option<&str> {
        let number = self.query.strip_prefix("job=")?.split('&').next()?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then_some(number)
    }
}

impl Crash {
    /// Whether the other died of the same cause in the same place.
    pub fn is_like(&self, other: &Crash) -> bool {
        let exit = |ended: Ended| match ended {
            // Whether there is a core dump is not part of the cause.
            Ended::Signal { number, .. } => Ended::killed(number),
            Ended::Code(_) | Ended::Unknown => ended,
        };
        let place = |it: &Crash| {
            let cause = (it.cause.kind(), exit(it.ended));
            (it.pool.clone(), it.work.script.clone(), cause)
        };
        place(self) == place(other)
    }

    /// Returns the crash as a line of the list of crashes.
    pub fn line(&self) -> CrashLine {
        CrashLine {
            id: self.id.to_string(),
            time: self.epoch_s,
            pool: self.pool.clone(),
            kind: self.cause.kind().to_owned(),
            cause: self.cause.describe(self.ended),
            request: self.work.request(),
            script: self.work.script.clone(),
            deaths: self.earlier + 1,
        }
    }

    fn summary(&self) -> String {
        let doing = match (self.work.is_job, self.work.request()) {
            (true, _) => format!("it ran {}?{}", self.work.path, self.work.query),
            (false, request) if request.is_empty() => "it was at work".to_owned(),
            // The worker that had passed the request on may have begun another by now.
            (false, request) if self.is_program => format!("the pool served {request}"),
            (false, request) => format!("it served {request}"),
        };
        let (when, doing) = match self.cause {
            CrashCause::MemoryLimit => ("after", doing.replacen("it served", "it had served", 1)),
            _ => ("while", doing),
        };
        let who = if self.is_program { "process" } else { "worker" };
        format!("{who} {} {} {when} {doing}", self.pid, self.ended.describe())
    }

    fn words(&self) -> (String, String) {
        let (problem, solution) = self.cause.words(self.ended);
        let more = match self.work.is_job {
            true => {
                let job = self.work.job().unwrap_or("ID");
                format!(
                    "\"forkyard jobs show {job}\" shows the job's error output and how its earlier starts ended. The \
                     pool's log has the worker's output. \"forkyard jobs retry {job}\" starts a quarantined job again."
                )
            }
            false => format!(
                "\"forkyard replay {} --to POOL\" sends a GET or HEAD request again, without a session.",
                self.id
            ),
        };
        (problem.to_owned(), format!("{solution} {more}"))
    }

    /// Returns plain text for a terminal.
    pub fn text(&self) -> String {
        let (problem, solution) = self.words();
        let mut text = String::new();
        let work = &self.work;
        let mut facts = vec![
            ("id", self.id.to_string()),
            ("pool", self.pool.clone()),
            ("cause", self.cause.describe(self.ended)),
            ("request", work.request()),
            ("script", work.script.clone()),
            ("stage", work.stage.clone().into_owned()),
            ("after", format!("{:.3} s", self.after.as_secs_f64())),
            (
                "process",
                format!(
                    "{}, {}, at its request {}",
                    self.pid,
                    self.ended.describe(),
                    work.number
                ),
            ),
        ];
        facts.push((
            "source",
            match work.params.is_empty() {
                true => "the scoreboard, which has only the request's method, path, query and script",
                false => "the bytes that the worker had received: all parameters are below",
            }
            .to_owned(),
        ));
        if work.others > 0 {
            facts.push((
                "others",
                format!("{} more requests of the process ended, too", work.others),
            ));
        }
        if let Some(bytes) = self.peak_memory {
            facts.push(("memory", format!("at most {} MiB", bytes >> 20)));
        }
        facts.push((
            "deaths",
            format!("{} earlier of this cause and script", self.earlier),
        ));
        let _ = writeln!(text, "Error:\n  {}\n", clean(&self.summary()));
        for (name, fact) in facts {
            let _ = writeln!(text, "  {name:<9} {}", clean(&fact));
        }
        let _ = writeln!(
            text,
            "\nWhat happened:\n  {problem}\n\nHow to solve it:\n  {}",
            clean(&solution)
        );
        if !work.params.is_empty() {
            text += "\nThe request's parameters, without secrets:\n";
            for (name, value) in &work.params {
                let _ = writeln!(text, "  {}={}", clean(name), clean(value));
            }
        }
        if !self.calls.is_empty() {
            let after = self.calls_after.as_secs_f64();
            let _ = writeln!(
                text,
                "\nIts calls after {after:.3} s, from the log of slow requests:"
            );
            for line in self.calls.lines() {
                let _ = writeln!(text, "  {}", clean(line));
            }
        }
        if !self.output.is_empty() {
            text += if self.is_program {
                "\nThe process's last output:\n"
            } else {
                "\nThe worker's last output:\n"
            };
            for line in self.output.lines() {
                let _ = writeln!(text, "  {}", clean(line));
            }
        }
        text
    }

    pub fn json(&self) -> Value {
        let (problem, solution) = self.words();
        let work = &self.work;
        let (name, request) = match work.is_job {
            true => (
                "job",
                json!({ "pool": self.pool, "path": work.path, "query": work.query, "script": work.script }),
            ),
            false => (
                "request",
                json!({
                    "pool": self.pool,
                    "method": work.method,
                    "path": work.path,
                    "query": work.query,
                    "script": work.script,
                    "content_length": work.content_length,
                    "is_cut": work.is_cut,
                    "is_redacted": secrets::has_hidden(&work.query),
                    "source": if work.params.is_empty() { "scoreboard" } else { "received" },
                    "params": work.params.iter().cloned().collect::<BTreeMap<_, _>>(),
                }),
            ),
        };
        let mut report = json!({
            "program_name": "forkyard",
            "version": env!("CARGO_PKG_VERSION"),
            "time": self.epoch_s,
            "error": {
                "id": self.id.to_string(),
                "category": "INTERNAL_ERROR",
                "summary": self.summary(),
                "problem_description": problem,
                "solution_description": solution,
            },
            "cause": { "kind": self.cause.kind(), "text": self.cause.describe(self.ended) },
            "earlier_deaths": self.earlier,
            "diagnostics": {
                "duration": self.after.as_secs_f64(),
                "stage": work.stage,
                "other_requests": work.others,
                "output": self.output,
                "calls": self.calls,
                "calls_after": self.calls_after.as_secs_f64(),
                "subprocess": {
                    "pid": self.pid,
                    "exit": self.ended.describe(),
                    "requests": work.number,
                    "peak_memory": self.peak_memory,
                },
            },
        });
        report[name] = request;
        report
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
pub(super) mod tests {
    use super::*;

    pub(in crate::master) fn crash() -> Crash {
        Crash {
            id: ErrorId(0xab),
            epoch_s: 5,
            pool: "www".into(),
            uid: 33,
            work: Work {
                number: 3,
                stage: "Running".into(),
                method: "POST".into(),
                path: "/jobs/mail/<b>".into(),
                query: "job=7&attempt=2".into(),
                script: "/srv/a.php\nforged\u{1b}[2J".into(),
                is_job: true,
                ..Work::default()
            },
            cause: CrashCause::Signal { sender: None },
            pid: 77,
            ended: Ended::killed(11),
            after: Duration::from_millis(1_500),
            peak_memory: Some(50 << 20),
            output: "Segmentation\u{1b} fault\n".into(),
            calls: "[0x7f] sleep() /srv/a.php:3\u{1b}\n".into(),
            calls_after: Duration::from_millis(1_200),
            earlier: 2,
            is_program: false,
        }
    }

    #[test]
    fn a_report_says_what_ended_and_what_to_do_and_nothing_is_forged() {
        let text = crash().text();
        for said in [
            "id        000000ab",
            "SIGSEGV",
            "1.500 s",
            "native library",
            "forkyard jobs retry 7",
            "at most 50 MiB",
            "2 earlier",
            "Segmentation\u{FFFD} fault",
            "Its calls after 1.200 s, from the log of slow requests:\n  [0x7f] sleep() /srv/a.php:3\u{FFFD}\n",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert!(!text.contains("\nforged") && !text.contains('\u{1b}'), "{text}");
        let page = crash().html();
        assert!(!page.contains("<b>") && page.contains("000000ab"), "{page}");
        let json = crash().json();
        assert_eq!(
            (&json["error"]["id"], &json["diagnostics"]["subprocess"]["pid"]),
            (&"000000ab".into(), &77.into())
        );
        assert_eq!(json["job"]["query"], "job=7&attempt=2");
        let mut exited = crash();
        exited.work.query = "job=x".into();
        (exited.ended, exited.cause) = (Ended::Code(255), CrashCause::Exit);
        assert!(exited.text().contains("exited with code 255") && exited.text().contains("jobs show ID"));
    }

    #[test]
    fn a_request_s_report_names_it_and_how_to_send_it_again() {
        let mut crash = crash();
        crash.work.is_job = false;
        (crash.work.method, crash.work.path) = ("GET".into(), "/x.php".into());
        crash.work.query = "a=1".into();
        assert!(crash.text().contains("the scoreboard, which has only"));
        assert_eq!(crash.json()["request"]["source"], "scoreboard");
        crash.work.params = vec![("HTTP_HOST".into(), "a\nforged\u{1b}".into())];
        let text = crash.text();
        assert!(text.contains("while it served GET /x.php?a=1"), "{text}");
        assert!(text.contains("forkyard replay 000000ab --to POOL"), "{text}");
        assert!(
            text.contains("without secrets:\n  HTTP_HOST=a\u{FFFD}forged\u{FFFD}\n"),
            "{text}"
        );
        let json = crash.json();
        assert_eq!(
            (&json["request"]["method"], &json["request"]["source"]),
            (&"GET".into(), &"received".into())
        );
        let line = crash.line();
        assert_eq!((line.request.as_str(), line.deaths), ("GET /x.php?a=1", 3));
    }
}

//! The router's own answers.

use fastcgi::{MAX_CONTENT, ProtocolStatus, RecordType, Violation, end_request, header};
use forkyard_protocol::dead_work::DeadCount;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Problem {
    NoRoot,
    /// There is no application. Error id and page exist if the directory does.
    NotFound(ErrorPage),
    /// Too many requests wait. Contains the Retry-After time.
    QueueFull(Duration),
    TimedOut,
    Failed(ErrorPage),
    /// The router is shutting down, or no tried instance accepted the request.
    Unavailable,
}

/// What visitors see of an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ErrorPage {
    /// The error id.
    pub error: Option<String>,
    /// The error page, if visitors may see it.
    pub page: Option<String>,
}

impl Problem {
    /// Why the request is dead work, after a wait in the queue.
    pub(super) fn dead(&self) -> Option<DeadCount> {
        match self {
            Problem::QueueFull(_) => Some(DeadCount::Overload),
            Problem::TimedOut => Some(DeadCount::QueueTime),
            Problem::NoRoot | Problem::NotFound(_) | Problem::Failed(_) | Problem::Unavailable => None,
        }
    }

    pub(super) fn code(&self) -> u16 {
        match self {
            Problem::NoRoot => 403,
            Problem::NotFound(_) => 404,
            Problem::QueueFull(_) | Problem::Failed(_) | Problem::Unavailable => 503,
            Problem::TimedOut => 504,
        }
    }

    fn status(&self) -> &'static str {
        match self.code() {
            403 => "403 Forbidden",
            404 => "404 Not Found",
            504 => "504 Gateway Timeout",
            _ => "503 Service Unavailable",
        }
    }

    fn text(&self) -> String {
        let (text, id) = match self {
            Problem::NoRoot => ("The request names no application.", None),
            Problem::NotFound(shown) => ("There is no such application.", shown.error.as_ref()),
            Problem::QueueFull(_) => (
                "The application has too many requests. Please try again later.",
                None,
            ),
            Problem::TimedOut => ("The application did not answer in time.", None),
            Problem::Failed(shown) => ("The application could not be started.", shown.error.as_ref()),
            Problem::Unavailable => ("The application is not available. Please try again later.", None),
        };
        let id = id.map(|id| format!(" Error ID: {id}"));
        format!("{text}{}\n", id.unwrap_or_default())
    }

    /// The complete answer to request `id`, as FastCGI records.
    pub(super) fn answer(&self, id: u16) -> Vec<u8> {
        let (kind, body) = match self {
            Problem::Failed(ErrorPage { page: Some(page), .. })
            | Problem::NotFound(ErrorPage { page: Some(page), .. }) => ("text/html", page.clone()),
            other => ("text/plain", other.text()),
        };
        let mut text = format!(
            "Status: {}\r\nContent-Type: {kind}; charset=UTF-8\r\n",
            self.status()
        );
        if let Problem::QueueFull(after) = self {
            text.push_str(&format!("Retry-After: {}\r\n", after.as_secs().max(1)));
        }
        text.push_str("\r\n");
        text.push_str(&body);
        let mut answer = Vec::new();
        for piece in text.as_bytes().chunks(MAX_CONTENT) {
            answer.extend(header(RecordType::Stdout, id, piece.len() as u16, 0));
            answer.extend_from_slice(piece);
        }
        answer.extend(end_request(id, 0, ProtocolStatus::RequestComplete));
        answer
    }
}

/// The answer to a request whose parameters are too large to pass on.
pub(super) fn too_large(id: u16) -> Vec<u8> {
    end_request(id, 0, ProtocolStatus::Overloaded).to_vec()
}

pub(super) fn to_violation(violation: &Violation) -> Vec<u8> {
    violation
        .reply()
        .map(|reply| reply.bytes().to_vec())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastcgi::{Answer, Part};

    fn text(problem: &Problem) -> String {
        let wire = problem.answer(3);
        let (mut answer, mut at, mut text) = (Answer::new(), 0, Vec::new());
        loop {
            let (used, part) = answer.receive(&wire[at..]);
            at += used;
            match part {
                Part::Stdout(piece) => text.extend_from_slice(piece),
                Part::End {
                    app_status: 0,
                    status,
                } => {
                    assert_eq!((status, at), (ProtocolStatus::RequestComplete, wire.len()));
                    assert_eq!(answer.request_id(), 3);
                    return String::from_utf8(text).expect("UTF-8");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn every_problem_has_its_status() {
        let shown = |error: Option<&str>, page: Option<&str>| ErrorPage {
            error: error.map(str::to_owned),
            page: page.map(str::to_owned),
        };
        let failed = |page: Option<&str>| Problem::Failed(shown(Some("4f2a"), page));
        let not_found = |error: Option<&str>| Problem::NotFound(shown(error, None));
        let nothing = text(&not_found(None));
        assert!(nothing.starts_with("Status: 404 Not Found\r\n") && !nothing.contains("Error ID"));
        assert!(text(&not_found(Some("4f2a"))).contains("Error ID: 4f2a\n"));
        assert!(text(&Problem::NoRoot).starts_with("Status: 403 Forbidden\r\n"));
        assert!(text(&Problem::TimedOut).starts_with("Status: 504 Gateway Timeout\r\n"));
        let full = text(&Problem::QueueFull(Duration::from_secs(3)));
        assert!(
            full.starts_with("Status: 503 ") && full.contains("\r\nRetry-After: 3\r\n"),
            "{full}"
        );
        let plain = text(&failed(None));
        assert!(
            plain.starts_with("Status: 503 ") && plain.contains("Error ID: 4f2a"),
            "{plain}"
        );
        let page = "<p>".repeat(50_000);
        let answer = text(&failed(Some(&page)));
        assert!(answer.contains("text/html") && answer.ends_with(&page));
    }
}

//! The reporter's answers.

use super::brief::{Brief, Refusal};
use fastcgi::Params;
use forkyard_base::tick::Tick;
use forkyard_scoreboard::status::{self, Snapshot};
use forkyard_sys::clock;
use forkyard_worker::snapshot::encode;
use std::fmt;

/// php-fpm's answer for a missing script.
const NOT_FOUND: &str = "Status: 404 Not Found\r\n";
const NOT_FOUND_TYPE: &str = "Content-type: text/html; charset=UTF-8\r\n\r\n";
const NOT_FOUND_BODY: &[u8] = b"File not found.\n";
const NOT_FOUND_ERROR: &[u8] = b"Primary script unknown";

/// The pages of one pool.
#[derive(Debug)]
pub(crate) struct Pages<'b> {
    brief: &'b Brief,
    refusal: Option<&'b Refusal>,
    witness: Option<&'b dyn Witness>,
}

pub(super) trait Witness: fmt::Debug {
    /// Counts a refused request.
    fn refused(&self, output: &[u8]);

    /// Logs the answer to a request. `output` starts with the header.
    fn answered(&self, params: &Params, output: &[u8]);
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) output: Vec<u8>,
    pub(super) error: Vec<u8>,
}

impl<'b> Pages<'b> {
    pub(super) fn new(
        brief: &'b Brief,
        refusal: Option<&'b Refusal>,
        witness: Option<&'b dyn Witness>,
    ) -> Pages<'b> {
        Pages {
            brief,
            refusal,
            witness,
        }
    }

    /// Whether this is a 503 responder. It closes each connection so that workers get the next request.
    pub(super) fn refuses(&self) -> bool {
        self.refusal.is_some()
    }

    /// Returns the answer to a request. Calls `snapshot` only for a status page.
    pub(super) fn answer(&self, params: &Params, snapshot: &mut dyn FnMut() -> Snapshot) -> Page {
        let page = self.page(params, snapshot);
        if let Some(witness) = self.witness {
            witness.answered(params, &page.output);
        }
        page
    }

    fn page(&self, params: &Params, snapshot: &mut dyn FnMut() -> Snapshot) -> Page {
        let param = |name: &[u8]| params.get(name).unwrap_or_default();
        let uri = param(b"SCRIPT_NAME");
        let method = param(b"REQUEST_METHOD");
        let ping_path = self.brief.ping_path.as_ref();
        let status_path = self.brief.status_path.as_ref();
        let powered_by = self.brief.powered_by.as_ref();
        let powered_by = powered_by.map_or_else(String::new, |name| format!("X-Powered-By: {name}\r\n"));
        let answer = if ping_path.is_some_and(|path| path.as_bytes() == uri) {
            status::ping(method, &self.brief.ping_response)
        } else if status_path.is_some_and(|path| path.as_bytes() == uri) {
            status::status(method, param(b"QUERY_STRING"), &snapshot())
        } else if let Some(refusal) = self.refusal {
            let page = refuse(refusal, method);
            if let Some(witness) = self.witness {
                witness.refused(&page.output);
            }
            return page;
        } else {
            let body: &[u8] = if method == b"HEAD" { b"" } else { NOT_FOUND_BODY };
            return Page {
                output: [
                    NOT_FOUND.as_bytes(),
                    powered_by.as_bytes(),
                    NOT_FOUND_TYPE.as_bytes(),
                    body,
                ]
                .concat(),
                error: NOT_FOUND_ERROR.to_vec(),
            };
        };
        Page {
            output: encode(&answer, powered_by.as_bytes()),
            error: Vec::new(),
        }
    }
}

/// Returns the seconds until the next retry, rounded up.
fn retry_after_s(refusal: &Refusal, now: Tick) -> u64 {
    let left = Tick::from_nanos(refusal.retry_at_ns).since(now);
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    seconds.max(1)
}

/// Returns the 503 answer, with the id of the error report.
fn refuse(refusal: &Refusal, method: &[u8]) -> Page {
    let (kind, body) = match &refusal.page {
        Some(page) => ("text/html", page.clone()),
        None => {
            let text = format!(
                "Service Unavailable\n\nThe application could not be started (error {}).\n",
                refusal.id
            );
            ("text/plain", text)
        }
    };
    let head = format!(
        "Status: 503 Service Unavailable\r\nContent-Type: {kind}; charset=UTF-8\r\nRetry-After: {}\r\n\
         Cache-Control: no-store\r\n\r\n",
        retry_after_s(refusal, clock::now())
    );
    let body = if method == b"HEAD" { "" } else { &body };
    Page {
        output: [head.as_bytes(), body.as_bytes()].concat(),
        error: format!(
            "the application could not be started, see \"forkyard error {}\"",
            refusal.id
        )
        .into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_try_again_when_the_rest_of_the_delay_is_over() {
        let refusal = Refusal {
            id: String::new(),
            retry_at_ns: 60_000_000_000,
            page: None,
        };
        let after = |millis: u64| retry_after_s(&refusal, Tick::from_nanos(millis * 1_000_000));
        let times = [0, 1, 30_000, 58_999, 59_500, 60_000, 99_000];
        assert_eq!(times.map(after), [60, 60, 30, 2, 1, 1, 1]);
    }
}

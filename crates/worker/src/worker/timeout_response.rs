//! The 504 that a client reads whose request took longer than `request_terminate_timeout`.
//!
//! The master decides that a request has expired (`crates/core/src/master/overdue.rs`) and tells the worker with SIGTERM. The
//! worker's handler for it ([`timeout_responder`], in `crates/sys/`) sends the answer that is set here while a request runs,
//! unless a byte of the application's answer has left, and ends the process. A worker with several requests, and one that
//! speaks HTTP itself, keep the time on their own (`concurrent/times.rs`, `runtime/http/gateway/front.rs`) and send the same text.

use super::connection::Connection;
use crate::config;
use crate::sys::timeout_responder;
use fastcgi::{Output, ProtocolStatus};

pub(crate) const STATUS: &str = "504 Gateway Timeout";
pub(crate) const BODY: &str = "The application did not answer in time.";

/// The answer as a CGI response.
pub(super) fn text() -> String {
    format!("Status: {STATUS}\r\nContent-Type: text/plain; charset=UTF-8\r\n\r\n{BODY}\n")
}

/// The whole answer to a request with this number, as records.
fn records(request_id: u16) -> Vec<u8> {
    let mut output = Output::new();
    output.begin(request_id);
    output.stdout(text().as_bytes());
    output.end(0, ProtocolStatus::RequestComplete);
    output.pending().to_vec()
}

/// Has this worker answer before it ends, where its pool has a limit. Before the application's first code.
pub fn install_timeout_response(pool: &config::Pool) {
    if pool.request_terminate_timeout.is_some() {
        timeout_responder::install();
    }
}

/// The answer that the handler sends.
#[derive(Debug, Default)]
pub(super) struct TimeoutResponse {
    /// The number of the request that it was made for. No request has the number 0.
    request_id: u16,
}

impl TimeoutResponse {
    /// A request on this connection is to be answered.
    pub(super) fn arm(&mut self, connection: &Connection) {
        let id = connection.responder.request_id();
        if self.request_id != id {
            self.request_id = id;
            timeout_responder::set_answer(&records(id));
        }
        timeout_responder::arm(connection.socket());
    }

    /// Something of the application's answer is about to leave.
    pub(super) fn begin_output(&self) {
        timeout_responder::begin();
    }

    /// The request is answered, or its connection is given away.
    pub(super) fn disarm(&self) {
        timeout_responder::disarm();
    }
}

//! The 504 that a client reads whose request took longer than `request_terminate_timeout`, or is ended by `forkyard terminate`.
//!
//! | a request | is found by | 504 is sent by |
//! | --- | --- | --- |
//! | of a worker with one request at a time | the master: `end_overdue` in `crates/core/src/master/overdue.rs` | the worker's handler for SIGTERM: `on_terminate` in `crates/sys/src/timeout_responder.rs`; nothing if its master was killed and it is no child of the new one |
//! | of a worker with several: ASGI, threads, a program that speaks HTTP | the worker: `expire` in `concurrent/times.rs` | the worker, there |
//! | on `http_listen` | the worker: `expire_visit` in `runtime/http/gateway/front.rs` | the worker, there |
//! | of an application pool | as above, by the instance; `max_request_time` by the router: `lasted` in `crates/core/src/applications/departure.rs` | the instance as above; for `max_request_time` an instance with several requests, else nothing |
//! | that waits for an instance longer than `max_request_queue_time`, or for an inspector that is late | the router | the router: `status` in `crates/router/src/router/answer.rs` |
//!
//! The handler sends the answer that [`TimeoutResponse::arm`] has set when the request began, unless a byte of the application's
//! answer has left, and ends the process. The others send the same text, and go on; a worker with threads ends after its other
//! requests.

use super::connection::Connection;
use super::context::GenerationContext;
use crate::scoreboard;
use crate::sys::{sender, timeout_responder};
use fastcgi::{Output, ProtocolStatus};
use std::os::fd::AsFd;

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

/// Has this worker note who ends it by a signal; answer before it ends, where its request is ended; and pass SIGTERM on to its
/// program, where it has one. Before the application's first code.
pub fn install_handlers(context: &GenerationContext, slot: u32) {
    sender::install(Some((
        context.board_writable.as_fd(),
        scoreboard::sender_offset(slot as usize),
    )));
    timeout_responder::install();
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

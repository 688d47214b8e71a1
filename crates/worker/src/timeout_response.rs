//! The 504 for a request that exceeds `request_terminate_timeout` or is ended by `forkyard terminate`.
//!
//! | request | detected by | 504 sent by |
//! | --- | --- | --- |
//! | of a worker with one request at a time | the master: `end_overdue` in `crates/core/src/master/overdue.rs` | the worker's SIGTERM handler: `on_terminate` in `crates/sys/src/timeout_responder.rs`; none if the worker's master was killed and the new master is not its parent |
//! | of a worker with several: ASGI, threads, HTTP program | the worker: `expire` in `concurrent/times.rs` | the worker |
//! | on `http_listen` | the worker: `expire` in `crates/runtimes/src/http/gateway/passage.rs` | the worker |
//! | of an application pool | as above, by the instance; `max_request_time` by the router: `lasted` in `crates/core/src/applications/departure.rs` | the instance; for `max_request_time` only an instance with several requests |
//! | waiting for an instance longer than `max_request_queue_time`, or for a late inspector | the router | the router: `status` in `crates/router/src/router/answer.rs` |
//!
//! The handler sends the answer prepared by `TimeoutResponse::arm`, unless part of the application's answer was sent,
//! and exits. The others send the same text and continue; a worker with threads exits after its other requests.

use super::connection::Connection;
use super::context::GenerationContext;
use fastcgi::{Output, ProtocolStatus};
use forkyard_scoreboard as scoreboard;
use forkyard_sys::{sender, timeout_responder};
use std::os::fd::AsFd;

pub const STATUS: &str = "504 Gateway Timeout";
pub const BODY: &str = "The application did not answer in time.";

pub(super) fn text() -> String {
    format!("Status: {STATUS}\r\nContent-Type: text/plain; charset=UTF-8\r\n\r\n{BODY}\n")
}

fn records(request_id: u16) -> Vec<u8> {
    let mut output = Output::new();
    output.begin(request_id);
    output.stdout(text().as_bytes());
    output.end(0, ProtocolStatus::RequestComplete);
    output.pending().to_vec()
}

/// Installs handlers that record the sender of a signal, answer a request that is ended, and forward SIGTERM to the
/// worker's program. Call it before application code runs.
pub fn install_handlers(context: &GenerationContext, slot: u32) {
    let early = (
        context.board_writable.as_fd(),
        scoreboard::sender_offset(slot as usize),
    );
    sender::install(Some(early), context.settings.records_faults);
    timeout_responder::install();
}

#[derive(Debug, Default)]
pub(super) struct TimeoutResponse {
    request_id: u16,
}

impl TimeoutResponse {
    pub(super) fn arm(&mut self, connection: &Connection) {
        let id = connection.responder.request_id();
        if self.request_id != id {
            self.request_id = id;
            timeout_responder::set_answer(&records(id));
        }
        timeout_responder::arm(connection.socket());
    }

    pub(super) fn begin_output(&self) {
        timeout_responder::begin();
    }

    pub(super) fn disarm(&self) {
        timeout_responder::disarm();
    }
}

//! Facts about a request for the worker's numbers.

use super::access::head::AnswerHead;
use super::dead_work::Dead;
use super::lanes::LaneQueues;
use super::route::RouteFinder;
use super::service::Service;
use super::triage;
use fastcgi::Params;
use forkyard_base::tick::Tick;
use forkyard_protocol::numbers::StatusClass;
use forkyard_scoreboard::routes::{RouteRow, RouteUse};
use forkyard_scoreboard::slot_writer::Description;
use forkyard_scoreboard::{Counters, FinishedRequest};
use std::time::Duration;

/// Facts about the current request and about the next.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Wait of the next request, a lower bound.
    pub(super) waited: Duration,
    /// The worker found its connection waiting in the listening socket.
    pub(super) found_waiting: bool,
    /// Why the request did not begin; it counts for no distribution.
    pub(super) dead: Option<Dead>,
    pub(super) memory: Option<u64>,
    /// How much the request raised the worker's peak of memory, in bytes.
    pub(super) growth: u64,
    pub(super) ended: Option<Tick>,
    pub(super) answer: AnswerStatus,
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) route: Option<RouteRow>,
    finder: RouteFinder,
}

impl Tally {
    /// Begins a request. Its wait and its first bytes are already known.
    pub(super) fn begin(&mut self) {
        self.memory = None;
        self.dead = None;
        self.growth = 0;
        self.route = None;
        self.ended = None;
        self.answer = AnswerStatus::Nothing;
    }
}

impl Service {
    /// Returns why the request that has been read must not begin. `lanes`: for a request of a low lane.
    pub(super) fn judge(&mut self, lanes: Option<&LaneQueues>) -> Option<Dead> {
        let (settings, taken) = (&self.settings, self.taken);
        let params = self.current.as_deref_mut()?.responder.params_mut();
        let mut times = triage::take_times(params, settings, taken);
        times.known = self.tally.waited;
        if let Some(waited) = times.waited {
            self.has_waited(waited);
        }
        let connection = self.current()?;
        let (params, socket) = (connection.responder.params(), connection.socket());
        let waits = (self.tally.waited, &times);
        triage::judge(&self.settings, (&self.page, lanes), params, socket, waits, taken)
    }

    /// Takes the web server's measure of the wait.
    fn has_waited(&mut self, waited: Duration) {
        let tally = &mut self.tally;
        tally.waited = waited;
        if std::mem::take(&mut tally.found_waiting)
            && let Some(gate) = self.page.gate()
        {
            gate.had_queue(waited, self.taken);
        }
    }
}

impl Service {
    /// Finds the request's route, and shows it to the master.
    pub(super) fn find_route(&mut self, about: &Description<'_>, params: &Params) {
        if let Some(counters) = self.page.counters() {
            let row = self.tally.finder.find(counters, about, params);
            counters.routes().begin(row);
            self.tally.route = Some(row);
        }
    }
}

/// What only the numbers by route count of a request.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) route: Option<RouteRow>,
    /// Time in the run queue; zero if unknown.
    pub(super) queued: Duration,
    /// How much the request raised the worker's peak of memory, in bytes.
    pub(super) growth: u64,
    pub(super) is_sampled: bool,
}

/// Counts a request for its slot and for its route.
pub(super) fn count(counters: Counters<'_>, request: &FinishedRequest, counted: Counted) {
    counters.finished(request);
    if let Some(run) = request.run {
        let is_failed = matches!(request.class, StatusClass::ServerError | StatusClass::None);
        let request = RouteUse {
            run,
            cpu_micros: request.cpu_micros,
            queued: counted.queued,
            growth: counted.growth,
            is_sampled: counted.is_sampled,
            is_error: is_failed || request.is_aborted,
        };
        counters.routes().finished(counted.route, &request);
    }
}

/// The status of an answer, from its head.
#[derive(Debug, Default)]
pub(super) enum AnswerStatus {
    #[default]
    Nothing,
    Head(Box<AnswerHead>),
    Known(u16),
}

impl AnswerStatus {
    /// Looks at the next piece of the answer. Most heads come in one piece and are not copied.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        match self {
            AnswerStatus::Known(_) => {}
            AnswerStatus::Nothing if bytes.is_empty() => {}
            AnswerStatus::Nothing => {
                *self = match status_of_head(bytes) {
                    Some(status) => AnswerStatus::Known(status),
                    None => {
                        let mut head = Box::<AnswerHead>::default();
                        head.take(bytes);
                        AnswerStatus::Head(head)
                    }
                };
            }
            AnswerStatus::Head(head) => {
                head.take(bytes);
                if head.is_over {
                    *self = AnswerStatus::Known(head.status());
                }
            }
        }
    }

    /// Sets a status that the runtime reports itself.
    pub(super) fn set(&mut self, status: u16) {
        *self = AnswerStatus::Known(status);
    }

    pub(super) fn class(&self) -> StatusClass {
        match self {
            AnswerStatus::Nothing => StatusClass::None,
            AnswerStatus::Head(head) => StatusClass::of(head.status()),
            AnswerStatus::Known(status) => StatusClass::of(*status),
        }
    }
}

/// Returns the status, if these bytes have it or the end of the head.
fn status_of_head(bytes: &[u8]) -> Option<u16> {
    let mut rest = bytes;
    loop {
        let end = line_end(rest)?;
        let line = &rest[..end];
        // Most lines differ in their first byte.
        let names_status = match line.first() {
            Some(b's' | b'S') => line
                .get(..7)
                .is_some_and(|name| name.eq_ignore_ascii_case(b"status:")),
            Some(b'H') => line.starts_with(b"HTTP/"),
            _ => false,
        };
        if names_status {
            let mut head = AnswerHead::default();
            head.take(line);
            return Some(head.status());
        }
        if matches!(line, b"" | b"\r") {
            return Some(200);
        }
        rest = &rest[end + 1..];
    }
}

/// Returns the place of the first newline; eight bytes at a time.
fn line_end(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    let chunks = bytes.chunks_exact(8);
    let (rest, count) = (chunks.remainder(), chunks.len());
    for (index, chunk) in chunks.filter_map(<[u8]>::first_chunk).enumerate() {
        let other = u64::from_le_bytes(*chunk) ^ (ONES * b'\n' as u64);
        let found = other.wrapping_sub(ONES) & !other & HIGH;
        if found != 0 {
            return Some(index * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|byte| *byte == b'\n')?;
    Some(count * 8 + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_found_however_the_head_comes() {
        for (answer, class) in [
            (
                &b"Status: 404 Not Found\r\nX-A: b\r\n\r\nbody"[..],
                StatusClass::ClientError,
            ),
            (
                b"X-Powered-By: PHP/8.2\r\nContent-type: text/html\r\n\r\nStatus: 500\r\n",
                StatusClass::Success,
            ),
            (
                b"X-A: some text that is long\nstatus:503\n\n",
                StatusClass::ServerError,
            ),
            (b"HTTP/1.1 301 Moved\r\n\r\n", StatusClass::Redirection),
            (b"\r\nStatus: 500\r\n\r\n", StatusClass::Success),
            (b"Status: x\r\n\r\n", StatusClass::Success),
        ] {
            for size in 1..=answer.len() {
                let mut status = AnswerStatus::default();
                answer.chunks(size).for_each(|piece| status.take(piece));
                assert_eq!(status.class(), class, "{size} {}", answer.escape_ascii());
            }
        }
        assert_eq!(AnswerStatus::default().class(), StatusClass::None);
        let mut status = AnswerStatus::default();
        status.take(b"");
        assert_eq!(status.class(), StatusClass::None);
        status.take(b"X-A: unfinished");
        assert_eq!(status.class(), StatusClass::Success);
        status.set(502);
        assert_eq!(status.class(), StatusClass::ServerError);
    }

    #[test]
    fn newlines_are_found() {
        for at in 0..40 {
            let mut bytes = vec![0x8a_u8; 40];
            bytes[at] = b'\n';
            assert_eq!(line_end(&bytes), Some(at));
            assert_eq!(line_end(&bytes[..at]), None);
        }
    }
}

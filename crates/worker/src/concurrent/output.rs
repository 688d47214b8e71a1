//! Sends answers.

use super::super::dead_work::Dead;
use super::super::request::CLIENT_CLOSED;
use super::super::tally::{self, Counted};
use super::super::{builtin, samples};
use super::client::{AnswerPhase, RunningRequest};
use super::events::EventKind;
use super::state::WorkerState;
use fastcgi::Phase;
use forkyard_base::tick::Tick;
use forkyard_scoreboard::FinishedRequest;
use forkyard_sys::clock;
use forkyard_sys::socket::{Progress, send, shutdown_read};
use std::os::fd::AsFd;
use std::time::Duration;

/// How long a router waits for the rest of a body that the application ignored.
const REST_LIMIT: Duration = Duration::from_secs(1);

/// When to send a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// Together with the next piece, if there is room.
    Later,
    /// At once, and it ends the answer.
    Last,
}

/// The result of sending a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Accepted in full, unless there is no more room.
    Taken {
        /// Bytes accepted.
        count: usize,
        /// No room; an event will follow.
        is_full: bool,
    },
    /// The client is gone, or the request has ended.
    Gone,
}

impl WorkerState {
    pub(super) fn send(&mut self, index: usize, bytes: &[u8], when: When, now: Tick) -> Sent {
        if self.clients[index].is_gone() {
            return Sent::Gone;
        }
        if let Some(request) = &mut self.clients[index].request {
            request.status.take(bytes);
            if let Some(recorder) = &mut request.recorder {
                recorder.output(bytes);
            }
        }
        self.was_sent(index, now);
        let mut count = self.put(index, bytes);
        while count < bytes.len() {
            if !self.flush(index, now) {
                break;
            }
            count += self.put(index, &bytes[count..]);
        }
        if self.clients[index].is_gone() {
            return Sent::Gone;
        }
        let is_full = match when {
            _ if count < bytes.len() => true,
            When::Now => !self.flush(index, now),
            When::Later => false,
            When::Last => {
                self.finish(index, now);
                return Sent::Taken {
                    count,
                    is_full: false,
                };
            }
        };
        if let Some(connection) = self.connection(index) {
            connection.set_wants_room(is_full);
        }
        Sent::Taken { count, is_full }
    }

    pub(super) fn put(&mut self, index: usize, bytes: &[u8]) -> usize {
        let client = &mut self.clients[index];
        if let Some(request) = &mut client.request {
            request.begin_answer();
        }
        let connection = client.connection.as_deref_mut();
        connection.map_or(bytes.len(), |connection| connection.stdout(bytes))
    }

    pub(super) fn put_error(&mut self, index: usize, bytes: &[u8], now: Tick) -> Sent {
        let mut count = 0;
        loop {
            let rest = &bytes[count..];
            count += self
                .connection(index)
                .map_or(rest.len(), |connection| connection.stderr(rest));
            if count == bytes.len() || !self.flush(index, now) {
                break;
            }
        }
        if self.clients[index].is_gone() {
            return Sent::Gone;
        }
        let is_full = count < bytes.len();
        if let Some(connection) = self.connection(index).filter(|_| is_full) {
            connection.set_wants_room(true);
        }
        Sent::Taken { count, is_full }
    }

    /// Returns true if nothing is left. Detects a disconnected client.
    pub(super) fn flush(&mut self, index: usize, now: Tick) -> bool {
        let client = &mut self.clients[index];
        let (Some(link), Some(connection)) = (&client.link, &mut client.connection) else {
            return true;
        };
        loop {
            let pending = connection.pending();
            if pending.is_empty() {
                return true;
            }
            match send(link.socket.fd(), pending) {
                Ok(Progress::Done(count)) => {
                    connection.sent(count);
                    if let Some(counters) = self.page.counters() {
                        counters.transferred(0, count as u64);
                    }
                }
                Ok(Progress::WouldBlock) => {
                    connection.blocked(now);
                    self.heed_deadline(index);
                    self.watch_room(index, true);
                    return false;
                }
                Err(_) => {
                    self.lose_client(index);
                    return true;
                }
            }
        }
    }

    pub(super) fn go_on_sending(&mut self, index: usize, now: Tick) {
        if self.clients[index].request.is_some() {
            self.was_sent(index, now);
        }
        if !self.flush(index, now) {
            return;
        }
        if self.clients[index].is_in(Phase::Ending) {
            self.after_answer(index, now);
        } else {
            self.tell_room(index);
        }
    }

    fn tell_room(&mut self, index: usize) {
        let connection = self.connection(index).filter(|it| it.wants_room());
        if let Some(connection) = connection {
            connection.set_wants_room(false);
            self.tell(EventKind::Writable, self.clients.token(index));
        }
    }

    pub(super) fn finish(&mut self, index: usize, now: Tick) {
        let client = &mut self.clients[index];
        let Some(mut request) = client.request.take() else {
            return;
        };
        if let Some(recorder) = &mut request.recorder {
            recorder.end(clock::now());
            recorder.finish(self.page.board.header());
        }
        let is_aborted = client.is_gone();
        if let Some(connection) = &mut client.connection {
            if let Some(link) = client.link.as_ref().filter(|_| connection.refuses_more()) {
                shutdown_read(link.socket.fd());
            }
            connection.finish();
        }
        self.is_over(&request, is_aborted, now);
        if self.clients[index].link.is_none() {
            return self.close(index);
        }
        if self.flush(index, now) && self.clients[index].is_in(Phase::Ending) {
            self.after_answer(index, now);
        }
    }

    fn is_over(&mut self, request: &RunningRequest, is_aborted: bool, now: Tick) {
        let is_counted = request.answer != AnswerPhase::Endless && request.dead.is_none();
        let run = is_counted.then(|| now.since(request.taken));
        if let Some((gate, run)) = self.page.gate().zip(run) {
            gate.had_run(run);
        }
        if let Some(counters) = self.page.counters() {
            let finished = FinishedRequest {
                run,
                wait: request.waited,
                ended: now,
                class: request.status.class(),
                dead: request.dead.map(Dead::count),
                cpu_micros: None,
                memory: self.wear.known_peak().filter(|_| request.dead.is_none()),
                is_aborted,
                is_timed_out: request.is_timed_out,
            };
            let is_sampled = samples::are_wanted(&self.page);
            let counted = Counted {
                route: request.route,
                is_sampled,
                ..Counted::default()
            };
            tally::count(counters, &finished, counted);
            if is_sampled {
                samples::take(&self.page, 0, 0, now);
            }
        }
        self.capacity.in_flight -= 1;
        if request.is_quiet {
            self.capacity.quiet.ends();
        }
        if !self.is_full() {
            self.capacity.quiet.has_room();
        }
        self.wear.served += u64::from(request.dead.is_none());
        self.publish_load();
        self.show_end(now.since(request.taken), now);
        self.check_limits(now);
        if self.is_leaving() {
            // No other event may come that checks whether the worker is done.
            self.alarm.set_by(now);
        }
        self.update_listening(now);
    }

    fn after_answer(&mut self, index: usize, now: Tick) {
        let client = &mut self.clients[index];
        let Some(connection) = client.connection.as_deref_mut() else {
            return self.close(index);
        };
        if let Some(output) = connection.answered(now) {
            if let Some(session) = &mut client.session {
                session.is_answered = true;
                connection.expect_by(now + REST_LIMIT);
            }
            self.clients.keep_output(output);
        }
        match self.clients[index].connection.as_ref().map(|it| it.phase()) {
            Some(Phase::Idle) => {
                self.watch_room(index, false);
                self.keep(index, now);
            }
            Some(Phase::Lingering) => {
                self.heed_deadline(index);
                self.shut_down(index);
                self.read(index, now);
            }
            Some(Phase::Reading) => {
                self.watch_room(index, false);
                let event = self.connection(index).and_then(|it| it.resume(now));
                self.follow(index, event, now);
                self.read(index, now);
            }
            _ => self.close(index),
        }
    }

    pub(super) fn keep(&mut self, index: usize, now: Tick) {
        if self.clients[index].session.is_some() {
            return self.give_back(index);
        }
        self.heed_deadline(index);
        self.limit_idle();
        self.publish_kept();
        if self.is_leaving() {
            self.send_away(&[index], now);
        }
        self.read(index, now);
    }

    pub(super) fn break_off(&mut self, index: usize, now: Tick) {
        self.flush(index, now);
        if let Some(connection) = self.connection(index) {
            connection.break_off();
        }
        self.finish(index, now);
    }

    pub(super) fn lose_client(&mut self, index: usize) {
        let Some(connection) = self.connection(index) else {
            return;
        };
        let event = connection.lose();
        if self.clients[index].request.is_none() {
            return self.close(index);
        }
        self.hang_up(index);
        if event.is_some() {
            self.tell(EventKind::Gone, self.clients.token(index));
        }
        self.tell_room(index);
    }

    pub(super) fn answer_builtin(&mut self, index: usize, now: Tick) -> bool {
        let Some(connection) = self.clients[index].connection.as_deref() else {
            return false;
        };
        let params = connection.params();
        let uri = params.get(b"SCRIPT_NAME").unwrap_or_default();
        let listener = self.sources.listener.as_fd();
        let Some(bytes) = builtin::answer(&self.settings, &self.page, listener, params, uri, b"") else {
            return false;
        };
        self.send_whole(index, &bytes, now);
        true
    }

    /// Ends a request that must not begin.
    pub(super) fn die(&mut self, index: usize, dead: Dead, now: Tick) {
        if let Some(request) = &mut self.clients[index].request {
            request.dead = Some(dead);
        }
        if let Some(answer) = dead.answer(now.as_nanos() >> 10) {
            return self.send_whole(index, answer.as_bytes(), now);
        }
        if let Some(request) = &mut self.clients[index].request {
            request.status.set(CLIENT_CLOSED);
            if let Some(recorder) = &mut request.recorder {
                recorder.status(CLIENT_CLOSED);
            }
        }
        self.break_off(index, now);
    }

    fn send_whole(&mut self, index: usize, bytes: &[u8], now: Tick) {
        match self.send(index, bytes, When::Last, now) {
            Sent::Taken { count, is_full: true } => self.send_rest(index, &bytes[count..], now),
            Sent::Taken { .. } => {}
            Sent::Gone => self.finish(index, now),
        }
    }

    fn send_rest(&mut self, index: usize, mut bytes: &[u8], now: Tick) {
        use forkyard_sys::socket::{Readiness, wait};
        while !bytes.is_empty() && !self.clients[index].is_gone() {
            let Some(link) = &self.clients[index].link else {
                break;
            };
            let timeout = self.settings.pool.serving.client_timeout;
            if !wait(link.socket.fd(), Readiness::Writable, timeout).is_ok_and(|ready| ready) {
                break;
            }
            self.flush(index, now);
            let count = self.put(index, bytes);
            bytes = &bytes[count..];
        }
        self.finish(index, now);
    }
}

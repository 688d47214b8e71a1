//! Sends answers.

use super::super::builtin;
use super::super::snapshot;
use super::client::ClientPhase;
use super::events::EventKind;
use super::state::WorkerState;
use crate::scoreboard::RequestStage;
use crate::sys::socket::{Progress, send, shutdown_read, shutdown_write};
use crate::tick::Tick;
use fastcgi::{ProtocolStatus, Reply};
use std::os::fd::AsFd;
use std::time::Duration;

const LINGER_LIMIT: Duration = Duration::from_secs(1);

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
        if self.clients[index].is_gone {
            return Sent::Gone;
        }
        if let Some(recorder) = &mut self.clients[index].recorder {
            recorder.output(bytes);
        }
        self.was_sent(index, now);
        let mut count = self.put(index, bytes);
        while count < bytes.len() {
            if !self.flush(index, now) {
                break;
            }
            count += self.put(index, &bytes[count..]);
        }
        if self.clients[index].is_gone {
            return Sent::Gone;
        }
        if count < bytes.len() {
            self.clients[index].is_full = true;
            return Sent::Taken { count, is_full: true };
        }
        let is_full = match when {
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
        self.clients[index].is_full = is_full;
        Sent::Taken { count, is_full }
    }

    pub(super) fn put(&mut self, index: usize, bytes: &[u8]) -> usize {
        let client = &mut self.clients[index];
        client.has_begun = true;
        client
            .output
            .as_mut()
            .map_or(bytes.len(), |output| output.stdout(bytes))
    }

    pub(super) fn put_error(&mut self, index: usize, bytes: &[u8]) {
        if let Some(output) = &mut self.clients[index].output {
            output.stderr(bytes);
        }
    }

    pub(super) fn reply(&mut self, index: usize, reply: &Reply, now: Tick) {
        if self.clients[index].output.is_none() {
            self.clients[index].output = Some(self.new_output());
        }
        let Some(output) = &mut self.clients[index].output else {
            return;
        };
        let _ = output.reply(reply);
        self.flush(index, now);
    }

    /// Returns true if nothing is left. Detects a disconnected client.
    pub(super) fn flush(&mut self, index: usize, now: Tick) -> bool {
        let client = &mut self.clients[index];
        let (Some(connection), Some(output)) = (&client.connection, &mut client.output) else {
            return true;
        };
        loop {
            let pending = output.pending();
            if pending.is_empty() {
                client.deadline = None;
                return true;
            }
            match send(connection.socket(), pending) {
                Ok(Progress::Done(count)) => output.consume(count),
                Ok(Progress::WouldBlock) => {
                    let limit = now + self.settings.pool.serving.client_timeout;
                    client.deadline = Some(limit);
                    self.alarm.set_by(limit);
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
        if self.clients[index].phase == ClientPhase::Serving {
            self.was_sent(index, now);
        }
        if !self.flush(index, now) {
            return;
        }
        let token = self.token(index);
        let client = &mut self.clients[index];
        match client.phase {
            ClientPhase::Ending => self.after_answer(index, now),
            ClientPhase::Serving if std::mem::take(&mut client.is_full) => {
                self.tell(EventKind::Writable, token)
            }
            _ => {}
        }
    }

    pub(super) fn finish(&mut self, index: usize, now: Tick) {
        let board = self.board.header();
        let client = &mut self.clients[index];
        if let Some(recorder) = &mut client.recorder {
            recorder.end();
            recorder.finish(board);
        }
        client.phase = ClientPhase::Ending;
        if let Some(connection) = client.connection.as_deref() {
            if connection.last && connection.responder.keep() && client.body_ended {
                shutdown_read(connection.socket());
            }
        }
        if let Some(output) = &mut client.output {
            if client.is_gone {
                output.abandon();
            } else {
                output.end(0, ProtocolStatus::RequestComplete);
            }
        }
        let taken = client.taken;
        client.expires = None;
        self.is_over(index, now.since(taken), now);
        if self.clients[index].connection.is_none() {
            return self.close(index);
        }
        if self.flush(index, now) && self.clients[index].phase == ClientPhase::Ending {
            self.after_answer(index, now);
        }
    }

    fn is_over(&mut self, index: usize, took: Duration, now: Tick) {
        self.in_flight -= 1;
        if std::mem::take(&mut self.clients[index].is_quiet) {
            self.quiet.ends();
        }
        if !self.is_full() {
            self.quiet.has_room();
        }
        self.served += 1;
        self.publish_load();
        self.show_end(took, now);
        self.check_limits(now);
        if self.is_leaving() {
            // No other event may come that checks whether the worker is done.
            self.alarm.set_by(now);
        }
        self.update_listening(now);
    }

    fn after_answer(&mut self, index: usize, now: Tick) {
        let client = &mut self.clients[index];
        if let Some(output) = client.output.take() {
            self.keep_output(output);
        }
        let client = &mut self.clients[index];
        client.recorder = None;
        client.body.clear();
        let Some(connection) = client.connection.as_deref_mut() else {
            return self.close(index);
        };
        let keeps = connection.keeps() && !client.is_gone;
        connection.responder.finish();
        client.phase = ClientPhase::Reading;
        if !keeps {
            let is_whole = client.body_ended && client.input.is_empty();
            return if is_whole {
                self.close(index)
            } else {
                self.linger(index, now)
            };
        }
        if client.session.is_some() {
            return self.rest(index, now);
        }
        connection.asked = true;
        self.watch_room(index, false);
        if self.clients[index].is_portable() {
            return self.keep(index, now);
        }
        self.clients[index].phase = ClientPhase::Idle;
        self.reconsider(index, now);
        if self.clients[index].phase == ClientPhase::Idle && self.clients[index].is_portable() {
            self.keep(index, now);
        }
        self.watch(index);
    }

    pub(super) fn keep(&mut self, index: usize, now: Tick) {
        let limit = now + self.settings.pool.serving.keepalive_timeout;
        let client = &mut self.clients[index];
        if client.session.is_some() {
            return self.rest(index, now);
        }
        client.phase = ClientPhase::Idle;
        client.deadline = Some(limit);
        self.alarm.set_by(limit);
        self.limit_idle();
        self.publish_kept();
        if self.is_leaving() {
            self.send_away(&[index], now);
        } else if self.clients[index].readable {
            self.read(index, now);
        }
        self.watch(index);
    }

    pub(super) fn linger(&mut self, index: usize, now: Tick) {
        let limit = now + LINGER_LIMIT;
        let client = &mut self.clients[index];
        client.phase = ClientPhase::Lingering;
        client.deadline = Some(limit);
        client.input.clear();
        if let Some(connection) = &client.connection {
            shutdown_write(connection.socket());
        }
        self.alarm.set_by(limit);
        self.read(index, now);
    }

    pub(super) fn break_off(&mut self, index: usize, now: Tick) {
        self.flush(index, now);
        self.clients[index].is_gone = true;
        self.finish(index, now);
    }

    pub(super) fn lose_client(&mut self, index: usize) {
        match self.clients[index].phase {
            ClientPhase::Serving => {
                self.clients[index].is_gone = true;
                if let Some(output) = &mut self.clients[index].output {
                    output.abandon();
                }
                self.hang_up(index);
                self.tell_gone(index);
                let token = self.token(index);
                if std::mem::take(&mut self.clients[index].is_full) {
                    self.tell(EventKind::Writable, token);
                }
            }
            ClientPhase::Free => {}
            ClientPhase::Idle
            | ClientPhase::Reading
            | ClientPhase::Waiting
            | ClientPhase::Ending
            | ClientPhase::Rest
            | ClientPhase::Lingering => {
                self.close(index);
            }
        }
    }

    pub(super) fn answer_builtin(&mut self, index: usize, now: Tick) -> bool {
        let Some(connection) = self.clients[index].connection.as_deref() else {
            return false;
        };
        let params = connection.responder.params();
        let uri = params.get(b"SCRIPT_NAME").unwrap_or_default();
        let pool = &self.settings.pool;
        let begins = || self.slot_writer().stage(RequestStage::Executing);
        let taken = || builtin::of_pool(&self.settings, &self.board, self.listener.as_fd());
        let Some(answer) = builtin::of(pool, params, uri, begins, taken) else {
            return false;
        };
        let bytes = snapshot::encode(&answer, b"");
        match self.send(index, &bytes, When::Last, now) {
            Sent::Taken { count, is_full: true } => self.send_rest(index, &bytes[count..], now),
            Sent::Taken { .. } => {}
            Sent::Gone => self.finish(index, now),
        }
        true
    }

    fn send_rest(&mut self, index: usize, mut bytes: &[u8], now: Tick) {
        use crate::sys::socket::{Readiness, wait};
        while !bytes.is_empty() && !self.clients[index].is_gone {
            let Some(connection) = self.clients[index].connection.as_deref() else {
                break;
            };
            let timeout = self.settings.pool.serving.client_timeout;
            if !wait(connection.socket(), Readiness::Writable, timeout).is_ok_and(|ready| ready) {
                break;
            }
            self.flush(index, now);
            let count = self.put(index, bytes);
            bytes = &bytes[count..];
        }
        self.finish(index, now);
    }
}

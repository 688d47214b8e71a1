//! Reads from connections.

use super::super::request::description;
use super::client::{ClientPhase, Understood};
use super::events::EventKind;
use super::state::{READ_BYTES, WorkerState};
use crate::sys::process::peak_memory_bytes;
use crate::sys::socket::{Progress, receive};
use crate::tick::Tick;
use fastcgi::Params;
use nix::errno::Errno;
use std::time::Duration;

const AHEAD_BYTES: usize = 256 * 1024;
const REQUESTS_A_LOOK: u64 = 16;

/// The next piece of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// More will come.
    More,
    /// The last piece; may be empty.
    Last,
    /// Nothing yet; an event will follow.
    NotYet,
    /// The client is gone.
    Gone,
}

impl WorkerState {
    pub(super) fn read(&mut self, index: usize, now: Tick) {
        self.read_what_is_there(index, now);
        self.watch(index);
    }

    fn read_what_is_there(&mut self, index: usize, now: Tick) {
        loop {
            let client = &self.clients[index];
            if !client.readable || client.input_ended || !client.wants_input(AHEAD_BYTES) {
                return;
            }
            if client.phase == ClientPhase::Idle && !self.has_room() && self.router.is_none() {
                return self.pass_on(index, now);
            }
            let Some(connection) = self.clients[index].connection.as_deref() else {
                return;
            };
            let received = receive(connection.socket(), &mut self.scratch[..READ_BYTES]);
            match received {
                Ok(Progress::Done(0)) => return self.end_of_input(index),
                Ok(Progress::Done(count)) => {
                    let client = &mut self.clients[index];
                    client.readable = count == READ_BYTES || client.hangs_up;
                    self.take_bytes(index, count, now);
                }
                Ok(Progress::WouldBlock) => {
                    self.clients[index].readable = false;
                    return;
                }
                Err(error) => {
                    if error.errno != Errno::ECONNRESET {
                        log::warn!("a connection was closed: {error}");
                    }
                    return self.lose_client(index);
                }
            }
        }
    }

    fn take_bytes(&mut self, index: usize, count: usize, now: Tick) {
        let client = &mut self.clients[index];
        if let Some(connection) = &mut client.connection {
            connection.spoken = true;
        }
        if client.phase == ClientPhase::Lingering {
            return;
        }
        if client.input.is_empty() {
            let understood = client.understand(&self.scratch[..count]);
            client
                .input
                .extend_from_slice(&self.scratch[understood.used..count]);
            self.act(index, understood, now);
        } else {
            client.input.extend_from_slice(&self.scratch[..count]);
            self.reconsider(index, now);
        }
    }

    pub(super) fn reconsider(&mut self, index: usize, now: Tick) {
        let client = &mut self.clients[index];
        let input = std::mem::take(&mut client.input);
        let understood = client.understand(&input);
        client.input = input;
        client.input.drain(..understood.used);
        self.act(index, understood, now);
    }

    fn act(&mut self, index: usize, understood: Understood, now: Tick) {
        for reply in &understood.replies {
            self.reply(index, reply, now);
        }
        if let Some(violation) = understood.broken {
            log::warn!("a connection was closed: {violation}");
            if self.clients[index].phase == ClientPhase::Serving {
                return self.lose_client(index);
            }
            if let Some(reply) = violation.reply() {
                self.reply(index, &reply, now);
            }
            // Unread client data would reset the connection and drop the reply.
            return self.linger(index, now);
        }
        let client = &mut self.clients[index];
        match client.phase {
            ClientPhase::Idle | ClientPhase::Reading if understood.is_request => self.take_up(index, now),
            ClientPhase::Idle if !client.is_portable() => {
                client.phase = ClientPhase::Reading;
                let limit = now + self.settings.pool.serving.client_timeout;
                client.deadline = Some(limit);
                self.alarm.set_by(limit);
            }
            ClientPhase::Serving => {
                if understood.is_aborted {
                    self.tell_gone(index);
                } else if client.wants_body && (!client.body.is_empty() || client.body_ended) {
                    client.wants_body = false;
                    let token = self.token(index);
                    self.tell(EventKind::Body, token);
                }
            }
            ClientPhase::Reading if client.is_portable() => self.keep(index, now),
            ClientPhase::Rest if understood.is_request => self.close(index),
            ClientPhase::Rest if client.is_portable() => self.give_back(index),
            _ => {}
        }
    }

    fn take_up(&mut self, index: usize, now: Tick) {
        let may_start = !self.is_full();
        let client = &mut self.clients[index];
        client.deadline = None;
        if may_start && !self.is_working {
            self.start(index, now);
        } else {
            client.phase = ClientPhase::Waiting;
            self.waiting.push_back(index);
        }
    }

    pub(super) fn start(&mut self, index: usize, now: Tick) {
        self.in_flight += 1;
        // Unique, because the master identifies requests by this time.
        self.last_taken = now.max(self.last_taken + Duration::from_nanos(1));
        let taken = self.last_taken;
        let (mut recorder, mut output) = (self.recorder(), self.new_output());
        let limit = self
            .settings
            .pool
            .serving
            .request_terminate_timeout
            .map(|limit| now + limit);
        if let Some(limit) = limit {
            self.alarm.set_by(limit);
        }
        if self.counts_memory && self.served % REQUESTS_A_LOOK == 0 {
            self.peak_memory_bytes = peak_memory_bytes();
            self.slot_writer().memory(self.peak_memory_bytes);
        }
        let client = &mut self.clients[index];
        let Some(connection) = client.connection.as_deref_mut() else {
            return;
        };
        output.begin(connection.responder.request_id());
        if let Some(recorder) = &mut recorder {
            recorder.begin(now);
            recorder.memory(self.peak_memory_bytes);
            let peer = if recorder.wants_peer() {
                connection.peer()
            } else {
                None
            };
            let params = connection.responder.params();
            recorder.describe(&description(params), params, peer);
        }
        client.next_serial();
        client.phase = ClientPhase::Serving;
        client.taken = taken;
        client.expires = limit;
        client.output = Some(output);
        client.recorder = recorder;
        client.deadline = None;
        (client.wants_body, client.is_full, client.has_begun) = (false, false, false);
        (client.is_gone, client.told_gone, client.was_found) = (false, false, false);
        (client.sent, client.is_quiet) = (now, false);
        if let Some(due) = self.memory_due() {
            self.alarm.set_by(due.max(now));
        }
        self.settle(now);
        self.was_strained |= self.is_full();
        self.publish_load();
        self.show_new(index, now);
        if self.answer_builtin(index, now) {
            return;
        }
        let token = self.token(index);
        let client = &mut self.clients[index];
        if let Some(connection) = client.connection.as_deref() {
            let params = connection.responder.params();
            match &mut self.dispatch {
                Some(dispatch) => dispatch.give(token, params, &client.body, client.body_ended),
                None if self.is_native => {
                    self.events
                        .request(token, &Params::new(), &client.body, client.body_ended);
                }
                None => self
                    .events
                    .request(token, params, &client.body, client.body_ended),
            }
            client.body.clear();
        }
    }

    fn end_of_input(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.input_ended = true;
        match client.phase {
            ClientPhase::Serving => self.tell_gone(index),
            ClientPhase::Reading => {
                if !client.has_its_answer() {
                    log::warn!("a connection was closed: the client left in the middle of its request");
                }
                self.close(index);
            }
            ClientPhase::Idle => {
                self.close(index);
                self.publish_kept();
            }
            ClientPhase::Rest | ClientPhase::Lingering => self.close(index),
            ClientPhase::Free | ClientPhase::Waiting | ClientPhase::Ending => {}
        }
    }

    pub(super) fn tell_gone(&mut self, index: usize) {
        let token = self.token(index);
        let client = &mut self.clients[index];
        client.wants_body = false;
        if !std::mem::replace(&mut client.told_gone, true) {
            self.tell(EventKind::Gone, token);
        }
    }

    pub(super) fn next_piece(&mut self, index: usize, piece: &mut Vec<u8>, now: Tick) -> Piece {
        self.read(index, now);
        piece.clear();
        let client = &mut self.clients[index];
        if !client.body.is_empty() || client.body_ended {
            std::mem::swap(piece, &mut client.body);
            return if client.body_ended {
                Piece::Last
            } else {
                Piece::More
            };
        }
        if client.told_gone || client.input_ended || client.connection.is_none() {
            return Piece::Gone;
        }
        client.wants_body = true;
        Piece::NotYet
    }
}

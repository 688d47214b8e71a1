//! What comes on connections.

use super::super::request::description;
use super::desk::{Desk, READ_BYTES};
use super::events::Kind;
use super::place::{Phase, Understood};
use crate::sys::process::peak_memory_bytes;
use crate::sys::socket::{Progress, receive};
use crate::tick::Tick;
use nix::errno::Errno;
use std::time::Duration;

/// Bytes of a body that are read ahead of the application.
const AHEAD_BYTES: usize = 256 * 1024;
/// The peak of memory is looked at once in so many requests: it only grows, and asking is a system call.
const REQUESTS_A_LOOK: u64 = 16;

/// What the application is given of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// A piece, and more will come.
    More,
    /// The last piece, which may be empty.
    Last,
    /// Nothing is there yet; it will be told.
    NotYet,
    /// The client is gone.
    Gone,
}

impl Desk {
    /// Reads what is there and wanted.
    pub(super) fn read(&mut self, index: usize, now: Tick) {
        loop {
            let place = &self.places[index];
            if !place.readable || place.input_ended || !place.wants_input(AHEAD_BYTES) {
                return;
            }
            if place.phase == Phase::Idle && !self.has_room() && self.router.is_none() {
                return self.pass_on(index, now);
            }
            let Some(connection) = self.places[index].connection.as_deref() else {
                return;
            };
            let received = receive(connection.socket(), &mut self.scratch[..READ_BYTES]);
            match received {
                Ok(Progress::Done(0)) => return self.end_of_input(index),
                Ok(Progress::Done(count)) => {
                    let place = &mut self.places[index];
                    // Whatever comes after a read that was not full is told of anew.
                    place.readable = count == READ_BYTES || place.hangs_up;
                    self.take_bytes(index, count, now);
                }
                Ok(Progress::WouldBlock) => {
                    self.places[index].readable = false;
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

    /// So many bytes were read from a connection.
    fn take_bytes(&mut self, index: usize, count: usize, now: Tick) {
        let place = &mut self.places[index];
        if let Some(connection) = &mut place.connection {
            connection.spoken = true;
        }
        if place.phase == Phase::Lingering {
            return;
        }
        if place.input.is_empty() {
            let understood = place.understand(&self.scratch[..count]);
            place
                .input
                .extend_from_slice(&self.scratch[understood.used..count]);
            self.act(index, understood, now);
        } else {
            place.input.extend_from_slice(&self.scratch[..count]);
            self.reconsider(index, now);
        }
    }

    /// Understands what was read before and left.
    pub(super) fn reconsider(&mut self, index: usize, now: Tick) {
        let place = &mut self.places[index];
        let input = std::mem::take(&mut place.input);
        let understood = place.understand(&input);
        place.input = input;
        place.input.drain(..understood.used);
        self.act(index, understood, now);
    }

    fn act(&mut self, index: usize, understood: Understood, now: Tick) {
        for reply in &understood.replies {
            self.reply(index, reply, now);
        }
        if let Some(violation) = understood.broken {
            log::warn!("a connection was closed: {violation}");
            if self.places[index].phase == Phase::Serving {
                return self.lose_client(index);
            }
            if let Some(reply) = violation.reply() {
                self.reply(index, &reply, now);
            }
            // What the client has sent and nobody read would reset the connection, reply and all.
            return self.linger(index, now);
        }
        let place = &mut self.places[index];
        match place.phase {
            Phase::Idle | Phase::Reading if understood.is_request => self.take_up(index, now),
            Phase::Idle if !place.is_portable() => {
                place.phase = Phase::Reading;
                let limit = now + self.settings.pool.client_timeout;
                place.deadline = Some(limit);
                self.alarm.set_by(limit);
            }
            Phase::Serving => {
                if understood.is_aborted {
                    self.tell_gone(index);
                } else if place.wants_body && (!place.body.is_empty() || place.body_ended) {
                    place.wants_body = false;
                    let token = self.token(index);
                    let place = &mut self.places[index];
                    self.events.body(token, &place.body, place.body_ended);
                    place.body.clear();
                }
            }
            Phase::Reading if place.is_portable() => self.keep(index, now),
            // What the router would have to have back was understood already.
            Phase::Rest if understood.is_request => self.close(index),
            Phase::Rest if place.is_portable() => self.give_back(index),
            _ => {}
        }
    }

    /// A request is there.
    fn take_up(&mut self, index: usize, now: Tick) {
        let place = &mut self.places[index];
        place.deadline = None;
        if self.in_flight < self.limit && !self.is_working {
            self.start(index, now);
        } else {
            place.phase = Phase::Waiting;
            self.waiting.push_back(index);
        }
    }

    /// Gives a request to the application, or answers it if it is for the pool's status or ping path.
    pub(super) fn start(&mut self, index: usize, now: Tick) {
        self.in_flight += 1;
        // The master tells requests apart by when they were taken up.
        self.last_taken = now.max(self.last_taken + Duration::from_nanos(1));
        let taken = self.last_taken;
        let (mut recorder, mut output) = (self.recorder(), self.new_output());
        let limit = self
            .settings
            .pool
            .request_terminate_timeout
            .map(|limit| now + limit);
        if let Some(limit) = limit {
            self.alarm.set_by(limit);
        }
        if self.served % REQUESTS_A_LOOK == 0 {
            self.peak_memory_bytes = peak_memory_bytes();
            self.stamp().memory(self.peak_memory_bytes);
        }
        let place = &mut self.places[index];
        let Some(connection) = place.connection.as_deref_mut() else {
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
        place.serial = place.serial.wrapping_add(1);
        place.phase = Phase::Serving;
        place.taken = taken;
        place.expires = limit;
        place.output = Some(output);
        place.recorder = recorder;
        place.deadline = None;
        (place.wants_body, place.is_full, place.has_begun) = (false, false, false);
        (place.is_gone, place.told_gone, place.was_found) = (false, false, false);
        self.publish_load();
        self.show_new(index, now);
        if self.answer_builtin(index, now) {
            return;
        }
        let token = self.token(index);
        let place = &mut self.places[index];
        if let Some(connection) = place.connection.as_deref() {
            let params = connection.responder.params();
            self.events.request(token, params, &place.body, place.body_ended);
            place.body.clear();
        }
    }

    /// The client sends nothing more.
    fn end_of_input(&mut self, index: usize) {
        let place = &mut self.places[index];
        place.input_ended = true;
        match place.phase {
            Phase::Serving => self.tell_gone(index),
            Phase::Reading => {
                log::warn!("a connection was closed: the client left in the middle of its request");
                self.close(index);
            }
            Phase::Idle => {
                self.close(index);
                self.publish_kept();
            }
            Phase::Rest | Phase::Lingering => self.close(index),
            Phase::Free | Phase::Waiting | Phase::Ending => {}
        }
    }

    /// The application is told that its client is gone; what it writes is sent as long as that succeeds.
    pub(super) fn tell_gone(&mut self, index: usize) {
        let token = self.token(index);
        let place = &mut self.places[index];
        place.wants_body = false;
        if !std::mem::replace(&mut place.told_gone, true) {
            self.events.put(Kind::Gone, token);
        }
    }

    /// The next piece of a request's body, which is in `piece` then.
    pub(super) fn next_piece(&mut self, index: usize, piece: &mut Vec<u8>, now: Tick) -> Piece {
        self.read(index, now);
        piece.clear();
        let place = &mut self.places[index];
        if !place.body.is_empty() || place.body_ended {
            std::mem::swap(piece, &mut place.body);
            return if place.body_ended {
                Piece::Last
            } else {
                Piece::More
            };
        }
        if place.told_gone || place.input_ended || place.connection.is_none() {
            return Piece::Gone;
        }
        place.wants_body = true;
        Piece::NotYet
    }
}

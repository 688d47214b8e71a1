//! Reads from connections.

use super::super::access::Recorder;
use super::super::request::description;
use super::super::tally::AnswerStatus;
use super::super::triage;
use super::client::{AnswerPhase, RunningRequest};
use super::events::EventKind;
use super::state::{READ_BYTES, WorkerState};
use fastcgi::{Connection, Event, Params, Phase, Piece};
use forkyard_base::tick::Tick;
use forkyard_sys::socket::{Progress, receive, shutdown_write};
use nix::errno::Errno;
use std::time::Duration;

impl WorkerState {
    pub(super) fn read(&mut self, index: usize, now: Tick) {
        self.read_what_is_there(index, now);
        self.watch(index);
    }

    fn read_what_is_there(&mut self, index: usize, now: Tick) {
        loop {
            if self.sources.turns.is_some() && self.sends_to_other(index, now) {
                return;
            }
            let passes_on = !self.has_room() && !self.router.is_there();
            let client = &mut self.clients[index];
            let (Some(link), Some(connection)) = (&mut client.link, &mut client.connection) else {
                return;
            };
            if !link.readable || !connection.wants_input() {
                return;
            }
            if connection.phase() == Phase::Idle && passes_on {
                return self.pass_on(index, now);
            }
            match receive(link.socket.fd(), &mut self.scratch[..READ_BYTES]) {
                Ok(Progress::Done(0)) => {
                    link.readable = false;
                    let was_idle = connection.phase() == Phase::Idle;
                    let event = connection.end_of_input();
                    self.follow(index, event, now);
                    if was_idle {
                        self.publish_kept();
                    }
                    return;
                }
                Ok(Progress::Done(count)) => {
                    link.readable = count == READ_BYTES || link.hangs_up;
                    link.socket.spoken = true;
                    link.has_turn = false;
                    if let Some(counters) = self.page.counters() {
                        counters.transferred(count as u64, 0);
                    }
                    let event = connection.receive(&self.scratch[..count], now);
                    self.follow(index, event, now);
                }
                Ok(Progress::WouldBlock) => {
                    link.readable = false;
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

    /// Does what follows from something that has happened to a connection.
    pub(super) fn follow(&mut self, index: usize, event: Option<Event>, now: Tick) {
        if let Some(Event::Fault(fault)) = event {
            log::warn!("a connection was closed: {fault}");
            if self.clients[index].request.is_some() {
                return self.lose_client(index);
            }
        }
        if self.connection(index).is_some_and(|it| it.has_reply()) {
            self.flush(index, now);
        }
        self.heed_deadline(index);
        let Some(connection) = &self.clients[index].connection else {
            return;
        };
        match (connection.phase(), event) {
            (Phase::Closed, _) => self.close(index),
            (Phase::Lingering, Some(Event::Fault(_))) => self.shut_down(index),
            // A router has given it for one request.
            (Phase::Waiting, Some(Event::Request)) if self.had_its_request(index) => self.close(index),
            (Phase::Waiting, Some(Event::Request)) if self.is_full() || self.departure.life.is_working() => {
                if let Some(link) = &mut self.clients[index].link {
                    link.waits_since.get_or_insert(now);
                }
                self.clients.waiting.push_back(index);
            }
            (Phase::Waiting, Some(Event::Request)) => self.start(index, now),
            (Phase::Serving, Some(Event::Body)) => self.tell(EventKind::Body, self.clients.token(index)),
            (Phase::Serving, Some(Event::Gone)) => self.tell(EventKind::Gone, self.clients.token(index)),
            (Phase::Idle, Some(Event::Idle)) => self.keep(index, now),
            _ => {}
        }
    }

    /// Lets the client see that nothing more comes.
    pub(super) fn shut_down(&mut self, index: usize) {
        if let Some(link) = &self.clients[index].link {
            shutdown_write(link.socket.fd());
        }
    }

    pub(super) fn connection(&mut self, index: usize) -> Option<&mut Connection<Tick>> {
        self.clients[index].connection.as_deref_mut()
    }

    pub(super) fn start(&mut self, index: usize, now: Tick) {
        let (peak, is_measured) = self.wear.peak();
        if is_measured {
            self.slot_writer().memory(peak);
        }
        let spare = self.clients.spare_outputs.pop();
        let mut recorder = self.recorder();
        let client = &mut self.clients[index];
        let (Some(link), Some(connection)) = (&mut client.link, &mut client.connection) else {
            return;
        };
        connection.start(spare);
        let known = link.take_wait(now);
        self.release.apply(connection.params_mut(), &self.page);
        let mut times = triage::take_times(connection.params_mut(), &self.settings, now);
        times.known = known;
        let waited = times.waited.unwrap_or(known);
        let (params, socket) = (connection.params(), link.socket.fd());
        let dead = triage::judge(
            &self.settings,
            (&self.page, None),
            params,
            socket,
            (waited, &times),
            now,
        );
        if let Some(recorder) = &mut recorder {
            recorder.begin(now);
            recorder.memory(peak);
            let peer = if recorder.wants_peer() {
                link.socket.peer()
            } else {
                None
            };
            let params = connection.params();
            recorder.describe(&description(params), params, peer);
        }
        self.begin_request(index, recorder, None, now);
        if let Some(request) = &mut self.clients[index].request {
            request.waited = waited;
        }
        self.accepting.gauge.was_strained |= self.is_full();
        if let Some(dead) = dead {
            return self.die(index, dead, now);
        }
        if self.answer_builtin(index, now) {
            return;
        }
        let token = self.clients.token(index);
        let Some(connection) = self.clients[index].connection.as_deref_mut() else {
            return;
        };
        let (body, is_whole) = (connection.first_body(), connection.body_ended());
        match &mut self.dispatch {
            Some(dispatch) => dispatch.give(token, connection.params(), body, is_whole),
            None if self.accepting.concentrates() => {
                self.events.request(token, &Params::new(), body, is_whole)
            }
            None => self.events.request(token, connection.params(), body, is_whole),
        }
        connection.first_body_taken();
        if connection.has_left() {
            self.tell(EventKind::Gone, token);
        }
    }

    /// Counts, shows and limits a request. `params`: it has no connection.
    pub(super) fn begin_request(
        &mut self,
        index: usize,
        recorder: Option<Box<Recorder>>,
        params: Option<Box<Params>>,
        now: Tick,
    ) {
        self.capacity.in_flight += 1;
        let taken = self.shown.taken(now);
        let limit = self.settings.pool.serving.request_terminate_timeout;
        let expires = limit.map(|limit| now + limit);
        if let Some(due) = expires {
            self.alarm.set_by(due);
        }
        let client = &mut self.clients[index];
        client.next_serial();
        client.request = Some(RunningRequest {
            taken,
            expires,
            recorder,
            params,
            answer: AnswerPhase::Awaited,
            sent: now,
            is_quiet: false,
            was_found: false,
            waited: Duration::ZERO,
            status: AnswerStatus::default(),
            is_timed_out: false,
            dead: None,
            route: None,
        });
        self.find_route(index);
        if let Some(due) = self.memory_due() {
            self.alarm.set_by(due.max(now));
        }
        self.settle(now);
        self.publish_load();
        self.show_new(index, now);
    }

    fn find_route(&mut self, index: usize) {
        let (Some(counters), Some(params)) = (self.page.counters(), self.clients[index].params()) else {
            return;
        };
        let row = self.routes.find(counters, &description(params), params);
        if let Some(request) = &mut self.clients[index].request {
            request.route = Some(row);
        }
    }

    pub(super) fn next_piece(&mut self, index: usize, piece: &mut Vec<u8>, now: Tick) -> Piece {
        self.read(index, now);
        match self.connection(index) {
            Some(connection) => connection.next_piece(piece),
            None => Piece::Gone,
        }
    }
}

//! Accepts connections and passes them to siblings.

use super::super::acceptor::{is_short, pause};
use super::super::hand_off::{self, Departing};
use super::super::service_order::Waiting;
use super::super::stderr_errors;
use super::accepting::{Choice, OwnLoad};
use super::other::Queue;
use super::sources::{EDGE, LISTENER};
use super::state::WorkerState;
use crate::pool_view;
use fastcgi::Phase;
use forkyard_base::tick::Tick;
use forkyard_sys::socket::{Readiness, wait};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

const AT_ONCE: usize = 32;
/// The kernel wakes the first waiting worker in order of registration, so the fewest workers that suffice pass requests
/// on. If none waits, all get the event.
const ONE_OF_ALL: EpollFlags = EDGE.union(EpollFlags::EPOLLEXCLUSIVE);

impl WorkerState {
    pub(super) fn take_work(&mut self, now: Tick) {
        self.take_back(now);
        for _ in 0..AT_ONCE {
            if !self.has_room() {
                return;
            }
            if let Some(index) = self.clients.waiting.pop_front() {
                if self.clients[index].is_in(Phase::Waiting) {
                    self.start(index, now);
                    self.watch(index);
                } else {
                    self.read(index, now);
                }
            } else if self.accepting.queue_is_ready {
                self.accepting.queue_is_ready = self.take_message(Queue::HandOff, now);
            } else if self.accepting.turn_is_ready {
                self.accepting.turn_is_ready = self.take_message(Queue::Turn, now);
            } else if !self.accept_one(now) {
                return;
            }
        }
    }

    /// Takes a message of a queue. Returns false if there is none.
    pub(super) fn take_message(&mut self, queue: Queue, now: Tick) -> bool {
        let latest = hand_off::latest(&self.settings.pool, now);
        let queue_out = match (queue, &self.sources.turns) {
            (Queue::HandOff, _) => &self.sources.queue_out,
            (Queue::Turn, Some(turns)) => &turns.own_out,
            (Queue::OtherTurn, Some(turns)) => &turns.other_out,
            (Queue::Turn | Queue::OtherTurn, None) => return false,
        };
        let Some((note, connections)) = hand_off::receive(queue_out.as_fd(), latest) else {
            return false;
        };
        let mut is_poke = true;
        for (socket, expires) in connections {
            is_poke = false;
            let index = self.take_in(socket, now);
            let client = &mut self.clients[index];
            if let Some(link) = &mut client.link {
                link.socket.spoken = note.is_spoken;
                link.waits_since = note.waiting.map(|waiting| waiting.since);
                link.has_turn = queue != Queue::HandOff;
            }
            if let (Some(due), Some(connection)) = (expires, &mut client.connection) {
                connection.expect_by(due);
            }
            self.heed_deadline(index);
            self.read(index, now);
        }
        if is_poke && queue == Queue::Turn {
            (self.accepting.is_ready, self.accepting.is_poked) = (true, true);
        }
        self.publish_kept();
        true
    }

    /// Accepts a connection unless a sibling has less to do. Returns false if there is none to take.
    fn accept_one(&mut self, now: Tick) -> bool {
        if self.sources.turns.is_some() && self.leaves_to_other(now) {
            return false;
        }
        let own = OwnLoad {
            in_flight: self.capacity.in_flight,
            connections: self.clients.held(),
        };
        let connected = || pool_view::connected(&self.page.board, self.page.own);
        let choice = self.accepting.choose(own, self.page.siblings(), connected, now);
        let insists = match choice {
            Choice::Nothing => return false,
            Choice::Leave(due) => {
                let is_watched = self.dispatch.as_ref().is_none_or(|dispatch| dispatch.is_watched);
                if let Some(due) = due.filter(|_| is_watched) {
                    self.alarm.set_by(due);
                }
                return false;
            }
            Choice::Accept(insists) => insists,
        };
        let listener = self.sources.listener.as_fd();
        if self.accepting.gauge.sample_beside_many(listener, &self.page, now) {
            self.notifier.tell_crowded(&self.page);
        }
        let socket = match self.page.accept(&self.sources.listener) {
            Ok(Some(socket)) => {
                if insists {
                    self.accepting.was_let_down(now);
                }
                socket
            }
            Ok(None) => {
                self.accepting.found_none();
                return false;
            }
            Err(error) if is_short(&error) && self.close_longest_idle() => return true,
            Err(error) => {
                pause(&mut self.accepting.pause, &error);
                if let Some(due) = self.accepting.pause.deadline() {
                    self.alarm.set_by(due);
                }
                return false;
            }
        };
        self.admit(socket, now);
        true
    }

    fn admit(&mut self, socket: OwnedFd, now: Tick) {
        let pool = &self.settings.pool;
        if let Some(why) = self
            .accepting
            .gauge
            .admit(&self.page, &pool.listen, socket.as_fd())
        {
            if let Some(gate) = self.page.gate() {
                gate.accepted(now);
            }
            return stderr_errors::error(pool, &why);
        }
        let index = self.take_in(socket, now);
        let waited = self.page.gate().map(|gate| gate.accepted(now));
        if let (Some(link), Some(waited)) = (&mut self.clients[index].link, waited) {
            link.waited = waited;
        }
        self.read(index, now);
    }

    /// Starts or stops watching the listening socket. A worker that would get events in place of its siblings watches
    /// only while it can accept.
    pub(super) fn mind_listener(&mut self) -> nix::Result<()> {
        let may_take = !self.is_leaving() && !self.router.is_there();
        let is_wanted = may_take && (!self.accepting.concentrates() || self.has_room());
        if is_wanted != self.sources.is_listening {
            self.sources.is_listening = is_wanted;
            let flags = if self.accepting.concentrates() {
                ONE_OF_ALL
            } else {
                EDGE
            };
            match is_wanted {
                true => self
                    .sources
                    .epoll
                    .add(&self.sources.listener, EpollEvent::new(flags, LISTENER))?,
                false => self.sources.epoll.delete(&self.sources.listener)?,
            }
        }
        Ok(())
    }

    /// As [`WorkerState::mind_listener`]; events that only this worker got are passed to siblings.
    pub(super) fn update_listening(&mut self, now: Tick) {
        let was_listening = self.sources.is_listening;
        if let Err(errno) = self.mind_listener() {
            log::error!("the listening socket can't be watched: epoll_ctl: {errno}");
        }
        if !was_listening
            || self.sources.is_listening
            || !self.accepting.concentrates()
            || !self.accepting.is_ready
        {
            return;
        }
        for _ in 0..AT_ONCE {
            let Ok(Some(socket)) = self.page.accept(&self.sources.listener) else {
                break;
            };
            self.admit(socket, now);
        }
    }

    /// Closes the longest idle connections: the application and new connections need descriptors.
    pub(super) fn limit_idle(&mut self) {
        let held = self.clients.held();
        if held <= self.capacity.most_idle {
            return;
        }
        let beyond = self.clients.idle().len().saturating_sub(self.capacity.most_idle);
        for _ in 0..beyond {
            if !self.close_longest_idle() {
                return;
            }
        }
    }

    fn close_longest_idle(&mut self) -> bool {
        let idle = self.clients.iter().enumerate();
        let idle = idle.filter(|(_, client)| client.is_portable());
        let mut idle: Vec<(bool, Option<Tick>, usize)> = idle
            .filter_map(|(index, client)| {
                let link = client.link.as_ref()?;
                Some((!link.socket.spoken, client.deadline(), index))
            })
            .collect();
        idle.sort_unstable();
        let is_silent = |index: &usize| {
            let link = self.clients[*index].link.as_ref();
            link.is_some_and(|link| wait(link.socket.fd(), Readiness::Readable, Duration::ZERO) == Ok(false))
        };
        let Some(index) = idle.into_iter().map(|(_, _, index)| index).find(is_silent) else {
            return false;
        };
        self.close(index);
        self.publish_kept();
        true
    }

    /// Passes a request on to a sibling with room, if there is one.
    pub(super) fn pass_on(&mut self, index: usize, now: Tick) {
        let Some(link) = &mut self.clients[index].link else {
            return;
        };
        if !wait(link.socket.fd(), Readiness::Readable, Duration::ZERO).unwrap_or(true) {
            link.readable = false;
            return;
        }
        let may_go = self.page.board.slots() > 1 || self.is_leaving();
        if may_go && self.send_away(&[index], now) > 0 {
            return;
        }
        if !self.clients.waiting.contains(&index) {
            self.clients.waiting.push_back(index);
        }
    }

    pub(super) fn send_away(&mut self, clients: &[usize], now: Tick) -> usize {
        self.pass_to(Queue::HandOff, clients, now)
    }

    /// Sends connections to a queue. Returns how many.
    pub(super) fn pass_to(&mut self, queue: Queue, clients: &[usize], now: Tick) -> usize {
        let mut turn = None;
        let connections = clients.iter().filter_map(|&index| {
            let client = &self.clients[index];
            let link = client.link.as_ref().filter(|_| client.is_portable())?;
            let has_request = wait(link.socket.fd(), Readiness::Readable, Duration::ZERO) == Ok(true);
            let waiting = has_request.then(|| Waiting {
                since: now,
                turn: *turn.get_or_insert_with(|| pool_view::turn(&self.page.board, &self.sources.listener)),
            });
            Some(Departing {
                index,
                socket: link.socket.fd().as_raw_fd(),
                expires: client.deadline()?,
                is_spoken: has_request || link.socket.spoken,
                waiting,
            })
        });
        let queue_in = match (queue, &self.sources.turns) {
            (Queue::OtherTurn, Some(turns)) => &turns.other_in,
            _ => &self.sources.queue_in,
        };
        let sent = hand_off::send_all(queue_in.as_fd(), connections.collect());
        for index in &sent {
            self.hang_up(*index);
            self.clients.release(*index);
        }
        if !sent.is_empty() {
            self.publish_kept();
        }
        sent.len()
    }

    pub(super) fn relieve(&mut self, now: Tick) {
        if !self.page.siblings().any(|it| it.has_room) {
            return;
        }
        self.send_away(&self.clients.idle(), now);
    }
}

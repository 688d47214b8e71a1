//! How connections come in, and go to siblings.

use super::super::held::{self, Note};
use super::super::order::Waiting;
use super::super::said;
use super::desk::Desk;
use super::place::Phase;
use crate::listen::disallowed;
use crate::scoreboard::load::Load;
use crate::sys::fd::{MAX_PASSED, send_with};
use crate::sys::socket::{Readiness, accept, wait};
use crate::tick::Tick;
use crate::worker::outlook;
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

/// How long a connection is left to a sibling that has less to do. One that waits for events takes it within microseconds.
const YIELD: Duration = Duration::from_millis(1);
/// Most connections that are taken in at one turn of the event loop, whose requests wait meanwhile.
const AT_ONCE: usize = 32;
/// Errors of accept(2) when the process or the machine has no descriptor or memory left.
const SHORT: [Errno; 4] = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS];

impl Desk {
    /// Takes up what waits, as far as there is room: first what came first.
    pub(super) fn take_work(&mut self, now: Tick) {
        for _ in 0..AT_ONCE {
            if !self.has_room() {
                return;
            }
            if let Some(index) = self.waiting.pop_front() {
                match self.places[index].phase {
                    Phase::Waiting => self.start(index, now),
                    _ => self.read(index, now),
                }
            } else if self.queue_ready {
                self.take_message(now);
            } else if !self.accept_one(now) {
                return;
            }
        }
    }

    /// Takes a message out of the hand-over queue.
    fn take_message(&mut self, now: Tick) {
        let Some((note, sockets)) = held::receive(self.queue_out.as_fd()) else {
            self.queue_ready = false;
            return;
        };
        let pool = &self.settings.pool;
        let most = now + pool.client_timeout.max(pool.keepalive_timeout);
        let mut expires = note.expires.into_iter();
        for socket in sockets {
            let Some(index) = self.take_in(socket, now) else {
                continue;
            };
            let place = &mut self.places[index];
            if let Some(connection) = &mut place.connection {
                connection.spoken = note.is_spoken;
            }
            if let Some(due) = expires.next().map(|due| due.min(most)) {
                place.deadline = Some(due);
                self.alarm.set_by(due);
            }
            self.read(index, now);
        }
        self.publish_kept();
    }

    /// Accepts a connection, unless a sibling has less to do. False: there is none for this worker now.
    fn accept_one(&mut self, now: Tick) -> bool {
        if !self.listener_ready || self.router.is_some() || self.pause.deadline().is_some() {
            return false;
        }
        let insists = self.insists_at.is_some_and(|due| due <= now);
        if !insists && self.yields() {
            if self.insists_at.is_none() {
                self.insists_at = Some(now + YIELD);
                self.alarm.set_by(now + YIELD);
            }
            return false;
        }
        self.insists_at = None;
        let socket = match accept(self.listener.as_fd()) {
            Ok(Some(socket)) => socket,
            Ok(None) => {
                self.listener_ready = false;
                return false;
            }
            Err(error) => {
                if self.pause.begin(now) || !SHORT.contains(&error.errno) {
                    log::error!("can't accept a connection: {error}; trying again");
                }
                if let Some(due) = self.pause.deadline() {
                    self.alarm.set_by(due);
                }
                return false;
            }
        };
        self.accepted += 1;
        self.stamp().accepts(self.accepted);
        let pool = &self.settings.pool;
        if let Some(why) = disallowed(&pool.listen.allowed_clients, socket.as_fd()) {
            said::error(pool, &why);
            return true;
        }
        if let Some(index) = self.take_in(socket, now) {
            self.read(index, now);
        }
        true
    }

    /// Whether a connection is left to a sibling.
    fn yields(&self) -> bool {
        let own = Load {
            in_flight: u32::try_from(self.in_flight).unwrap_or(u32::MAX),
            has_room: true,
            is_told: true,
        };
        self.in_flight > 0 && own.yields_to(outlook::siblings(&self.board, self.teller.slot()))
    }

    /// A request has come on a connection, and there is no room for it: a sibling is to have it. Where there is none that
    /// could, it waits here.
    pub(super) fn pass_on(&mut self, index: usize, now: Tick) {
        let place = &mut self.places[index];
        let Some(connection) = place.connection.as_deref() else {
            return;
        };
        if !wait(connection.socket(), Readiness::Readable, Duration::ZERO).unwrap_or(true) {
            place.readable = false;
            return;
        }
        let may_go = self.board.slots() > 1 || self.is_leaving();
        if may_go && self.send_away(&[index], now) > 0 {
            return;
        }
        if !self.waiting.contains(&index) {
            self.waiting.push_back(index);
        }
    }

    /// Sends connections without a request that is known here to the hand-over queue, those on which one waits as such. Says
    /// how many went; those that can't go stay.
    pub(super) fn send_away(&mut self, places: &[usize], now: Tick) -> usize {
        let (mut requests, mut spoken, mut silent) = (Vec::new(), Vec::new(), Vec::new());
        for &index in places {
            let place = &self.places[index];
            let Some(connection) = place.connection.as_deref() else {
                continue;
            };
            if place.phase != Phase::Idle || !place.is_portable() {
                continue;
            }
            let waits = wait(connection.socket(), Readiness::Readable, Duration::ZERO);
            match (waits, connection.spoken) {
                (Ok(true), _) => requests.push(index),
                (_, true) => spoken.push(index),
                (_, false) => silent.push(index),
            }
        }
        let turn = match requests.is_empty() {
            true => 0,
            false => outlook::turn(&self.board, &self.listener),
        };
        let mut sent = 0;
        for index in requests {
            sent += self.send_group(&[index], true, Some(Waiting { since: now, turn }));
        }
        for (group, is_spoken) in [(silent, false), (spoken, true)] {
            for part in group.chunks(MAX_PASSED) {
                sent += self.send_group(part, is_spoken, None);
            }
        }
        if sent > 0 {
            self.publish_kept();
        }
        sent
    }

    fn send_group(&mut self, group: &[usize], is_spoken: bool, waiting: Option<Waiting>) -> usize {
        let sockets = group.iter().filter_map(|index| {
            let place = &self.places[*index];
            Some((place.connection.as_ref()?.socket().as_raw_fd(), place.deadline?))
        });
        let (numbers, expires): (Vec<RawFd>, Vec<Tick>) = sockets.unzip();
        let note = Note {
            is_spoken,
            waiting,
            expires,
        };
        let is_sent = numbers.len() == group.len()
            && send_with(self.queue_in.as_fd(), &note.encode(), &numbers).is_ok();
        if !is_sent {
            return 0;
        }
        for index in group {
            self.hang_up(*index);
            self.give_up(*index);
        }
        group.len()
    }

    /// The event loop is held up: siblings are to have the connections that wait for it.
    pub(super) fn relieve(&mut self, now: Tick) {
        let has_free = outlook::siblings(&self.board, self.teller.slot()).any(|it| it.has_room);
        if !has_free {
            return;
        }
        let is_idle = |index: &usize| self.places[*index].phase == Phase::Idle;
        let idle: Vec<usize> = (0..self.places.len()).filter(is_idle).collect();
        self.send_away(&idle, now);
    }
}

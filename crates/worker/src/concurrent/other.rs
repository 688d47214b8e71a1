//! Leaves requests to the other generation of the pool ([`super::super::turns`]).

use super::super::turns::MOMENT;
use super::state::WorkerState;
use fastcgi::Phase;
use forkyard_base::tick::Tick;
use forkyard_sys::socket::{Readiness, wait};
use std::os::fd::AsFd;
use std::time::Duration;

/// More connections are not left one after the other: the other generation may be slow to accept.
const MOST_LEFT: u32 = 12;

/// A queue that connections come from or go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    HandOff,
    /// The turn queue of this generation.
    Turn,
    /// The turn queue of the other generation.
    OtherTurn,
}

impl WorkerState {
    /// Whether a new connection is left to the other generation for now.
    pub(super) fn leaves_to_other(&mut self, now: Tick) -> bool {
        let Some(queues) = self.sources.turns.as_ref().filter(|_| self.accepting.may_look()) else {
            return false;
        };
        if self.accepting.is_poked || self.page.has_turn(now) {
            self.accepting.take_turn();
            return false;
        }
        if let Some(due) = self.accepting.turn_at {
            if due > now {
                return true;
            }
            if !wait(self.sources.listener.as_fd(), Readiness::Readable, Duration::ZERO).unwrap_or(true) {
                self.accepting.found_none();
                return true;
            }
            // The other generation takes connections, so this is the next one.
            if self.accepting.turns_left == MOST_LEFT || queues.other_has_message() {
                return false;
            }
            self.accepting.turns_left += 1;
        }
        queues.wake_other();
        let due = now + MOMENT;
        self.accepting.turn_at = Some(due);
        self.alarm.set_by(due);
        true
    }

    /// Sends a request on a kept connection to the other generation, outside of the turn of this one. Returns whether
    /// it is sent.
    pub(super) fn sends_to_other(&mut self, index: usize, now: Tick) -> bool {
        let client = &self.clients[index];
        let Some((link, queues)) = client.link.as_ref().zip(self.sources.turns.as_ref()) else {
            return false;
        };
        let is_kept = link.readable && link.socket.spoken && !link.has_turn && client.is_in(Phase::Idle);
        let may_go = is_kept && !self.router.is_there() && self.accepting.take_back_at.is_none();
        if !may_go || self.page.has_turn(now) || queues.other_has_message() {
            return false;
        }
        let has_request = wait(link.socket.fd(), Readiness::Readable, Duration::ZERO) == Ok(true);
        if !has_request || self.pass_to(Queue::OtherTurn, &[index], now) == 0 {
            return false;
        }
        let due = now + MOMENT;
        self.accepting.take_back_at = Some(due);
        self.alarm.set_by(due);
        true
    }

    /// Takes a request back that no worker of the other generation has taken.
    pub(super) fn take_back(&mut self, now: Tick) {
        if self.accepting.take_back_at.take_if(|due| *due <= now).is_none() {
            return;
        }
        let queues = self.sources.turns.as_ref();
        if queues.is_some_and(super::super::turns::TurnQueues::other_has_message) {
            self.take_message(Queue::OtherTurn, now);
        }
    }
}

//! Two generations of a pool share its requests ([`forkyard_scoreboard::turns`]).
//!
//! A worker that finds a new connection outside of its generation's turn wakes the other generation and leaves the
//! connection to it for a moment. It sends a request on a kept connection to the other generation's turn queue, and takes
//! the request back if no worker there took it. No request waits for longer than this moment.

use super::acceptor::{FIRST_KEEPALIVE, LISTENER};
use super::context::GenerationContext;
use forkyard_sys::fd::send_with;
use forkyard_sys::socket::{Readiness, wait};
use forkyard_sys::timeout::poll_timeout;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::epoll::EpollEvent;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long a request is left to the other generation.
pub(super) const MOMENT: Duration = Duration::from_millis(2);
const WAKE: [u8; 1] = [0];

/// The ends of the turn queues that a worker uses.
#[derive(Debug)]
pub(super) struct TurnQueues {
    pub(super) own_out: OwnedFd,
    pub(super) other_in: OwnedFd,
    /// To take requests back.
    pub(super) other_out: OwnedFd,
    /// The last look left requests to the other generation. The next look follows at once, and takes the remaining ones.
    pub(super) has_left: bool,
}

impl TurnQueues {
    /// `None`: the pool's requests are never shared.
    pub(super) fn new(turn: Option<u8>, ends: Option<[OwnedFd; 4]>) -> Option<TurnQueues> {
        let [out0, in0, out1, in1] = ends?;
        let (own_out, other_out, other_in) = match turn? % 2 {
            0 => (out0, out1, in1),
            _ => (out1, out0, in0),
        };
        Some(TurnQueues {
            own_out,
            other_in,
            other_out,
            has_left: false,
        })
    }

    /// Takes the queues out of a worker's context.
    pub(super) fn of(context: &mut GenerationContext) -> Option<TurnQueues> {
        TurnQueues::new(context.settings.turn, context.turns.take())
    }

    /// Wakes a worker of the other generation, unless a wake-up is there already.
    pub(super) fn wake_other(&self) {
        if !self.other_has_message() {
            let _ = send_with(self.other_in.as_fd(), &WAKE, &[]);
        }
    }

    pub(super) fn other_has_message(&self) -> bool {
        wait(self.other_out.as_fd(), Readiness::Readable, Duration::ZERO).unwrap_or(false)
    }

    /// Waits for a moment, or until the master or the other generation has a message.
    pub(super) fn pause(&self, stop_pipe: BorrowedFd<'_>) {
        let mut told = [
            PollFd::new(stop_pipe, PollFlags::POLLIN),
            PollFd::new(self.own_out.as_fd(), PollFlags::POLLIN),
        ];
        let _ = poll(&mut told, poll_timeout(MOMENT));
    }
}

/// The requests among the events: whether a connection is new, and the places of kept ones. `None`: other events have to
/// be handled, or there is none.
pub(super) fn requests_only(events: &[EpollEvent]) -> Option<(bool, Vec<usize>)> {
    let is_request = |event: &EpollEvent| event.data() == LISTENER || event.data() >= FIRST_KEEPALIVE;
    if events.is_empty() || !events.iter().all(is_request) {
        return None;
    }
    let places = events
        .iter()
        .filter_map(|event| event.data().checked_sub(FIRST_KEEPALIVE));
    let is_new = events.iter().any(|event| event.data() == LISTENER);
    Some((is_new, places.map(|place| place as usize).collect()))
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;

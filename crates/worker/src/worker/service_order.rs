//! The order of service: which of several requests that wait a worker serves next.
//!
//! Requests wait in three places: new connections in the listening socket, kept ones that were passed on in the hand-off
//! queue, and kept ones that this worker holds. Each of the three is in order by itself; this file merges them.
//!
//! Kept requests carry the time at which they were noticed. A new connection has no such time: the kernel doesn't tell when
//! it came. So a kept request is also given its **turn**: how many connections the pool will have accepted once all those
//! are served that waited when it was noticed. It is served when the pool has accepted that many.
//!
//! What bounds the time until a request is noticed, and seen by all workers, is a handful of limits, which add up to about a
//! millisecond: [`LOOK_INTERVAL`], [`STAY`] and [`TIMEOUT`]. Nothing here knows sockets, shared memory or a clock, and so
//! the simulation in `crates/core/tests/sim` runs it.

use crate::tick::Tick;
use std::time::Duration;

/// A worker that is never idle looks at all its sources at least this often.
pub const LOOK_INTERVAL: Duration = Duration::from_micros(200);
/// Requests that a worker can, as it seems, serve within this time stay with it; the others it passes on at once.
pub const STAY: Duration = Duration::from_micros(300);
/// How long a request runs, or another waits for it, before the worker's other requests are passed on.
pub const TIMEOUT: Duration = Duration::from_micros(600);
/// A worker to which new connections come one after the other gives the processor to others at least this often, between two
/// requests.
///
/// Else the kernel takes it at the end of a time slice of about a millisecond, mostly in the middle of a request, and that
/// request waits for as long as the others run. Measured with 8 clients on 2 processors: 99 % of the requests took at most
/// 0.6 ms instead of 0.8, and the longest took 5 ms instead of 40.
pub const RUN_INTERVAL: Duration = Duration::from_micros(50);
/// Most requests that stay, however short they are.
const MOST: usize = 16;

/// A request on a kept connection that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// When it was noticed.
    pub since: Tick,
    /// How many connections the pool will have accepted when its turn has come.
    pub turn: u64,
}

/// What is known of the listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListenQueueState {
    /// Connections that the pool has accepted so far.
    pub accepted: u64,
    /// Connections that wait to be accepted.
    pub waiting: u64,
}

/// What is served next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The first connection in the listening socket.
    Accept,
    /// The first request in the hand-off queue.
    Queue,
    /// The first request on a connection that the worker holds.
    Own,
    /// Nothing waits.
    Nothing,
}

impl ListenQueueState {
    /// The turn of a request that is noticed now: after all that wait.
    pub fn end(&self) -> u64 {
        self.accepted.saturating_add(self.waiting)
    }

    /// What it is once the pool has accepted so many, and still something waits.
    pub fn at(&self, accepted: u64) -> ListenQueueState {
        let more = accepted.saturating_sub(self.accepted);
        ListenQueueState {
            accepted,
            waiting: self.waiting.saturating_sub(more).max(1),
        }
    }

    /// Whether a connection that waits came before a request with this turn. Counts are what workers say, and are lost with
    /// an earlier generation; more than there are can't come before.
    fn has_before(&self, turn: u64) -> bool {
        let before = turn.saturating_sub(self.accepted);
        0 < before && before <= self.waiting
    }
}

/// Chooses. `line`: the listening socket, if connections wait there.
pub fn next(line: Option<ListenQueueState>, queue: Option<Waiting>, own: Option<Waiting>) -> Next {
    let (place, turn) = match (queue, own) {
        (Some(queue), Some(own)) if queue.since < own.since => (Next::Queue, queue.turn),
        (_, Some(own)) => (Next::Own, own.turn),
        (Some(queue), None) => (Next::Queue, queue.turn),
        (None, None) if line.is_some() => return Next::Accept,
        (None, None) => return Next::Nothing,
    };
    match line {
        Some(line) if line.has_before(turn) => Next::Accept,
        _ => place,
    }
}

/// How many of the requests that it holds a worker keeps for itself, the one that it is about to serve among them. `takes`:
/// how long a request takes, most likely. `second`: the one behind the first; where that has waited for so long that those
/// before it took longer, none stays but the first.
pub fn stays(takes: Duration, second: Option<Waiting>, now: Tick) -> usize {
    if second.is_some_and(|second| now.since(second.since) >= STAY) {
        return 1;
    }
    match takes.as_micros() {
        0 => MOST,
        micros => ((STAY.as_micros() / micros) as usize).clamp(1, MOST),
    }
}

/// When what a worker holds is to be passed on while a request runs: a while after that began, or after the oldest of the
/// others was noticed, if that is sooner.
pub fn passes_on_at(begun: Tick, oldest: Option<Waiting>) -> Tick {
    let first = oldest.map_or(begun, |oldest| oldest.since.min(begun));
    first + TIMEOUT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64, turn: u64) -> Option<Waiting> {
        let since = Tick::from_nanos(micros * 1_000);
        Some(Waiting { since, turn })
    }

    #[test]
    fn the_oldest_is_served() {
        let line = |accepted, waiting| Some(ListenQueueState { accepted, waiting });
        for (name, line, queue, own, next_is) in [
            ("nothing waits", None, None, None, Next::Nothing),
            ("one source", line(7, 1), None, None, Next::Accept),
            ("the queue's is older", None, at(1, 0), at(2, 0), Next::Queue),
            ("the own one is older", None, at(2, 0), at(1, 0), Next::Own),
            (
                "two connections came before",
                line(5, 2),
                None,
                at(1, 7),
                Next::Accept,
            ),
            ("one came before", line(6, 3), None, at(1, 7), Next::Accept),
            ("none came before", line(7, 3), None, at(1, 7), Next::Own),
            ("none, long ago", line(9, 3), at(1, 7), at(2, 8), Next::Queue),
            ("a count that can't be", line(1, 3), at(1, 700), None, Next::Queue),
        ] {
            assert_eq!(next(line, queue, own), next_is, "{name}");
        }
    }

    #[test]
    fn short_requests_stay_and_long_ones_go() {
        let now = Tick::from_nanos(9_000_000);
        let stays = |micros| super::stays(Duration::from_micros(micros), at(8_701, 0), now);
        assert_eq!([stays(0), stays(1), stays(30), stays(150)], [16, 16, 10, 2]);
        assert_eq!([stays(151), stays(300), stays(1_000_000)], [1, 1, 1]);
        assert_eq!(super::stays(Duration::ZERO, at(8_700, 0), now), 1);
        assert_eq!(super::stays(Duration::ZERO, None, now), 16);
    }

    #[test]
    fn a_line_moves_on() {
        let (accepted, waiting) = (3, 2);
        let line = ListenQueueState { accepted, waiting };
        assert_eq!(line.end(), 5);
        let [now, then] = [4, 9].map(|accepted| line.at(accepted));
        assert_eq!((now.accepted, now.waiting), (4, 1));
        assert_eq!((then.accepted, then.waiting), (9, 1), "at least one waits");
    }

    #[test]
    fn what_has_waited_is_passed_on_sooner() {
        let begun = Tick::from_nanos(5_000_000);
        assert_eq!(passes_on_at(begun, None), begun + TIMEOUT);
        assert_eq!(
            passes_on_at(begun, at(4_700, 0)),
            begun + Duration::from_micros(300)
        );
        assert_eq!(passes_on_at(begun, at(6_000, 0)), begun + TIMEOUT);
    }
}

//! The order of service: which waiting request a worker serves next.
//!
//! Requests wait in three queues, each in order: new connections in the listening socket, kept connections in the
//! hand-off queue, and kept connections held by this worker. This module merges them.
//!
//! Kept requests have the time of their discovery, but the kernel does not report when a new connection came. A kept request
//! therefore also has a **turn**: it is served once this many connections are accepted, that is all connections that were
//! accepted or waiting at its discovery.
//!
//! [`LOOK_INTERVAL`], [`STAY`] and [`TIMEOUT`] bound the time until discovery to about a millisecond. The code uses no
//! sockets, shared memory or clock; the simulation in `crates/core/tests/sim` runs it.

use forkyard_base::tick::Tick;
use std::time::Duration;

/// How often a worker that is never idle checks all sources.
pub const LOOK_INTERVAL: Duration = Duration::from_micros(200);
/// Requests that the worker can probably serve within this time stay; others are passed on.
pub const STAY: Duration = Duration::from_micros(300);
/// How long a request runs, or another waits for it, until the others are passed on.
pub const TIMEOUT: Duration = Duration::from_micros(600);
/// How often a worker with a steady stream of new connections yields the processor between requests.
///
/// Otherwise the kernel preempts it after a time slice of about a millisecond, mostly mid-request. Measured with 8
/// clients on 2 processors: the 99th percentile was 0.6 ms instead of 0.8, and the maximum 5 ms instead of 40.
pub const RUN_INTERVAL: Duration = Duration::from_micros(50);
const MOST: usize = 16;

/// A waiting request on a kept connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// When it was discovered.
    pub since: Tick,
    /// It is served once this many connections are accepted.
    pub turn: u64,
}

/// The state of the listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListenQueueState {
    /// Connections that the pool has accepted.
    pub accepted: u64,
    /// Connections in the backlog.
    pub waiting: u64,
}

/// What to serve next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The first connection in the backlog.
    Accept,
    /// The first request in the hand-off queue.
    Queue,
    /// The first request on a held connection.
    Own,
    Nothing,
}

impl ListenQueueState {
    /// The turn of a request discovered now.
    pub fn end(&self) -> u64 {
        self.accepted.saturating_add(self.waiting)
    }

    /// The state after more accepts, with something still waiting.
    pub fn at(&self, accepted: u64) -> ListenQueueState {
        let more = accepted.saturating_sub(self.accepted);
        ListenQueueState {
            accepted,
            waiting: self.waiting.saturating_sub(more).max(1),
        }
    }

    /// Whether a waiting connection came before this turn. Counts come from workers and end with their generation, so
    /// there may be fewer connections than the turn implies.
    fn has_before(&self, turn: u64) -> bool {
        let before = turn.saturating_sub(self.accepted);
        0 < before && before <= self.waiting
    }
}

/// Chooses. `line`: the listening socket, if connections wait.
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

/// How many requests a worker keeps, including the next. `takes`: the likely duration of a request. `second`: the
/// second request; if it has waited too long, only the first stays.
pub fn stays(takes: Duration, second: Option<Waiting>, now: Tick) -> usize {
    if second.is_some_and(|second| now.since(second.since) >= STAY) {
        return 1;
    }
    match takes.as_micros() {
        0 => MOST,
        micros => ((STAY.as_micros() / micros) as usize).clamp(1, MOST),
    }
}

/// When to pass on other requests during a request: some time after its start, or after the discovery of the oldest,
/// whichever is first.
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

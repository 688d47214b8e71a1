//! When a static pool is saturated: all its workers are busy and connections wait.
//!
//! ```text
//!          Heard, or all busy       All busy for half of
//!          and connections wait     the time, and connections wait
//!   Quiet ─────────────────▶ Suspected ─────────────────▶ Saturated
//!     ▲                          │                            │
//!     └──────────────────────────┴────────────────────────────┘
//!                Otherwise                    Otherwise, twice in a row
//! ```
//!
//! In Quiet there is no timer: a worker that measures the queue reports. Workers that never finish report nothing, so
//! the master also looks when somebody reads its numbers or events. One report or look is not enough: a queue is normal
//! for a moment.

use forkyard_base::tick::Tick;
use std::time::Duration;

/// The time between two looks at a pool that may be saturated.
const LOOK: Duration = Duration::from_secs(1);
/// Looks without saturation that end it.
const CALM: u8 = 2;

/// What the master sees of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sight {
    /// How long all workers were busy at the same time until now, in nanoseconds.
    pub saturated_ns: u64,
    /// How long they all have been busy now.
    pub all_busy_for: Duration,
    /// Whether connections wait.
    pub has_queue: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Quiet,
    Suspected,
    Saturated {
        calm: u8,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Begun,
    Over,
}

/// A pool's state, and the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Saturation {
    state: State,
    looked: Tick,
    saturated_ns: u64,
}

impl Saturation {
    /// Whether a worker must report that it sees a queue.
    pub fn wants_report(&self) -> bool {
        self.state == State::Quiet
    }

    /// When to look again.
    pub fn deadline(&self) -> Option<Tick> {
        (!self.wants_report()).then(|| self.looked + LOOK)
    }

    /// A worker has reported, which it may do at any time. The next look decides.
    pub fn heard(&mut self, saturated_ns: u64, now: Tick) {
        if self.state == State::Quiet {
            *self = Saturation {
                state: State::Suspected,
                looked: now,
                saturated_ns,
            };
        }
    }

    /// Looks at the pool.
    pub fn look(&mut self, sight: Sight, now: Tick) -> Option<Change> {
        let passed = now.since(self.looked);
        let busy = Duration::from_nanos(sight.saturated_ns.saturating_sub(self.saturated_ns));
        let is_long = sight.all_busy_for >= LOOK;
        let is_crowded = sight.has_queue && (is_long || (passed >= LOOK / 2 && busy * 2 >= passed));
        let (state, change) = match (self.state, is_crowded) {
            (State::Quiet, true) if is_long => (State::Saturated { calm: 0 }, Some(Change::Begun)),
            (State::Quiet, _) if sight.has_queue && !sight.all_busy_for.is_zero() => (State::Suspected, None),
            (State::Quiet, _) => return None,
            // Somebody reads more often than the timer.
            (State::Suspected | State::Saturated { .. }, false) if passed < LOOK => return None,
            (State::Suspected, true) => (State::Saturated { calm: 0 }, Some(Change::Begun)),
            (State::Suspected, false) => (State::Quiet, None),
            (State::Saturated { .. }, true) => (State::Saturated { calm: 0 }, None),
            (State::Saturated { calm }, false) if calm + 1 < CALM => {
                (State::Saturated { calm: calm + 1 }, None)
            }
            (State::Saturated { .. }, false) => (State::Quiet, Some(Change::Over)),
        };
        *self = Saturation {
            state,
            looked: now,
            saturated_ns: sight.saturated_ns,
        };
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    fn sight(saturated_ms: u64, has_queue: bool) -> Sight {
        Sight {
            saturated_ns: saturated_ms * 1_000_000,
            all_busy_for: Duration::ZERO,
            has_queue,
        }
    }

    #[test]
    fn a_moment_is_no_saturation_and_has_one_look() {
        let mut pool = Saturation::default();
        assert_eq!((pool.wants_report(), pool.deadline()), (true, None));
        pool.heard(5 * SECOND, at(9_000));
        pool.heard(5 * SECOND, at(9_900));
        assert_eq!((pool.wants_report(), pool.deadline()), (false, Some(at(10_000))));
        assert_eq!(pool.look(sight(5_400, true), at(10_000)), None);
        assert_eq!((pool.wants_report(), pool.deadline()), (true, None));
    }

    #[test]
    fn it_begins_and_ends_once() {
        let mut pool = Saturation::default();
        pool.heard(0, at(0));
        let mut changes = Vec::new();
        // Each second: how much of it all workers were busy, and whether a connection waits at its end.
        let seconds = [
            (900, true),
            (400, true),
            (700, true),
            (1000, false),
            (600, true),
            (900, false),
            (0, false),
        ];
        let mut saturated = 0;
        for (second, (busy, has_queue)) in (1_u64..).zip(seconds) {
            saturated += busy;
            let change = pool.look(sight(saturated, has_queue), at(second * 1000));
            changes.extend(change.map(|change| (second, change)));
        }
        assert_eq!(changes, [(1, Change::Begun), (7, Change::Over)]);
        assert_eq!(pool.deadline(), None);
    }

    #[test]
    fn a_pool_whose_workers_all_hang_is_found_by_a_look() {
        let mut pool = Saturation::default();
        let hangs = |millis: u64, has_queue: bool| Sight {
            saturated_ns: millis * 1_000_000,
            all_busy_for: Duration::from_millis(millis),
            has_queue,
        };
        assert_eq!(pool.look(hangs(5_000, false), at(5_000)), None);
        assert!(pool.wants_report());
        assert_eq!(pool.look(hangs(6_000, true), at(6_000)), Some(Change::Begun));
        for now in 7..100 {
            assert_eq!(pool.look(hangs(now * 1000, true), at(now * 1000)), None);
        }
        let mut fresh = Saturation::default();
        assert_eq!(fresh.look(hangs(300, true), at(300)), None);
        assert_eq!(fresh.deadline(), Some(at(1_300)));
        assert_eq!(fresh.look(hangs(400, true), at(400)), None, "too early");
        assert_eq!(fresh.look(hangs(1_300, true), at(1_300)), Some(Change::Begun));
    }

    #[test]
    fn nonsense_does_no_harm() {
        let mut pool = Saturation::default();
        pool.heard(u64::MAX, at(0));
        assert_eq!(pool.look(sight(0, true), at(1_000)), None);
        pool.heard(0, at(1_000));
        assert_eq!(
            pool.look(
                Sight {
                    saturated_ns: u64::MAX,
                    ..sight(0, true)
                },
                at(2_000)
            ),
            Some(Change::Begun)
        );
    }
}

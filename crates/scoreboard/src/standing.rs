//! Controlled delay: whether a queue stands, so that all requests wait too long.
//!
//! A pool with more requests than it can answer has a queue that never ends. Every request waits for longer than the
//! bound, until requests that have waited so long are refused. A burst ends by itself, and is served.

use forkyard_base::tick::Tick;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MILLI: Duration = Duration::from_millis(1);
/// Bound and interval, if it is unknown how long requests take.
const UNKNOWN: Bound = Bound {
    most: Duration::from_secs(2),
    interval: Duration::from_secs(5),
};

/// How long requests may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// A queue of longer waits may stand.
    pub most: Duration,
    /// How long all must have waited longer until the queue stands.
    pub interval: Duration,
}

impl Bound {
    /// Longer waits are refused while the queue stands: the clients wait for the request, too.
    pub fn refused(self) -> Duration {
        self.most / 2
    }

    /// Returns the bound for requests that usually take this time; zero: unknown.
    pub fn of(usual: Duration) -> Bound {
        if usual.is_zero() {
            return UNKNOWN;
        }
        Bound {
            most: (usual * 2).clamp(MILLI * 200, MILLI * 2_000),
            interval: (usual * 4).clamp(MILLI * 1_000, MILLI * 5_000),
        }
    }
}

/// How many intervals a queue that stood is remembered: the next long wait counts at once.
const MEMORY: u32 = 2;

/// Since when and until when all requests that were taken had waited too long. Zero since: not so; until is then the
/// end of the last queue that stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    pub since: Tick,
    pub until: Tick,
}

impl Standing {
    /// Returns the state after a request is taken, and whether the queue stands.
    pub fn take(self, waited: Duration, bound: Bound, now: Tick) -> (Standing, bool) {
        let runs = self.since != Tick::ZERO;
        let stood = runs && self.until.since(self.since) >= bound.interval;
        // Refusals keep the waits near the bound, and do not end the queue.
        let is_short = match stood {
            true => waited <= bound.refused() / 2,
            false => waited <= bound.most,
        };
        if is_short {
            let until = match stood {
                true => now,
                false if runs => Tick::ZERO,
                false => self.until,
            };
            return (
                Standing {
                    since: Tick::ZERO,
                    until,
                },
                false,
            );
        }
        // A request that came long after the last one is no evidence for the time between them.
        let is_continued = runs && now.since(self.until) <= waited.saturating_add(bound.interval);
        let is_remembered =
            !runs && self.until != Tick::ZERO && now.since(self.until) <= bound.interval * MEMORY;
        let since = match (is_continued, is_remembered) {
            (true, _) => self.since.min(now),
            (false, true) => now - bound.interval,
            (false, false) => now,
        };
        let next = Standing { since, until: now };
        (next, now.since(since) >= bound.interval)
    }
}

/// Counts the wait of a request that is taken, in two words of shared memory: since and until. Returns the bound if the
/// queue stands.
pub(super) fn count(
    (since, until): (&AtomicU64, &AtomicU64),
    waited: Duration,
    bound: Bound,
    now: Tick,
) -> Option<Bound> {
    let before = Standing {
        since: Tick::from_nanos(since.load(Ordering::Relaxed)),
        until: Tick::from_nanos(until.load(Ordering::Relaxed)),
    };
    let (next, stands) = before.take(waited, bound, now);
    if next != before {
        until.store(next.until.as_nanos(), Ordering::Relaxed);
        since.store(next.since.as_nanos(), Ordering::Relaxed);
    }
    stands.then_some(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    fn all(takes: &[(u64, u64, bool)]) {
        let bound = Bound::of(MILLI * 500);
        let mut standing = Standing::default();
        for (now, waited, stands) in takes {
            let (next, is) = standing.take(MILLI * u32::try_from(*waited).unwrap(), bound, at(*now));
            assert_eq!(is, *stands, "{now}");
            standing = next;
        }
    }

    #[test]
    fn bounds_follow_the_usual_time() {
        for (usual, most, interval) in [
            (0, 2_000, 5_000),
            (1, 200, 1_000),
            (500, 1_000, 2_000),
            (9_000, 2_000, 5_000),
        ] {
            let bound = Bound::of(MILLI * usual);
            assert_eq!(
                (bound.most, bound.interval),
                (MILLI * most, MILLI * interval),
                "{usual}"
            );
        }
    }

    #[test]
    fn a_queue_stands_after_the_interval_and_ends_with_a_short_wait() {
        all(&[
            (10_000, 1_001, false),
            (11_000, 1_500, false),
            (12_000, 2_000, true),
            (12_100, 500, true),
            (12_200, 250, false),
            (12_300, 1_000, false),
            (12_400, 1_001, true),
            (12_500, 200, false),
            (32_501, 1_001, false),
        ]);
    }

    #[test]
    fn one_short_wait_begins_the_interval_again() {
        all(&[
            (10_000, 1_001, false),
            (11_999, 1_000, false),
            (12_001, 1_500, false),
        ]);
    }

    #[test]
    fn two_long_waits_with_a_quiet_time_between_them_are_no_standing_queue() {
        all(&[
            (10_000, 1_500, false),
            (60_000, 1_500, false),
            (62_000, 3_000, true),
        ]);
        all(&[(10_000, 1_500, false), (60_000, 55_000, true)]);
    }
}

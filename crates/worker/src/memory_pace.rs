//! When to check a worker's memory, and when to measure it exactly.
//!
//! A check takes a microsecond but counts shared pages in full. An exact measurement makes the kernel walk all pages.
//! A worker checks after requests, more often the faster it grows and the less room is left. It measures exactly only near
//! the limit.

use forkyard_base::tick::Tick;
use std::time::Duration;

const MOST_REQUESTS: u64 = 8;
const MOST_TIME: Duration = Duration::from_secs(1);
/// How long the measured share is trusted if resident memory exceeds the limit: when other processes exit, the worker's
/// part grows.
const BELIEVED: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    limit: u64,
    resident: u64,
    /// Bytes that a request adds.
    growth: u64,
    /// Resident bytes that belong to other processes.
    shared: u64,
    /// Requests since the last check.
    since: u64,
    /// Requests until the next check.
    until: u64,
    looked: Tick,
    weighed: Tick,
}

impl Pace {
    pub(super) fn new(limit: u64, resident: u64, now: Tick) -> Pace {
        Pace {
            limit,
            resident,
            growth: 0,
            shared: 0,
            since: 0,
            until: 1,
            looked: now,
            weighed: now,
        }
    }

    pub(super) fn is_due(&mut self, now: Tick) -> bool {
        self.since += 1;
        self.since >= self.until || self.is_late(now)
    }

    pub(super) fn is_late(&self, now: Tick) -> bool {
        now >= self.late_at()
    }

    pub(super) fn late_at(&self) -> Tick {
        self.looked + MOST_TIME
    }

    /// Records the resident bytes. Returns true if an exact measurement is needed.
    pub(super) fn see(&mut self, resident: u64, now: Tick) -> bool {
        let added = resident.saturating_sub(self.resident) / self.since.max(1);
        self.growth = added.max(self.growth - self.growth / 8);
        (self.resident, self.since, self.looked) = (resident, 0, now);
        let used = resident.saturating_sub(self.shared);
        // At most half of the room is used before the next check.
        let room = self.limit.saturating_sub(used) / 2;
        self.until = (room / self.growth.max(1)).clamp(1, MOST_REQUESTS);
        used > self.limit || (resident > self.limit && now.since(self.weighed) >= BELIEVED)
    }

    pub(super) fn weigh(&mut self, used: u64, now: Tick) -> bool {
        self.weighed = now;
        self.shared = self.resident.saturating_sub(used);
        used > self.limit
    }

    pub(super) fn is_stale(&self, now: Tick) -> bool {
        now.since(self.weighed) >= BELIEVED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(1_000_000_000 + millis * 1_000_000)
    }

    fn requests(pace: &mut Pace, now: Tick) -> u64 {
        (1..).find(|_| pace.is_due(now)).unwrap()
    }

    #[test]
    fn the_first_request_is_followed_by_a_look_and_then_every_eighth() {
        let mut pace = Pace::new(100 * MIB, 20 * MIB, at(0));
        assert_eq!(requests(&mut pace, at(1)), 1);
        assert!(!pace.see(20 * MIB, at(1)));
        assert_eq!(requests(&mut pace, at(2)), MOST_REQUESTS);
    }

    #[test]
    fn the_less_room_is_left_and_the_more_requests_add_the_sooner_it_looks() {
        for (room, growth, until) in [
            (80, 0, 8),
            (80, 5, 8),
            (80, 10, 4),
            (40, 40, 1),
            (20, 5, 2),
            (1, 1, 1),
            (0, 9, 1),
        ] {
            let mut pace = Pace::new(100 * MIB, (100 - room - growth.min(100 - room)) * MIB, at(0));
            assert_eq!(requests(&mut pace, at(1)), 1);
            assert!(!pace.see((100 - room) * MIB, at(1)));
            assert_eq!(requests(&mut pace, at(2)), until, "{room} {growth}");
        }
    }

    #[test]
    fn a_worker_that_grows_is_found_within_a_request_or_half_of_the_room() {
        for growth in [1, 3, 7, 10, 33, 64, 90, 200] {
            let mut pace = Pace::new(100 * MIB, 20 * MIB, at(0));
            let mut resident = 20 * MIB;
            let found = (1..1000).find(|_| {
                resident += growth * MIB;
                pace.is_due(at(1)) && pace.see(resident, at(1)) && pace.weigh(resident, at(1))
            });
            assert!(found.is_some(), "{growth}");
            assert!(resident <= (100 + growth) * MIB, "{growth}: {resident}");
        }
    }

    #[test]
    fn a_worker_that_begins_to_grow_is_found_after_a_few_requests() {
        let mut pace = Pace::new(100 * MIB, 20 * MIB, at(0));
        for _ in 0..1000 {
            if pace.is_due(at(1)) {
                assert!(!pace.see(20 * MIB, at(1)));
            }
        }
        let mut resident = 20 * MIB;
        let found = (1..100).find(|_| {
            resident += 20 * MIB;
            pace.is_due(at(2)) && pace.see(resident, at(2))
        });
        assert!(found.unwrap() <= 4 + MOST_REQUESTS, "{found:?}");
    }

    #[test]
    fn a_second_is_the_longest_between_two_looks() {
        let mut pace = Pace::new(100 * MIB, 20 * MIB, at(0));
        assert!(pace.is_due(at(0)) && !pace.see(20 * MIB, at(0)));
        assert!(!pace.is_late(at(999)) && !pace.is_due(at(999)));
        assert!(pace.is_late(at(1000)) && pace.is_due(at(1000)));
        assert_eq!(pace.late_at(), at(1000));
    }

    #[test]
    fn what_is_shared_is_taken_off_until_others_may_have_left() {
        let mut pace = Pace::new(100 * MIB, 90 * MIB, at(0));
        assert!(pace.see(120 * MIB, at(10)), "it may use more than its limit");
        assert!(!pace.weigh(50 * MIB, at(10)), "most of it is others'");
        assert!(!pace.see(130 * MIB, at(20)) && !pace.see(169 * MIB, at(30)));
        assert!(pace.see(171 * MIB, at(40)), "101 are its own");
        assert!(pace.weigh(101 * MIB, at(40)));
        assert!(!pace.weigh(100 * MIB, at(50)), "as much as it may");
        assert!(!pace.see(120 * MIB, at(5049)) && pace.see(120 * MIB, at(5050)));
        assert!(!pace.is_stale(at(5049)) && pace.is_stale(at(5050)));
        assert!(!pace.see(99 * MIB, at(9000)), "all of it is less than the limit");
    }
}

//! Limits how many workers that crash at work are replaced at once. A request that crashes its worker does not predict the
//! fate of the next worker, so that one is forked without delay, as in php-fpm. The limit bounds the cost of a request
//! that always crashes and is sent all the time: a fork takes about a millisecond of CPU time.

use forkyard_base::tick::Tick;
use std::time::Duration;

/// The least limit, per second and generation: a few percent of a processor.
pub(super) const AT_LEAST: u32 = 32;

/// A token bucket: it holds the tokens of one second.
#[derive(Debug, Default)]
pub(super) struct Budget {
    pub(super) per_second: u32,
    /// When it is full again.
    full: Tick,
    /// Whether the log reported an empty bucket.
    said: bool,
}

impl Budget {
    pub(super) fn of(per_second: u32) -> Budget {
        Budget {
            per_second,
            ..Budget::default()
        }
    }

    /// `max_children`, since all may crash at once, and at least [`AT_LEAST`].
    pub(super) fn new(max_children: u32) -> Budget {
        Budget::of(max_children.max(AT_LEAST))
    }

    /// Spends a token. Returns a wait if it has to be logged.
    pub(super) fn spend(&mut self, now: Tick) -> Option<Duration> {
        if self.full <= now {
            (self.full, self.said) = (now, false);
        }
        self.full = self.full + Duration::from_secs(1) / self.per_second;
        let wait = self.wait(now).filter(|_| !self.said);
        self.said |= wait.is_some();
        wait
    }

    pub(super) fn wait(&self, now: Tick) -> Option<Duration> {
        let ahead = self.full.since(now);
        ahead
            .checked_sub(Duration::from_secs(1))
            .filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_second_s_worth_is_replaced_at_once_and_then_so_many_a_second() {
        let mut budget = Budget::new(2);
        for crash in 0..AT_LEAST {
            assert_eq!((budget.spend(at(5)), budget.wait(at(5))), (None, None), "{crash}");
        }
        let token = Duration::from_secs(1) / AT_LEAST;
        assert_eq!(budget.spend(at(5)), Some(token));
        assert_eq!(budget.spend(at(5)), None, "said once");
        assert_eq!(budget.wait(at(5)), Some(token * 2));
        assert_eq!(budget.wait(at(5) + token * 2), None);
        assert_eq!(budget.spend(at(5_000)), None, "full again");
    }

    #[test]
    fn no_crew_that_crashes_as_a_whole_waits_longer_than_a_second() {
        for max_children in [1, 32, 500] {
            let mut budget = Budget::new(max_children);
            for _ in 0..budget.per_second + max_children {
                budget.spend(at(1));
            }
            assert!(budget.wait(at(1)) <= Some(Duration::from_secs(1)));
        }
    }

    #[test]
    fn over_any_time_no_more_are_made_than_the_budget_has() {
        let mut budget = Budget::new(4);
        let (mut crashes, mut now) = (0, at(0));
        while now < at(10_000) {
            match budget.wait(now) {
                None => {
                    budget.spend(now);
                    crashes += 1;
                }
                Some(wait) => now = now + wait,
            }
        }
        assert!(crashes <= 11 * AT_LEAST + 1, "{crashes} in 10 s");
    }
}

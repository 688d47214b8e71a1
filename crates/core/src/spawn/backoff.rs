//! How long an application that fails to start is not tried again.

use super::report::ErrorId;
use crate::tick::Tick;
use std::time::Duration;

/// The delay after the second failure in a row; each further one doubles it. After the first there is none: the next
/// request tries again at once.
const FIRST: Duration = Duration::from_millis(100);
/// The longest delay.
const LONGEST: Duration = Duration::from_secs(30);

/// The back-off of one application, from its first failure until it succeeds.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    failed: Option<Tick>,
    until: Option<Tick>,
    last: Option<ErrorId>,
}

impl Backoff {
    /// A journey that began at `started` failed. Journeys that were under way together fail as one.
    pub(super) fn fail(&mut self, started: Tick, now: Tick, id: ErrorId) {
        self.last = Some(id);
        if self.failed.is_some_and(|failed| started < failed) {
            return;
        }
        self.failed = Some(now);
        self.failures = self.failures.saturating_add(1);
        if let Some(doublings) = self.failures.checked_sub(2) {
            let delay = FIRST.saturating_mul(1 << doublings.min(16)).min(LONGEST);
            self.until = Some(now + delay);
        }
    }

    /// The last error, while nothing is to be tried because of it.
    pub(super) fn holds(&self, now: Tick) -> Option<ErrorId> {
        self.last.filter(|_| self.until.is_some_and(|until| until > now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn delays_double_and_journeys_that_fail_together_are_one() {
        let mut backoff = Backoff::default();
        backoff.fail(tick(0), tick(10), ErrorId(1));
        assert_eq!(backoff.holds(tick(10)), None);
        backoff.fail(tick(5), tick(11), ErrorId(2));
        assert_eq!(backoff.holds(tick(11)), None);
        backoff.fail(tick(20), tick(30), ErrorId(3));
        assert_eq!(backoff.holds(tick(129)), Some(ErrorId(3)));
        assert_eq!(backoff.holds(tick(130)), None);
        backoff.fail(tick(130), tick(131), ErrorId(4));
        assert_eq!(backoff.holds(tick(330)), Some(ErrorId(4)));
        for round in 0..100 {
            backoff.fail(tick(1000 + round), tick(1000 + round), ErrorId(5));
        }
        assert_eq!(backoff.holds(tick(31_200)), None);
    }
}

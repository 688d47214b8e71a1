//! How long to wait before a process is made again, after some could not be made or did not live. It is one table for everything
//! that is started: 100 ms at first, doubled with each failure up to a minute, and from the beginning again after a minute of life.

use crate::tick::Tick;
use std::time::Duration;

/// The first delay; each further step doubles it.
pub const FIRST: Duration = Duration::from_millis(100);

/// The longest delay.
pub const LONGEST: Duration = Duration::from_secs(60);

/// What lived this long was well.
pub const WELL_AFTER: Duration = Duration::from_secs(60);

/// The longest delay when workers die within such a time after they were up, without having taken up any work: others may serve.
pub const LONGEST_ONCE_UP: Duration = Duration::from_secs(1);

/// The back-off of a generation's workers, of a process of a program, of an application or of a helper.
#[derive(Debug, Clone, Copy, Default)]
pub struct Backoff {
    step: u32,
    failed: Option<Tick>,
    until: Option<Tick>,
    /// Since when there is no failure and something has been up.
    well: Option<Tick>,
}

impl Backoff {
    /// Something failed. A new delay if that begins a step; nothing while one runs, so that a hundred workers that die
    /// together are one step.
    pub fn fail(&mut self, now: Tick, longest: Duration) -> Option<Duration> {
        self.failed = Some(now);
        if self.wait(now).is_some() {
            return None;
        }
        // What came up after the last failure has long been well, even if it was replaced in order meanwhile.
        if self.well.take().is_some_and(|well| now.since(well) >= WELL_AFTER) {
            self.step = 0;
        }
        let delay = FIRST.saturating_mul(1 << self.step.min(16)).min(longest);
        self.step = self.step.saturating_add(1);
        self.until = Some(now + delay);
        Some(delay)
    }

    /// Whether a failure now would not be the first in a row.
    pub fn has_failed(&self, now: Tick) -> bool {
        self.step > 0 && self.well.is_none_or(|well| now.since(well) < WELL_AFTER)
    }

    /// Whether there was more than one failure in a row: one may be an accident.
    pub fn is_habit(&self) -> bool {
        self.step > 1
    }

    /// When the last delay is over, or was.
    pub fn until(&self) -> Option<Tick> {
        self.until
    }

    /// How long no worker may be made.
    pub fn wait(&self, now: Tick) -> Option<Duration> {
        self.until
            .filter(|until| *until > now)
            .map(|until| until.since(now))
    }

    /// A process made at `made` is up and still lives, or has ended in order: if that is long ago when the next fails, and it was
    /// made after the last failure, that starts with the first delay again. Older processes prove nothing about new ones.
    pub fn lives(&mut self, made: Tick) {
        if self.failed.is_none_or(|failed| made > failed) {
            self.well = Some(self.well.map_or(made, |well| well.min(made)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn steps_double_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let mut now = at(1);
        let mut delays = Vec::new();
        for _ in 0..12 {
            let delay = backoff
                .fail(now, LONGEST)
                .expect("each failure comes after the delay before it");
            delays.push(delay.as_millis());
            now = now + delay;
        }
        assert_eq!(
            delays,
            [
                100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 60_000, 60_000
            ]
        );
        assert!(backoff.is_habit());
    }

    #[test]
    fn a_minute_of_life_is_a_new_beginning_and_no_time_without_life_is() {
        for (made, ended, next) in [
            (Some(1_000), 60_999, FIRST * 4),
            (Some(1_000), 61_000, FIRST),
            (None, 1_000_000, FIRST * 4),
        ] {
            let mut backoff = Backoff::default();
            backoff.fail(at(0), LONGEST);
            backoff.fail(at(100), LONGEST);
            made.into_iter().for_each(|made| backoff.lives(at(made)));
            // It was replaced in order.
            made.into_iter().for_each(|made| backoff.lives(at(made + 10_000)));
            assert_eq!(backoff.fail(at(ended), LONGEST), Some(next), "{made:?} {ended}");
            assert_eq!(backoff.is_habit(), next != FIRST);
        }
    }

    #[test]
    fn failures_together_are_one_step() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.fail(at(0), LONGEST), Some(FIRST));
        assert_eq!(backoff.fail(at(1), LONGEST), None);
        assert_eq!(backoff.wait(at(1)), Some(Duration::from_millis(99)));
        assert_eq!(backoff.wait(at(100)), None);
        assert_eq!(backoff.fail(at(100), LONGEST), Some(FIRST * 2));
    }

    #[test]
    fn only_a_worker_made_after_the_failure_proves_anything() {
        let mut backoff = Backoff::default();
        backoff.fail(at(5_000), LONGEST);
        backoff.lives(at(1_000));
        assert_eq!(backoff.fail(at(100_000), LONGEST), Some(FIRST * 2));
        backoff.lives(at(101_000));
        assert_eq!(backoff.fail(at(162_000), LONGEST), Some(FIRST));
    }
}

//! Delays between failed starts: 100 ms, doubled up to a minute; reset after a minute of life.

use forkyard_base::tick::Tick;
use std::time::Duration;

pub const FIRST: Duration = Duration::from_millis(100);

pub const LONGEST: Duration = Duration::from_secs(60);

/// The life time that counts as success.
pub const WELL_AFTER: Duration = Duration::from_secs(60);

/// The longest delay for workers that die idle after they were up, since others may serve.
pub const LONGEST_ONCE_UP: Duration = Duration::from_secs(1);

/// The delay after `step` delays: doubled each time, up to the longest.
pub fn delay(step: u32, longest: Duration) -> Duration {
    FIRST.saturating_mul(1 << step.min(16)).min(longest)
}

/// The back-off of a generation's workers, a program's process, an application or a helper.
#[derive(Debug, Clone, Copy, Default)]
pub struct Backoff {
    step: u32,
    failed: Option<Tick>,
    until: Option<Tick>,
    /// Since when something has been up without a failure.
    well: Option<Tick>,
}

impl Backoff {
    /// Records a failure. Returns the delay unless one runs, so simultaneous failures count once.
    pub fn fail(&mut self, now: Tick, longest: Duration) -> Option<Duration> {
        self.failed = Some(now);
        if self.wait(now).is_some() {
            return None;
        }
        if self.well.take().is_some_and(|well| now.since(well) >= WELL_AFTER) {
            self.step = 0;
        }
        let delay = delay(self.step, longest);
        self.step = self.step.saturating_add(1);
        self.until = Some(now + delay);
        Some(delay)
    }

    /// Whether a failure now would follow an earlier one.
    pub fn has_failed(&self, now: Tick) -> bool {
        self.step > 0 && self.well.is_none_or(|well| now.since(well) < WELL_AFTER)
    }

    /// Whether there was more than one failure in a row.
    pub fn is_habit(&self) -> bool {
        self.step > 1
    }

    /// The end of the last delay.
    pub fn until(&self) -> Option<Tick> {
        self.until
    }

    /// The rest of the delay.
    pub fn wait(&self, now: Tick) -> Option<Duration> {
        self.until
            .filter(|until| *until > now)
            .map(|until| until.since(now))
    }

    /// Records a success at `made`. After a minute of it the next delay is the first again.
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

//! How long to wait before a process is made again, after some could not be made or did not live.

use crate::tick::Tick;
use std::time::Duration;

/// The first delay; each further step doubles it.
pub const FIRST: Duration = Duration::from_millis(100);

/// The longest delay when workers or preloaders can't be made, or die before they are up: nothing is served then.
pub const LONGEST: Duration = Duration::from_secs(30);

/// The longest delay when workers die soon after they were up, without having taken up any work.
pub const LONGEST_ONCE_UP: Duration = Duration::from_secs(1);

/// A worker that lived this long was well.
pub const WELL_AFTER: Duration = Duration::from_secs(1);

/// The back-off of a generation's workers, or of a helper.
#[derive(Debug, Default)]
pub struct Backoff {
    step: u32,
    failed: Option<Tick>,
    until: Option<Tick>,
}

impl Backoff {
    /// Something failed. A new delay if that begins a step; nothing while one runs, so that a hundred workers that die
    /// together are one step.
    pub fn fail(&mut self, now: Tick, longest: Duration) -> Option<Duration> {
        self.failed = Some(now);
        if self.wait(now).is_some() {
            return None;
        }
        let delay = FIRST.saturating_mul(1 << self.step.min(16)).min(longest);
        self.step = self.step.saturating_add(1);
        self.until = Some(now + delay);
        Some(delay)
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

    /// A worker made at `forked` is up and still lives at `now`: if that is long enough, and it was made after the last
    /// failure, the next failure starts with the first delay again. Older workers prove nothing about new ones.
    pub fn lives(&mut self, forked: Tick, now: Tick) {
        let newer = self.failed.is_none_or(|failed| forked > failed);
        if newer && now.since(forked) >= WELL_AFTER {
            self.step = 0;
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
        for _ in 0..11 {
            let delay = backoff
                .fail(now, LONGEST)
                .expect("each failure comes after the delay before it");
            delays.push(delay.as_millis());
            now = now + delay;
        }
        assert_eq!(
            delays,
            [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]
        );
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
        backoff.lives(at(1_000), at(10_000));
        assert_eq!(backoff.fail(at(10_000), LONGEST), Some(FIRST * 2));
        backoff.lives(at(11_000), at(12_000));
        assert_eq!(backoff.fail(at(12_000), LONGEST), Some(FIRST));
    }
}

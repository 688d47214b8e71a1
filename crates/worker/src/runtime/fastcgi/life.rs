//! The program's life, as a table.
//!
//! ```text
//!            begun              came up
//!   Absent ────────▶ Starting ───────────▶ Up ◀───────────┐
//!                     │  ▲                 │ │            │ came up
//!              failed │  └──── ended ──────┘ │ fell       │
//!                     │                      ▼   begun    │
//!                     └───────────────▶ Refusing ──────▶ Trying
//!                                          ▲     failed   │
//!                                          └──────────────┘
//! ```
//!
//! In Starting requests wait outside; in Refusing and Trying they are told at once that the program can't be started.

use crate::tick::Tick;
use std::time::Duration;

/// Where the program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It was never started.
    Absent,
    /// It is being started, and nothing speaks against it.
    Starting,
    /// It takes requests.
    Up,
    /// It could not be started, and is not tried again yet.
    Refusing,
    /// It could not be started, and is tried again.
    Trying,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// It was started.
    Begun,
    /// It takes requests.
    CameUp,
    /// It could not be started.
    Failed,
    /// It ended after it had done something.
    Ended,
    /// It ended before it had done anything, as soon as it was up.
    Fell,
}

impl Phase {
    /// What follows.
    pub(super) fn after(self, cause: Cause) -> Phase {
        match (self, cause) {
            (Phase::Absent, Cause::Begun) => Phase::Starting,
            (Phase::Up, Cause::Ended) => Phase::Absent,
            (Phase::Refusing, Cause::Begun) => Phase::Trying,
            (Phase::Starting | Phase::Trying, Cause::CameUp) => Phase::Up,
            (Phase::Absent | Phase::Starting | Phase::Trying | Phase::Refusing, Cause::Failed)
            | (Phase::Up, Cause::Fell) => Phase::Refusing,
            // None of these can happen; whatever is there stays.
            (Phase::Absent | Phase::Refusing, Cause::CameUp | Cause::Ended | Cause::Fell)
            | (Phase::Starting | Phase::Trying, Cause::Begun | Cause::Ended | Cause::Fell)
            | (Phase::Up, Cause::Begun | Cause::CameUp | Cause::Failed) => self,
        }
    }
}

/// The first pause after a failure; each further one doubles it.
const FIRST: Duration = Duration::from_millis(100);
/// The longest.
const LONGEST: Duration = Duration::from_secs(30);

/// How long a program that can't be started is not tried again.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    until: Option<Tick>,
}

impl Backoff {
    /// It failed; says how long the pause is.
    pub(super) fn fail(&mut self, now: Tick) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + pause);
        pause
    }

    /// It did something.
    pub(super) fn succeed(&mut self) {
        *self = Backoff::default();
    }

    /// When the next try is due, if there is to be one.
    pub(super) fn until(&self) -> Option<Tick> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_is_started_and_one_that_fails_is_refused() {
        let mut phase = Phase::Absent;
        for (cause, expected) in [
            (Cause::Begun, Phase::Starting),
            (Cause::CameUp, Phase::Up),
            (Cause::Ended, Phase::Absent),
            (Cause::Begun, Phase::Starting),
            (Cause::Failed, Phase::Refusing),
            (Cause::Begun, Phase::Trying),
            (Cause::Failed, Phase::Refusing),
            (Cause::Begun, Phase::Trying),
            (Cause::CameUp, Phase::Up),
            (Cause::Fell, Phase::Refusing),
        ] {
            phase = phase.after(cause);
            assert_eq!(phase, expected, "{cause:?}");
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let now = Tick::ZERO + Duration::from_secs(1);
        assert_eq!(backoff.fail(now), FIRST);
        assert_eq!(backoff.fail(now), FIRST * 2);
        assert_eq!(backoff.until(), Some(now + FIRST * 2));
        for _ in 0..100 {
            backoff.fail(now);
        }
        assert_eq!(backoff.fail(now), LONGEST);
        backoff.succeed();
        assert_eq!((backoff.until(), backoff.fail(now)), (None, FIRST));
    }
}

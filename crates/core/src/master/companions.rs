//! The life of a process that stands beside a pool: its router, or its scout.
//!
//! ```text
//!              deadline              leave
//!   Waiting ─────────────▶ Running ─────────▶ Leaving ──┐ deadline: killed
//!      │  ▲                  │  │               │   ▲───┘
//!      │  └──────────────────┘  │               │ gone
//!      │       gone, failed     │               ▼
//!      └────────────────────────┼────────────▶ Over
//!               leave           │ leave, with nobody there
//! ```
//!
//! One that is gone without having been told to leave is followed by another, after a back-off.

use super::backoff::{Backoff, LONGEST};
use crate::tick::Tick;
use std::time::Duration;

/// How much longer than it was given one that leaves may take, and from SIGKILL to the next.
const GRACE: Duration = Duration::from_secs(1);

/// What happened to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It could not be started.
    Failed,
    /// It has ended.
    Gone,
    /// Nobody needs it any more; it may take this long.
    Leave(Duration),
    /// The time that [`Keeper::deadline`] says has come.
    Deadline,
}

/// What is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    None,
    /// Start one.
    Start,
    /// Tell it to leave.
    Ask,
    /// Kill it.
    Kill,
    /// Say that the next try comes after this long.
    BackOff(Duration),
    /// It is gone for good.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting(Tick),
    Running(Tick),
    Leaving(Tick),
    Over,
}

/// Keeps one such process. The first is due at once.
#[derive(Debug)]
pub struct Keeper {
    state: State,
    backoff: Backoff,
}

impl Keeper {
    /// One that is to be started now.
    pub fn new(now: Tick) -> Keeper {
        Keeper {
            state: State::Waiting(now),
            backoff: Backoff::default(),
        }
    }

    /// When [`Cause::Deadline`] is to be told.
    pub fn deadline(&self) -> Option<Tick> {
        match self.state {
            State::Waiting(until) | State::Leaving(until) => Some(until),
            State::Running(_) | State::Over => None,
        }
    }

    /// Whether it was told to leave.
    pub fn is_leaving(&self) -> bool {
        matches!(self.state, State::Leaving(_) | State::Over)
    }

    /// Takes what happened; says what is to be done.
    pub fn handle(&mut self, cause: Cause, now: Tick) -> Step {
        let (state, step) = match (self.state, cause) {
            (State::Waiting(_), Cause::Deadline) => (State::Running(now), Step::Start),
            (State::Waiting(_), Cause::Leave(_)) => (State::Over, Step::End),
            (State::Running(since), Cause::Gone | Cause::Failed) => {
                self.backoff.lives(since, now);
                let delay = self.backoff.fail(now, LONGEST).unwrap_or(LONGEST);
                (State::Waiting(now + delay), Step::BackOff(delay))
            }
            (State::Running(_), Cause::Leave(limit)) => (State::Leaving(now + limit + GRACE), Step::Ask),
            (State::Leaving(_), Cause::Deadline) => (State::Leaving(now + GRACE), Step::Kill),
            (State::Leaving(_), Cause::Gone | Cause::Failed) => (State::Over, Step::End),
            (State::Leaving(until), Cause::Leave(limit)) => {
                (State::Leaving(until.min(now + limit + GRACE)), Step::None)
            }
            (State::Waiting(_), Cause::Gone | Cause::Failed)
            | (State::Running(_), Cause::Deadline)
            | (State::Over, Cause::Gone | Cause::Failed | Cause::Leave(_) | Cause::Deadline) => {
                (self.state, Step::None)
            }
        };
        self.state = state;
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn one_that_dies_is_followed_by_another_later_and_later() {
        let (mut keeper, mut delays) = (Keeper::new(at(0)), Vec::new());
        for _ in 0..12 {
            let due = keeper.deadline().expect("one is due");
            assert_eq!(keeper.handle(Cause::Deadline, due), Step::Start);
            assert_eq!(keeper.deadline(), None);
            let Step::BackOff(delay) = keeper.handle(Cause::Gone, due) else {
                panic!("no delay");
            };
            delays.push(delay);
        }
        assert!(delays.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(delays.last(), Some(&LONGEST));
    }

    #[test]
    fn one_that_lived_long_is_followed_soon() {
        let mut keeper = Keeper::new(at(0));
        for start in [0, 10_000, 20_000] {
            assert_eq!(keeper.handle(Cause::Deadline, at(start)), Step::Start);
            let step = keeper.handle(Cause::Gone, at(start + 5_000));
            assert_eq!(step, Step::BackOff(super::super::backoff::FIRST));
        }
    }

    #[test]
    fn one_that_leaves_has_its_time_and_is_killed_after_it() {
        let mut keeper = Keeper::new(at(0));
        keeper.handle(Cause::Deadline, at(0));
        let leave = Cause::Leave(Duration::from_secs(60));
        assert_eq!(keeper.handle(leave, at(0)), Step::Ask);
        assert_eq!(keeper.handle(leave, at(1)), Step::None);
        let end = keeper.deadline().expect("it has a limit");
        assert_eq!(end, at(61_000));
        assert_eq!(keeper.handle(Cause::Leave(Duration::ZERO), at(2_000)), Step::None);
        assert_eq!(keeper.deadline(), Some(at(3_000)), "never later");
        assert_eq!(keeper.handle(Cause::Deadline, at(3_000)), Step::Kill);
        assert_eq!(keeper.handle(Cause::Gone, at(3_001)), Step::End);
        assert_eq!((keeper.deadline(), keeper.is_leaving()), (None, true));
    }

    #[test]
    fn one_that_is_not_there_leaves_at_once() {
        let mut keeper = Keeper::new(at(0));
        assert_eq!(keeper.handle(Cause::Leave(Duration::ZERO), at(0)), Step::End);
        assert_eq!(keeper.handle(Cause::Deadline, at(9)), Step::None);
    }
}

//! The life of a pool's reporter, which answers status and ping at an address of their own.
//!
//! ```text
//!              ready                   outdated
//!   Watching ─────────▶ Running ───────────────────▶ Leaving ──┐ deadline: killed
//!    ▲  ▲                  │ │                          │  ▲───┘
//!    │  └──────────────────┘ │ failed, gone badly       │
//!    │        gone           ▼                          │
//!    ├─────────────────── Waiting                       │
//!    │      deadline, outdated                          │
//!    └──────────────────────────────────────────────────┘
//! ```
//!
//! The address is watched while no reporter runs. So one that is gone leaves nobody unanswered: whoever waits starts
//! the next one, which shows the generation that serves then.

use super::backoff::{Backoff, LONGEST};
use crate::tick::Tick;
use std::time::Duration;

/// How long a reporter that was told to leave may take.
const LEAVE_TIME: Duration = Duration::from_secs(2);

/// What happened to a reporter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Somebody connects to its address.
    Ready,
    /// It could not be started.
    Failed,
    /// It has ended as it should.
    Gone,
    /// It has ended otherwise.
    Crashed,
    /// Another generation serves than the one it shows.
    Outdated,
    /// The time that [`Keeper::deadline`] says has come.
    Deadline,
}

/// What is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    None,
    /// Watch the address.
    Watch,
    /// Stop watching the address, and start a reporter.
    Start,
    /// Close the reporter's channel.
    Ask,
    /// Kill the reporter.
    Kill,
    /// Say that the next try comes after this long.
    BackOff(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Watching,
    Running(Tick),
    Leaving(Tick),
    Waiting(Tick),
}

/// Keeps the reporter of one pool. The address is watched when it begins.
#[derive(Debug)]
pub struct Keeper {
    state: State,
    backoff: Backoff,
}

impl Default for Keeper {
    fn default() -> Keeper {
        Keeper {
            state: State::Watching,
            backoff: Backoff::default(),
        }
    }
}

impl Keeper {
    /// When [`Cause::Deadline`] is to be told.
    pub fn deadline(&self) -> Option<Tick> {
        match self.state {
            State::Watching | State::Running(_) => None,
            State::Leaving(until) | State::Waiting(until) => Some(until),
        }
    }

    /// Takes what happened; says what is to be done.
    pub fn handle(&mut self, cause: Cause, now: Tick) -> Step {
        let (state, step) = match (self.state, cause) {
            (State::Watching, Cause::Ready) => (State::Running(now), Step::Start),
            (
                State::Watching,
                Cause::Failed | Cause::Gone | Cause::Crashed | Cause::Outdated | Cause::Deadline,
            ) => (State::Watching, Step::None),
            (State::Running(since), Cause::Failed | Cause::Crashed) => {
                self.backoff.lives(since, now);
                let delay = self.backoff.fail(now, LONGEST).unwrap_or(LONGEST);
                (State::Waiting(now + delay), Step::BackOff(delay))
            }
            (State::Running(since), Cause::Gone) => {
                self.backoff.lives(since, now);
                (State::Watching, Step::Watch)
            }
            (State::Running(_), Cause::Outdated) => (State::Leaving(now + LEAVE_TIME), Step::Ask),
            (State::Running(since), Cause::Ready | Cause::Deadline) => (State::Running(since), Step::None),
            (State::Leaving(_), Cause::Gone | Cause::Crashed) => (State::Watching, Step::Watch),
            (State::Leaving(_), Cause::Deadline) => (State::Leaving(now + LEAVE_TIME), Step::Kill),
            (State::Leaving(until), Cause::Ready | Cause::Failed | Cause::Outdated) => {
                (State::Leaving(until), Step::None)
            }
            (State::Waiting(_), Cause::Deadline | Cause::Outdated) => (State::Watching, Step::Watch),
            (State::Waiting(until), Cause::Ready | Cause::Failed | Cause::Gone | Cause::Crashed) => {
                (State::Waiting(until), Step::None)
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
    fn a_reporter_that_left_is_started_again_by_the_next_client() {
        let mut keeper = Keeper::default();
        assert_eq!(keeper.handle(Cause::Ready, at(0)), Step::Start);
        assert_eq!(keeper.handle(Cause::Ready, at(1)), Step::None);
        assert_eq!(keeper.deadline(), None);
        assert_eq!(keeper.handle(Cause::Gone, at(10_000)), Step::Watch);
        assert_eq!(keeper.handle(Cause::Ready, at(20_000)), Step::Start);
    }

    #[test]
    fn one_that_crashes_again_and_again_is_started_less_and_less_often() {
        let (mut keeper, mut now, mut delays) = (Keeper::default(), at(0), Vec::new());
        for _ in 0..12 {
            assert_eq!(keeper.handle(Cause::Ready, now), Step::Start);
            let Step::BackOff(delay) = keeper.handle(Cause::Crashed, now) else {
                panic!("no delay");
            };
            delays.push(delay);
            assert_eq!(keeper.handle(Cause::Ready, now), Step::None);
            now = keeper.deadline().expect("a delay ends");
            assert_eq!(keeper.handle(Cause::Deadline, now), Step::Watch);
        }
        assert!(delays.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(delays.last(), Some(&LONGEST));
    }

    #[test]
    fn an_outdated_one_is_asked_and_then_killed() {
        let mut keeper = Keeper::default();
        keeper.handle(Cause::Ready, at(0));
        assert_eq!(keeper.handle(Cause::Outdated, at(1)), Step::Ask);
        assert_eq!(keeper.handle(Cause::Outdated, at(2)), Step::None);
        let end = keeper.deadline().expect("it has a limit");
        assert_eq!(keeper.handle(Cause::Deadline, end), Step::Kill);
        assert!(keeper.deadline().is_some_and(|next| next > end));
        assert_eq!(keeper.handle(Cause::Crashed, end), Step::Watch);
        assert_eq!(keeper.deadline(), None);
    }
}

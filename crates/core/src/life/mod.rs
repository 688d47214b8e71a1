//! The life of a helper: a process that the daemon or a worker starts, stops and restarts.
//!
//! ```text
//!            Needed              Up
//!   Absent ──────────▶ Starting ────▶ Ready
//!    ▲  ▲               │ │  │ Late    │ │
//!    │  │               │ │  ▼   Late  │ │
//!    │  │ Gone: lost    │ │ Failing ◀──┘ │
//!    │  └───────────────┴─┼──┴───────────┘
//!    │                    │ Stop, from each of them
//!    │ Gone: as told      ▼
//!    └───────────────── Stopping: Ask ─▶ Terminate ─▶ Kill
//!                                  Late         Late
//! ```
//!
//! [`Life`] has no clock: [`crate::master`] and [`crate::master::program`] have their own. [`Helper`] adds a clock and
//! a back-off.

pub mod backoff;
mod helper;

pub use helper::{Happened, Helper, HelperAction, Restart, Rules};

use std::fmt;

/// The state of a helper.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Life {
    /// It does not exist.
    #[default]
    Absent,
    Starting,
    Ready,
    /// It was killed because it failed.
    Failing,
    /// It has an order to stop.
    Stopping(Force),
}

/// How to stop a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Force {
    /// Close its control channel.
    Ask,
    Terminate,
    Kill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifeCause {
    Needed,
    /// It reported that it is ready.
    Up,
    /// It exited, or could not be started.
    Gone,
    /// It missed a deadline.
    Late,
    Stop(Force),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifeAction {
    Nothing,
    Start,
    Stop(Force),
    /// Kill it and log the failure.
    Fail,
    /// Log the loss and wait before the next start.
    Lost,
}

impl Life {
    /// Returns the next state and what to do. A need during a stop is for the caller to remember.
    pub fn after(self, cause: LifeCause) -> (Life, LifeAction) {
        use Life::{Absent, Failing, Ready, Starting, Stopping};
        match (self, cause) {
            (Absent, LifeCause::Needed) => (Starting, LifeAction::Start),
            (Starting, LifeCause::Up) => (Ready, LifeAction::Nothing),
            (Starting | Ready | Failing, LifeCause::Gone) => (Absent, LifeAction::Lost),
            (Stopping(_), LifeCause::Gone) => (Absent, LifeAction::Nothing),
            (Starting | Ready, LifeCause::Late) => (Failing, LifeAction::Fail),
            (Starting | Ready, LifeCause::Stop(force)) => stop(force),
            (Stopping(before), LifeCause::Stop(force)) if force > before => stop(force),
            (Failing, LifeCause::Stop(_)) => (Stopping(Force::Kill), LifeAction::Nothing),
            (Stopping(Force::Ask), LifeCause::Late) => stop(Force::Terminate),
            (Stopping(Force::Terminate), LifeCause::Late) => stop(Force::Kill),
            (Absent, LifeCause::Up | LifeCause::Gone | LifeCause::Late | LifeCause::Stop(_))
            | (Starting, LifeCause::Needed)
            | (Ready, LifeCause::Needed | LifeCause::Up)
            | (Failing, LifeCause::Needed | LifeCause::Up | LifeCause::Late)
            | (Stopping(_), LifeCause::Needed | LifeCause::Up | LifeCause::Stop(_))
            | (Stopping(Force::Kill), LifeCause::Late) => (self, LifeAction::Nothing),
        }
    }
}

fn stop(force: Force) -> (Life, LifeAction) {
    (Life::Stopping(force), LifeAction::Stop(force))
}

impl fmt::Display for Force {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Force::Ask => "closing its channel",
            Force::Terminate => "terminating",
            Force::Kill => "killing",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Force::{Ask, Kill, Terminate};
    use super::Life::{Absent, Failing, Ready, Starting, Stopping};
    use super::*;

    #[test]
    fn the_table() {
        let states = [
            Absent,
            Starting,
            Ready,
            Failing,
            Stopping(Ask),
            Stopping(Terminate),
            Stopping(Kill),
        ];
        let causes = [
            LifeCause::Needed,
            LifeCause::Up,
            LifeCause::Gone,
            LifeCause::Late,
            LifeCause::Stop(Ask),
            LifeCause::Stop(Terminate),
            LifeCause::Stop(Kill),
        ];
        let stopping = |force| (Stopping(force), LifeAction::Stop(force));
        let changes = [
            ((Absent, LifeCause::Needed), (Starting, LifeAction::Start)),
            ((Starting, LifeCause::Up), (Ready, LifeAction::Nothing)),
            ((Starting, LifeCause::Gone), (Absent, LifeAction::Lost)),
            ((Starting, LifeCause::Late), (Failing, LifeAction::Fail)),
            ((Starting, LifeCause::Stop(Ask)), stopping(Ask)),
            ((Starting, LifeCause::Stop(Terminate)), stopping(Terminate)),
            ((Starting, LifeCause::Stop(Kill)), stopping(Kill)),
            ((Ready, LifeCause::Gone), (Absent, LifeAction::Lost)),
            ((Ready, LifeCause::Late), (Failing, LifeAction::Fail)),
            ((Ready, LifeCause::Stop(Ask)), stopping(Ask)),
            ((Ready, LifeCause::Stop(Terminate)), stopping(Terminate)),
            ((Ready, LifeCause::Stop(Kill)), stopping(Kill)),
            ((Failing, LifeCause::Gone), (Absent, LifeAction::Lost)),
            (
                (Failing, LifeCause::Stop(Ask)),
                (Stopping(Kill), LifeAction::Nothing),
            ),
            (
                (Failing, LifeCause::Stop(Terminate)),
                (Stopping(Kill), LifeAction::Nothing),
            ),
            (
                (Failing, LifeCause::Stop(Kill)),
                (Stopping(Kill), LifeAction::Nothing),
            ),
            ((Stopping(Ask), LifeCause::Gone), (Absent, LifeAction::Nothing)),
            ((Stopping(Ask), LifeCause::Late), stopping(Terminate)),
            ((Stopping(Ask), LifeCause::Stop(Terminate)), stopping(Terminate)),
            ((Stopping(Ask), LifeCause::Stop(Kill)), stopping(Kill)),
            (
                (Stopping(Terminate), LifeCause::Gone),
                (Absent, LifeAction::Nothing),
            ),
            ((Stopping(Terminate), LifeCause::Late), stopping(Kill)),
            ((Stopping(Terminate), LifeCause::Stop(Kill)), stopping(Kill)),
            ((Stopping(Kill), LifeCause::Gone), (Absent, LifeAction::Nothing)),
        ];
        for state in states {
            for cause in causes {
                let mut named = changes.iter().filter(|(from, _)| *from == (state, cause));
                let expected = named.next().map_or((state, LifeAction::Nothing), |(_, to)| *to);
                assert_eq!(state.after(cause), expected, "{state:?} {cause:?}");
            }
        }
    }
}

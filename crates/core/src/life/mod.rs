//! The life of a helper: a process that the daemon or a worker starts, tells to go, and starts again.
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
//! The same table holds for preloaders, the processes of an HTTP program, the program behind a FastCGI worker,
//! reporters, routers and inspectors. They differ in where the clock is kept, and when a lost one is started again:
//!
//! * [`Life`] has no clock. The process manager has one for preloaders ([`crate::master`]), with timers of its own and a
//!   back-off that workers share; [`crate::master::program`] has one for all processes of a program.
//! * [`Helper`] adds clock and back-off, for one that depends on nothing else.

pub mod backoff;
mod helper;

pub use helper::{Happened, Helper, HelperAction, Restart, Rules};

use std::fmt;

/// Where a helper is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// There is none.
    Absent,
    /// It is not up yet.
    Starting,
    /// It does its part.
    Ready,
    /// It was killed because it did not do its part.
    Failing,
    /// It was told to go, this hard.
    Stopping(Force),
}

/// How a process is made to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Force {
    /// Close its control channel.
    Ask,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// What changes a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifeCause {
    /// One is to be there.
    Needed,
    /// It told that it is ready.
    Up,
    /// It is gone, or could not be made.
    Gone,
    /// It did not come up, answer, or go in time.
    Late,
    /// It is to go, this hard.
    Stop(Force),
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifeAction {
    /// Nothing.
    Nothing,
    /// Start it.
    Start,
    /// Make it go.
    Stop(Force),
    /// Kill it, and say that it failed.
    Fail,
    /// Say that it is lost, and wait before the next.
    Lost,
}

impl Life {
    /// The state after `cause`, and the action that goes with the change. One that is needed while it stops is started again
    /// once it is gone: that is the user's to remember.
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
            // It was killed already.
            (Failing, LifeCause::Stop(_)) => (Stopping(Force::Kill), LifeAction::Nothing),
            (Stopping(Force::Ask), LifeCause::Late) => stop(Force::Terminate),
            (Stopping(Force::Terminate), LifeCause::Late) => stop(Force::Kill),
            // Ignored: it is so already, or the cause is not for this state.
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

    /// Every state with every cause: what is not named changes nothing.
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

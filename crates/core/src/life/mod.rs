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
//! The same table holds for preloaders, the processes of an HTTP program, the program behind a FastCGI worker, reporters,
//! routers and inspectors. What differs is who has the clock, and when a lost one is started again:
//!
//! * [`Life`] has no clock. The process manager has one for preloaders ([`crate::master`]), with timers of its own and a
//!   back-off that workers share; [`crate::master::program`] has one for all processes of a program.
//! * [`Helper`] adds clock and back-off, for one that depends on nothing else.

pub mod backoff;
mod helper;

pub use helper::{Happened, Helper, Restart, Rules, Step};

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
pub enum Cause {
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
pub enum Order {
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
    /// The state after `cause`, and the order that goes with the change. One that is needed while it stops is started again
    /// once it is gone: that is the user's to remember.
    pub fn after(self, cause: Cause) -> (Life, Order) {
        use Life::{Absent, Failing, Ready, Starting, Stopping};
        match (self, cause) {
            (Absent, Cause::Needed) => (Starting, Order::Start),
            (Starting, Cause::Up) => (Ready, Order::Nothing),
            (Starting | Ready | Failing, Cause::Gone) => (Absent, Order::Lost),
            (Stopping(_), Cause::Gone) => (Absent, Order::Nothing),
            (Starting | Ready, Cause::Late) => (Failing, Order::Fail),
            (Starting | Ready, Cause::Stop(force)) => stop(force),
            (Stopping(before), Cause::Stop(force)) if force > before => stop(force),
            // It was killed already.
            (Failing, Cause::Stop(_)) => (Stopping(Force::Kill), Order::Nothing),
            (Stopping(Force::Ask), Cause::Late) => stop(Force::Terminate),
            (Stopping(Force::Terminate), Cause::Late) => stop(Force::Kill),
            // Ignored: it is so already, or the cause is not for this state.
            (Absent, Cause::Up | Cause::Gone | Cause::Late | Cause::Stop(_))
            | (Starting, Cause::Needed)
            | (Ready, Cause::Needed | Cause::Up)
            | (Failing, Cause::Needed | Cause::Up | Cause::Late)
            | (Stopping(_), Cause::Needed | Cause::Up | Cause::Stop(_))
            | (Stopping(Force::Kill), Cause::Late) => (self, Order::Nothing),
        }
    }
}

fn stop(force: Force) -> (Life, Order) {
    (Life::Stopping(force), Order::Stop(force))
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
            Cause::Needed,
            Cause::Up,
            Cause::Gone,
            Cause::Late,
            Cause::Stop(Ask),
            Cause::Stop(Terminate),
            Cause::Stop(Kill),
        ];
        let stopping = |force| (Stopping(force), Order::Stop(force));
        let changes = [
            ((Absent, Cause::Needed), (Starting, Order::Start)),
            ((Starting, Cause::Up), (Ready, Order::Nothing)),
            ((Starting, Cause::Gone), (Absent, Order::Lost)),
            ((Starting, Cause::Late), (Failing, Order::Fail)),
            ((Starting, Cause::Stop(Ask)), stopping(Ask)),
            ((Starting, Cause::Stop(Terminate)), stopping(Terminate)),
            ((Starting, Cause::Stop(Kill)), stopping(Kill)),
            ((Ready, Cause::Gone), (Absent, Order::Lost)),
            ((Ready, Cause::Late), (Failing, Order::Fail)),
            ((Ready, Cause::Stop(Ask)), stopping(Ask)),
            ((Ready, Cause::Stop(Terminate)), stopping(Terminate)),
            ((Ready, Cause::Stop(Kill)), stopping(Kill)),
            ((Failing, Cause::Gone), (Absent, Order::Lost)),
            ((Failing, Cause::Stop(Ask)), (Stopping(Kill), Order::Nothing)),
            (
                (Failing, Cause::Stop(Terminate)),
                (Stopping(Kill), Order::Nothing),
            ),
            ((Failing, Cause::Stop(Kill)), (Stopping(Kill), Order::Nothing)),
            ((Stopping(Ask), Cause::Gone), (Absent, Order::Nothing)),
            ((Stopping(Ask), Cause::Late), stopping(Terminate)),
            ((Stopping(Ask), Cause::Stop(Terminate)), stopping(Terminate)),
            ((Stopping(Ask), Cause::Stop(Kill)), stopping(Kill)),
            ((Stopping(Terminate), Cause::Gone), (Absent, Order::Nothing)),
            ((Stopping(Terminate), Cause::Late), stopping(Kill)),
            ((Stopping(Terminate), Cause::Stop(Kill)), stopping(Kill)),
            ((Stopping(Kill), Cause::Gone), (Absent, Order::Nothing)),
        ];
        for state in states {
            for cause in causes {
                let mut named = changes.iter().filter(|(from, _)| *from == (state, cause));
                let expected = named.next().map_or((state, Order::Nothing), |(_, to)| *to);
                assert_eq!(state.after(cause), expected, "{state:?} {cause:?}");
            }
        }
    }
}

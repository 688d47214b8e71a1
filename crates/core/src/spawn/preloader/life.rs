//! The life of an application's preloader.
//!
//! ```text
//!            Needed              Up
//!   Absent ──────────▶ Starting ─────▶ Ready
//!     ▲                 │   │ Stop      │ │ Idle, Stop
//!     │ Failed, Gone    │   └─────────┐ │ ▼
//!     ├─────────────────┘      Lost   │ │ Stopping: Ask ─▶ Terminate ─▶ Kill
//!     │ Gone                 ┌────────┼─┘   │    Late         Late       ▲
//!     └──────────────────────┼────────┴─────┘                            │
//!                            └───────────────────────────────────────────┘
//! ```
//!
//! A journey that is starting one is called off by the machine itself; `Stop` while it starts therefore only waits for
//! `Failed`. One that could not be spoken to is lost: it is killed at once.

/// Where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::spawn) enum Life {
    /// There is none.
    Absent,
    /// A journey is under way.
    Starting,
    /// It forks.
    Ready,
    /// It was told to go, this hard.
    Stopping(Force),
}

/// How hard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::spawn) enum Force {
    /// Its standard input is closed.
    Ask,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// What changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::spawn) enum Cause {
    /// A process is wanted.
    Needed,
    /// Its journey came to its end.
    Up,
    /// Its journey failed.
    Failed,
    /// It could not be spoken to.
    Lost,
    /// It has had nothing to do for long enough.
    Idle,
    /// It is to go.
    Stop,
    /// It did not go in time.
    Late,
    /// It is gone.
    Gone,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::spawn) enum Order {
    /// Nothing.
    Nothing,
    /// Begin a journey.
    Start,
    /// Make it go.
    Stop(Force),
}

impl Life {
    /// The state after `cause`, and the order that goes with the change.
    pub(in crate::spawn) fn after(self, cause: Cause) -> (Life, Order) {
        use Life::{Absent, Ready, Starting, Stopping};
        match (self, cause) {
            (Absent, Cause::Needed) => (Starting, Order::Start),
            (Starting, Cause::Up) => (Ready, Order::Nothing),
            (Starting, Cause::Failed | Cause::Gone) => (Absent, Order::Nothing),
            (Ready, Cause::Lost) => stop(Force::Kill),
            (Ready, Cause::Idle | Cause::Stop) => stop(Force::Ask),
            (Ready | Stopping(_), Cause::Gone) => (Absent, Order::Nothing),
            (Stopping(Force::Ask), Cause::Late) => stop(Force::Terminate),
            (Stopping(Force::Terminate | Force::Kill), Cause::Late) => stop(Force::Kill),
            // Ignored: it is so already, or the cause is not for this state.
            (
                Absent,
                Cause::Up
                | Cause::Failed
                | Cause::Lost
                | Cause::Idle
                | Cause::Stop
                | Cause::Late
                | Cause::Gone,
            )
            | (Starting, Cause::Needed | Cause::Lost | Cause::Idle | Cause::Stop | Cause::Late)
            | (Ready, Cause::Needed | Cause::Up | Cause::Failed | Cause::Late)
            | (
                Stopping(_),
                Cause::Needed | Cause::Up | Cause::Failed | Cause::Lost | Cause::Idle | Cause::Stop,
            ) => (self, Order::Nothing),
        }
    }
}

fn stop(force: Force) -> (Life, Order) {
    (Life::Stopping(force), Order::Stop(force))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopping_gets_harder_and_ends_only_when_it_is_gone() {
        let (asked, order) = Life::Ready.after(Cause::Idle);
        assert_eq!(order, Order::Stop(Force::Ask));
        let (terminated, order) = asked.after(Cause::Late);
        assert_eq!(order, Order::Stop(Force::Terminate));
        let (killed, order) = terminated.after(Cause::Late);
        assert_eq!(order, Order::Stop(Force::Kill));
        assert_eq!(killed.after(Cause::Needed).0, killed);
        assert_eq!(killed.after(Cause::Gone), (Life::Absent, Order::Nothing));
    }

    #[test]
    fn one_that_is_lost_is_killed_at_once() {
        assert_eq!(
            Life::Ready.after(Cause::Lost),
            (Life::Stopping(Force::Kill), Order::Stop(Force::Kill))
        );
    }
}

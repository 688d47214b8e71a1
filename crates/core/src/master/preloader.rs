//! The life of a generation's preloader.
//!
//! ```text
//!            Needed              Told
//!   Absent ──────────▶ Starting ──────▶ Ready
//!     ▲                 │  │ Late        │ │ Idle, Stop, Terminate
//!     │ Gone (lost)     │  ▼             │ │
//!     ├─────────────────┤ Failing ◀──────┘ │
//!     │                 │       Mute       ▼
//!     │ Gone            └────────────▶ Stopping: Ask ─▶ Terminate ─▶ Kill
//!     └─────────────────────────────────────┘      Late         Late
//! ```
//!
//! A preloader that is needed while it stops is started again once it is gone. One that is gone without having been
//! told to is lost: another is started after a back-off, if workers are still needed. Its workers go on, they are not
//! its children.

use super::action::Force;

/// Where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preloader {
    /// There is none.
    Absent,
    /// It loads.
    Starting,
    /// It forks.
    Ready,
    /// It was told to go, this hard.
    Stopping(Force),
    /// It was killed because it did not do its part.
    Failing,
}

/// What changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A worker is to be made.
    Needed,
    /// It told that it is ready.
    Told,
    /// It is gone.
    Gone,
    /// It did not come up, or go, in time.
    Late,
    /// It did not answer a request to fork in time.
    Mute,
    /// There was no worker for long enough.
    Idle,
    /// Its generation ends.
    Stop,
    /// The daemon stops now.
    Terminate,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
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

impl Preloader {
    /// The state after `cause`, and the order that goes with the change.
    pub(super) fn after(self, cause: Cause) -> (Preloader, Order) {
        use Preloader::{Absent, Failing, Ready, Starting, Stopping};
        match (self, cause) {
            (Absent, Cause::Needed) => (Starting, Order::Start),
            (Starting, Cause::Told) => (Ready, Order::Nothing),
            (Starting | Ready | Failing, Cause::Gone) => (Absent, Order::Lost),
            (Stopping(_), Cause::Gone) => (Absent, Order::Nothing),
            (Starting, Cause::Late) | (Ready, Cause::Mute) => (Failing, Order::Fail),
            (Ready, Cause::Idle) | (Starting | Ready, Cause::Stop) => stop(Force::Ask),
            (Starting | Ready | Stopping(Force::Ask), Cause::Terminate) => stop(Force::Terminate),
            (Stopping(Force::Ask), Cause::Late) => stop(Force::Terminate),
            (Stopping(Force::Terminate), Cause::Late) => stop(Force::Kill),
            (Failing, Cause::Stop | Cause::Terminate) => (Stopping(Force::Kill), Order::Nothing),
            // Ignored: it is so already, or the cause is not for this state.
            (Absent, Cause::Told | Cause::Gone | Cause::Late | Cause::Mute | Cause::Idle)
            | (Absent, Cause::Stop | Cause::Terminate)
            | (Starting, Cause::Needed | Cause::Mute | Cause::Idle)
            | (Ready, Cause::Needed | Cause::Told | Cause::Late)
            | (Stopping(_), Cause::Needed | Cause::Told | Cause::Mute | Cause::Idle | Cause::Stop)
            | (Stopping(Force::Kill), Cause::Late)
            | (Stopping(Force::Terminate | Force::Kill), Cause::Terminate)
            | (Failing, Cause::Needed | Cause::Told | Cause::Late | Cause::Mute | Cause::Idle) => {
                (self, Order::Nothing)
            }
        }
    }
}

fn stop(force: Force) -> (Preloader, Order) {
    (Preloader::Stopping(force), Order::Stop(force))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_lost_only_if_nobody_told_it_to_go() {
        assert_eq!(
            Preloader::Ready.after(Cause::Gone),
            (Preloader::Absent, Order::Lost)
        );
        assert_eq!(
            Preloader::Stopping(Force::Ask).after(Cause::Gone),
            (Preloader::Absent, Order::Nothing)
        );
    }

    #[test]
    fn stopping_gets_harder_and_ends_with_the_hardest() {
        let (asked, _) = Preloader::Ready.after(Cause::Idle);
        let (terminated, order) = asked.after(Cause::Late);
        assert_eq!(order, Order::Stop(Force::Terminate));
        let (killed, order) = terminated.after(Cause::Late);
        assert_eq!(order, Order::Stop(Force::Kill));
        assert_eq!(killed.after(Cause::Late), (killed, Order::Nothing));
    }

    #[test]
    fn told_too_late_changes_nothing() {
        let (failing, order) = Preloader::Starting.after(Cause::Late);
        assert_eq!(order, Order::Fail);
        assert_eq!(failing.after(Cause::Told), (failing, Order::Nothing));
    }
}

//! How a worker is made to go.
//!
//! ```text
//!            Surplus               Hung
//!  Staying ───────────▶ Surplus ────────────┐
//!     │                    │ Leave          │
//!     │ Leave              ▼          Due   ▼        Due
//!     ├───────────────▶ Leaving ──────▶ Terminated ──────▶ Killed
//!     │ Expired, Stop      │ Expired, Stop  ▲
//!     └────────────────────┴────────────────┘
//! ```
//!
//! A worker that is surplus was idle when it was told to go. If it had taken a request in that very moment it
//! finishes it, however long that takes: it is only looked after (`Hung`: it says that it is idle, and yet it stays).
//! One that is leaving, for a reload or the end of the daemon, has `process_control_timeout`.

use super::action::Force;

/// Whether a worker is on its way out, and how hard it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Going {
    /// It is wanted.
    Staying,
    /// Told to finish because there is no need for it.
    Surplus,
    /// Told to finish because its generation ends.
    Leaving,
    /// Sent SIGTERM.
    Terminated(Why),
    /// Sent SIGKILL.
    Killed(Why),
}

/// Why a worker was sent a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Its request ran for too long.
    Expired,
    /// It had been told to finish and did not.
    Stayed,
    /// The daemon stops now.
    Stop,
    /// Whoever ordered it wants it dead.
    Ordered,
}

/// What makes it go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// There is no need for it.
    Surplus,
    /// Its generation ends.
    Leave,
    /// Its request ran for too long.
    Expired,
    /// The daemon stops now.
    Stop,
    /// It was told to go as surplus, says that it is idle, and stays.
    Hung,
    /// The time it was given is over.
    Due,
    /// Whoever ordered it wants it dead.
    Kill,
}

/// What is to be done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Nothing.
    Nothing,
    /// Tell it to finish.
    Retire,
    /// Terminate it with the word that its request's time is up.
    TimeUp,
    /// Send it a signal.
    Kill(Force),
}

impl Going {
    /// The state after `cause`, and the order that goes with the change.
    pub(super) fn after(self, cause: Cause) -> (Going, Order) {
        match (self, cause) {
            (Going::Staying, Cause::Surplus) => (Going::Surplus, Order::Retire),
            (Going::Staying, Cause::Leave) => (Going::Leaving, Order::Retire),
            (Going::Surplus, Cause::Leave) => (Going::Leaving, Order::Nothing),
            (Going::Staying | Going::Surplus | Going::Leaving, Cause::Expired) => {
                (Going::Terminated(Why::Expired), Order::TimeUp)
            }
            (Going::Staying | Going::Surplus | Going::Leaving, Cause::Stop) => terminate(Why::Stop),
            (Going::Surplus, Cause::Hung) => terminate(Why::Stayed),
            (Going::Leaving, Cause::Due) => terminate(Why::Stayed),
            (Going::Terminated(why), Cause::Due) => (Going::Killed(why), Order::Kill(Force::Kill)),
            (Going::Staying | Going::Surplus | Going::Leaving | Going::Terminated(_), Cause::Kill) => {
                (Going::Killed(Why::Ordered), Order::Kill(Force::Kill))
            }
            // Ignored: it is on its way already, or the cause is not for a worker that stays.
            (Going::Staying, Cause::Hung | Cause::Due)
            | (Going::Surplus, Cause::Surplus | Cause::Due)
            | (Going::Leaving, Cause::Surplus | Cause::Leave | Cause::Hung)
            | (
                Going::Terminated(Why::Expired | Why::Stayed | Why::Stop | Why::Ordered),
                Cause::Surplus | Cause::Leave | Cause::Expired | Cause::Stop | Cause::Hung,
            )
            | (
                Going::Killed(Why::Expired | Why::Stayed | Why::Stop | Why::Ordered),
                Cause::Surplus
                | Cause::Leave
                | Cause::Expired
                | Cause::Stop
                | Cause::Hung
                | Cause::Due
                | Cause::Kill,
            ) => (self, Order::Nothing),
        }
    }

    /// What a worker that was told to go before it existed is told once it does.
    pub(super) fn at_birth(self) -> Order {
        match self {
            Going::Staying => Order::Nothing,
            Going::Surplus | Going::Leaving => Order::Retire,
            Going::Terminated(_) => Order::Kill(Force::Terminate),
            Going::Killed(_) => Order::Kill(Force::Kill),
        }
    }
}

fn terminate(why: Why) -> (Going, Order) {
    (Going::Terminated(why), Order::Kill(Force::Terminate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_for_one_that_leaves_but_not_for_surplus() {
        assert_eq!(Going::Surplus.after(Cause::Due), (Going::Surplus, Order::Nothing));
        assert_eq!(
            Going::Surplus.after(Cause::Leave),
            (Going::Leaving, Order::Nothing)
        );
        assert_eq!(Going::Leaving.after(Cause::Due).1, Order::Kill(Force::Terminate));
    }

    #[test]
    fn terminated_ends_in_killed_whatever_else_is_wished() {
        let (going, order) = Going::Staying.after(Cause::Expired);
        assert_eq!(order, Order::TimeUp);
        assert_eq!(going.after(Cause::Stop), (going, Order::Nothing));
        assert_eq!(
            going.after(Cause::Due),
            (Going::Killed(Why::Expired), Order::Kill(Force::Kill))
        );
    }
}

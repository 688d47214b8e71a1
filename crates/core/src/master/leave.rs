//! How a worker is made to go.
//!
//! ```text
//!            Surplus               Hung
//!   Kept  ───────────▶ Surplus ────────────┐
//!     │                    │ Leave          │
//!     │ Leave              ▼          Due   ▼        Due
//!     ├───────────────▶ Leaving ──────▶ Terminated ──────▶ Killed
//!     │ Expired, Asked,    │ the same       ▲
//!     │ Stop               │                │
//!     └────────────────────┴────────────────┘
//! ```
//!
//! Expired, Asked and Stop make Terminated of Surplus, too, and Kill makes Killed of every state.
//!
//! A worker that is surplus was idle when it was told to go. If it took a request in that very moment, it finishes it,
//! however long that takes: the master only looks whether it says that it is idle and yet stays (`Hung`). A worker that
//! is leaving, for a reload or the end of the daemon, has `process_control_timeout`.

use super::action::Force;

/// Whether a worker is on its way out, and how hard it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Going {
    /// It is wanted.
    Kept,
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
    /// An operator ends its request.
    Asked,
    /// It had been told to finish and did not.
    Stayed,
    /// The daemon stops now.
    Stop,
    /// The router that ordered it wants it dead.
    Ordered,
}

/// What makes it go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaveCause {
    /// There is no need for it.
    Surplus,
    /// Its generation ends.
    Leave,
    /// Its request ran for too long.
    Expired,
    /// An operator ends its request.
    Asked,
    /// The daemon stops now.
    Stop,
    /// It was told to go as surplus, says that it is idle, and stays.
    Hung,
    /// The time it was given is over.
    Due,
    /// The router that ordered it wants it dead.
    Kill,
}

/// What is to be done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaveAction {
    /// Nothing.
    Nothing,
    /// Tell it to finish.
    Retire,
    /// Terminate it with the word that its request's time is up.
    RespondTimeout,
    /// Send it a signal.
    Kill(Force),
}

impl Going {
    /// The state after `cause`, and the action that goes with the change.
    pub(super) fn after(self, cause: LeaveCause) -> (Going, LeaveAction) {
        match (self, cause) {
            (Going::Kept, LeaveCause::Surplus) => (Going::Surplus, LeaveAction::Retire),
            (Going::Kept, LeaveCause::Leave) => (Going::Leaving, LeaveAction::Retire),
            (Going::Surplus, LeaveCause::Leave) => (Going::Leaving, LeaveAction::Nothing),
            (Going::Kept | Going::Surplus | Going::Leaving, LeaveCause::Expired) => {
                (Going::Terminated(Why::Expired), LeaveAction::RespondTimeout)
            }
            (Going::Kept | Going::Surplus | Going::Leaving, LeaveCause::Asked) => {
                (Going::Terminated(Why::Asked), LeaveAction::RespondTimeout)
            }
            (Going::Kept | Going::Surplus | Going::Leaving, LeaveCause::Stop) => terminate(Why::Stop),
            (Going::Surplus, LeaveCause::Hung) => terminate(Why::Stayed),
            (Going::Leaving, LeaveCause::Due) => terminate(Why::Stayed),
            (Going::Terminated(why), LeaveCause::Due) => (Going::Killed(why), LeaveAction::Kill(Force::Kill)),
            (Going::Kept | Going::Surplus | Going::Leaving | Going::Terminated(_), LeaveCause::Kill) => {
                (Going::Killed(Why::Ordered), LeaveAction::Kill(Force::Kill))
            }
            // Ignored: it is on its way already, or the cause is not for a worker that stays.
            (Going::Kept, LeaveCause::Hung | LeaveCause::Due)
            | (Going::Surplus, LeaveCause::Surplus | LeaveCause::Due)
            | (Going::Leaving, LeaveCause::Surplus | LeaveCause::Leave | LeaveCause::Hung)
            | (
                Going::Terminated(Why::Expired | Why::Asked | Why::Stayed | Why::Stop | Why::Ordered),
                LeaveCause::Surplus
                | LeaveCause::Leave
                | LeaveCause::Expired
                | LeaveCause::Asked
                | LeaveCause::Stop
                | LeaveCause::Hung,
            )
            | (
                Going::Killed(Why::Expired | Why::Asked | Why::Stayed | Why::Stop | Why::Ordered),
                LeaveCause::Surplus
                | LeaveCause::Leave
                | LeaveCause::Expired
                | LeaveCause::Asked
                | LeaveCause::Stop
                | LeaveCause::Hung
                | LeaveCause::Due
                | LeaveCause::Kill,
            ) => (self, LeaveAction::Nothing),
        }
    }

    /// What a worker is told once it exists, if it was to go before that.
    pub(super) fn when_forked(self) -> LeaveAction {
        match self {
            Going::Kept => LeaveAction::Nothing,
            Going::Surplus | Going::Leaving => LeaveAction::Retire,
            Going::Terminated(_) => LeaveAction::Kill(Force::Terminate),
            Going::Killed(_) => LeaveAction::Kill(Force::Kill),
        }
    }
}

fn terminate(why: Why) -> (Going, LeaveAction) {
    (Going::Terminated(why), LeaveAction::Kill(Force::Terminate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_for_one_that_leaves_but_not_for_surplus() {
        assert_eq!(
            Going::Surplus.after(LeaveCause::Due),
            (Going::Surplus, LeaveAction::Nothing)
        );
        assert_eq!(
            Going::Surplus.after(LeaveCause::Leave),
            (Going::Leaving, LeaveAction::Nothing)
        );
        assert_eq!(
            Going::Leaving.after(LeaveCause::Due).1,
            LeaveAction::Kill(Force::Terminate)
        );
    }

    #[test]
    fn a_request_that_an_operator_ends_is_answered_once() {
        for going in [Going::Kept, Going::Surplus, Going::Leaving] {
            let (ended, action) = going.after(LeaveCause::Asked);
            assert_eq!(action, LeaveAction::RespondTimeout);
            assert_eq!(ended.after(LeaveCause::Asked), (ended, LeaveAction::Nothing));
            assert_eq!(ended.after(LeaveCause::Expired), (ended, LeaveAction::Nothing));
        }
    }

    #[test]
    fn terminated_ends_in_killed_whatever_else_is_wished() {
        let (going, action) = Going::Kept.after(LeaveCause::Expired);
        assert_eq!(action, LeaveAction::RespondTimeout);
        assert_eq!(going.after(LeaveCause::Stop), (going, LeaveAction::Nothing));
        assert_eq!(
            going.after(LeaveCause::Due),
            (Going::Killed(Why::Expired), LeaveAction::Kill(Force::Kill))
        );
    }
}

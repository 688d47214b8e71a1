//! How workers are made to exit.
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
//! Expired, Asked and Stop also lead from Surplus to Terminated, and Kill from every state to Killed. A surplus worker
//! was idle when it was told to exit. If it has just taken a request, it may finish it; the master only checks for a
//! worker that claims to be idle and stays (Hung). A leaving worker has `process_control_timeout`.

use super::action::Force;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Going {
    #[default]
    Kept,
    /// Told to exit because it is not needed.
    Surplus,
    /// Told to exit because its generation leaves.
    Leaving,
    Terminated(Why),
    Killed(Why),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Its request timed out.
    Expired,
    /// An operator ended its request.
    Asked,
    /// It did not exit in time.
    Stayed,
    /// The daemon stops at once.
    Stop,
    /// Its router had it killed.
    Ordered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaveCause {
    /// It is not needed.
    Surplus,
    Leave,
    /// Its request timed out.
    Expired,
    /// An operator ends its request.
    Asked,
    /// The daemon stops at once.
    Stop,
    /// It is surplus, claims to be idle, and stays.
    Hung,
    /// Its time is over.
    Due,
    /// Its router has it killed.
    Kill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaveAction {
    Nothing,
    Retire,
    /// Send SIGTERM and have the client answered.
    RespondTimeout,
    Kill(Force),
}

impl Going {
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

    /// The request for a worker that should exit right after its fork.
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

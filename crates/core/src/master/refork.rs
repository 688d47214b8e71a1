//! Whether a generation's preloader is made anew from one of its workers ("refork").
//!
//! ```text
//!            Begin              Made             Free             Renewed
//!  Waiting ────────▶ Promoting ──────▶ Arrived ──────▶ Replacing ─────────┐
//!     ▲                  │ Gone           │ Gone                          │
//!     │     Rested       ▼                ▼                               │
//!     └───────────── Resting ◀─────────────────────────────────────────────┘
//! ```
//!
//! A worker that has served so many requests ("mold_candidate") makes a copy of itself, which becomes the next mold
//! (Promoting), and ends. Once that is ready (Arrived) nothing more is asked of the first, and when it has answered
//! everything the second takes its place. The workers of before are replaced one after the other (Replacing). After
//! that, and after a failure for longer, there is a pause (Resting), so that a worker that lies about its requests
//! can't keep the master busy.

/// Where a generation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refork {
    /// It has no such thing, or it is on its way out.
    Off,
    /// For a worker that is mold_candidate.
    Waiting,
    /// A next mold is made from a worker.
    Promoting,
    /// It is ready, and waits until the first has answered what it was asked.
    Arrived,
    /// It is the only one now; workers of before are replaced.
    Replacing,
    /// For the time until the next.
    Resting,
}

/// What changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReforkCause {
    /// There is a worker to make it from.
    Begin,
    /// The next mold is ready.
    Made,
    /// The first preloader owes nothing any more.
    Free,
    /// No worker of before is left.
    Renewed,
    /// The next mold is gone.
    Gone,
    /// The pause is over.
    Rested,
    /// The generation ends.
    End,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReforkAction {
    /// Nothing.
    Nothing,
    /// Have the worker make a next mold.
    Promote,
    /// Let the next mold take the place of the first.
    SwitchMold,
    /// Pause for a moment.
    Rest,
    /// Say that it failed, and pause for longer.
    Failed,
}

impl Refork {
    /// The state after `cause`, and the action that goes with the change.
    pub(super) fn after(self, cause: ReforkCause) -> (Refork, ReforkAction) {
        use Refork::{Arrived, Off, Promoting, Replacing, Resting, Waiting};
        match (self, cause) {
            (Waiting, ReforkCause::Begin) => (Promoting, ReforkAction::Promote),
            (Promoting, ReforkCause::Made) => (Arrived, ReforkAction::Nothing),
            (Arrived, ReforkCause::Free) => (Replacing, ReforkAction::SwitchMold),
            (Replacing, ReforkCause::Renewed) => (Resting, ReforkAction::Rest),
            (Promoting | Arrived, ReforkCause::Gone) => (Resting, ReforkAction::Failed),
            (Resting, ReforkCause::Rested) => (Waiting, ReforkAction::Nothing),
            (Off | Waiting | Promoting | Arrived | Replacing | Resting, ReforkCause::End) => {
                (Off, ReforkAction::Nothing)
            }
            // Ignored: it is so already, or the cause is not for this state. In Replacing and later what is gone is the
            // first preloader, which was told to go.
            (
                Off,
                ReforkCause::Begin
                | ReforkCause::Made
                | ReforkCause::Free
                | ReforkCause::Renewed
                | ReforkCause::Gone
                | ReforkCause::Rested,
            )
            | (
                Waiting,
                ReforkCause::Made
                | ReforkCause::Free
                | ReforkCause::Renewed
                | ReforkCause::Gone
                | ReforkCause::Rested,
            )
            | (
                Promoting,
                ReforkCause::Begin | ReforkCause::Free | ReforkCause::Renewed | ReforkCause::Rested,
            )
            | (
                Arrived,
                ReforkCause::Begin | ReforkCause::Made | ReforkCause::Renewed | ReforkCause::Rested,
            )
            | (
                Replacing,
                ReforkCause::Begin
                | ReforkCause::Made
                | ReforkCause::Free
                | ReforkCause::Gone
                | ReforkCause::Rested,
            )
            | (
                Resting,
                ReforkCause::Begin
                | ReforkCause::Made
                | ReforkCause::Free
                | ReforkCause::Renewed
                | ReforkCause::Gone,
            ) => (self, ReforkAction::Nothing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_preloader_that_is_gone_before_its_time_is_a_failure() {
        for state in [Refork::Promoting, Refork::Arrived] {
            assert_eq!(
                state.after(ReforkCause::Gone),
                (Refork::Resting, ReforkAction::Failed)
            );
        }
        assert_eq!(
            Refork::Replacing.after(ReforkCause::Gone),
            (Refork::Replacing, ReforkAction::Nothing),
            "that was the first one"
        );
    }

    #[test]
    fn nothing_begins_twice_nor_after_the_end() {
        assert_eq!(
            Refork::Promoting.after(ReforkCause::Begin),
            (Refork::Promoting, ReforkAction::Nothing)
        );
        let (ended, _) = Refork::Arrived.after(ReforkCause::End);
        assert_eq!(
            ended.after(ReforkCause::Free),
            (Refork::Off, ReforkAction::Nothing)
        );
    }
}

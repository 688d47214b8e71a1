//! Refork: replaces a generation's preloader by a copy of one of its workers.
//!
//! ```text
//!            Begin              Made             Free             Renewed
//!  Waiting ────────▶ Promoting ──────▶ Arrived ──────▶ Replacing ─────────┐
//!     ▲                  │ Gone           │ Gone                          │
//!     │     Rested       ▼                ▼                               │
//!     └───────────── Resting ◀─────────────────────────────────────────────┘
//! ```
//!
//! A worker that has served enough requests (a mold candidate) forks a copy of itself, which becomes the next mold
//! (Promoting), and exits. Once the copy is ready (Arrived), the preloader gets no more requests; after its last answer
//! the copy replaces it. The old workers are replaced one by one (Replacing). A pause follows (Resting), longer after a
//! failure, so that a worker that lies about its requests can't keep the master busy.

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Refork {
    /// Not configured, or the generation leaves.
    #[default]
    Off,
    /// Waits for a mold candidate.
    Waiting,
    /// A worker forks the next mold.
    Promoting,
    /// The next mold is ready and waits for the preloader's last answer.
    Arrived,
    /// The next mold has taken over; old workers are replaced.
    Replacing,
    Resting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReforkCause {
    /// A mold candidate exists.
    Begin,
    /// The next mold is ready.
    Made,
    /// The old preloader has answered everything.
    Free,
    /// No old worker is left.
    Renewed,
    /// The next mold exited.
    Gone,
    Rested,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReforkAction {
    Nothing,
    Promote,
    SwitchMold,
    Rest,
    /// Log the failure and pause longer.
    Failed,
}

impl Refork {
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
            // In Replacing and later the process that exits is the old preloader.
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

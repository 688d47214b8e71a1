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
//! A worker that has served so many requests ("seasoned") makes a copy of itself, which becomes the second preloader
//! (Promoting), and ends. Once that is ready (Arrived) nothing more is asked of the first, and when it has answered everything the
//! second takes its place. The workers of before are replaced one after the other (Replacing). After that, and after a failure
//! for longer, there is a pause (Resting), so that a worker that lies about its requests keeps nobody busy.

/// Where a generation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refork {
    /// It has no such thing, or it is on its way out.
    Off,
    /// For a worker that is seasoned.
    Waiting,
    /// A second preloader is made from a worker.
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
pub(super) enum Cause {
    /// There is a worker to make it from.
    Begin,
    /// The second preloader is ready.
    Made,
    /// The first preloader owes nothing any more.
    Free,
    /// No worker of before is left.
    Renewed,
    /// The second preloader is gone.
    Gone,
    /// The pause is over.
    Rested,
    /// The generation ends.
    End,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Nothing.
    Nothing,
    /// Have the worker make a second preloader.
    Promote,
    /// Let the second preloader take the place of the first.
    Succeed,
    /// Pause for a moment.
    Rest,
    /// Say that it failed, and pause for longer.
    Failed,
}

impl Refork {
    /// The state after `cause`, and the order that goes with the change.
    pub(super) fn after(self, cause: Cause) -> (Refork, Order) {
        use Refork::{Arrived, Off, Promoting, Replacing, Resting, Waiting};
        match (self, cause) {
            (Waiting, Cause::Begin) => (Promoting, Order::Promote),
            (Promoting, Cause::Made) => (Arrived, Order::Nothing),
            (Arrived, Cause::Free) => (Replacing, Order::Succeed),
            (Replacing, Cause::Renewed) => (Resting, Order::Rest),
            (Promoting | Arrived, Cause::Gone) => (Resting, Order::Failed),
            (Resting, Cause::Rested) => (Waiting, Order::Nothing),
            (Off | Waiting | Promoting | Arrived | Replacing | Resting, Cause::End) => (Off, Order::Nothing),
            // Ignored: it is so already, or the cause is not for this state. In Replacing and later what is gone is the
            // first preloader, which was told to go.
            (
                Off,
                Cause::Begin | Cause::Made | Cause::Free | Cause::Renewed | Cause::Gone | Cause::Rested,
            )
            | (Waiting, Cause::Made | Cause::Free | Cause::Renewed | Cause::Gone | Cause::Rested)
            | (Promoting, Cause::Begin | Cause::Free | Cause::Renewed | Cause::Rested)
            | (Arrived, Cause::Begin | Cause::Made | Cause::Renewed | Cause::Rested)
            | (Replacing, Cause::Begin | Cause::Made | Cause::Free | Cause::Gone | Cause::Rested)
            | (Resting, Cause::Begin | Cause::Made | Cause::Free | Cause::Renewed | Cause::Gone) => {
                (self, Order::Nothing)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_preloader_that_is_gone_before_its_time_is_a_failure() {
        for state in [Refork::Promoting, Refork::Arrived] {
            assert_eq!(state.after(Cause::Gone), (Refork::Resting, Order::Failed));
        }
        assert_eq!(
            Refork::Replacing.after(Cause::Gone),
            (Refork::Replacing, Order::Nothing),
            "that was the first one"
        );
    }

    #[test]
    fn nothing_begins_twice_nor_after_the_end() {
        assert_eq!(
            Refork::Promoting.after(Cause::Begin),
            (Refork::Promoting, Order::Nothing)
        );
        let (ended, _) = Refork::Arrived.after(Cause::End);
        assert_eq!(ended.after(Cause::Free), (Refork::Off, Order::Nothing));
    }
}

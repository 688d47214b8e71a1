//! Who looks after the spare workers of a dynamic generation: its workers tell when they leave too few of them idle.
//!
//! ```text
//!           Accepted, Gone, Freed             Blocked
//!   Open ─────────────────────────▶ Asking ───────────▶ Closed
//!    ▲                               │  ▲                 │
//!    └───────────────────────────────┘  └─────────────────┘
//!                 Enough                    Freed; Gone if full
//! ```
//!
//! In Open and Asking a worker that leaves fewer than `min_spare_servers` idle tells. In Closed no worker can be made, so
//! none needs to tell.

use super::source::Block;

/// The state of a dynamic generation's spare workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spare {
    /// Not a dynamic generation, or not the one that serves.
    Unused,
    /// There were enough; workers tell when there no longer are.
    Open,
    /// A census will show whether there are enough.
    Asking,
    /// There are too few, and no more can be made.
    Closed(Block),
}

/// What changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The generation serves now.
    Begin,
    /// It doesn't any more.
    End,
    /// A worker told that too few are idle, or called accept for the first time.
    Accepted,
    /// A worker ended or could not be made.
    Gone,
    /// What stood in the way does so no more.
    Freed,
    /// The census: there are enough, or as many as may be made at once are being made.
    Enough,
    /// The census: there are too few, and no more can be made.
    Blocked(Block),
}

impl Spare {
    /// The state after `cause`, and whether a census is to be taken: after the workers were told to tell.
    pub(super) fn after(self, cause: Cause) -> (Spare, bool) {
        use Spare::{Asking, Closed, Open, Unused};
        match (self, cause) {
            (Unused | Open | Closed(_), Cause::Begin) => (Asking, true),
            (Unused | Open | Asking | Closed(_), Cause::End) => (Unused, false),
            // What was told in Asking may have happened after the census that is on its way: take another.
            (Open | Asking, Cause::Accepted | Cause::Gone | Cause::Freed) => (Asking, true),
            (Asking, Cause::Enough) => (Open, false),
            (Asking, Cause::Blocked(block)) => (Closed(block), false),
            (Closed(_), Cause::Freed) => (Asking, true),
            (Closed(Block::Full), Cause::Gone) => (Asking, true),
            // The timer, the turn or the preloader will come; and nothing told now could be acted upon.
            (Closed(Block::ProcessMax | Block::Backoff | Block::Preloader), Cause::Gone)
            | (Closed(_), Cause::Accepted | Cause::Enough | Cause::Blocked(_))
            | (Asking, Cause::Begin)
            | (Open, Cause::Enough | Cause::Blocked(_))
            | (Unused, Cause::Accepted | Cause::Gone | Cause::Freed | Cause::Enough | Cause::Blocked(_)) => {
                (self, false)
            }
        }
    }

    /// Whether workers that leave too few idle are to tell.
    pub(super) fn wants_telling(self) -> bool {
        match self {
            Spare::Open | Spare::Asking => true,
            Spare::Unused | Spare::Closed(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_while_asking_is_asked_again() {
        assert_eq!(Spare::Asking.after(Cause::Accepted), (Spare::Asking, true));
    }

    #[test]
    fn nobody_tells_while_nothing_can_be_done() {
        let (closed, _) = Spare::Asking.after(Cause::Blocked(Block::Full));
        assert!(!closed.wants_telling());
        assert_eq!(closed.after(Cause::Accepted), (closed, false));
        assert_eq!(closed.after(Cause::Gone), (Spare::Asking, true));
    }
}

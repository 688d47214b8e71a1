//! Who looks after new work of an ondemand pool: the master, or a worker that will tell it.
//!
//! ```text
//!             Ready            Enough
//!  Watched ───────────▶ Asking ───────▶ Told
//!   ▲ ▲ ▲                │ │ ▲           │ │
//!   │ │ └────────────────┘ │ └───────────┘ │
//!   │ │  Accepted, None    │   Impatient   │
//!   │ └────────────────────┼───────────────┘
//!   │                      │    Accepted, Gone, Freed
//!   │ Freed, Gone          ▼ Blocked
//!   └──────────────────── Parked
//! ```
//!
//! In Watched the master watches the source of work. In Asking and Told it doesn't, and every worker that takes up work
//! tells it: somebody is expected to. In Parked it doesn't either, and nobody tells: no worker can be made, so there is
//! nothing the master could do. Each way out of a state is an event that must come: see the table.

/// What stands in the way of another worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    /// Every slot is taken. Ends when a worker of the generation ends.
    Full,
    /// `process.max` is reached. Ends when it is the generation's turn.
    ProcessMax,
    /// Workers could not be made, or did not live. Ends with the timer.
    Backoff,
    /// The preloader is not ready. Ends when it is ready, or gone.
    Preloader,
}

/// The state of a pool's source of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The serving generation needs no one to look: it is static or dynamic, or there is none.
    Unused,
    /// The master watches.
    Watched,
    /// Work came; a census will show whether someone can take it.
    Asking,
    /// A worker is expected to take it and to tell.
    Told,
    /// No one can be made for it.
    Parked(Block),
}

/// What changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// An ondemand generation serves now.
    Begin,
    /// None does any more.
    End,
    /// Work waits.
    Ready,
    /// A worker told that it took work, or called accept for the first time.
    Accepted,
    /// A worker ended or could not be made.
    Gone,
    /// Which generations take work has changed: who was to be counted, or to tell, may be leaving.
    Changed,
    /// What stood in the way does so no more.
    Freed,
    /// The census: nothing waits any more.
    None,
    /// The census: someone can take what waits, or was just asked for.
    Enough,
    /// The census: there are too few, and no more can be made.
    Blocked(Block),
    /// No one has told anything for a while.
    Impatient,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Nothing.
    Nothing,
    /// Let workers be silent, then watch.
    Watch,
    /// Stop watching, let workers tell, then take a census.
    Park,
    /// Take another census: workers are telling already.
    Ask,
    /// Let workers be silent.
    Hush,
    /// Stop watching.
    Unwatch,
}

impl Source {
    /// The state after `cause`, and the order that goes with the change.
    pub(super) fn after(self, cause: Cause) -> (Source, Order) {
        use Source::{Asking, Parked, Told, Unused, Watched};
        match (self, cause) {
            (Unused, Cause::Begin) => (Watched, Order::Watch),
            (Watched, Cause::End) => (Unused, Order::Unwatch),
            (Asking | Told | Parked(_), Cause::End) => (Unused, Order::Hush),
            (Watched, Cause::Ready) => (Asking, Order::Park),
            (Asking, Cause::Accepted | Cause::None | Cause::Changed) => (Watched, Order::Watch),
            (Asking, Cause::Enough) => (Told, Order::Nothing),
            (Asking, Cause::Blocked(block)) => (Parked(block), Order::Hush),
            (Told, Cause::Accepted | Cause::Gone | Cause::Changed | Cause::Freed) => (Watched, Order::Watch),
            (Told, Cause::Impatient) => (Asking, Order::Ask),
            (Parked(_), Cause::Freed | Cause::Begin) => (Watched, Order::Watch),
            (Parked(Block::Full), Cause::Gone) => (Watched, Order::Watch),
            // The census that is on its way will not count the one that is gone.
            (Asking, Cause::Gone | Cause::Freed)
            // The timer, the turn or the preloader will come.
            | (Parked(Block::ProcessMax | Block::Backoff | Block::Preloader), Cause::Gone)
            // What stands in the way does so still, unless another generation begins to serve.
            | (Parked(_), Cause::Changed)
            // Ignored: late, or for another state.
            | (Unused, Cause::End | Cause::Ready | Cause::Accepted | Cause::Gone | Cause::Freed)
            | (Unused, Cause::Changed | Cause::None | Cause::Enough | Cause::Blocked(_) | Cause::Impatient)
            | (Watched, Cause::Begin | Cause::Accepted | Cause::Gone | Cause::Freed)
            | (Watched, Cause::Changed | Cause::None | Cause::Enough | Cause::Blocked(_) | Cause::Impatient)
            | (Asking, Cause::Begin | Cause::Ready | Cause::Impatient)
            | (Told, Cause::Begin | Cause::Ready | Cause::None | Cause::Enough | Cause::Blocked(_))
            | (Parked(_), Cause::Ready | Cause::Accepted | Cause::None | Cause::Enough)
            | (Parked(_), Cause::Blocked(_) | Cause::Impatient) => (self, Order::Nothing),
        }
    }

    /// Whether workers that take up work are to tell.
    pub(super) fn wants_telling(self) -> bool {
        match self {
            Source::Asking | Source::Told => true,
            Source::Unused | Source::Watched | Source::Parked(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_watched_again_whenever_someone_told() {
        for source in [Source::Asking, Source::Told] {
            assert_eq!(source.after(Cause::Accepted), (Source::Watched, Order::Watch));
        }
        assert_eq!(Source::Told.after(Cause::Gone), (Source::Watched, Order::Watch));
    }

    #[test]
    fn a_full_pool_is_silent_until_a_worker_ends() {
        let (full, order) = Source::Asking.after(Cause::Blocked(Block::Full));
        assert_eq!(order, Order::Hush);
        assert!(!full.wants_telling());
        assert_eq!(full.after(Cause::Accepted), (full, Order::Nothing));
        assert_eq!(full.after(Cause::Gone), (Source::Watched, Order::Watch));
    }

    #[test]
    fn a_worker_that_ends_does_not_cut_a_back_off_short() {
        let waiting = Source::Parked(Block::Backoff);
        assert_eq!(waiting.after(Cause::Gone), (waiting, Order::Nothing));
        assert_eq!(waiting.after(Cause::Freed), (Source::Watched, Order::Watch));
    }
}

//! What can be due.

use super::event::{GenerationId, PoolId, WorkerId};

/// All timers.
pub(super) type Timers = crate::timers::Timers<Timer>;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Timer {
    /// A worker that said it was idle has not taken the work that waits.
    Accept(PoolId),
    /// A generation that was next when capacity became free has not used it.
    Grant(GenerationId),
    /// The generation may try again to make workers.
    Backoff(GenerationId),
    /// Workers may have been idle for long enough.
    Shrink(GenerationId),
    /// A request may have run for too long.
    Expiry(GenerationId),
    /// The preloader has not come up, has not stopped, or has had no worker for long enough.
    Preloader(GenerationId),
    /// The preloader has not answered a request to fork.
    Answer(GenerationId),
    /// The next mold has not come up, or has not stopped.
    NextMold(GenerationId),
    /// The next preloader may be made from a worker.
    Rest(GenerationId),
    /// A worker that was told to go is still there.
    Worker(WorkerId),
    /// The daemon ends, and what is still there was killed.
    Killed,
}

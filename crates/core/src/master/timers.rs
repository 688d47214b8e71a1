//! Timers of the core.

use super::event::{GenerationId, PoolId, WorkerId};

pub(super) type Timers = forkyard_base::timers::Timers<Timer>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Timer {
    /// A worker that claimed to be idle has not taken waiting work.
    Accept(PoolId),
    /// A fork grant is unused.
    Grant(GenerationId),
    Backoff(GenerationId),
    Shrink(GenerationId),
    Expiry(GenerationId),
    /// The preloader's start, stop or idle time.
    Preloader(GenerationId),
    /// The preloader's answer to a fork request.
    Answer(GenerationId),
    /// The next mold's start or stop.
    NextMold(GenerationId),
    /// The pause after a refork.
    Rest(GenerationId),
    /// A leaving worker's time.
    Worker(WorkerId),
    /// The wait for killed processes at exit.
    Killed,
}

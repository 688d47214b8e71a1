//! Effects of one part of the executor on others.

use crate::master::event::{Ended, GenerationId, WorkerId};
use crate::master::pool_restart::RestartRequest;
use crate::spawn::report::Report;
use crate::worker::WorkerContext;
use std::sync::Arc;

/// A part pushes it to `Services::effects`; [`super::Executor::settle`] routes it.
#[derive(Debug)]
pub(super) enum Effect {
    RestartAsked(RestartRequest),
    WorkerUp(WorkerId),
    /// A worker has all that it needs; its preloader forks it.
    WorkerPrepared(WorkerId, GenerationId, WorkerContext),
    WorkerNotForked(WorkerId),
    WorkerEnded(WorkerId, i32, Ended),
    /// An ended worker was forgotten.
    WorkerGone(WorkerId),
    StartFailed(Vec<GenerationId>, Arc<Report>),
    /// A process of a program ended by itself.
    ProcessDied(GenerationId, Arc<Report>),
    /// The last pool of this name has closed.
    PoolEnded(String),
}

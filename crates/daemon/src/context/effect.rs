//! Effects of one part of the executor on another.

use super::helper_id::{HelperId, HelperStep};
use forkyard_config::Pool;
use forkyard_core::master::event::{Ended, GenerationId, PoolId, WorkerId};
use forkyard_core::master::pool_restart::RestartRequest;
use forkyard_core::master::reload_diff::ReloadScope;
use forkyard_host::listen::Listener;
use forkyard_protocol::control::Answer;
use forkyard_protocol::past_event::Happening;
use forkyard_spawn::report::Report;
use forkyard_worker::WorkerContext;
use serde_json::Value;
use std::sync::Arc;

/// A part pushes it to `Services::effects`, and the executor routes it.
#[derive(Debug)]
pub(crate) enum Effect {
    /// A worker asks for new processes of its pool.
    RestartAsked(RestartRequest),
    WorkerUp(WorkerId),
    GenerationDropped(GenerationId),
    PoolClosed(PoolId),
    /// A pool was configured, for the first time or again. The configuration in force is still the one before.
    PoolConfigured(Box<PoolConfigured>),
    /// A worker has all that it needs; its preloader forks it.
    WorkerPrepared(WorkerId, GenerationId, WorkerContext),
    WorkerNotForked(WorkerId),
    WorkerEnded(WorkerId, i32, Ended),
    /// An ended worker was forgotten.
    WorkerGone(WorkerId),
    StartFailed(Vec<GenerationId>, Arc<Report>),
    /// A process of a program ended by itself.
    ProgramDied(GenerationId),
    /// One did so, and the next start waits.
    ProcessDied(GenerationId, Arc<Report>),
    Helper(HelperId, HelperStep),
    /// The routers' views for a client's status have come, or their time is over.
    StatusDue(StatusAsker, Vec<(PoolId, Value)>),
    /// The last pool of this name has closed.
    PoolEnded(String),
    /// A client's request has its answer.
    Answered(u64, Box<Answer>),
    /// A worker has reported a queue.
    Crowded(GenerationId),
    /// A worker has reported many busy workers.
    GrewBusy(GenerationId),
    /// Something to keep in the history.
    Happened(Box<Happening>),
    /// A control session has ended.
    SessionEnded(u64),
}

/// The recipient of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusAsker {
    /// A control session.
    Session(u64),
    /// The web process.
    Web,
}

#[derive(Debug)]
pub(crate) struct PoolConfigured {
    pub(crate) pool: PoolId,
    pub(crate) settings: Arc<Pool>,
    /// The status socket, if it was opened.
    pub(crate) status: Option<Listener>,
    pub(crate) extent: ReloadScope,
}

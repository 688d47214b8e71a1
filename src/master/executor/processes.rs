//! The master's children: whose each pid is, and what is known of those that have ended.

use super::notices;
use crate::master::event::{GenerationId, PoolId, WorkerId};
use crate::sys::process;
use std::collections::{HashMap, HashSet, VecDeque};

/// Children, by pid, and what is known of those that have ended.
#[derive(Debug, Default)]
pub(in crate::master) struct Processes {
    pub(super) by_pid: HashMap<i32, Who>,
    /// Children that ended before their preloader had said that it made them.
    pub(super) early_deaths: VecDeque<(i32, process::Ended)>,
    /// Workers that were reaped, until the core says so in the log.
    pub(super) deaths: HashMap<WorkerId, notices::Death>,
    /// What preloaders that are gone wrote last, until the core says so in the log.
    pub(super) last_lines: HashMap<GenerationId, VecDeque<String>>,
    /// Generations whose failed starts are in the log already, until the core says that they failed.
    pub(super) reported: HashSet<GenerationId>,
    /// More children may have ended than were reaped at once.
    pub(in crate::master) has_more_dead: bool,
}

/// The part that a pid belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Worker(WorkerId),
    Preloader,
    /// A process of a generation's program, by its place.
    Program(GenerationId, usize),
    /// The new program, which tries before an upgrade whether it can take over.
    Rehearsal,
    Reporter(PoolId),
    /// The process that refuses the pool's requests while its application can't be started.
    UnavailableResponder(PoolId),
    Router(PoolId),
    Inspector(PoolId),
    /// It keeps background jobs.
    Jobs,
    /// A process that writes down what the worker with this pid is busy with.
    Tracer(i32),
}

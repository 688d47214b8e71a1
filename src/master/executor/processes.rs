//! The master's children: whose each pid is, and what is known of those that have ended.

use super::notices;
use crate::master::event::{GenerationId, PoolId, WorkerId};
use crate::sys::process;
use std::collections::{HashMap, HashSet, VecDeque};

#[derive(Debug, Default)]
pub(in crate::master) struct Processes {
    pub(super) by_pid: HashMap<i32, Who>,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Worker(WorkerId),
    Preloader,
    Program(GenerationId, usize),
    Rehearsal,
    Reporter(PoolId),
    UnavailableResponder(PoolId),
    Router(PoolId),
    Inspector(PoolId),
    Jobs,
    Tracer(i32),
}

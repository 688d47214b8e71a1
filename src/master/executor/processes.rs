//! The master's children by pid, and the facts about ended ones.

use super::helper_id::HelperId;
use super::notices;
use crate::master::event::{Ended, GenerationId, WorkerId};
use std::collections::{HashMap, HashSet, VecDeque};

#[derive(Debug, Default)]
pub(in crate::master) struct Processes {
    pub(super) by_pid: HashMap<i32, Who>,
    pub(super) early_deaths: VecDeque<(i32, Ended)>,
    /// Reaped workers, until the core logs them.
    pub(super) deaths: HashMap<WorkerId, notices::Death>,
    /// Last lines of ended preloaders, until the core logs them.
    pub(super) last_lines: HashMap<GenerationId, VecDeque<String>>,
    /// Generations with logged failed starts, until the core reports them.
    pub(super) reported: HashSet<GenerationId>,
    /// More children may have ended than were reaped in one turn.
    pub(in crate::master) has_more_dead: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Worker(WorkerId),
    Preloader,
    Program(GenerationId, usize),
    Rehearsal,
    Helper(HelperId),
    Tracer(i32),
}

//! The master's children by pid, and the facts about ended ones.

use super::helper_id::HelperId;
use super::oom_kills::OomKills;
use forkyard_core::master::event::{Ended, GenerationId, WorkerId};
use forkyard_spawn::report::ErrorId;
use forkyard_sys::process;
use nix::sys::signal::Signal;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

const EARLY_DEATHS: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Processes {
    pub(crate) by_pid: HashMap<i32, Who>,
    early_deaths: VecDeque<(i32, Ended)>,
    /// Reaped workers, until the core logs them.
    pub(crate) deaths: HashMap<WorkerId, Death>,
    /// Last lines of ended preloaders, until the core logs them.
    pub(crate) last_lines: HashMap<GenerationId, VecDeque<String>>,
    /// Generations with logged failed starts, until the core reports them.
    pub(crate) reported: HashSet<GenerationId>,
    pub(crate) oom_kills: OomKills,
    /// More children may have ended than were reaped in one turn.
    pub(crate) has_more_dead: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Worker(WorkerId),
    Preloader,
    Program(GenerationId, usize),
    Rehearsal,
    Helper(HelperId),
    Tracer(i32),
}

#[derive(Debug)]
pub(crate) struct Death {
    pub(crate) pid: i32,
    pub(crate) pool: String,
    pub(crate) uptime: Duration,
    pub(crate) generation: GenerationId,
    pub(crate) doing: Option<String>,
    /// The master has ended it.
    pub(crate) is_ordered: bool,
    /// The signal and its sender: `process 12 (kill), user id 0`.
    pub(crate) sender: Option<(i32, String)>,
    /// Its report, if it died at work.
    pub(crate) report: Option<Reported>,
}

/// The report of a death at work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reported {
    pub(crate) id: ErrorId,
    pub(crate) is_work_lost: bool,
}

/// How a process ended, in words: `with code 1`, `on signal 11 (SIGSEGV - core dumped)`.
pub(crate) fn how(exit: Ended) -> String {
    match exit {
        Ended::Code(code) => format!("with code {code}"),
        Ended::Unknown => "with a code that only its parent knows".to_owned(),
        Ended::Signal { number, core } => {
            let name = Signal::try_from(number).map_or("unknown", Signal::as_str);
            let core = if core { " - core dumped" } else { "" };
            format!("on signal {number} ({name}{core})")
        }
    }
}

impl Processes {
    pub(crate) fn note_early_death(&mut self, pid: i32, ended: Ended) {
        if self.early_deaths.len() >= EARLY_DEATHS {
            self.early_deaths.pop_front();
        }
        self.early_deaths.push_back((pid, ended));
    }

    /// Returns how a process ended before its preloader named it. A child with this pid is another process: the kernel gives pids
    /// again, and orphans that ended stay in the list.
    pub(crate) fn early_death(&mut self, pid: i32) -> Option<Ended> {
        let at = self.early_deaths.iter().rposition(|(dead, _)| *dead == pid)?;
        let ended = self.early_deaths.remove(at).map(|(_, ended)| ended);
        ended.filter(|_| !process::is_child(pid))
    }
}

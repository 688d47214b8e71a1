//! A worker as the master knows it.

use super::handover::Named;
use super::output::Lines;
use forkyard_base::tick::Tick;
use forkyard_core::master::action::Force;
use forkyard_core::master::crash_cause::EndedBy;
use forkyard_core::master::event::{GenerationId, StopRequest, WorkerId};
use forkyard_protocol::handover::names;
use forkyard_slowlog::StackSource;
use forkyard_sys::guarded::Guarded;
use forkyard_sys::session::Leader;
use forkyard_sys::{Error, pidfd, process};
use nix::sys::signal::Signal;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// How the calls of a worker's PHP can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Traceable {
    pub(super) source: StackSource,
    /// Device and inode of their executable. A worker that runs another one is not traced.
    pub(super) executable: (u64, u64),
}

/// A worker from the decision to start it until it is reaped.
#[derive(Debug, Default)]
pub(super) struct WorkerProcess {
    pub(super) generation: GenerationId,
    pub(super) slot: u32,
    pub(super) pid: Option<i32>,
    /// A byte in it, or its end, tells the worker to finish.
    pub(super) stop_pipe: Option<Guarded>,
    pub(super) output: Vec<(Lines, &'static str)>,
    /// The end of its output.
    pub(super) last_output: Vec<u8>,
    pub(super) begun: forkyard_base::tick::Tick,
    pub(super) up: bool,
    pub(super) told: Option<(StopRequest, forkyard_base::tick::Tick)>,
    /// Why the core had it ended.
    pub(super) ended_by: Option<EndedBy>,
    /// The most memory that it had, in bytes, once it is reaped.
    pub(super) peak_memory: Option<u64>,
    /// The pidfd of a worker that is not a child of this process: readable when it has ended.
    pub(super) foreign: Option<OwnedFd>,
    /// Finds the processes that such a foreign worker has started.
    pub(super) leader: Option<Leader>,
    /// Its start time, once it was read.
    pub(super) start_time: std::cell::Cell<Option<u64>>,
    pub(super) unfinished: bool,
    /// The router's end of its channel, if a router gives it its connections.
    pub(super) channel: Option<Guarded>,
    /// How to read its present calls; `None` if that is impossible.
    pub(super) traceable: Option<Rc<Traceable>>,
    pub(super) questions: Option<Guarded>,
    /// The calls of its last slow request.
    pub(super) calls: Option<SlowCalls>,
}

/// The calls of a slow request: a copy for the report of a death.
#[derive(Debug)]
pub(super) struct SlowCalls {
    /// When the worker took the request, and when its calls were read.
    pub(super) taken: Tick,
    pub(super) read: Tick,
    /// The tracer writes to it, as the pool's user.
    pub(super) copy: OwnedFd,
}

impl WorkerProcess {
    /// The descriptors for the next master; an ordered worker ends with this one.
    pub(super) fn named(&self, id: WorkerId) -> Vec<Named<'_>> {
        if self.channel.is_some() {
            return Vec::new();
        }
        let stop_pipe = self.stop_pipe.iter();
        let stop_pipe = stop_pipe.map(|pipe| (names::stop_pipe(id.0), &**pipe));
        let outputs = self.output.iter().map(|(lines, _)| lines.pipe());
        let outputs = names::output(id.0).into_iter().zip(outputs);
        stop_pipe.chain(outputs).collect()
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), Error> {
        match (&self.foreign, self.pid) {
            (Some(process), _) => pidfd::send_signal(process.as_fd(), signal),
            (None, Some(pid)) => process::send_signal(pid, signal),
            (None, None) => Ok(()),
        }
    }
}

/// The signal that stops a process; `None`: it is only asked.
pub(super) fn signal_of(force: Force) -> Option<Signal> {
    match force {
        Force::Ask => None,
        Force::Terminate => Some(Signal::SIGTERM),
        Force::Kill => Some(Signal::SIGKILL),
    }
}

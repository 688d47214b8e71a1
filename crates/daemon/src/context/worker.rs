//! A worker as the master knows it.

use super::handover::Named;
use crate::context::lines::Lines;
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
pub(crate) struct Traceable {
    pub(crate) source: StackSource,
    /// Device and inode of their executable. A worker that runs another one is not traced.
    pub(crate) executable: (u64, u64),
}

/// A worker from the decision to start it until it is reaped.
#[derive(Debug, Default)]
pub(crate) struct WorkerProcess {
    pub(crate) generation: GenerationId,
    pub(crate) slot: u32,
    pub(crate) pid: Option<i32>,
    /// A byte in it, or its end, tells the worker to finish.
    pub(crate) stop_pipe: Option<Guarded>,
    pub(crate) output: Vec<(Lines, &'static str)>,
    /// The end of its output.
    pub(crate) last_output: Vec<u8>,
    pub(crate) begun: forkyard_base::tick::Tick,
    pub(crate) up: bool,
    pub(crate) told: Option<(StopRequest, forkyard_base::tick::Tick)>,
    /// Why the core had it ended.
    pub(crate) ended_by: Option<EndedBy>,
    /// The most memory that it had, in bytes, once it is reaped.
    pub(crate) peak_memory: Option<u64>,
    /// The pidfd of a worker that is not a child of this process: readable when it has ended.
    pub(crate) foreign: Option<OwnedFd>,
    /// Finds the processes that such a foreign worker has started.
    pub(crate) leader: Option<Leader>,
    /// Its start time, once it was read.
    pub(crate) start_time: std::cell::Cell<Option<u64>>,
    pub(crate) unfinished: bool,
    /// The router's end of its channel, if a router gives it its connections.
    pub(crate) channel: Option<Guarded>,
    /// How to read its present calls; `None` if that is impossible.
    pub(crate) traceable: Option<Rc<Traceable>>,
    pub(crate) questions: Option<Guarded>,
    /// The calls of its last slow request.
    pub(crate) calls: Option<SlowCalls>,
}

/// The calls of a slow request: a copy for the report of a death.
#[derive(Debug)]
pub(crate) struct SlowCalls {
    /// When the worker took the request, and when its calls were read.
    pub(crate) taken: Tick,
    pub(crate) read: Tick,
    /// The tracer writes to it, as the pool's user.
    pub(crate) copy: OwnedFd,
}

impl WorkerProcess {
    /// The descriptors for the next master; an ordered worker ends with this one.
    pub(crate) fn named(&self, id: WorkerId) -> Vec<Named<'_>> {
        if self.channel.is_some() {
            return Vec::new();
        }
        let stop_pipe = self.stop_pipe.iter();
        let stop_pipe = stop_pipe.map(|pipe| (names::stop_pipe(id.0), &**pipe));
        let outputs = self.output.iter().map(|(lines, _)| lines.pipe());
        let outputs = names::output(id.0).into_iter().zip(outputs);
        stop_pipe.chain(outputs).collect()
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        match (&self.foreign, self.pid) {
            (Some(process), _) => pidfd::send_signal(process.as_fd(), signal),
            (None, Some(pid)) => process::send_signal(pid, signal),
            (None, None) => Ok(()),
        }
    }
}

/// The signal that stops a process; `None`: it is only asked.
pub(crate) fn signal_of(force: Force) -> Option<Signal> {
    match force {
        Force::Ask => None,
        Force::Terminate => Some(Signal::SIGTERM),
        Force::Kill => Some(Signal::SIGKILL),
    }
}

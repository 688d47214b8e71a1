//! A worker as the master knows it, and its signals.

use super::handover::Handover;
use super::output::Lines;
use super::pools::Pools;
use super::slow;
use crate::master::action::Force;
use crate::master::event::{GenerationId, StopRequest, WorkerId};
use crate::scoreboard::header;
use crate::sys::guarded::Guarded;
use crate::sys::session::Leader;
use crate::sys::{Error, clock, pidfd, process, timeout_responder};
use nix::sys::signal::Signal;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// A worker from the decision to start it until it is reaped.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    pub(super) generation: GenerationId,
    pub(super) slot: u32,
    pub(super) pid: Option<i32>,
    /// A byte in it, or its end, tells the worker to finish.
    pub(super) stop_pipe: Option<Guarded>,
    pub(super) output: Vec<(Lines, &'static str)>,
    /// The end of its output before it was up.
    pub(super) first_output: Vec<u8>,
    pub(super) begun: crate::tick::Tick,
    pub(super) up: bool,
    pub(super) told: Option<(StopRequest, crate::tick::Tick)>,
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
    pub(super) traceable: Option<Rc<slow::Traceable>>,
    pub(super) questions: Option<Guarded>,
}

impl Pools {
    pub(super) fn retire(&mut self, handover: &mut Handover, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.told.get_or_insert((StopRequest::Retire, clock::now()));
        let (generation, slot) = (worker.generation, worker.slot);
        self.close_stop_pipe(handover, id);
        if let Some(resources) = self.resources(generation) {
            header::set_retire(resources.board.header(), slot as usize, true);
        }
    }

    /// Ends a worker by a signal. `Force::Ask` only closes the stop pipe.
    pub(super) fn kill(&mut self, handover: &mut Handover, id: WorkerId, force: Force) {
        let (told, signal) = match force {
            Force::Ask => return self.close_stop_pipe(handover, id),
            Force::Terminate => (StopRequest::Terminate, Signal::SIGTERM),
            Force::Kill => (StopRequest::Kill, Signal::SIGKILL),
        };
        self.end_worker(handover, id, told, |worker| worker.signal(signal));
    }

    pub(super) fn respond_timeout(&mut self, handover: &mut Handover, id: WorkerId) {
        self.count_terminated(id);
        self.end_worker(handover, id, StopRequest::Terminate, |worker| {
            match (&worker.foreign, worker.pid) {
                (None, Some(pid)) => timeout_responder::send_timeout(pid),
                // Only a child gets the value with the signal.
                _ => worker.signal(Signal::SIGTERM),
            }
        });
    }

    fn end_worker(
        &mut self,
        handover: &mut Handover,
        id: WorkerId,
        told: StopRequest,
        send: impl FnOnce(&WorkerProcess) -> Result<(), Error>,
    ) {
        self.close_stop_pipe(handover, id);
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.told = Some((told, clock::now()));
        if let Err(error) = send(worker) {
            log::error!("[pool {}] {error}", self.name_worker(id).0);
        }
    }
}

impl WorkerProcess {
    fn signal(&self, signal: Signal) -> Result<(), Error> {
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

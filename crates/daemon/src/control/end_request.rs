//! Ends a worker's request for an operator or the application's owner.

use crate::applications::Applications;
use crate::context::Context;
use crate::context::processes::Who;
use crate::context::refused::Refused;
use crate::context::rights::Rights;
use crate::context::worker::WorkerProcess;
use forkyard_core::master::event::{Event, WorkerId};
use forkyard_protocol::stop_pipe::TERMINATE;
use forkyard_scoreboard::{RequestStage, slot_reader};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

impl Context {
    /// Ends the request. Returns the core's event; a worker with several requests is notified and continues.
    ///
    /// # Errors
    /// The process is no worker, has no request, or belongs to another user.
    pub(crate) fn end_request(
        &mut self,
        applications: &Applications,
        rights: Rights,
        pid: i32,
    ) -> Result<Option<Event>, Refused> {
        let id = match self.processes.by_pid.get(&pid) {
            Some(Who::Worker(id)) => *id,
            _ => return Err(Refused::NoWorker(pid)),
        };
        let none = || Refused::Gone(pid, "worker");
        let worker = self.pools.workers.get(&id).ok_or_else(none)?;
        self.may_end(applications, rights, id, pid, worker)?;
        let generation = self.pools.generations.get(&worker.generation).ok_or_else(none)?;
        let page = generation.page(worker.slot).ok_or_else(none)?;
        let entry = slot_reader::read(page);
        let is_idle = matches!(
            entry.stage,
            RequestStage::Creating | RequestStage::Accepting | RequestStage::Finished
        );
        if is_idle && entry.load.in_flight == 0 {
            return Err(Refused::NoRequest(pid));
        }
        if !generation.settings.pool.application.is_concurrent() {
            return Ok(Some(Event::EndRequest(id)));
        }
        tell(worker, pid)?;
        log::warn!(
            "[pool {}] forkyard terminate ends a request of child {pid}",
            generation.settings.pool.name
        );
        Ok(None)
    }

    fn may_end(
        &self,
        applications: &Applications,
        rights: Rights,
        id: WorkerId,
        pid: i32,
        worker: &WorkerProcess,
    ) -> Result<(), Refused> {
        let Rights::Own(uid) = rights else {
            return Ok(());
        };
        if applications.has_instance(id) {
            let (pool, application) = applications
                .instance_with_pid(&self.processes, pid)
                .ok_or(Refused::Gone(pid, "instance"))?;
            return applications.may_touch(self, rights, pool, &application);
        }
        let generation = self.pools.generations.get(&worker.generation);
        let identity = generation.and_then(|generation| generation.settings.identity.as_ref());
        match identity.is_some_and(|identity| identity.uid == uid) {
            true => Ok(()),
            false => Err(Refused::NotYours("worker")),
        }
    }
}

fn tell(worker: &WorkerProcess, pid: i32) -> Result<(), Refused> {
    let Some(pipe) = &worker.stop_pipe else {
        return Err(Refused::Finishing(pid));
    };
    let mut room = [PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)];
    let has_room = poll(&mut room, PollTimeout::ZERO).is_ok_and(|found| found > 0)
        && room[0].revents().is_some_and(|it| it == PollFlags::POLLOUT);
    let is_told = has_room && nix::unistd::write(pipe, TERMINATE).is_ok();
    is_told.then_some(()).ok_or(Refused::Deaf(pid))
}

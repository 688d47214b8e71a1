//! Ends a worker's request for an operator or the application's owner.

use super::worker::WorkerProcess;
use super::{Executor, Rights, Who};
use crate::master::event::{Event, WorkerId};
use crate::scoreboard::{RequestStage, slot_reader};
use crate::worker::TERMINATE;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

impl Executor {
    /// Ends the request. Returns the core's event; a worker with several requests is notified and continues.
    ///
    /// # Errors
    /// The process is no worker, has no request, or belongs to another user.
    pub(in crate::master) fn end_request(&mut self, asker: u64, pid: i32) -> Result<Option<Event>, String> {
        let id = match self.processes.by_pid.get(&pid) {
            Some(Who::Worker(id)) => *id,
            _ => {
                return Err(format!(
                    "process {pid} is no worker; forkyard status POOL shows a pool's workers"
                ));
            }
        };
        let none = || format!("process {pid} is no worker any more");
        let worker = self.pools.workers.get(&id).ok_or_else(none)?;
        self.may_end(asker, id, pid, worker)?;
        let generation = self.pools.generations.get(&worker.generation).ok_or_else(none)?;
        let entry = generation
            .page(worker.slot)
            .map(slot_reader::read)
            .ok_or_else(none)?;
        let is_idle = matches!(
            entry.stage,
            RequestStage::Creating | RequestStage::Accepting | RequestStage::Finished
        );
        if is_idle && entry.load.in_flight == 0 {
            return Err(format!("worker {pid} has no request"));
        }
        if !generation.settings.pool.application.is_concurrent() {
            return Ok(Some(Event::EndRequest(id)));
        }
        tell(worker).map_err(|why| format!("worker {pid} {why}"))?;
        log::warn!(
            "[pool {}] forkyard terminate ends a request of child {pid}",
            generation.settings.pool.name
        );
        Ok(None)
    }

    fn may_end(&self, asker: u64, id: WorkerId, pid: i32, worker: &WorkerProcess) -> Result<(), String> {
        let Rights::Own(uid) = self.control.rights(asker) else {
            return Ok(());
        };
        if self.applications.instances.contains_key(&id) {
            let (pool, application) = self
                .instance_with_pid(pid)
                .ok_or_else(|| format!("process {pid} is no instance any more"))?;
            return self.may_touch(asker, pool, &application);
        }
        let generation = self.pools.generations.get(&worker.generation);
        let identity = generation.and_then(|generation| generation.settings.identity.as_ref());
        match identity.is_some_and(|identity| identity.uid == uid) {
            true => Ok(()),
            false => Err("permission denied: it is no worker of yours".to_owned()),
        }
    }
}

fn tell(worker: &WorkerProcess) -> Result<(), &'static str> {
    let Some(pipe) = &worker.stop_pipe else {
        return Err("is already finishing; kill -TERM ends it now");
    };
    let mut room = [PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)];
    let has_room = poll(&mut room, PollTimeout::ZERO).is_ok_and(|found| found > 0)
        && room[0].revents().is_some_and(|it| it == PollFlags::POLLOUT);
    let is_told = has_room && nix::unistd::write(pipe, TERMINATE).is_ok();
    is_told
        .then_some(())
        .ok_or("does not listen; kill -TERM ends it with all of its requests")
}

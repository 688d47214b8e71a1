//! Forks workers, directly or through a preloader.

use super::env_file::EnvFileError;
use super::slow;
use crate::context::Context;
use crate::context::effect::Effect;
use crate::context::generation::{Generation, closed, refork_at};
use crate::context::helper::zone;
use crate::context::lines::Lines;
use crate::context::pools::Pools;
use crate::context::processes::Who;
use crate::context::services::Services;
use crate::context::sources::Source;
use crate::context::worker::{Traceable, WorkerProcess};
use crate::roles::{Role, WorkerStart};
use forkyard_config::{ProcessManager, Workers};
use forkyard_core::master::event::{Event, GenerationId, WorkerId};
use forkyard_runtimes::http;
use forkyard_scoreboard::slot_reader;
use forkyard_sys::fd::{close_all_but, copy, null, output, pipe, socket_pair};
use forkyard_sys::guarded::Guarded;
use forkyard_sys::process::{self, Side, exit_now};
use forkyard_sys::{Error, clock, signal};
use forkyard_worker::{GenerationContext, Runtime, WorkerContext};
use nix::errno::Errno;
use nix::sys::socket::SockType;
use std::ffi::OsString;
use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;

impl Context {
    pub(crate) fn fork(&mut self, worker: WorkerId, id: GenerationId, slot: u32) {
        if let Err(error) = self.try_fork(worker, id, slot) {
            self.cant_fork(worker, id, &error);
        }
    }

    pub(crate) fn cant_fork(&mut self, worker: WorkerId, id: GenerationId, error: &Error) {
        log::error!(
            "[pool {}] can't make a worker: {error}",
            self.pools.generation_name(id)
        );
        self.fork_failed(worker);
    }

    pub(crate) fn fork_failed(&mut self, worker: WorkerId) {
        if let Some(failed) = self.pools.workers.remove(&worker) {
            if let Some(generation) = self.pools.generations.get_mut(&failed.generation) {
                generation.free_slot(failed.slot);
            }
            self.pools.vacated.insert(failed.generation);
            for (lines, _) in &failed.output {
                self.services.sources.forget(lines.pipe());
            }
            self.handover.generation_changed(failed.generation);
            let names = failed.named(worker).into_iter().map(|(name, _)| name);
            self.handover.unkeep(names);
        }
        self.services.cause(Effect::WorkerNotForked(worker));
        self.services.tell(Event::ForkFailed(worker));
    }

    fn try_fork(&mut self, worker: WorkerId, id: GenerationId, slot: u32) -> Result<(), Error> {
        self.open(id)?;
        let generation = self.pools.generations.get_mut(&id).ok_or_else(closed)?;
        generation.occupy(slot, worker);
        let application = &generation.settings.pool.application;
        let workers = application.traits().workers;
        // A worker that may become a preloader receives descriptors.
        let (stop_pipe_out, stop_pipe) = if refork_at(&generation.settings, 0).is_some() {
            socket_pair(SockType::SeqPacket)?
        } else if workers == Workers::Forked && application.is_concurrent() {
            // The master writes while the worker runs the application's code, and a pipe's reader could hold its lock.
            // Workers of programs run no such code.
            socket_pair(SockType::Stream)?
        } else {
            pipe(false)?
        };
        let (questions, answers) = slow::questions(&generation.settings.pool)?.unzip();
        let (ours, channel) = match generation.settings.pool.pm {
            ProcessManager::Ordered { .. } => Some(socket_pair(SockType::SeqPacket)?).unzip(),
            ProcessManager::Static { .. }
            | ProcessManager::Dynamic { .. }
            | ProcessManager::Ondemand { .. } => (None, None),
        };
        let unforked = WorkerProcess {
            generation: id,
            slot,
            stop_pipe: Some(Guarded::new(stop_pipe)),
            begun: clock::now(),
            questions: questions.map(Guarded::new),
            channel: ours.map(Guarded::new),
            ..WorkerProcess::default()
        };
        let catch = generation.settings.pool.logs.catch_workers_output;
        self.pools.workers.insert(worker, unforked);
        let output = match catch {
            true => Some(self.pools.catch_output(&mut self.services, worker)?),
            false => None,
        };
        if let Some(unforked) = self.pools.workers.get(&worker) {
            self.handover.keep(unforked.named(worker));
        }
        let own = WorkerContext {
            slot,
            stop_pipe: stop_pipe_out,
            output,
            questions: answers,
            channel,
        };
        match workers {
            Workers::Forked => {
                self.services.cause(Effect::WorkerPrepared(worker, id, own));
                Ok(())
            }
            Workers::Daemon => self.fork_handler(worker, id, own),
            Workers::Helper => self.start_worker(worker, id, own),
        }
    }

    fn start_worker(&mut self, worker: WorkerId, id: GenerationId, own: WorkerContext) -> Result<(), Error> {
        // A program's worker only forwards requests and gets no secrets.
        if !self.pools.has_program(id) {
            let read = self.pools.read_env_file(id);
            read.map_err(|error| Error::new("read", error.to_string(), Errno::EINVAL))?;
        }
        let context = self.pools.context(id)?;
        let generation = self.pools.generations.get(&id);
        let share = generation.and_then(|generation| generation.share.as_ref());
        let processes = share.map(http::Share::processes);
        let table = share.map(|share| copy(share.memory())).transpose()?;
        let reports = self.pools.reports_for_worker(id)?;
        let has_elder = self.pools.has_elder(id);
        let is_routed = own.is_routed();
        let (settings, mut descriptors) = context.take_apart();
        let (slot, own_descriptors) = own.take_apart();
        let (context, own) = (descriptors.len(), own_descriptors.len());
        descriptors.extend(own_descriptors);
        descriptors.extend(table);
        let has_reports = reports.is_some();
        descriptors.extend(reports);
        let title = format!("{}: pool {}", settings.pool.title, settings.pool.name);
        let environment: Vec<(OsString, OsString)> = match settings.pool.environment.clear_env {
            true => zone(),
            false => std::env::vars_os().collect(),
        };
        let role = Role::Worker(Box::new(WorkerStart {
            settings,
            context,
            slot,
            own,
            is_routed,
            processes,
            has_reports,
            has_elder,
        }));
        let pid = self
            .services
            .start_helper(&self.in_force, title, role, descriptors, environment)?;
        self.forked_as(worker, pid, None);
        Ok(())
    }

    fn fork_handler(&mut self, worker: WorkerId, id: GenerationId, own: WorkerContext) -> Result<(), Error> {
        let context = self.pools.context(id)?;
        let name = context.settings.pool.name.clone();
        let has_elder = self.pools.has_elder(id);
        let Some(handler) = self.services.handlers.get_mut(&name) else {
            let subject = format!("no Rust handler named {name}");
            return Err(Error::new("fork", subject, Errno::ENOENT));
        };
        // SAFETY: the master has one thread; the child leaves this stack frame only by _exit.
        #[expect(unsafe_code, reason = "forks a worker")]
        match unsafe { process::fork() }? {
            Side::Parent(pid) => {
                self.forked_as(worker, pid, None);
                Ok(())
            }
            Side::Child => {
                signal::reset_in_child();
                exit_now(be_worker(context, own, handler.as_mut(), has_elder))
            }
        }
    }

    /// `traceable`: its preloader's.
    pub(crate) fn forked_as(&mut self, worker: WorkerId, pid: i32, traceable: Option<Rc<Traceable>>) {
        let Some(new) = self.pools.workers.get_mut(&worker) else {
            return;
        };
        new.traceable = traceable;
        new.pid = Some(pid);
        self.handover.generation_changed(new.generation);
        self.processes.by_pid.insert(pid, Who::Worker(worker));
        if let Some(generation) = self.pools.generations.get_mut(&new.generation) {
            // php-fpm logs a worker only if it replaces another.
            let level = match generation.unreplaced > 0 && self.services.speaks_as_fpm {
                true => log::Level::Info,
                false => log::Level::Debug,
            };
            generation.unreplaced = generation.unreplaced.saturating_sub(1);
            log::log!(
                level,
                "[pool {}] child {pid} started",
                generation.settings.pool.name
            );
        }
        if new.up {
            self.services.cause(Effect::WorkerUp(worker));
        }
        self.services.tell(Event::Forked(worker));
        self.pools.count(worker, |counters| counters.starts += 1);
    }
}

impl Context {
    pub(crate) fn open(&mut self, id: GenerationId) -> Result<(), Error> {
        let Some(generation) = self.pools.generations.get_mut(&id) else {
            return Ok(());
        };
        if generation.pipes().is_some() {
            return Ok(());
        }
        generation.open()?;
        for (fd, source) in generation.pipes().into_iter().flat_map(|pipes| pipes.sources(id)) {
            self.services.sources.watch(fd, source)?;
        }
        self.handover.keep(generation.named(id));
        self.handover.generation_changed(id);
        self.open_queues(id)
    }
}

impl Pools {
    fn catch_output(&mut self, services: &mut Services, id: WorkerId) -> Result<(OwnedFd, OwnedFd), Error> {
        let worker = self.workers.get(&id);
        let in_entries = worker.is_some_and(|worker| self.logs_entries(worker.generation));
        let mut catch = |index, name| {
            let (reader, writer) = output()?;
            services.sources.watch(&reader, Source::Output(id, index))?;
            if let Some(worker) = self.workers.get_mut(&id) {
                let lines = Lines::new(reader).knowing_mark(services.speaks_as_fpm);
                worker.output.push((lines.in_entries(in_entries), name));
            }
            Ok(writer)
        };
        Ok((catch(0, "stdout")?, catch(1, "stderr")?))
    }

    /// Whether others serve the pool, so that a new worker must prove itself: the previous generation, or a next one on
    /// trial with the same code.
    fn has_elder(&self, id: GenerationId) -> bool {
        let Some(generation) = self.generations.get(&id) else {
            return false;
        };
        let is_up = |worker: &WorkerId| self.workers.get(worker).is_some_and(|worker| worker.up);
        let mut all = self.generations.of(&generation.pool).map(|(other, _)| other);
        all.any(|other| other < id || other > id && generation.slots.values().any(is_up))
    }

    /// Whether another generation serves until this one takes over.
    pub(crate) fn is_coming(&self, id: GenerationId) -> bool {
        let pool = self.generations.get(&id).map(|generation| generation.pool);
        let serving = pool.and_then(|pool| self.by_id.get(&pool)?.serving);
        serving.is_some_and(|serving| serving != id)
    }

    /// Whether an older generation keeps a worker until this one proves itself: an application that is restarted one
    /// instance at a time.
    pub(crate) fn has_staying_elder(&self, id: GenerationId) -> bool {
        let Some(pool) = self.generations.get(&id).map(|generation| generation.pool) else {
            return false;
        };
        let stays = |worker: &WorkerId| {
            let worker = self.workers.get(worker);
            worker.is_some_and(|worker| worker.up && worker.told.is_none())
        };
        let mut older = self.generations.of(&pool).filter(|(other, _)| *other < id);
        older.any(|(_, generation)| generation.slots.values().any(stays))
    }

    /// Its workers that no preloader has forked yet.
    pub(crate) fn unforked_of(&self, id: GenerationId) -> Vec<WorkerId> {
        let generation = self.generations.get(&id);
        let workers = generation.into_iter().flat_map(|it| it.slots.values());
        let is_unforked = |id: &WorkerId| self.workers.get(id).is_some_and(|worker| worker.pid.is_none());
        workers.copied().filter(is_unforked).collect()
    }

    /// The process that claims a worker's slot; the value is untrusted.
    pub(crate) fn pid_in_slot(&self, worker: WorkerId) -> Option<i32> {
        let page = self.page(self.workers.get(&worker)?)?;
        let pid = i32::try_from(slot_reader::read(page).pid).ok();
        pid.filter(|pid| *pid > 0)
    }

    pub(crate) fn read_env_file(&mut self, id: GenerationId) -> Result<(), EnvFileError> {
        let generation = self.generations.get_mut(&id);
        generation.map_or(Ok(()), Generation::read_env_file)
    }

    pub(crate) fn context(&self, id: GenerationId) -> Result<GenerationContext, Error> {
        let generation: &Generation = self.generations.get(&id).ok_or_else(closed)?;
        let pool = self.by_id.get(&generation.pool).ok_or_else(closed)?;
        match &pool.listener {
            Some(listener) => {
                let http = pool.http.as_ref().map(|http| &*http.socket);
                generation.context(&listener.socket, http, &pool.queues)
            }
            // Its workers get their connections from a router.
            None => generation.context(&null()?, None, &pool.queues),
        }
    }
}

fn be_worker(
    services: GenerationContext,
    own: WorkerContext,
    runtime: &mut dyn Runtime,
    has_elder: bool,
) -> i32 {
    let mut keep: Vec<RawFd> = services.descriptors();
    keep.extend(own.descriptors());
    keep.sort_unstable();
    // SAFETY: what owns the other descriptors is the master's state, which this process never touches again: it
    // leaves by _exit.
    #[expect(unsafe_code, reason = "closes the descriptors that the worker must not have")]
    unsafe {
        close_all_but(&keep);
    }
    forkyard_worker::begin(services, own, runtime, has_elder)
}

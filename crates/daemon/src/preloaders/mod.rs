//! Preloaders: processes that fork the workers of generations. The core gives each generation a preloader. This module
//! attaches the generation to its own preloader or to a zygote, as [`forkyard_core::zygotes`] decides.

mod answers;
mod cache_state;
mod launch;
mod molds;
pub(crate) mod output;
pub(crate) mod preloader;
mod resting;
mod trial;
mod warm;
mod zygotes;

pub(crate) use cache_state::CantRead;

use crate::context::Context;
use crate::context::generation::closed;
use crate::context::lines::{LINE_BYTES, Lines, read_rest};
use crate::context::pools::Pools;
use crate::context::processes::Who;
use crate::context::services::Services;
use crate::context::sources::Source;
use crate::context::spawner::{OutputLine, Started};
use crate::preloaders::output::{name_of_preloader, outlet_of_preloader};
use crate::preloaders::preloader::{Command, Preloader};
use crate::workers::start_report::{exit_of_report, say_report};
use forkyard_base::tick::Tick;
use forkyard_core::master::action::Force;
use forkyard_core::master::event::{Ended, Event, GenerationId, WorkerId};
use forkyard_core::php_start::NextStart;
use forkyard_core::zygotes::{Choice, Stop, Unfit, choose};
use forkyard_spawn::event::Token;
use forkyard_spawn::report::Report;
use forkyard_sys::Error;
use forkyard_worker::{Settings, WorkerContext};
use nix::errno::Errno;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use warm::WarmUp;
use zygotes::parcel_of;

/// Preloaders and zygotes.
#[derive(Debug, Default)]
pub(crate) struct Preloaders {
    pub(crate) by_pid: HashMap<i32, Preloader>,
    /// Second preloaders that have not reported their process yet.
    seconds: HashMap<GenerationId, Preloader>,
    warm_ups: HashMap<GenerationId, WarmUp>,
    unfit: Unfit<Settings>,
    /// Whether something has changed since the last search for unused zygotes.
    pub(crate) zygotes_to_check: bool,
    /// Whether a configuration has come since zygotes were last started.
    pub(crate) zygotes_to_start: bool,
}

impl Preloaders {
    pub(crate) fn start(&mut self, context: &mut Context, id: GenerationId) {
        let Some(generation) = context.pools.generations.get_mut(&id) else {
            return;
        };
        let reload = context.in_force.count;
        let common = generation.common();
        let started = match common.map(|common| self.choose(reload, &common)) {
            Some(Choice::Join(pid)) => self.join(context, id, pid),
            Some(Choice::Unfit(reason)) => {
                generation.make.unfit = Some(reason.to_owned());
                self.start_own(context, id)
            }
            Some(Choice::StartZygote) | None => self.start_own(context, id),
        };
        if let Err(error) = started {
            context.cant_start(id, &error);
        }
    }

    fn choose(&self, reload: u64, common: &Settings) -> Choice<'_, i32> {
        let zygotes = self.by_pid.iter().map(|(pid, it)| (*pid, &it.members));
        choose(zygotes, &self.unfit, reload, common)
    }

    /// Attaches a generation to a zygote, which gets nothing of it yet.
    fn join(&mut self, context: &mut Context, id: GenerationId, pid: i32) -> Result<(), Error> {
        context.open(id)?;
        let generation = context.pools.generations.get_mut(&id).ok_or_else(closed)?;
        let zygote = self.by_pid.get_mut(&pid);
        let Some(zygote) = zygote.filter(|_| generation.read_env_file().is_ok()) else {
            // The failing start reports the fault.
            return self.start_own(context, id);
        };
        zygote.members.join(id);
        let name = &generation.settings.pool.name;
        log::debug!("[pool {name}] has workers of zygote {pid}");
        generation.make.begin(zygote.origin, !generation.slots.is_empty());
        context.handover.pool_changed(generation.pool);
        context.pools.set_preloader(id, Some(pid));
        if let Some(facts) = zygote.facts.clone().filter(|_| zygote.start.is_none()) {
            self.zygote_serves(context, id, facts);
        }
        Ok(())
    }

    pub(crate) fn stop(&mut self, context: &mut Context, id: GenerationId, force: Force) {
        let has_unforked = !context.pools.unforked_of(id).is_empty();
        let Some(preloader) = self.preloader_of(&context.pools, id) else {
            return;
        };
        let start = preloader.start;
        match preloader.members.stop(id, force, start.is_some(), has_unforked) {
            Stop::Leave => self.detach(context, id, Ended::Code(0)),
            Stop::Forget => preloader.send_plain(&Command::Forget {
                generation: u64::from(id.0),
            }),
            Stop::Wait => {}
            Stop::Cancel => start.into_iter().for_each(|token| context.spawner.cancel(token)),
            Stop::Expire => start.into_iter().for_each(|token| context.spawner.expire(token)),
            Stop::Close => preloader.close(),
            Stop::Signal(force) => preloader.stop(force),
        }
    }

    /// Sends the fork command for a worker.
    ///
    /// # Errors
    /// There is no preloader, or the memory for a zygote's worker can't be made.
    pub(crate) fn fork(
        &mut self,
        context: &mut Context,
        worker: WorkerId,
        id: GenerationId,
        own: WorkerContext,
    ) -> Result<(), Error> {
        let Some(preloader) = self.preloader_of(&context.pools, id) else {
            return Err(Error::new("fork", "there is no preloader", Errno::ESRCH));
        };
        let (parcel, mut descriptors) = match preloader.is_zygote() {
            true => {
                let (parcel, descriptors) = parcel_of(&mut context.pools, id, preloader.template.as_ref())?;
                (Some(parcel), descriptors)
            }
            false => (None, Vec::new()),
        };
        let is_routed = own.is_routed();
        let (slot, own) = own.take_apart();
        descriptors.extend(own);
        let command = Command::Spawn {
            worker: worker.0,
            slot,
            is_routed,
            parcel,
        };
        preloader.send(&command, descriptors);
        Ok(())
    }

    fn detach(&mut self, context: &mut Context, id: GenerationId, exit: Ended) {
        self.find_unannounced(context, id);
        self.end_warm_up(&mut context.services, id);
        if let Some(preloader) = self.preloader_of(&context.pools, id) {
            preloader.members.leave(id);
        }
        self.zygotes_to_check = true;
        context.pools.set_preloader(id, None);
        for worker in context.pools.unforked_of(id) {
            context.fork_failed(worker);
        }
        context.pools.vacated.insert(id);
        context.services.tell(Event::PreloaderGone(id, exit));
    }

    /// Adopts workers that an ended preloader made without announcing them: they have their slots and may serve.
    fn find_unannounced(&mut self, context: &mut Context, id: GenerationId) {
        for worker in context.pools.unforked_of(id) {
            let pid = context.pools.pid_in_slot(worker);
            if let Some(pid) = pid.filter(|pid| context.is_new_child(id, *pid)) {
                let preloader = self.preloader_of(&context.pools, id);
                let traceable = preloader.and_then(|it| it.traceable.clone());
                context.forked_as(worker, pid, traceable);
            }
        }
    }

    fn preloader_of(&mut self, pools: &Pools, id: GenerationId) -> Option<&mut Preloader> {
        let pid = pools.preloader_pid(id)?;
        self.by_pid.get_mut(&pid)
    }

    fn name<'p>(&self, pools: &'p Pools, pid: i32) -> &'p str {
        let preloader = self.by_pid.get(&pid);
        preloader.map_or("", |it| name_of_preloader(&pools.generations, it))
    }

    fn starting(&mut self, token: Token) -> Option<&mut Preloader> {
        let mut preloaders = self.by_pid.values_mut();
        preloaders.find(|preloader| preloader.start == Some(token))
    }

    pub(crate) fn up(&mut self, context: &mut Context, token: Token, started: Started) {
        let Some(preloader) = self.starting(token) else {
            return;
        };
        let pid = preloader.pid;
        context.processes.by_pid.insert(pid, Who::Preloader);
        preloader.start = None;
        log::debug!(
            "preloader {pid} is up after {:?}",
            started.up.ended.since(started.up.started)
        );
        if let Some(output) = started.process.output {
            let name = name_of_preloader(&context.pools.generations, preloader);
            let sources = &mut context.services.sources;
            sources.watch_of_pool(name, &output, Source::PreloaderOutput(pid));
            let in_entries = !context.services.speaks_as_fpm;
            preloader.output = Some(Lines::resume(output, started.splitter).in_entries(in_entries));
        }
        self.note_ready(context, pid);
        if let Some(ended) = started.process.gone {
            context.processes.by_pid.remove(&pid);
            self.gone(context, pid, ended);
        }
    }

    /// Notifies the core that a preloader is up and has sent its facts.
    fn note_ready(&mut self, context: &mut Context, pid: i32) {
        let Some(preloader) = self.by_pid.get(&pid).filter(|it| it.start.is_none()) else {
            return;
        };
        let Some(facts) = preloader.facts.clone() else {
            return;
        };
        let is_zygote = preloader.is_zygote();
        for id in preloader.members.kept().collect::<Vec<_>>() {
            if context.pools.next_mold_pid(id) == Some(pid) {
                context.services.tell(Event::NextMoldReady(id));
            } else if is_zygote {
                self.zygote_serves(context, id, facts.clone());
            } else {
                context.note_facts(id, facts.clone());
                context.services.tell(Event::PreloaderReady(id));
            }
        }
    }

    /// A start failed. `id`: its generation; `None`: a zygote was started ahead of its generations.
    pub(crate) fn failed(
        &mut self,
        context: &mut Context,
        token: Token,
        id: Option<GenerationId>,
        report: Arc<Report>,
    ) {
        let exit = exit_of_report(&report);
        let pid = self.starting(token).map(|it| it.pid);
        if pid.is_some_and(|pid| self.zygote_failed(context, pid, &report)) {
            return;
        }
        if let Some(id) = id {
            if let (NextStart::Again, Some(pid)) = (self.next_start(context, &report), pid) {
                return self.try_again(context, pid, id, &report);
            }
            if let Some(generation) = context.pools.generations.get_mut(&id) {
                generation.make.trial = None;
            }
            let preloader = pid.and_then(|pid| self.by_pid.get(&pid));
            let members = preloader.map_or(vec![id], |it| it.members.all().collect());
            context.start_failed(members, report);
        }
        match (pid, id) {
            (Some(pid), _) => self.gone(context, pid, exit),
            (None, Some(id)) => {
                context.services.tell(Event::PreloaderGone(id, exit));
            }
            (None, None) => {}
        }
    }

    pub(crate) fn gone(&mut self, context: &mut Context, pid: i32, exit: Ended) {
        // Its last answers count: those workers exist.
        read_rest(|| self.hear(context, pid));
        self.read_output(&mut context.services, &context.pools, pid);
        let Some(mut preloader) = self.by_pid.remove(&pid) else {
            return;
        };
        context.services.sources.forget(&preloader.channel);
        if let Some(mut output) = preloader.output.take() {
            // A child may still hold the pipe.
            let generations = &context.pools.generations;
            let outlet = outlet_of_preloader(context.services.log, generations, &preloader);
            output.end_line(|line| {
                outlet.write(line);
                preloader.note_output(line);
            });
            context.services.sources.forget(output.pipe());
        }
        for id in preloader.members.all() {
            let said = preloader.last_lines.clone();
            context.processes.last_lines.insert(id, said);
            if context.pools.next_mold_pid(id) == Some(pid) {
                if let Some(resources) = context.pools.resources_mut(id) {
                    resources.next_mold = None;
                }
                context.services.tell(Event::NextMoldGone(id, exit));
            } else {
                self.detach(context, id, exit);
            }
        }
    }

    /// Logs a starting preloader's line. Returns `false` if it is not one's.
    pub(crate) fn take_line(&mut self, context: &Context, said: &OutputLine) -> bool {
        let Some(preloader) = said.token.and_then(|token| self.starting(token)) else {
            return false;
        };
        outlet_of_preloader(context.services.log, &context.pools.generations, preloader).write(&said.line);
        preloader.note_output(&said.line);
        true
    }

    /// Logs and keeps the report of a failed start, unless another start follows.
    pub(crate) fn take_report(&self, context: &mut Context, report: &Arc<Report>) {
        if self.next_start(context, report) != NextStart::Nothing {
            return;
        }
        let pools = &mut context.pools;
        let before = pools.errors.last(&report.plan.group);
        let is_known = before.is_some_and(|before| {
            let (before, now) = (&before.report.failure, &report.failure);
            (&before.summary, &before.details) == (&now.summary, &now.details)
        });
        say_report(report, is_known);
        let preloader = report.pid.and_then(|pid| self.by_pid.get(&pid));
        let members = preloader.into_iter().flat_map(|it| it.members.all());
        let mut names: BTreeSet<String> = members.map(|id| pools.generation_name(id).to_owned()).collect();
        if names.is_empty() {
            names.insert(report.plan.group.clone());
        }
        pools.keep_report(report, names.into_iter().collect());
    }

    /// Logs a preloader's output. Returns `true` if there may be more.
    pub(crate) fn read_output(&mut self, services: &mut Services, pools: &Pools, pid: i32) -> bool {
        let Some(preloader) = self.by_pid.get_mut(&pid) else {
            return false;
        };
        let outlet = outlet_of_preloader(services.log, &pools.generations, preloader);
        let mut output = preloader.output.take();
        let more = Lines::read_open(&mut output, &mut services.sources, LINE_BYTES, |line| {
            outlet.write(line);
            preloader.note_output(line);
        });
        preloader.output = output;
        more
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.warm_ups.values().map(|warm_up| warm_up.until).min()
    }
}

impl Pools {
    pub(crate) fn preloader_pid(&self, id: GenerationId) -> Option<i32> {
        self.resources(id)?.preloader
    }

    fn set_preloader(&mut self, id: GenerationId, pid: Option<i32>) {
        if let Some(resources) = self.resources_mut(id) {
            resources.preloader = pid;
            resources.memory = None;
        }
    }
}

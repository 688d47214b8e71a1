//! Routes the core's actions, ready sources, ended children and effects to the parts. [`super`] has the rest of the
//! executor; no other file knows all parts.

use super::Executor;
use crate::context::Context;
use crate::context::effect::{Effect, StatusAsker};
use crate::context::helper_id::{HelperId, HelperStep};
use crate::context::processes::Who;
use crate::context::rights::Rights;
use crate::context::sources::Source;
use crate::context::spawner::{Purpose, Tidings};
use crate::status::notices;
use crate::workers::slow;
use forkyard_core::master::action::{Action, Fact, Notice};
use forkyard_core::master::event::Ended;
use forkyard_protocol::control::Answer;
use forkyard_sys::process::Usage;
use forkyard_sys::{clock, process};

impl Executor {
    pub(in crate::master) fn perform(&mut self, action: Action) {
        let context = &mut self.context;
        let Context {
            services,
            pools,
            handover,
            ..
        } = context;
        match action {
            Action::Watch(pool) => pools.watch(services, pool),
            Action::Unwatch(pool) => pools.unwatch(services, pool),
            Action::SetWakeOnAccept(generation, notify) => pools.set_wake_on_accept(generation, notify),
            Action::TakeSnapshot(generation) => pools.take_snapshot(services, generation),
            Action::StartPreloader(id) if pools.has_program(id) => self.programs.start(context, id),
            Action::StartPreloader(id) => self.preloaders.start(context, id),
            Action::StopPreloader(id, force) => {
                handover.generation_leaves(pools, id);
                match self.programs.running.contains_key(&id) {
                    true => self.programs.stop(context, id, force),
                    false => self.preloaders.stop(context, id, force),
                }
            }
            Action::UnavailableResponder(pool, generation, wait) => {
                self.reporters.refuse(context, pool, generation, wait)
            }
            Action::StopUnavailableResponder(pool) => self.reporters.stop_refusing(context, pool),
            Action::Promote(worker, id) => self.preloaders.promote(context, worker, id),
            Action::SwitchMold(generation) => pools.switch_mold(services, generation),
            Action::StopNextMold(id, force) => self.preloaders.stop_next_mold(context, id, force),
            Action::Fork(worker, generation, slot) => context.fork(worker, generation, slot.0),
            Action::Share { old, new, percent } => {
                context.set_shares(old, new, percent);
                if let Some(percent) = percent {
                    self.deployments.shows(new, percent);
                }
            }
            Action::Retire(worker) => pools.retire(handover, worker),
            Action::Fill(order, worker) => self.applications.fill_order(order, worker),
            Action::Fail(order) => self.applications.fail_order(context, order),
            Action::Wake(pool) => pools.wake_worker(pool),
            Action::RespondTimeout(worker) => pools.respond_timeout(handover, worker),
            Action::Kill(worker, force) => pools.kill(handover, worker, force),
            Action::Publish(generation, figures) => pools.publish(generation, figures),
            Action::Trace(worker) => context.trace(worker),
            Action::Renew => self.renew(),
            Action::DropGeneration(generation) => context.drop_generation(generation),
            Action::ClosePool(pool) => context.close_pool(pool),
            Action::Note(fact) => {
                self.reload.note(context, fact);
                self.deployments.note(context, fact);
                if let Fact::Serves(id) = fact {
                    self.programs.takes_over(id);
                }
                context.pools.note(&mut context.handover, fact);
            }
            Action::Say(notice) => {
                if let Notice::WorkerGone(worker, exit, _) = &notice
                    && context.death(*worker, *exit).is_some()
                    && let Some(death) = context.processes.deaths.get(worker)
                {
                    self.deployments.died(death.generation);
                }
                let is_reloading = self.reload.is_reloading();
                notices::say(context, &self.preloaders, &self.programs, is_reloading, &notice);
            }
            Action::Exit(outcome) => services.outcome = Some(outcome),
        }
        self.settle();
    }

    /// Handles a ready source. Returns `true` if it has more.
    pub(in crate::master) fn on_ready(&mut self, source: Source) -> bool {
        let context = &mut self.context;
        if !context.has_room(&self.preloaders, source) {
            return false;
        }
        let Context {
            services,
            pools,
            helpers,
            ..
        } = context;
        match source {
            Source::ChildAccept(generation) => return context.accept_notify(generation),
            Source::Messages(generation) => return pools.read_messages(services, generation),
            Source::Reports(generation) => return pools.hear_reports(generation),
            Source::Output(worker, index) => return pools.read_output(services, worker, index),
            Source::Preloader(pid) => return self.preloaders.hear(context, pid),
            Source::HelperChannel(HelperId::Jobs) => return self.jobs.hear(context),
            Source::HelperChannel(HelperId::Web) => {
                let is_more = self.web.hear(context);
                self.gather_numbers(clock::now());
                self.settle();
                return is_more;
            }
            Source::HelperChannel(id) => return self.applications.hear(context, id),
            Source::HelperMessages(id) => return helpers.read_messages(services, id),
            Source::PreloaderOutput(pid) => return self.preloaders.read_output(services, pools, pid),
            Source::ProgramOutput(id, index) => {
                return self.programs.read_output(services, pools, id, index);
            }
            Source::Rehearsal => return self.upgrade.hear(services),
            Source::Control(which) => return self.control.accept(context, &self.applications, which),
            Source::Work(pool) => pools.work_waits(services, pool),
            Source::Second(generation) => self.preloaders.hear_next_mold(context, generation),
            // The loop handles it.
            Source::Status(_) => {}
            Source::Spawner(token) => {
                // The channels of starting preloaders first.
                self.preloaders.hear_starting(context);
                self.settle();
                self.context.spawner.ready(token);
            }
            Source::AppLogRoom(id) => context.room_in_app_log(id, clock::now()),
            Source::Foreign(worker) => {
                self.orphans.part_from_foreign(pools, worker);
                context.foreign_ended(worker);
            }
            Source::WarmUp(id) => self.preloaders.warmed_up(services, id),
            Source::CacheState(id) => return self.caches.read(context, &mut self.preloaders, id),
            Source::Directories => self.watch.read(),
            Source::ControlSession(id) => self.control.on_session_ready(context, id),
        }
        false
    }

    pub(super) fn reaped(&mut self, pid: i32, ended: Ended, used: &Usage) {
        let context = &mut self.context;
        match context.processes.by_pid.remove(&pid) {
            Some(Who::Worker(worker)) => {
                context.pools.count(worker, |counters| {
                    counters.gone_cpu_us = counters.gone_cpu_us.saturating_add(used.cpu_micros);
                });
                if let Some(worker) = context.pools.workers.get_mut(&worker) {
                    worker.peak_memory = Some(used.peak_memory_bytes);
                }
                context.worker_ended(worker, pid, ended);
            }
            Some(Who::Rehearsal) => self.upgrade.rehearsal_ended(&mut context.services, ended),
            Some(Who::Helper(id)) => {
                if let HelperId::Reporter(pool) | HelperId::Responder(pool) = id {
                    context.pools.vacate(pool);
                }
                context.helpers.gone(&mut context.services, id, pid, ended);
            }
            Some(Who::Preloader) => self.preloaders.gone(context, pid, ended),
            Some(Who::Program(id, index)) => {
                let memory = Some(used.peak_memory_bytes);
                self.programs.process_gone(context, (id, index), ended, memory);
            }
            Some(Who::Tracer(worker)) => slow::tracer_gone(worker, ended),
            None if context.spawner.reaped(pid, ended) => {}
            None if process::is_writer(pid) => {
                // The failures are logged.
                let _ = context.pools.reopen_access_logs();
                self.applications.reopen_access_logs(context);
                log::warn!("process {pid}, which writes logs, ended: {ended:?}");
            }
            // An orphan inherited as subreaper, or a worker whose fork was not announced yet.
            None => context.processes.note_early_death(pid, ended),
        }
    }

    /// Routes the effects of parts on others until none follows.
    pub(in crate::master) fn settle(&mut self) {
        loop {
            for happening in std::mem::take(&mut self.context.pools.unrecorded) {
                self.context.handover.record(happening);
            }
            let Some(effect) = self.context.services.effects.pop_front() else {
                match self.context.spawner.next() {
                    Some(tidings) => self.take(tidings),
                    None => return,
                }
                continue;
            };
            let context = &mut self.context;
            match effect {
                Effect::Crowded(id) => self.saturations.crowded(context, id, clock::now()),
                Effect::GrewBusy(id) => self.autopilots.grew_busy(context, id, clock::now()),
                Effect::RestartAsked(request) => self.reload.restarts.add(request),
                Effect::WorkerUp(worker) => self.applications.instance_up(context, worker),
                Effect::GenerationDropped(generation) => {
                    self.reload.forget_reload_of(generation);
                    self.deployments.dropped(generation);
                    self.programs.running.remove(&generation);
                    self.preloaders.zygotes_to_check = true;
                }
                Effect::PoolClosed(pool) => {
                    let limit = context.in_force.config.global.process_control_timeout;
                    self.reporters.close(context, pool);
                    self.applications.dismiss(context, pool, limit);
                    self.applications.forget_application(pool);
                    self.deployments.closed(pool);
                    context.pools.sites.end_router(pool);
                    self.applications.forget_looks(|_, router| router == pool);
                }
                Effect::PoolConfigured(it) => {
                    let wanted = it.settings.pages.status_listen.as_deref();
                    self.reporters
                        .set(context, it.pool, &it.settings.name, wanted, it.status);
                    self.applications.set(context, it.pool, &it.settings, it.extent);
                }
                Effect::WorkerPrepared(worker, generation, own) => {
                    if let Err(error) = self.preloaders.fork(context, worker, generation, own) {
                        context.cant_fork(worker, generation, &error);
                    }
                }
                Effect::WorkerNotForked(worker) => self.applications.instance_not_made(worker),
                Effect::WorkerEnded(worker, pid, exit) => {
                    context.hear_last_output(worker, pid);
                    let report = context.note_crash(|entry| self.jobs.shows_job(entry), worker, pid, exit);
                    self.jobs.note_death(context, worker, (pid, exit), report);
                    context.worker_gone(worker, (pid, exit), report);
                }
                Effect::WorkerGone(worker) => self.applications.instance_gone(context, worker),
                Effect::StartFailed(generations, report) => {
                    self.applications.note_failure(&generations, &report);
                }
                Effect::ProcessDied(generation, report) => {
                    self.applications.note_failure(&[generation], &report);
                    self.applications.note_death(generation, &report);
                    self.deployments.start_failed(generation);
                }
                Effect::ProgramDied(generation) => self.deployments.died(generation),
                Effect::Helper(id, step) => self.follow_helper(id, step),
                Effect::Answered(asker, answer) => self.control.answer(context, asker, &answer),
                Effect::StatusDue(StatusAsker::Web, views) => self.web.gathered(views),
                Effect::StatusDue(StatusAsker::Session(asker), views) => {
                    let orphans = self.orphans.count();
                    let mut status = self.status_source().status(&orphans, &views);
                    if let Rights::Own(uid) = self.control.rights(asker) {
                        self.applications.leave_own(&self.context.pools, &mut status, uid);
                    }
                    self.answer(asker, &Answer::Status(Box::new(status)));
                }
                Effect::Happened(what) => context.handover.record(*what),
                Effect::PoolEnded(name) => self.orphans.end_of(&name),
                Effect::SessionEnded(session) => {
                    self.applications.end_leases(&context.helpers, session);
                    self.deployments.session_ended(session);
                }
            }
        }
    }

    fn follow_helper(&mut self, id: HelperId, step: HelperStep) {
        let context = &mut self.context;
        let followed = match id {
            HelperId::Reporter(pool) => self.reporters.follow_reporter(context, pool, step),
            HelperId::Responder(pool) => self.reporters.follow_responder(context, pool, step),
            HelperId::Router(pool) | HelperId::Inspector(pool) => {
                self.applications.follow_helper(context, pool, id, step)
            }
            HelperId::Jobs => self.jobs.follow_process(context, step),
            HelperId::Web => self.web.follow_process(context, step),
        };
        if let Err(error) = followed {
            context.helpers.start_failed(&mut context.services, id, &error);
        }
    }

    /// Routes a result of the spawning kit.
    fn take(&mut self, tidings: Tidings) {
        let (preloaders, programs) = (&mut self.preloaders, &mut self.programs);
        let context = &mut self.context;
        match tidings {
            Tidings::Line(said) => {
                if !preloaders.take_line(context, &said) && !programs.take_line(context, &said) {
                    let text = String::from_utf8_lossy(&said.line);
                    log::warn!("[pool {}] process {} said: \"{text}\"", said.group, said.pid);
                }
            }
            Tidings::Report(report) => preloaders.take_report(context, &report),
            Tidings::Up(_, Purpose::Program(id, index), started) => {
                programs.process_up(context, (id, index), *started);
            }
            Tidings::Up(token, _, started) => preloaders.up(context, token, *started),
            Tidings::Failed(_, Purpose::Program(id, index), report) => {
                programs.process_failed(context, (id, index), report);
            }
            Tidings::Failed(token, Purpose::Preloader(id), report) => {
                preloaders.failed(context, token, Some(id), report);
            }
            Tidings::Failed(token, Purpose::Zygote, report) => {
                preloaders.failed(context, token, None, report);
            }
        }
    }
}

//! Performs the core's actions. Failures return as events.

mod adoption;
mod app_log;
mod applications;
mod apply_error;
mod compare;
mod context;
mod control;
mod deaths;
mod document;
mod effect;
mod end_request;
mod entries;
mod env_file;
mod events;
mod failure;
mod fork;
mod generation;
mod handover;
mod helper;
mod helper_id;
mod helper_process;
mod helpers;
mod jobs;
mod jobs_tcp;
mod logs;
mod make;
mod orphans;
mod output;
mod pools;
mod preloader;
mod preloaders;
mod prepare;
mod processes;
mod programs;
mod provenance;
mod reload;
mod reporter;
mod reports;
mod required_programs;
mod resting;
mod snapshot;

mod counters;
mod fd_store;
mod handover_changes;
mod notices;
mod opcache_cache;
mod services;
mod shares;
mod slow;
mod sockets;
mod sources;
mod spawner;
mod start_report;
mod start_source;
mod status;
mod totals;
mod trial;
mod upgrade;
mod watch;
mod worker;
mod worker_output;
mod zygote;

use super::action::{Action, Fact};
use super::event::{Adopted, CoreConfig, Ended, Event, GenerationId, PoolId, WorkerId};
use super::reload_diff::ReloadScope;
use super::reload_plan::Changes;
use crate::config::Config;
use crate::control::last_reload::{LastReload, ReloadCause};
use crate::control::protocol::{Answer, Format};
use crate::handover::InheritedState;
use crate::handover::document::Stopping;
use crate::logs::Log;
use crate::master::manager::Manager;
use crate::sys::notify::Notifier;
use crate::sys::{clock, process};
use crate::tick::Tick;
use crate::worker::Runtime;
use crate::zygotes::Renewal;
use applications::Applications;
use context::{Context, InForce};
use control::Control;
use document::LeftState;
use effect::Effect;
use generation::Generation;
use handover::Handover;
use helper_id::{HelperId, HelperStep};
use helpers::Helpers;
use jobs::Jobs;
use mio::Registry;
use orphans::Orphans;
use pools::Pools;
use preloaders::Preloaders;
use processes::{Processes, Who};
use programs::Programs;
use reload::{NamedSocket, Reload};
use reporter::Reporters;
use services::Services;
use sources::Sources;
use spawner::{Purpose, Spawner, Tidings};
use status::StatusSource;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use worker::WorkerProcess;

pub use apply_error::ApplyError;
pub(super) use control::Rights;
pub use failure::RunError;
pub(crate) use required_programs::programs as needed_programs;
pub(super) use sources::{SIGNALS, Source};
pub(super) use totals::Totals;
pub(super) use upgrade::UpgradeError;
pub(crate) use upgrade::{ANSWER as REHEARSAL_ANSWER, OPTION as REHEARSAL_OPTION};

/// The most children that are reaped in one turn.
const MOST_REAPED: usize = 256;

pub type Handlers = HashMap<String, Box<dyn Runtime>>;

pub(super) struct Executor {
    pub(super) context: Context,
    pub(super) preloaders: Preloaders,
    programs: Programs,
    reporters: Reporters,
    pub(super) jobs: Jobs,
    pub(super) applications: Applications,
    pub(super) reload: Reload,
    pub(super) control: Control,
    pub(super) orphans: Orphans,
    pub(super) watch: watch::Watch,
}

impl Executor {
    /// An executor without processes.
    ///
    /// # Errors
    /// `dup` failed.
    pub(in crate::master) fn new(
        registry: Registry,
        log: &'static Log,
        config: Config,
        handlers: Handlers,
        libexec: PathBuf,
        descriptor_limit: Option<(u64, u64)>,
    ) -> io::Result<Executor> {
        let spawner = Spawner::new(registry.try_clone()?, libexec.join("forkyard"), descriptor_limit);
        Ok(Executor {
            context: Context {
                services: Services {
                    log,
                    handlers,
                    libexec,
                    descriptor_limit,
                    speaks_as_fpm: false,
                    sources: Sources::new(registry),
                    again: Vec::new(),
                    told_of_room: None,
                    is_followed: false,
                    group_parent: std::cell::OnceCell::new(),
                    effects: VecDeque::new(),
                    happened: VecDeque::new(),
                    outcome: None,
                },
                in_force: InForce::new(config),
                processes: Processes::default(),
                pools: Pools::default(),
                helpers: Helpers::default(),
                handover: Handover::default(),
                spawner,
            },
            preloaders: Preloaders::default(),
            programs: Programs::default(),
            reporters: Reporters::default(),
            jobs: Jobs::default(),
            applications: Applications::default(),
            reload: Reload::default(),
            control: Control::default(),
            orphans: Orphans::default(),
            watch: watch::Watch::default(),
        })
    }

    pub(in crate::master) fn next_deadline(&self) -> Option<Tick> {
        let deadlines = [
            self.context.helpers.deadline(),
            self.context.spawner.next_deadline(),
            self.preloaders.deadline(),
            self.programs.deadline(),
            self.applications.deadline(),
            self.control.deadline(),
            self.context.handover.upgrade_deadline(),
            self.context.services.sources.entries_deadline(),
            self.context.services.log.gathered_deadline(),
            self.watch.deadline(),
            self.reload.deadline(&self.context.pools),
        ];
        deadlines.into_iter().flatten().min()
    }

    pub(in crate::master) fn poll(&mut self, now: Tick, manager: &Manager) {
        self.reporters
            .poll(&mut self.context, &self.preloaders, |pool| manager.serving(pool));
        self.context.helpers.poll(&mut self.context.services, now);
        self.applications.poll(&mut self.context.services, now);
        self.control.poll(&mut self.context, &self.applications, now);
        self.context.spawner.pass(now);
        self.settle();
        self.preloaders.poll(&mut self.context.services, now);
        self.programs.poll(&mut self.context, now);
        self.settle();
        self.context
            .poll_entries(&mut self.preloaders, &mut self.programs, now);
        self.context.services.log.end_gathered(now);
    }

    /// Prepares a configuration: binds sockets, looks up users, and returns the core's event. After an error nothing
    /// has changed.
    pub(in crate::master) fn prepare(
        &mut self,
        config: Config,
        extent: ReloadScope,
    ) -> Result<(CoreConfig, Changes), ApplyError> {
        let prepared = self
            .context
            .prepare(&self.reporters, &mut self.jobs, config, extent)?;
        self.settle();
        match prepared.renewal {
            Renewal::Start => self.preloaders.zygotes_to_start = true,
            Renewal::All => self.preloaders.outdate_zygotes(&self.context.services, true),
            Renewal::Changed => self.preloaders.outdate_zygotes(&self.context.services, false),
            Renewal::Nothing => {}
        }
        let sources = &mut self.context.services.sources;
        self.watch.follow(sources, &prepared.config.global.watch);
        self.context.in_force.take(prepared.config);
        self.context.handover.keep_config(&self.context.in_force);
        Ok((prepared.wanted, prepared.changes))
    }

    fn renew(&mut self) {
        let sockets = self.named_sockets();
        match self.prepare(self.context.in_force.config.clone(), ReloadScope::All) {
            Ok((wanted, changes)) => {
                self.begin_reload(changes, sockets, None, None);
                self.context.services.happened.push_back(Event::Apply(wanted));
            }
            Err(error) => log::error!("the old processes stay: {error}"),
        }
    }

    pub(in crate::master) fn named_sockets(&self) -> Vec<NamedSocket> {
        reload::named_sockets(&self.context, &self.reporters)
    }

    /// Begins to follow a reload. Must run before the core learns of it.
    pub(in crate::master) fn begin_reload(
        &mut self,
        changes: Changes,
        sockets: Vec<NamedSocket>,
        asker: Option<u64>,
        by: Option<ReloadCause>,
    ) {
        self.reload
            .begin(&mut self.context.services, changes, sockets, asker, by);
    }

    pub(in crate::master) fn remember_reload(&mut self, last: LastReload) {
        self.reload.remember(&mut self.context.handover, last);
    }

    fn left_state(&self) -> LeftState<'_> {
        LeftState {
            context: &self.context,
            programs: &self.programs,
            reporters: &self.reporters,
            jobs: &self.jobs,
            last_reload: self.reload.last.as_ref(),
        }
    }

    fn status_source(&self) -> StatusSource<'_> {
        StatusSource {
            context: &self.context,
            programs: &self.programs,
            applications: &self.applications,
            last_reload: self.reload.last.as_ref(),
        }
    }

    pub(in crate::master) fn error_report(&self, rights: Rights, id: Option<&str>, format: Format) -> Answer {
        self.status_source().error_report(rights, id, format)
    }

    /// Adopts the running generations, and returns the event for the core, or `None` if there are none. `config` is
    /// used if the previous configuration is unknown.
    pub(in crate::master) fn adopt(&mut self, inherited: InheritedState, config: &Config) -> Option<Adopted> {
        self.context.adopt(&mut self.programs, inherited, config)
    }

    fn stored_names(&self) -> HashSet<String> {
        let descriptors = self.left_state().descriptors();
        descriptors.into_iter().map(|(name, _)| name).collect()
    }

    pub(in crate::master) fn open_fd_store(
        &mut self,
        notifier: Notifier,
        stored: &[String],
        manager: &Manager,
    ) {
        let (document, ours) = (self.left_state().document(manager, None), self.stored_names());
        self.context
            .handover
            .begin_store(notifier, &document, &ours, stored);
    }

    /// Stores the changes for another master that follows if this one is killed.
    pub(in crate::master) fn save(&mut self, manager: &Manager, stopping: Option<Stopping>) {
        let Some(stale) = self.context.handover.take_stale() else {
            return;
        };
        let changes = self.left_state().changes(manager, stopping, &stale);
        if !self.context.handover.append(&changes.encode()) {
            let document = self.left_state().document(manager, stopping);
            self.context.handover.write(&document);
        }
        if cfg!(debug_assertions) {
            let present = self.left_state().document(manager, stopping);
            self.context.handover.compare(&self.context.in_force, present);
        }
    }

    pub(in crate::master) fn clear_fd_store(&mut self) {
        let ours = self.stored_names();
        self.context.handover.clear_store(ours);
    }

    pub(in crate::master) fn rehearse(
        &mut self,
        manager: &Manager,
        stopping: Option<Stopping>,
    ) -> Result<(), UpgradeError> {
        let document = self.left_state().document(manager, stopping);
        self.context.rehearse(&document)
    }

    /// Replaces this program. Returns only on failure; nothing has changed then, except that starting preloaders fail.
    pub(in crate::master) fn hand_over(
        &mut self,
        manager: &Manager,
        stopping: Option<Stopping>,
        variables: &[(&'static str, OsString)],
    ) -> UpgradeError {
        self.context.spawner.abandon();
        let state = self.left_state();
        upgrade::hand_over(
            &state.document(manager, stopping),
            &self.context.in_force.config,
            &state.descriptors(),
            variables,
        )
    }

    /// The work that follows all actions of the core.
    pub(in crate::master) fn end_turn(&mut self) {
        self.reload.finish(&mut self.context);
        self.preloaders.start_zygotes(&mut self.context);
        self.preloaders.end_unused_zygotes(&mut self.context);
        self.context.rest_generations(&self.preloaders);
        self.settle();
    }

    pub(in crate::master) fn answer(&mut self, asker: u64, answer: &Answer) {
        self.control.answer(&mut self.context, asker, answer);
        self.settle();
    }

    /// Routes the effects of parts on others until none follows.
    pub(in crate::master) fn settle(&mut self) {
        loop {
            let Some(effect) = self.context.services.effects.pop_front() else {
                match self.context.spawner.next() {
                    Some(tidings) => self.take(tidings),
                    None => return,
                }
                continue;
            };
            match effect {
                Effect::RestartAsked(request) => self.reload.restarts.add(request),
                Effect::WorkerUp(worker) => self.applications.instance_up(&self.context, worker),
                Effect::GenerationDropped(generation) => {
                    self.reload.forget_reload_of(generation);
                    self.programs.running.remove(&generation);
                    self.preloaders.zygotes_to_check = true;
                }
                Effect::PoolClosed(pool) => {
                    let limit = self.context.in_force.config.global.process_control_timeout;
                    self.reporters.close(&mut self.context, pool);
                    self.applications.dismiss(&mut self.context, pool, limit);
                    self.applications.forget_application(pool);
                }
                Effect::PoolConfigured(it) => {
                    let wanted = it.settings.pages.status_listen.as_deref();
                    self.reporters
                        .set(&mut self.context, it.pool, &it.settings.name, wanted, it.status);
                    self.applications
                        .set(&mut self.context, it.pool, &it.settings, it.extent);
                }
                Effect::WorkerPrepared(worker, generation, own) => {
                    let forked = self.preloaders.fork(&mut self.context, worker, generation, own);
                    if let Err(error) = forked {
                        self.context.cant_fork(worker, generation, &error);
                    }
                }
                Effect::WorkerNotForked(worker) => self.applications.instance_not_made(worker),
                Effect::WorkerEnded(worker, pid, exit) => {
                    self.jobs.note_death(&mut self.context, worker, pid, exit);
                    self.context.worker_gone(worker, pid, exit);
                }
                Effect::WorkerGone(worker) => self.applications.instance_gone(&self.context, worker),
                Effect::StartFailed(generations, report) => {
                    self.applications.note_failure(&generations, &report);
                }
                Effect::ProcessDied(generation, report) => {
                    self.applications.note_failure(&[generation], &report);
                    self.applications.note_death(generation, &report);
                }
                Effect::Helper(id, step) => self.follow_helper(id, step),
                Effect::Answered(asker, answer) => self.control.answer(&mut self.context, asker, &answer),
                Effect::StatusDue(asker, views) => {
                    let orphans = self.orphans.count();
                    let mut status = self.status_source().status(&orphans, &views);
                    if let Rights::Own(uid) = self.control.rights(asker) {
                        self.applications.leave_own(&mut status, uid);
                    }
                    self.answer(asker, &Answer::Status(Box::new(status)));
                }
                Effect::PoolEnded(name) => self.orphans.end_of(&name),
                Effect::SessionEnded(session) => self.applications.end_leases(&self.context.helpers, session),
            }
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

    pub(in crate::master) fn start_first_zygote(&mut self, config: &Config) {
        self.preloaders.start_first_zygote(&mut self.context, config);
        self.settle();
    }

    pub(in crate::master) fn reap(&mut self) {
        // Preloaders' messages first, so that children are known.
        self.preloaders.hear_all(&mut self.context);
        self.settle();
        self.context.helpers.kill_stopped();
        self.context.processes.has_more_dead = false;
        for count in 0.. {
            // Thousands may end at once, for example a start's leftovers; others get their turn in between.
            if count == MOST_REAPED {
                self.context.processes.has_more_dead = true;
                break;
            }
            let Some((pid, ended)) = process::ended_child() else {
                break;
            };
            // Until it is reaped, its number stands only for its process group.
            self.orphans.part_from(&self.context, pid, ended);
            let Ok((ended, used)) = process::reap_used(pid) else {
                break;
            };
            self.reaped(pid, ended, used.cpu_micros);
            self.settle();
        }
        self.orphans.settle();
    }

    fn reaped(&mut self, pid: i32, ended: Ended, micros: u64) {
        let context = &mut self.context;
        match context.processes.by_pid.remove(&pid) {
            Some(Who::Worker(worker)) => {
                context.pools.count_cpu(worker, micros);
                context.worker_ended(worker, pid, ended);
            }
            Some(Who::Rehearsal) => context.handover.rehearsal_ended(&mut context.services, ended),
            Some(Who::Helper(id)) => {
                if let HelperId::Reporter(pool) | HelperId::Responder(pool) = id {
                    context.pools.vacate(pool);
                }
                context.helpers.gone(&mut context.services, id, pid, ended);
            }
            Some(Who::Preloader) => self.preloaders.gone(context, pid, ended),
            Some(Who::Program(id, index)) => self.programs.process_gone(context, (id, index), ended),
            Some(Who::Tracer(worker)) => slow::tracer_gone(worker, ended),
            None if context.spawner.reaped(pid, ended) => {}
            None if process::is_writer(pid) => {
                context.pools.reopen_access_logs();
                log::warn!("process {pid}, which writes logs, ended: {ended:?}");
            }
            // An orphan inherited as subreaper, or a worker whose fork was not announced yet.
            None => context.processes.note_early_death(pid, ended),
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
        };
        if let Err(error) = followed {
            context.helpers.start_failed(&mut context.services, id, &error);
        }
    }

    pub(in crate::master) fn reporter_needed(&mut self, pool: PoolId, serving: Option<GenerationId>) {
        self.reporters
            .needed(&mut self.context, &self.preloaders, pool, serving);
    }

    /// Lets every router finish. Returns `false` if there is none.
    pub(in crate::master) fn finish_routers(&mut self) -> bool {
        self.applications.finish(&mut self.context);
        self.settle();
        self.applications.has_routers()
    }

    /// Ends the helpers when the daemon ends.
    pub(in crate::master) fn end_helpers(&mut self) {
        let context = &mut self.context;
        context.helpers.end(&mut context.services, &context.processes);
        self.jobs.remove_file();
        for (_, listener) in self.reporters.listeners() {
            listener.remove_file();
        }
    }

    /// Handles a ready source. Returns `true` if it has more.
    pub(in crate::master) fn on_ready(&mut self, source: Source) -> bool {
        if !self.context.has_room(&self.preloaders, source) {
            return false;
        }
        match source {
            Source::Work(pool) => {
                self.context.pools.work_waits(&mut self.context.services, pool);
                false
            }
            Source::ChildAccept(generation) => self.context.accept_notify(generation),
            Source::Messages(generation) => self
                .context
                .pools
                .read_messages(&self.context.services, generation),
            Source::Reports(generation) => self.context.pools.hear_reports(generation),
            Source::Output(worker, index) => {
                self.context
                    .pools
                    .read_output(&mut self.context.services, worker, index)
            }
            Source::Preloader(pid) => self.preloaders.hear(&mut self.context, pid),
            Source::Second(generation) => {
                self.preloaders.hear_next_mold(&mut self.context, generation);
                false
            }
            // The loop handles it.
            Source::Status(_) => false,
            Source::HelperChannel(HelperId::Jobs) => self.jobs.hear(&mut self.context),
            Source::HelperChannel(id) => self.applications.hear(&mut self.context, id),
            Source::HelperMessages(id) => self.context.helpers.read_messages(&mut self.context.services, id),
            Source::Spawner(token) => {
                // The channels of starting preloaders first.
                self.preloaders.hear_starting(&mut self.context);
                self.settle();
                self.context.spawner.ready(token);
                false
            }
            Source::PreloaderOutput(pid) => {
                self.preloaders
                    .read_output(&mut self.context.services, &self.context.pools, pid)
            }
            Source::ProgramOutput(id, index) => {
                self.programs
                    .read_output(&mut self.context.services, &self.context.pools, id, index)
            }
            Source::AppLogRoom(id) => {
                self.context.room_in_app_log(id, clock::now());
                false
            }
            Source::Foreign(worker) => {
                self.orphans.part_from_foreign(&self.context.pools, worker);
                self.context.foreign_ended(worker);
                false
            }
            Source::Rehearsal => self.context.handover.hear_rehearsal(&mut self.context.services),
            Source::Control(which) => self.control.accept(&mut self.context, &self.applications, which),
            Source::WarmUp(id) => {
                self.preloaders.warmed_up(&mut self.context.services, id);
                false
            }
            Source::Directories => {
                self.watch.read();
                false
            }
            Source::ControlSession(id) => {
                self.control.on_session_ready(&mut self.context, id);
                false
            }
        }
    }

    pub(in crate::master) fn perform(&mut self, action: Action) {
        self.context.handover.note_change(&self.context.pools, &action);
        match action {
            Action::Watch(pool) => self.context.pools.watch(&mut self.context.services, pool),
            Action::Unwatch(pool) => self.context.pools.unwatch(&mut self.context.services, pool),
            Action::SetWakeOnAccept(generation, notify) => {
                self.context.pools.set_wake_on_accept(generation, notify)
            }
            Action::TakeSnapshot(generation) => self
                .context
                .pools
                .take_snapshot(&mut self.context.services, generation),
            Action::StartPreloader(id) if self.context.pools.has_program(id) => {
                self.programs.start(&mut self.context, id);
            }
            Action::StartPreloader(id) => self.preloaders.start(&mut self.context, id),
            Action::StopPreloader(id, force) if self.programs.running.contains_key(&id) => {
                self.programs.stop(&mut self.context, id, force);
            }
            Action::StopPreloader(id, force) => self.preloaders.stop(&mut self.context, id, force),
            Action::UnavailableResponder(pool, generation, wait) => {
                self.reporters.refuse(&mut self.context, pool, generation, wait)
            }
            Action::StopUnavailableResponder(pool) => self.reporters.stop_refusing(&mut self.context, pool),
            Action::Promote(worker, id) => self.preloaders.promote(&mut self.context, worker, id),
            Action::SwitchMold(generation) => self
                .context
                .pools
                .switch_mold(&mut self.context.services, generation),
            Action::StopNextMold(id, force) => {
                self.preloaders.stop_next_mold(&mut self.context, id, force);
            }
            Action::Fork(worker, generation, slot) => self.context.fork(worker, generation, slot.0),
            Action::Retire(worker) => self.context.pools.retire(&mut self.context.handover, worker),
            Action::Fill(order, worker) => self.applications.fill_order(order, worker),
            Action::Fail(order) => self.applications.fail_order(&self.context, order),
            Action::Wake(pool) => self.context.pools.wake_worker(pool),
            Action::RespondTimeout(worker) => self
                .context
                .pools
                .respond_timeout(&mut self.context.handover, worker),
            Action::Kill(worker, force) => self.context.pools.kill(&mut self.context.handover, worker, force),
            Action::Publish(generation, figures) => self.context.pools.publish(generation, figures),
            Action::Trace(worker) => self.context.trace(worker),
            Action::Renew => self.renew(),
            Action::DropGeneration(generation) => self.context.drop_generation(generation),
            Action::ClosePool(pool) => self.context.close_pool(pool),
            Action::Note(fact) => {
                self.reload.note(&mut self.context, fact);
                if let Fact::Serves(id) = fact {
                    self.programs.takes_over(id);
                }
                self.context.pools.note(fact);
            }
            Action::Say(notice) => {
                let is_reloading = self.reload.is_reloading();
                notices::say(
                    &mut self.context,
                    &self.preloaders,
                    &self.programs,
                    is_reloading,
                    &notice,
                );
            }
            Action::Exit(outcome) => self.context.services.outcome = Some(outcome),
        }
        self.settle();
    }
}

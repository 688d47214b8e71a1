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
mod launches;
mod logs;
mod orphans;
mod output;
mod pools;
mod preloader;
mod prepare;
mod processes;
mod programs;
mod promotion;
mod provenance;
mod reload;
mod reporter;
mod reports;
mod required_programs;
mod resting;
mod snapshot;

mod counters;
mod early_exit;
mod fd_store;
mod handover_changes;
mod notices;
mod opcache_cache;
mod services;
mod shared;
mod shares;
mod slow;
mod sockets;
mod sources;
mod spawner;
mod start_source;
mod status;
mod totals;
mod trial;
mod upgrade;
mod warm;
mod watch;
mod worker;
mod worker_output;
mod zygote;

use super::action::Action;
use super::event::{GenerationId, PoolId, WorkerId};
use crate::config::Config;
use crate::control::protocol::Answer;
use crate::logs::Log;
use crate::master::manager::Manager;
use crate::tick::Tick;
use crate::worker::Runtime;
use applications::Applications;
use context::{Context, InForce};
use control::Control;
use effect::Effect;
use generation::Generation;
use handover::Handover;
use helper_id::{HelperId, HelperStep};
use helpers::Helpers;
use jobs::Jobs;
use mio::Registry;
use orphans::Orphans;
use pools::Pools;
use preloader::Preloaders;
use processes::{Processes, Who};
use programs::Programs;
use reload::Reload;
use reporter::Reporters;
use services::Services;
use sources::Sources;
use spawner::Spawner;
use std::collections::{HashMap, VecDeque};
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
            self.context.spawner.spawner_deadline(),
            self.preloaders.warm_ups_deadline(),
            self.programs.programs_deadline(),
            self.applications.deadline(),
            self.control.control_deadline(),
            self.context.handover.upgrade_deadline(),
            self.context.services.sources.entries_deadline(),
            self.context.services.log.gathered_deadline(),
            self.watch.deadline(),
            self.restart_deadline(),
            self.reload_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    pub(in crate::master) fn poll(&mut self, now: Tick, manager: &Manager) {
        self.reporters
            .poll(&mut self.context, &self.preloaders, |pool| manager.serving(pool));
        self.context.helpers.poll(&mut self.context.services, now);
        self.applications.poll(&mut self.context.services, now);
        self.poll_control(now);
        self.poll_spawner(now);
        self.poll_warm_ups(now);
        self.poll_programs(now);
        self.poll_entries(now);
        self.context.services.log.end_gathered(now);
    }

    /// Routes the effects of parts on others until none follows.
    pub(in crate::master) fn settle(&mut self) {
        while let Some(effect) = self.context.services.effects.pop_front() {
            match effect {
                Effect::Helper(id, step) => self.follow_helper(id, step),
                Effect::Answered(asker, answer) => self.answer(asker, &answer),
                Effect::StatusDue(asker, views) => {
                    let mut status = self.status(&views);
                    if let Rights::Own(uid) = self.control.rights(asker) {
                        self.applications.leave_own(&mut status, uid);
                    }
                    self.answer(asker, &Answer::Status(Box::new(status)));
                }
                Effect::PoolEnded(name) => self.orphans.end_of(&name),
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
            Action::StartPreloader(generation) => self.start_preloader(generation),
            Action::StopPreloader(generation, force) => self.stop_preloader(generation, force),
            Action::UnavailableResponder(pool, generation, wait) => {
                self.reporters.refuse(&mut self.context, pool, generation, wait)
            }
            Action::StopUnavailableResponder(pool) => self.reporters.stop_refusing(&mut self.context, pool),
            Action::Promote(worker, generation) => self.preloaders.promote(
                &mut self.context.services,
                &self.context.pools,
                worker,
                generation,
            ),
            Action::SwitchMold(generation) => self
                .context
                .pools
                .switch_mold(&mut self.context.services, generation),
            Action::StopNextMold(generation, force) => self.stop_next_mold(generation, force),
            Action::Fork(worker, generation, slot) => self.fork(worker, generation, slot.0),
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
            Action::DropGeneration(generation) => self.drop_generation(generation),
            Action::ClosePool(pool) => self.close_pool(pool),
            Action::Note(fact) => self.note(fact),
            Action::Say(notice) => self.say(&notice),
            Action::Exit(outcome) => self.context.services.outcome = Some(outcome),
        }
        self.settle();
    }
}

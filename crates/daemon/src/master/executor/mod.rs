//! Performs the core's actions. Failures return as events.

mod routing;

use crate::applications::Applications;
use crate::autopilot::Autopilots;
use crate::context::apply_error::ApplyError;
use crate::context::effect::StatusAsker;
use crate::context::handover::Handover;
use crate::context::helpers::Helpers;
use crate::context::pools::Pools;
use crate::context::processes::Processes;
use crate::context::rights::Rights;
use crate::context::services::Handlers;
use crate::context::services::Services;
use crate::context::sources::Sources;
use crate::context::spawner::Spawner;
use crate::context::{Context, InForce};
use crate::control::clients::Control;
use crate::handover::document::LeftState;
use crate::handover::upgrade::{Upgrade, UpgradeError};
use crate::helpers::jobs::Jobs;
use crate::helpers::reporter::Reporters;
use crate::helpers::web::Web;
use crate::pools::saturation::Saturations;
use crate::preloaders::Preloaders;
use crate::programs::Programs;
use crate::releases::release::Releases;
use crate::reload::Reload;
use crate::reload::compare::Comparer;
use crate::reload::prepare::ReloadedParts;
use crate::status::StatusSource;
use crate::status::archive::PastHours;
use crate::status::caches::Caches;
use crate::workers::orphans::Orphans;
use forkyard_base::tick::Tick;
use forkyard_config::Config;
use forkyard_core::master::event::{CoreConfig, Event};
use forkyard_core::master::manager::Manager;
use forkyard_core::master::reload_diff::ReloadScope;
use forkyard_core::master::reload_plan::Changes;
use forkyard_core::zygotes::Renewal;
use forkyard_host::logs::Log;
use forkyard_protocol::control::{Answer, DaemonMode};
use forkyard_protocol::handover::document::Stopping;
use forkyard_protocol::handover::names;
use forkyard_sys::notify::Notifier;
use forkyard_sys::{clock, process};
use mio::Registry;
use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// The most children that are reaped in one turn.
const MOST_REAPED: usize = 256;

pub(super) struct Executor {
    pub(super) context: Context,
    pub(super) preloaders: Preloaders,
    pub(super) programs: Programs,
    pub(super) reporters: Reporters,
    pub(super) jobs: Jobs,
    pub(super) applications: Applications,
    pub(super) reload: Reload,
    pub(in crate::master) deployments: crate::releases::deployments::Deployments,
    pub(super) control: Control,
    pub(super) orphans: Orphans,
    pub(super) watch: crate::reload::watch::Watch,
    pub(super) web: Web,
    pub(super) caches: Caches,
    pub(in crate::master) upgrade: Upgrade,
    pub(in crate::master) archive: PastHours,
    pub(super) saturations: Saturations,
    pub(in crate::master) autopilots: Autopilots,
    pub(in crate::master) releases: Releases,
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
            deployments: crate::releases::deployments::Deployments::default(),
            control: Control::default(),
            orphans: Orphans::default(),
            watch: crate::reload::watch::Watch::default(),
            web: Web::default(),
            caches: Caches::default(),
            upgrade: Upgrade::default(),
            archive: PastHours::default(),
            saturations: Saturations::default(),
            autopilots: Autopilots::default(),
            releases: Releases::default(),
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
            self.upgrade.deadline(),
            self.context.services.sources.entries_deadline(),
            self.context.services.log.gathered_deadline(),
            self.watch.deadline(),
            self.web.deadline(),
            self.reload.deadline(&self.context.pools),
            self.deployments.deadline(),
            self.caches.deadline(),
            self.archive.deadline(),
            self.saturations.deadline(),
            self.autopilots.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    pub(in crate::master) fn poll(&mut self, now: Tick, manager: &Manager) {
        self.reporters
            .poll(&mut self.context, &self.preloaders, |pool| manager.serving(pool));
        self.context.helpers.poll(&mut self.context.services, now);
        self.applications.poll(&mut self.context.services, now);
        self.gather_numbers(now);
        self.control.poll(&mut self.context, &self.applications, now);
        self.context.spawner.pass(now);
        self.settle();
        self.preloaders.poll(&mut self.context.services, now);
        self.programs.poll(&mut self.context, now);
        self.caches.poll(&mut self.context, &mut self.preloaders, now);
        self.archive.poll(&mut self.context, now);
        self.saturations.poll(&mut self.context, now);
        self.autopilots.poll(&mut self.context, now);
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
        let mut parts = ReloadedParts {
            reporters: &self.reporters,
            jobs: &mut self.jobs,
            web: &mut self.web,
            autopilots: &mut self.autopilots,
            releases: &self.releases,
        };
        let prepared = self.context.prepare(&mut parts, config, extent)?;
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
        let sockets = self.reporters.named_sockets(&self.context);
        match self.prepare(self.context.in_force.config.clone(), ReloadScope::All) {
            Ok((wanted, changes)) => {
                self.reload
                    .begin(&mut self.context.services, changes, sockets, None, None);
                self.context.services.tell(Event::Apply(wanted));
            }
            Err(error) => log::error!("the old processes stay: {error}"),
        }
    }

    pub(in crate::master) fn left_state(&self) -> LeftState<'_> {
        LeftState {
            context: &self.context,
            programs: &self.programs,
            reporters: &self.reporters,
            jobs: &self.jobs,
            web: &self.web,
            archive: &self.archive,
            autopilots: &self.autopilots,
        }
    }

    pub(in crate::master) fn status_source(&self) -> StatusSource<'_> {
        StatusSource {
            context: &self.context,
            programs: &self.programs,
            applications: &self.applications,
            caches: &self.caches,
            deployments: &self.deployments,
            archive: &self.archive,
            autopilots: &self.autopilots,
        }
    }

    pub(in crate::master) fn comparer(&self, scope: ReloadScope) -> Comparer<'_> {
        Comparer {
            context: &self.context,
            releases: &self.releases,
            scope,
        }
    }

    /// Answers with the events that a client with these rights may read.
    pub(in crate::master) fn events(&mut self, rights: Rights) -> Answer {
        self.saturations.look_at_all(&mut self.context, clock::now());
        self.settle();
        self.context.events(rights)
    }

    pub(in crate::master) fn refresh_caches(&mut self) {
        self.caches.refresh(&mut self.context, &mut self.preloaders);
    }

    /// Answers a control session with the status once the routers have answered.
    pub(in crate::master) fn begin_status(&mut self, session: u64) {
        self.saturations.look_at_all(&mut self.context, clock::now());
        self.applications
            .begin_status(&mut self.context, StatusAsker::Session(session));
    }

    /// Asks the routers for their part of the numbers, if it is time.
    fn gather_numbers(&mut self, now: Tick) {
        if self.web.begins(now) {
            self.refresh_caches();
            self.saturations.look_at_all(&mut self.context, now);
            self.applications
                .begin_status(&mut self.context, StatusAsker::Web);
        }
    }

    /// Sends the numbers to the web process, if they are due.
    pub(in crate::master) fn send_numbers(&mut self, mode: DaemonMode) {
        let begun = clock::now();
        let Some(views) = self.web.take_due() else {
            return;
        };
        let orphans = self.orphans.count();
        let numbers = self.status_source().numbers(mode, &orphans, &views);
        self.web.send(&self.context, &numbers, begun);
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
        let own = names::COPIES.into_iter().chain([names::CONFIG]);
        let names = self.stored_names().into_iter().chain(own.map(str::to_owned));
        self.context.handover.unkeep(names);
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
        crate::handover::upgrade::hand_over(
            &state.document_for_upgrade(manager, stopping),
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
            self.reaped(pid, ended, &used);
            self.settle();
        }
        self.orphans.settle();
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
        self.web.remove_file();
        for (_, listener) in self.reporters.listeners() {
            listener.remove_file();
        }
    }
}

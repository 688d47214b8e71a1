//! Starts and stops the reporters.

use super::generation::Generation;
use super::helper::{own_user, zone};
use super::helper_process::{HelperId, HelperProcess, RunningHelper};
use super::preloader::Preloader;
use super::sources::Source;
use super::{Executor, Helpers, Pools, Preloaders};
use crate::config::Listen;
use crate::handover::names;
use crate::helper::Role;
use crate::life::{Happened, Rules};
use crate::listen::Listener;
use crate::logs::Handout;
use crate::master::event::{GenerationId, PoolId};
use crate::reporter::Brief;
use crate::sys::Error;
use crate::sys::fd::{send_with, set_nonblocking, socket_pair};
use nix::errno::Errno;
use nix::sys::socket::SockType;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct ReporterState {
    pub(super) listener: Listener,
    pub(super) process: HelperProcess,
    /// The generation to report on at the next start.
    serving: Option<GenerationId>,
    /// A client has connected, and PHP must first start and report its version.
    waits_for_php: bool,
}

impl Executor {
    pub(super) fn set_reporter(
        &mut self,
        pool: PoolId,
        name: &str,
        wanted: Option<&Listen>,
        opened: Option<Listener>,
    ) {
        let Some(wanted) = wanted else {
            self.close_reporter(pool);
            return;
        };
        // A pool with another socket is another pool, and takes over the status address.
        let moved = self
            .helpers
            .reporter_at(&self.context.pools, name, wanted)
            .filter(|from| *from != pool);
        let moved = moved.and_then(|from| self.release_reporter(from));
        if let Some(listener) = opened.or(moved.map(|(listener, _)| listener)) {
            self.close_reporter(pool);
            let reporter = ReporterState {
                listener,
                process: HelperProcess::new(Rules::REPORTER),
                serving: None,
                waits_for_php: false,
            };
            self.helpers.reporters.insert(pool, reporter);
            self.context.handover.keep_status(&self.helpers, pool);
            self.watch_status(pool);
        } else if let Some(reporter) = self.helpers.reporters.get(&pool) {
            let before = self
                .context
                .in_force
                .pool(name)
                .and_then(|it| it.pages.status_listen.as_deref());
            if let Err(error) = reporter.listener.adjust(wanted, before) {
                log::error!("[pool {name}] the status socket keeps its old attributes: {error}");
            }
        }
    }

    pub(in crate::master) fn poll_reporters(&mut self, serving: impl Fn(PoolId) -> Option<GenerationId>) {
        if self.helpers.reporters.is_empty() {
            return;
        }
        let waiting = self
            .helpers
            .reporters
            .iter()
            .filter(|(_, reporter)| reporter.waits_for_php);
        let waiting: Vec<PoolId> = waiting.map(|(pool, _)| *pool).collect();
        for pool in waiting {
            if !serving(pool)
                .is_some_and(|serving| self.preloaders.is_starting_php(&self.context.pools, serving))
            {
                if let Some(reporter) = self.helpers.reporters.get_mut(&pool) {
                    reporter.waits_for_php = false;
                }
                self.watch_status(pool);
            }
        }
        let shows = |it: &ReporterState| it.process.running.as_ref().and_then(|it| it.generation);
        let is_outdated = |pool: PoolId, shows| serving(pool).is_some_and(|serving| serving != shows);
        let outdated = self.helpers.reporters.iter();
        let outdated =
            outdated.filter(|(pool, it)| shows(it).is_some_and(|shows| is_outdated(**pool, shows)));
        for pool in outdated.map(|(pool, _)| *pool).collect::<Vec<_>>() {
            self.tell_helper(HelperId::Reporter(pool), Happened::Leave(Duration::ZERO));
        }
    }

    pub(in crate::master) fn reporter_wanted(&mut self, pool: PoolId, serving: Option<GenerationId>) {
        let is_early =
            serving.is_some_and(|serving| self.preloaders.is_starting_php(&self.context.pools, serving));
        let Some(reporter) = self.helpers.reporters.get_mut(&pool) else {
            return;
        };
        if is_early {
            reporter.waits_for_php = true;
            return self.context.services.sources.forget(&reporter.listener.socket);
        }
        reporter.serving = serving;
        self.tell_helper(HelperId::Reporter(pool), Happened::Needed);
    }

    /// Watches for the next client.
    pub(super) fn watch_status(&mut self, pool: PoolId) {
        let Some(reporter) = self.helpers.reporters.get(&pool) else {
            return;
        };
        let (name, socket) = (self.context.pools.pool_name(pool), &reporter.listener.socket);
        let sources = &mut self.context.services.sources;
        sources.watch_of_pool(name, socket, Source::Status(pool));
    }

    pub(super) fn start_reporter(&mut self, pool: PoolId) -> Result<(), Error> {
        let Some(reporter) = self.helpers.reporters.get(&pool) else {
            return Ok(());
        };
        self.context.services.sources.forget(&reporter.listener.socket);
        let id = reporter
            .serving
            .ok_or_else(|| Error::new("start", "no generation serves", Errno::EAGAIN))?;
        self.context.open(id)?;
        let unknown = self
            .context
            .pools
            .generations
            .get(&id)
            .filter(|it| !it.make.is_known);
        let unknown = unknown.map(|generation| generation.settings.pool.clone());
        let expected = unknown.and_then(|pool| {
            self.context
                .in_force
                .starts
                .expected_name(&self.context.services, &pool)
        });
        let running = self.start_reporting(pool, id, |brief, generation| Brief {
            powered_by: generation.make.powered_by.clone().or(expected),
            ..brief
        })?;
        self.helper_started(HelperId::Reporter(pool), running);
        Ok(())
    }

    /// Starts the process that reports on a generation, or refuses its requests if `adjust` sets a refusal.
    pub(super) fn start_reporting(
        &self,
        pool: PoolId,
        id: GenerationId,
        adjust: impl FnOnce(Brief, &Generation) -> Brief,
    ) -> Result<RunningHelper, Error> {
        let (generation, resources, workers) = self.context.pools.shared_with_helpers(pool, id)?;
        let settings = &generation.settings;
        let brief = Brief::new(
            &settings.pool,
            own_user().or_else(|| settings.identity.clone()),
            settings.started,
            settings.descriptor_limit,
        );
        let brief = adjust(brief, generation);
        let (channel, theirs) = socket_pair(SockType::SeqPacket)?;
        let reporter = self.helpers.reporters.get(&pool);
        let reporter = reporter.filter(|_| brief.refusal.is_none());
        let own = reporter.map_or(workers, |reporter| &reporter.listener.socket);
        let (readable, pipes) = (resources.board.memory().readable()?, generation.connected()?);
        let mut descriptors = vec![own, workers, &readable, &pipes.messages_in];
        if brief.refusal.is_some() {
            set_nonblocking(theirs.as_fd(), true)?;
            descriptors.extend(pipes.access.as_ref().map(Handout::shelf));
        }
        let descriptors: Vec<RawFd> = descriptors.into_iter().map(AsRawFd::as_raw_fd).collect();
        // Serialising plain values can't fail.
        let message = serde_json::to_vec(&brief).unwrap_or_default();
        send_with(channel.as_fd(), &message, &descriptors)?;
        let (role, theirs) = (Role::Reporter, vec![theirs]);
        let pid =
            self.context
                .services
                .start_helper(&self.context.in_force, brief.title, role, theirs, zone())?;
        let mut running = RunningHelper::new(pid, Some(channel));
        running.generation = Some(id);
        Ok(running)
    }

    /// Closes a reporter's socket and kills its process, which is returned.
    pub(super) fn close_reporter(&mut self, pool: PoolId) -> Option<RunningHelper> {
        let (listener, running) = self.release_reporter(pool)?;
        listener.remove_file();
        running
    }

    fn release_reporter(&mut self, pool: PoolId) -> Option<(Listener, Option<RunningHelper>)> {
        let reporter = self.helpers.reporters.remove(&pool)?;
        self.context.handover.unkeep([names::status(pool.0)]);
        self.context.services.sources.forget(&reporter.listener.socket);
        reporter.process.kill();
        Some((reporter.listener, reporter.process.running))
    }
}

impl Helpers {
    pub(super) fn reporter_at(&self, pools: &Pools, name: &str, wanted: &Listen) -> Option<PoolId> {
        let mut known = self.reporters.iter();
        known
            .find(|(pool, known)| known.listener.address == wanted.address && pools.pool_name(**pool) == name)
            .map(|(pool, _)| *pool)
    }

    pub(super) fn has_reporter(&self, pool: PoolId) -> bool {
        (self.reporters.get(&pool)).is_some_and(|reporter| reporter.process.running.is_some())
    }
}

impl Preloaders {
    fn is_starting_php(&self, pools: &Pools, id: GenerationId) -> bool {
        let is_known = pools
            .generations
            .get(&id)
            .is_none_or(|generation| generation.make.is_known);
        let mut preloaders = self.by_pid.values();
        // A preloader that is up may not have sent its facts yet.
        let is_coming = |it: &Preloader| it.start.is_some() || it.facts.is_none();
        !is_known && preloaders.any(|it| is_coming(it) && it.members.all().any(|member| member == id))
    }
}

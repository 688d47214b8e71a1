//! Starts and stops the reporters.

use super::helper::{own_user, zone};
use super::preloader::Preloader;
use super::sources::Source;
use super::{Context, Executor, Handover, Helpers, Pools, Who};
use crate::config::Listen;
use crate::handover::names;
use crate::helper::Role;
use crate::life::{Happened, Helper, HelperAction, Rules};
use crate::listen::Listener;
use crate::master::event::{GenerationId, PoolId};
use crate::reporter::Brief;
use crate::sys::fd::{send_with, socket_pair};
use crate::sys::process::{self, Ended};
use crate::sys::{Error, clock};
use crate::tick::Tick;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::SockType;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

const LAST_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct ReporterState {
    pub(super) listener: Listener,
    life: Helper,
    process: Option<ReporterProcess>,
    /// A client has connected, and PHP must first start and report its version.
    waits_for_php: bool,
}

#[derive(Debug)]
struct ReporterProcess {
    pid: i32,
    /// Closing it tells the reporter to leave.
    channel: Option<OwnedFd>,
    generation: GenerationId,
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
            self.helpers
                .close_reporter(&mut self.context, &mut self.handover, pool);
            return;
        };
        // A pool with another socket is another pool, and takes over the status address.
        let moved = self
            .helpers
            .reporter_at(&self.pools, name, wanted)
            .filter(|from| *from != pool);
        let moved = moved.and_then(|from| {
            self.helpers
                .release_reporter(&mut self.context, &mut self.handover, from)
        });
        if let Some(listener) = opened.or(moved) {
            self.helpers
                .close_reporter(&mut self.context, &mut self.handover, pool);
            let reporter = ReporterState {
                listener,
                life: Helper::new(Rules::REPORTER, clock::now()),
                process: None,
                waits_for_php: false,
            };
            self.helpers.reporters.insert(pool, reporter);
            self.handover.keep_status(&self.helpers, pool);
            self.helpers
                .reporter_step(&mut self.context, &self.pools, pool, HelperAction::Idle);
        } else if let Some(reporter) = self.helpers.reporters.get(&pool) {
            let before = self.reload.pool(name).and_then(|it| it.status_listen.as_deref());
            if let Err(error) = reporter.listener.adjust(wanted, before) {
                log::error!("[pool {name}] the status socket keeps its old attributes: {error}");
            }
        }
    }

    pub(in crate::master) fn end_reporters(&mut self) {
        let pools: Vec<PoolId> = self.helpers.reporters.keys().copied().collect();
        let pid = |reporter: &ReporterState| reporter.process.as_ref().map(|process| process.pid);
        let pids: Vec<i32> = self.helpers.reporters.values().filter_map(pid).collect();
        for pool in pools {
            self.helpers
                .close_reporter(&mut self.context, &mut self.handover, pool);
        }
        for pid in pids {
            if process::reap_within(pid, LAST_PATIENCE).is_none() {
                process::kill_and_reap(pid);
            }
        }
    }

    pub(in crate::master) fn poll_reporters(
        &mut self,
        now: Tick,
        serving: impl Fn(PoolId) -> Option<GenerationId>,
    ) {
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
            if !serving(pool).is_some_and(|serving| self.helpers.is_starting_php(&self.pools, serving)) {
                if let Some(reporter) = self.helpers.reporters.get_mut(&pool) {
                    reporter.waits_for_php = false;
                }
                self.helpers
                    .reporter_step(&mut self.context, &self.pools, pool, HelperAction::Idle);
            }
        }
        let mut causes = Vec::new();
        for (pool, reporter) in &self.helpers.reporters {
            let shows = reporter.process.as_ref().map(|process| process.generation);
            if shows.is_some_and(|shows| serving(*pool).is_some_and(|serving| serving != shows)) {
                causes.push((*pool, Happened::Leave(Duration::ZERO)));
            }
            if reporter.life.deadline().is_some_and(|deadline| deadline <= now) {
                causes.push((*pool, Happened::Deadline));
            }
        }
        for (pool, cause) in causes {
            self.helpers
                .tell_reporter(&mut self.context, &self.pools, pool, cause);
        }
    }

    pub(in crate::master) fn reporter_wanted(&mut self, pool: PoolId, serving: Option<GenerationId>) {
        let is_early = serving.is_some_and(|serving| self.helpers.is_starting_php(&self.pools, serving));
        let Some(reporter) = self.helpers.reporters.get_mut(&pool) else {
            return;
        };
        if is_early {
            reporter.waits_for_php = true;
            return self.context.sources.forget(&reporter.listener.socket);
        }
        if reporter.life.handle(Happened::Needed, clock::now()) != HelperAction::Start {
            return;
        }
        self.context.sources.forget(&reporter.listener.socket);
        let started = serving
            .ok_or_else(|| Error::new("start", "no generation serves", Errno::EAGAIN))
            .and_then(|generation| self.start_reporter(pool, generation));
        if let Err(error) = started {
            log::error!(
                "[pool {}] can't start the reporter: {error}",
                self.pools.pool_name(pool)
            );
            self.helpers
                .tell_reporter(&mut self.context, &self.pools, pool, Happened::Failed);
        }
    }

    fn start_reporter(&mut self, pool: PoolId, id: GenerationId) -> Result<(), Error> {
        self.open(id)?;
        let unknown = self.pools.generations.get(&id).filter(|it| !it.make.is_known);
        let unknown = unknown.map(|generation| generation.settings.pool.clone());
        let expected = unknown.and_then(|pool| self.reload.expected_name(&self.context, &pool));
        let nothing = || Error::new("start", "the pool is closed", Errno::EINVAL);
        let (generation, resources, workers) = self.pools.shared_with_helpers(pool, id)?;
        let status = &self
            .helpers
            .reporters
            .get(&pool)
            .ok_or_else(nothing)?
            .listener
            .socket;
        let settings = &generation.settings;
        let mut brief = Brief::new(
            &settings.pool,
            own_user().or_else(|| settings.identity.clone()),
            settings.started,
            settings.descriptor_limit,
        );
        brief.powered_by = generation.make.powered_by.clone().or(expected);
        let (channel, theirs) = socket_pair(SockType::SeqPacket)?;
        // Serialising plain values can't fail.
        let message = serde_json::to_vec(&brief).unwrap_or_default();
        let (readable, pipes) = (resources.board.memory().readable()?, generation.connected()?);
        let descriptors = [status, workers, &readable, &pipes.messages_in];
        send_with(
            channel.as_fd(),
            &message,
            &descriptors.map(|descriptor| descriptor.as_raw_fd()),
        )?;
        let environment: Vec<_> = zone().into_iter().collect();
        let pid = self.context.start_helper(
            &self.reload,
            brief.title,
            Role::Reporter,
            vec![theirs],
            &environment,
        )?;
        log::debug!("[pool {}] reporter {pid} started", settings.pool.name);
        self.processes.by_pid.insert(pid, Who::Reporter(pool));
        if let Some(reporter) = self.helpers.reporters.get_mut(&pool) {
            reporter.process = Some(ReporterProcess {
                pid,
                channel: Some(channel),
                generation: id,
            });
        }
        Ok(())
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
        (self.reporters.get(&pool)).is_some_and(|reporter| reporter.process.is_some())
    }

    pub(super) fn close_reporter(&mut self, context: &mut Context, handover: &mut Handover, pool: PoolId) {
        if let Some(listener) = self.release_reporter(context, handover, pool) {
            listener.remove_file();
        }
    }

    fn release_reporter(
        &mut self,
        context: &mut Context,
        handover: &mut Handover,
        pool: PoolId,
    ) -> Option<Listener> {
        let reporter = self.reporters.remove(&pool)?;
        handover.unkeep([names::status(pool.0)]);
        context.sources.forget(&reporter.listener.socket);
        if let Some(process) = reporter.process {
            let _ = process::send_signal(process.pid, Signal::SIGKILL);
        }
        Some(reporter.listener)
    }

    pub(in crate::master) fn reporters_deadline(&self) -> Option<Tick> {
        let deadlines = self.reporters.values().map(|reporter| reporter.life.deadline());
        deadlines.flatten().min()
    }

    fn is_starting_php(&self, pools: &Pools, id: GenerationId) -> bool {
        let is_known = pools
            .generations
            .get(&id)
            .is_none_or(|generation| generation.make.is_known);
        let mut preloaders = self.preloaders.values();
        // A preloader that is up may not have sent its facts yet.
        let is_coming = |it: &Preloader| it.start.is_some() || it.facts.is_none();
        !is_known && preloaders.any(|it| is_coming(it) && it.members.all().any(|member| member == id))
    }

    pub(super) fn reporter_gone(
        &mut self,
        context: &mut Context,
        pools: &Pools,
        pool: PoolId,
        pid: i32,
        ended: Ended,
    ) {
        let name = pools.pool_name(pool).to_owned();
        let Some(reporter) = self.reporters.get_mut(&pool) else {
            return;
        };
        // A reporter of an old address is no longer the pool's.
        if reporter.process.as_ref().is_none_or(|process| process.pid != pid) {
            return;
        }
        let left = reporter.process.take().is_some_and(|p| p.channel.is_none());
        let cause = match ended {
            Ended::Code(0) => Happened::Ended,
            Ended::Code(code) => {
                log::warn!("[pool {name}] reporter {pid} exited with code {code}");
                Happened::Failed
            }
            Ended::Signal(signal, _) => {
                if !left {
                    log::warn!("[pool {name}] reporter {pid} exited on signal {signal}");
                }
                Happened::Failed
            }
        };
        self.tell_reporter(context, pools, pool, cause);
    }

    fn tell_reporter(&mut self, context: &mut Context, pools: &Pools, pool: PoolId, happened: Happened) {
        if let Some(reporter) = self.reporters.get_mut(&pool) {
            let step = reporter.life.handle(happened, clock::now());
            self.reporter_step(context, pools, pool, step);
        }
    }

    fn reporter_step(&mut self, context: &mut Context, pools: &Pools, pool: PoolId, step: HelperAction) {
        let name = pools.pool_name(pool).to_owned();
        let Some(reporter) = self.reporters.get_mut(&pool) else {
            return;
        };
        match step {
            // Only `reporter_wanted` starts a reporter.
            HelperAction::None | HelperAction::Start => {}
            HelperAction::Idle => {
                let socket = &reporter.listener.socket;
                if let Err(error) = context.sources.watch(socket, Source::Status(pool)) {
                    log::error!("[pool {name}] {error}");
                }
            }
            HelperAction::Ask => {
                if let Some(process) = &mut reporter.process {
                    process.channel = None;
                }
            }
            HelperAction::Kill => {
                if let Some(process) = &reporter.process {
                    let _ = process::send_signal(process.pid, Signal::SIGKILL);
                }
            }
            HelperAction::BackOff(delay) => {
                log::warn!(
                    "[pool {name}] the reporter is not well; the next try is in {} s",
                    delay.as_secs_f64()
                );
            }
        }
    }
}

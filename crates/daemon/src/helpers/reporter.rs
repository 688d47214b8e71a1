//! Reporters, and the responders that refuse requests while an application can't start.

use crate::context::Context;
use crate::context::generation::Generation;
use crate::context::helper::{own_user, zone};
use crate::context::helper_id::{HelperId, HelperStep};
use crate::context::helper_process::HelperProcess;
use crate::context::named_socket::{NamedSocket, named};
use crate::context::pools::Pools;
use crate::context::sources::Source;
use crate::preloaders::Preloaders;
use crate::preloaders::preloader::Preloader;
use crate::roles::Role;
use forkyard_config::Listen;
use forkyard_core::life::{Happened, Rules};
use forkyard_core::master::event::{Event, GenerationId, PoolId};
use forkyard_host::listen::Listener;
use forkyard_host::logs::Handout;
use forkyard_protocol::handover::names;
use forkyard_reporter::{Brief, Refusal};
use forkyard_spawn::report::Report;
use forkyard_sys::fd::{send_with, set_nonblocking, socket_pair};
use forkyard_sys::{Error, clock};
use nix::errno::Errno;
use nix::sys::socket::SockType;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

/// Longer pages are not sent: a message between processes has a limit.
const LONGEST_PAGE: usize = 96 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Reporters {
    by_pool: HashMap<PoolId, Reporter>,
    /// The generations whose failure the responders tell.
    refused: HashMap<PoolId, GenerationId>,
}

#[derive(Debug)]
struct Reporter {
    listener: Listener,
    /// The generation that the process reports on, or the next one will.
    serving: Option<GenerationId>,
    /// A client has connected, and PHP must first start and report its version.
    waits_for_php: bool,
}

impl Reporters {
    pub(crate) fn set(
        &mut self,
        context: &mut Context,
        pool: PoolId,
        name: &str,
        wanted: Option<&Listen>,
        opened: Option<Listener>,
    ) {
        let Some(wanted) = wanted else {
            return self.close(context, pool);
        };
        // A pool with another socket is another pool, and takes over the status address.
        let moved = self.at(&context.pools, name, wanted).filter(|from| *from != pool);
        let moved = moved.and_then(|from| self.release(context, from));
        if let Some(listener) = opened.or(moved) {
            self.close(context, pool);
            let named = (names::status(pool.0), &*listener.socket);
            context.handover.keep([named]);
            let id = HelperId::Reporter(pool);
            context.helpers.want(id, Some(name), Rules::REPORTER);
            let reporter = Reporter {
                listener,
                serving: None,
                waits_for_php: false,
            };
            reporter.watch(context, pool);
            self.by_pool.insert(pool, reporter);
        } else if let Some(listener) = self.listener(pool) {
            let before = context.in_force.pool(name);
            let before = before.and_then(|it| it.pages.status_listen.as_deref());
            if let Err(error) = listener.adjust(wanted, before) {
                log::error!("[pool {name}] the status socket keeps its old attributes: {error}");
            }
        }
    }

    pub(crate) fn listeners(&self) -> impl Iterator<Item = (PoolId, &Listener)> {
        self.by_pool
            .iter()
            .map(|(pool, reporter)| (*pool, &reporter.listener))
    }

    pub(crate) fn listener(&self, pool: PoolId) -> Option<&Listener> {
        self.by_pool.get(&pool).map(|reporter| &reporter.listener)
    }

    pub(crate) fn at(&self, pools: &Pools, name: &str, wanted: &Listen) -> Option<PoolId> {
        let mut known = self.listeners();
        known
            .find(|(pool, known)| known.address == wanted.address && pools.pool_name(*pool) == name)
            .map(|(pool, _)| pool)
    }

    pub(crate) fn poll(
        &mut self,
        context: &mut Context,
        preloaders: &Preloaders,
        serving: impl Fn(PoolId) -> Option<GenerationId>,
    ) {
        for (pool, reporter) in &mut self.by_pool {
            let id = HelperId::Reporter(*pool);
            let is_running = context.helpers.pid(id).is_some();
            if !is_running && !reporter.waits_for_php {
                continue;
            }
            let serving = serving(*pool);
            if reporter.waits_for_php && !preloaders.is_starting_php(&context.pools, serving) {
                reporter.waits_for_php = false;
                reporter.watch(context, *pool);
            }
            if is_running && serving.is_some() && serving != reporter.serving {
                let leave = Happened::Leave(Duration::ZERO);
                context.helpers.tell(&mut context.services, id, leave);
            }
        }
    }

    /// A client has connected.
    pub(crate) fn needed(
        &mut self,
        context: &mut Context,
        preloaders: &Preloaders,
        pool: PoolId,
        serving: Option<GenerationId>,
    ) {
        let Some(reporter) = self.by_pool.get_mut(&pool) else {
            return;
        };
        if preloaders.is_starting_php(&context.pools, serving) {
            reporter.waits_for_php = true;
            return context.services.sources.forget(&reporter.listener.socket);
        }
        reporter.serving = serving;
        let id = HelperId::Reporter(pool);
        context.helpers.tell(&mut context.services, id, Happened::Needed);
    }

    pub(crate) fn follow_reporter(
        &self,
        context: &mut Context,
        pool: PoolId,
        step: HelperStep,
    ) -> Result<(), Error> {
        let Some(reporter) = self.by_pool.get(&pool) else {
            return Ok(());
        };
        match step {
            HelperStep::Start => return self.start(context, pool, reporter),
            HelperStep::Ask(_) => context.helpers.close_channel(HelperId::Reporter(pool)),
            HelperStep::Idle => reporter.watch(context, pool),
            HelperStep::Gone(_) => {}
        }
        Ok(())
    }

    fn start(&self, context: &mut Context, pool: PoolId, reporter: &Reporter) -> Result<(), Error> {
        context.services.sources.forget(&reporter.listener.socket);
        let id = reporter
            .serving
            .ok_or_else(|| Error::new("start", "no generation serves", Errno::EAGAIN))?;
        context.open(id)?;
        let generation = context.pools.generations.get(&id);
        let unknown = generation.filter(|it| !it.make.is_known);
        let unknown = unknown.map(|generation| generation.settings.pool.clone());
        let expected =
            unknown.and_then(|pool| context.in_force.starts.expected_name(&context.services, &pool));
        let process = self.start_reporting(context, pool, id, |brief, generation| Brief {
            powered_by: generation.make.powered_by.clone().or(expected),
            ..brief
        })?;
        context.helper_started(HelperId::Reporter(pool), process)
    }

    /// Starts the process that reports on a generation, or refuses its requests if `adjust` sets a refusal.
    fn start_reporting(
        &self,
        context: &Context,
        pool: PoolId,
        id: GenerationId,
        adjust: impl FnOnce(Brief, &Generation) -> Brief,
    ) -> Result<HelperProcess, Error> {
        let (generation, resources, workers) = context.pools.shared_with_helpers(pool, id)?;
        let settings = &generation.settings;
        let brief = Brief::new(
            &settings.pool,
            own_user().or_else(|| settings.identity.clone()),
            settings.started,
            settings.descriptor_limit,
        );
        let brief = adjust(brief, generation);
        let (channel, theirs) = socket_pair(SockType::SeqPacket)?;
        let listener = self.listener(pool).filter(|_| brief.refusal.is_none());
        let own = listener.map_or(workers, |listener| &listener.socket);
        let (readable, pipes) = (resources.board.memory().readable()?, generation.connected()?);
        let mut descriptors = vec![own, workers, &readable, &pipes.messages_in];
        if brief.refusal.is_some() {
            set_nonblocking(theirs.as_fd(), true)?;
            descriptors.push(&resources.board.memory().writable);
            descriptors.extend(pipes.access.as_ref().map(Handout::shelf));
        }
        let descriptors: Vec<RawFd> = descriptors.into_iter().map(AsRawFd::as_raw_fd).collect();
        // Serialising plain values can't fail.
        let message = serde_json::to_vec(&brief).unwrap_or_default();
        send_with(channel.as_fd(), &message, &descriptors)?;
        let (role, theirs) = (Role::Reporter, vec![theirs]);
        let pid = context
            .services
            .start_helper(&context.in_force, brief.title, role, theirs, zone())?;
        Ok(HelperProcess::new(pid, channel, None))
    }

    /// Closes a reporter's socket and kills its process.
    pub(crate) fn close(&mut self, context: &mut Context, pool: PoolId) {
        if let Some(listener) = self.release(context, pool) {
            listener.remove_file();
        }
    }

    fn release(&mut self, context: &mut Context, pool: PoolId) -> Option<Listener> {
        let reporter = self.by_pool.remove(&pool)?;
        context.handover.unkeep([names::status(pool.0)]);
        context.services.sources.forget(&reporter.listener.socket);
        let process = context.remove_helper(HelperId::Reporter(pool));
        process.iter().for_each(HelperProcess::kill);
        Some(reporter.listener)
    }

    /// All pools' listening sockets, in the configuration's order.
    pub(crate) fn named_sockets(&self, context: &Context) -> Vec<NamedSocket> {
        let mut sockets = Vec::new();
        for wanted in &context.in_force.config.pools {
            let Some((id, pool)) = context.pools.by_id.of(&wanted.name).next() else {
                continue;
            };
            sockets.extend(pool.listener.as_ref().map(named));
            sockets.extend(self.listener(id).map(named));
        }
        sockets
    }

    /// Refuses a pool's requests with its generation's last failure.
    pub(crate) fn refuse(&mut self, context: &mut Context, pool: PoolId, id: GenerationId, wait: Duration) {
        let refusal = context.pools.refusal(id, wait);
        let helper = HelperId::Responder(pool);
        let standing = context.helpers.process(helper);
        let standing = standing.filter(|_| self.refused.get(&pool) == Some(&id));
        if standing.is_some_and(|it| it.send(&refusal, &[]).is_ok()) {
            return;
        }
        self.stop_refusing(context, pool);
        let started = self.start_reporting(context, pool, id, |brief, generation| {
            let settings = &generation.settings;
            brief.answering_503(&settings.pool, refusal, settings.log_limit)
        });
        let name = context.pools.pool_name(pool).to_owned();
        let started = started.and_then(|process| {
            log::debug!("[pool {name}] process {} refuses requests", process.pid);
            context.helper_started(helper, process)
        });
        match started {
            Ok(()) => _ = self.refused.insert(pool, id),
            Err(error) => {
                log::error!(
                    "[pool {name}] requests wait, because the process that would refuse them can't be started: {error}"
                );
                context.services.tell(Event::UnavailableResponderGone(pool));
            }
        }
    }

    /// Lets the responder go: it completes the answers that it has begun.
    pub(crate) fn stop_refusing(&mut self, context: &mut Context, pool: PoolId) {
        self.refused.remove(&pool);
        context.remove_helper(HelperId::Responder(pool));
    }

    pub(crate) fn follow_responder(
        &mut self,
        context: &mut Context,
        pool: PoolId,
        step: HelperStep,
    ) -> Result<(), Error> {
        // The core starts and stops it.
        if let HelperStep::Gone(pid) = step {
            self.refused.remove(&pool);
            let name = context.pools.pool_name(pool);
            log::warn!("[pool {name}] process {pid}, which refused requests, has ended");
            context.services.tell(Event::UnavailableResponderGone(pool));
        }
        Ok(())
    }
}

impl Reporter {
    /// Watches for the next client.
    fn watch(&self, context: &mut Context, pool: PoolId) {
        let (name, socket) = (context.pools.pool_name(pool), &self.listener.socket);
        let sources = &mut context.services.sources;
        sources.watch_of_pool(name, socket, Source::Status(pool));
    }
}

impl Pools {
    pub(crate) fn report_named(&self, id: GenerationId) -> String {
        let report = self.last_report(id);
        report.map_or_else(String::new, |report| format!(" (error {})", report.id))
    }

    /// Returns the report of a generation's last failed start.
    pub(crate) fn last_report(&self, id: GenerationId) -> Option<&Report> {
        let generation = self.generations.get(&id)?;
        let kept = self.errors.last(&generation.settings.pool.name)?;
        (kept.epoch_s >= generation.settings.started).then_some(&*kept.report)
    }

    fn refusal(&self, id: GenerationId, wait: Duration) -> Refusal {
        let generation = self.generations.get(&id);
        let is_shown = generation.is_some_and(|it| it.settings.pool.pages.friendly_error_pages);
        let kept = self.errors.last(self.generation_name(id));
        let page = kept.filter(|_| is_shown);
        Refusal {
            id: kept.map_or_else(|| "unknown".to_owned(), |kept| kept.report.id.to_string()),
            retry_at_ns: (clock::now() + wait).as_nanos(),
            page: page.map(|kept| kept.report.page_within(LONGEST_PAGE)),
        }
    }
}

impl Preloaders {
    fn is_starting_php(&self, pools: &Pools, id: Option<GenerationId>) -> bool {
        let generation = id.and_then(|id| pools.generations.get(&id));
        let Some((id, _)) = id.zip(generation).filter(|(_, it)| !it.make.is_known) else {
            return false;
        };
        let mut preloaders = self.by_pid.values();
        // A preloader that is up may not have sent its facts yet.
        let is_coming = |it: &Preloader| it.start.is_some() || it.facts.is_none();
        preloaders.any(|it| is_coming(it) && it.members.all().any(|member| member == id))
    }
}

//! Pools: their sockets and their generations' settings.

use super::counters::AllCounters;
use super::generation::{Generation, Resources, closed};
use super::handover::{Handover, Named};
use super::queues::Queues;
use super::services::Services;
use super::sites::Sites;
use super::sources::Source;
use super::worker::WorkerProcess;
use forkyard_base::indexed::{Indexed, Keyed};
use forkyard_base::tick::Tick;
use forkyard_config::{Address, Listen, Pool, ProcessManager, Wrapped};
use forkyard_core::master::action::{Figures, WakeOnAccept};
use forkyard_core::master::event::{GenerationId, Policy, PoolId, PreloaderPolicy, WorkerId};
use forkyard_core::master::failed_starts::Errors;
use forkyard_core::master::program::START_TIMEOUT;
use forkyard_host::confine::{self, Group};
use forkyard_host::listen::Listener;
use forkyard_protocol::counters::PoolCounters;
use forkyard_protocol::handover::document::Had;
use forkyard_protocol::handover::names;
use forkyard_protocol::past_event::Happening;
use forkyard_protocol::release::Deployment;
use forkyard_runtimes::php::protocol::WARM_TIMEOUT;
use forkyard_scoreboard::header;
use forkyard_scoreboard::layout::header as word;
use forkyard_sys::diag::{self, ListenQueue};
use forkyard_sys::fd::{copy, send_with};
use forkyard_sys::guarded::Guarded;
use forkyard_sys::{Error, clock, socket};
use forkyard_worker::Settings;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

const WAKE: [u8; 1] = [0];
/// The additional time for a worker that ends its own overdue request.
const LOOP_TIMEOUT: Duration = Duration::from_secs(1);
/// The time in which an earlier generation may still accept connections.
const OVERLAP: Duration = Duration::from_secs(1);
/// How long the daemon's end waits for a control group to become empty.
const LAST_GROUPS: Duration = Duration::from_millis(500);

/// A running pool. Several may have the same name during a replacement.
#[derive(Debug, Default)]
pub(crate) struct RunningPool {
    pub(crate) name: String,
    /// Its listening socket; `None` for an application: its router has the socket.
    pub(crate) listener: Option<Listener>,
    pub(crate) http: Option<Listener>,
    /// Opened with the first process.
    pub(crate) queues: Queues,
    pub(crate) watched: bool,
    /// The generation that the core got last.
    pub(crate) latest: Option<GenerationId>,
    /// The generation that serves, by the last report of the core.
    pub(crate) serving: Option<GenerationId>,
    pub(crate) left_at: Option<Tick>,
    /// Facts about its workers under the previous master, until it has others.
    pub(crate) had: Option<Had>,
    pub(crate) last_deployment: Option<Box<Deployment>>,
}

impl Keyed for RunningPool {
    type Key = String;

    fn key(&self) -> &String {
        &self.name
    }
}

impl RunningPool {
    /// The number of waiting connections; `None` if unknown. A count asks the kernel for all sockets, so it is done
    /// only where one waits. `whether`: any number may be reported as 1.
    pub(crate) fn queued(&self, whether: bool) -> Option<u32> {
        let waits = |fd: &Guarded| socket::wait(fd.as_fd(), socket::Readiness::Readable, Duration::ZERO);
        let sockets = self.listener.iter().chain(&self.http).map(|it| &it.socket);
        let all = sockets.chain(self.queues.work());
        match all.map(waits).all(|waits| waits.is_ok_and(|waits| !waits)) {
            true => self.listener.is_some().then_some(0),
            false if whether && self.listener.is_some() => Some(1),
            false => self.listen_queue().map(|queue| queue.current),
        }
    }

    /// The connections to its socket without a client that a process still holds: a worker of its own, or of a killed
    /// daemon.
    pub(crate) fn abandoned(&self) -> u32 {
        match self.listener.as_ref().map(|listener| &listener.address) {
            Some(Address::Unix(path)) => diag::abandoned_connections(path).unwrap_or(0),
            Some(Address::Tcp(address)) => diag::abandoned_tcp_connections(address.port()).unwrap_or(0),
            Some(Address::TcpAny(port)) => diag::abandoned_tcp_connections(*port).unwrap_or(0),
            None => 0,
        }
    }

    pub(crate) fn named_listener(&self, id: PoolId) -> impl Iterator<Item = Named<'_>> {
        let listener = self.listener.iter();
        listener.map(move |listener| (names::listener(id.0), &*listener.socket))
    }

    pub(crate) fn named_http(&self, id: PoolId) -> impl Iterator<Item = Named<'_>> {
        let http = self.http.iter();
        http.map(move |http| (names::http(id.0), &*http.socket))
    }

    /// The queues of an application's pool end with this master.
    pub(crate) fn named_queues(&self, id: PoolId) -> impl Iterator<Item = Named<'_>> {
        let own = self.listener.iter();
        own.flat_map(move |_| self.queues.named(id.0))
    }

    pub(crate) fn listen_queue(&self) -> Option<ListenQueue> {
        let handed_over = self.queues.hand_off().is_some_and(|(out, _)| {
            socket::wait(out.as_fd(), socket::Readiness::Readable, Duration::ZERO).is_ok_and(|ready| ready)
        });
        let listener = self.listener.as_ref()?;
        let queue = diag::listen_queue(listener.socket.as_fd())?;
        let http = self.http.as_ref();
        let http = http.and_then(|http| diag::listen_queue(http.socket.as_fd()));
        Some(ListenQueue {
            current: queue.current + u32::from(handed_over) + http.map_or(0, |http| http.current),
            ..queue
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Pools {
    pub(crate) by_id: Indexed<PoolId, RunningPool>,
    pub(crate) generations: Indexed<GenerationId, Generation>,
    pub(crate) workers: HashMap<WorkerId, WorkerProcess>,
    pub(crate) vacated: BTreeSet<GenerationId>,
    pub(crate) groups: Vec<forkyard_host::confine::Group>,
    pub(crate) counters: AllCounters,
    pub(crate) errors: Errors,
    /// Events until the executor keeps them.
    pub(crate) unrecorded: Vec<Happening>,
    /// Applications of application pools that have releases.
    pub(crate) sites: Sites,
    pub(crate) last_pool: u32,
    pub(crate) last_generation: u32,
}

impl Pools {
    /// Returns the generation, its resources, and the pool's listening socket, for a reporter or a 503 responder.
    ///
    /// # Errors
    /// The pool or the generation is closed.
    pub(crate) fn shared_with_helpers(
        &self,
        pool: PoolId,
        id: GenerationId,
    ) -> Result<(&Generation, &Resources, &OwnedFd), Error> {
        let generation = self.generations.get(&id);
        let resources = generation.and_then(|generation| generation.resources.as_deref());
        let listener = self.by_id.get(&pool).and_then(|pool| pool.listener.as_ref());
        match (generation, resources, listener) {
            (Some(generation), Some(resources), Some(listener)) => {
                Ok((generation, resources, &listener.socket))
            }
            _ => Err(closed()),
        }
    }

    /// The file that the pool in service has open as its access log.
    pub(crate) fn open_access_log_of(&self, pool: &Pool) -> Option<OwnedFd> {
        let serving = self.by_id.get(&self.pool_listening_as(pool)?)?.serving?;
        copy(self.generations.get(&serving)?.access.as_ref()?).ok()
    }

    pub(crate) fn pools_named(&self, name: &str) -> Vec<PoolId> {
        let name = name.to_owned();
        let named = self.by_id.of(&name).filter(|(_, pool)| pool.listener.is_some());
        named.map(|(id, _)| id).collect()
    }

    pub(crate) fn pool_name(&self, pool: PoolId) -> &str {
        self.by_id.get(&pool).map_or("?", |pool| pool.name.as_str())
    }

    pub(crate) fn generation_name(&self, generation: GenerationId) -> &str {
        self.generations
            .get(&generation)
            .map_or("?", |g| g.settings.pool.name.as_str())
    }

    /// A worker's page of the scoreboard.
    pub(crate) fn page(&self, worker: &WorkerProcess) -> Option<&[AtomicU64]> {
        self.generations.get(&worker.generation)?.page(worker.slot)
    }

    pub(crate) fn resources(&self, id: GenerationId) -> Option<&Resources> {
        self.generations.get(&id)?.resources.as_deref()
    }

    pub(crate) fn resources_mut(&mut self, id: GenerationId) -> Option<&mut Resources> {
        self.generations.get_mut(&id)?.resources.as_deref_mut()
    }

    pub(crate) fn set_wake_on_accept(&mut self, id: GenerationId, notify: WakeOnAccept) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.set_wake_on_accept(notify);
        }
    }

    pub(crate) fn publish(&self, id: GenerationId, figures: Figures) {
        if let Some(resources) = self.resources(id) {
            let words = resources.board.header();
            header::raise(words, word::MAX_CHILDREN_REACHED, figures.max_children_reached);
            header::raise(words, word::SLOW_REQUESTS, figures.slow_requests);
        }
    }

    /// Keeps a generation in a reload: only its logs are opened again.
    pub(crate) fn keep(&mut self, id: GenerationId, access: Option<OwnedFd>, slow_log: Option<File>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        generation.open_logs(slow_log);
        if let Some(Err(error)) = access.map(|file| generation.take_access_log(file)) {
            log::error!("[pool {}] {error}", generation.settings.pool.name);
        }
    }

    pub(crate) fn add_generation(
        &mut self,
        handover: &mut Handover,
        pool: PoolId,
        mut settings: Settings,
        access: Option<OwnedFd>,
        slow_log: Option<File>,
    ) -> GenerationId {
        self.last_generation += 1;
        let id = GenerationId(self.last_generation);
        let release = settings.pool.release.as_ref();
        // The router of an application pool chooses the release of a request.
        let takes_turns = release.is_some() && !matches!(settings.pool.pm, ProcessManager::Ordered { .. });
        settings.turn = takes_turns.then(|| self.next_turn(pool));
        let mut generation = Generation::new(pool, settings, access);
        generation.open_logs(slow_log);
        if let Some(had) = self.by_id.get_mut(&pool).and_then(|pool| pool.had.take()) {
            generation.make.remember(had);
        }
        self.generations.insert(id, generation);
        // A pool's first generation serves when it can.
        handover.pool_changed(pool);
        id
    }

    /// Returns the turn queue that the serving generation of a pool doesn't have.
    fn next_turn(&self, pool: PoolId) -> u8 {
        let serving = self.by_id.get(&pool).and_then(|pool| pool.serving);
        let serving = serving.and_then(|id| self.generations.get(&id)?.settings.turn);
        serving.map_or(0, |turn| 1 - turn % 2)
    }

    pub(crate) fn serves(&mut self, pool: PoolId, generation: GenerationId) {
        let Some(pool) = self.by_id.get_mut(&pool) else {
            return;
        };
        pool.serving = Some(generation);
        let resources = self.resources(generation);
        if let Some(gate) = resources.and_then(|resources| resources.board.gate()) {
            gate.count_from(clock::now() + OVERLAP);
        }
    }

    pub(crate) fn add_pool(
        &mut self,
        handover: &mut Handover,
        name: &str,
        listener: Option<Listener>,
    ) -> PoolId {
        if listener.is_some() {
            self.errors.begin(name);
            self.counters.begin(name, PoolCounters::default());
        }
        self.last_pool += 1;
        let id = PoolId(self.last_pool);
        let pool = RunningPool {
            name: name.to_owned(),
            listener,
            ..RunningPool::default()
        };
        handover.keep(pool.named_listener(id));
        handover.pool_changed(id);
        self.by_id.insert(id, pool);
        id
    }

    /// Applies the HTTP address of a pool; `opened`: the socket, if it is new. Older workers keep the old one.
    pub(crate) fn set_http(
        &mut self,
        services: &mut Services,
        handover: &mut Handover,
        id: PoolId,
        (before, wanted): (Option<&Listen>, Option<&Listen>),
        opened: Option<Listener>,
    ) {
        let Some(pool) = self.by_id.get_mut(&id) else {
            return;
        };
        if let (Some(wanted), None, Some(open)) = (wanted, &opened, &pool.http) {
            if let Err(error) = open.adjust(wanted, before) {
                log::error!(
                    "[pool {}] the HTTP socket keeps its old attributes: {error}",
                    pool.name
                );
            }
            return;
        }
        if opened.is_none() && pool.http.is_none() {
            return;
        }
        let is_watched = pool.watched;
        if let Some(old) = std::mem::replace(&mut pool.http, opened) {
            services.sources.forget(&old.socket);
            old.remove_file();
            handover.unkeep([names::http(id.0)]);
        }
        if let Some(http) = pool.http.as_ref().filter(|_| is_watched) {
            let work = Source::Work(id);
            services.sources.watch_of_pool(&pool.name, &http.socket, work);
        }
        handover.keep(pool.named_http(id));
        handover.pool_changed(id);
    }

    /// Wakes a waiting worker with a message without connections in the hand-off queue.
    pub(crate) fn wake_worker(&self, id: PoolId) {
        if let Some((_, queue_in)) = self.by_id.get(&id).and_then(|pool| pool.queues.hand_off()) {
            // A full queue wakes the workers that read it.
            let _ = send_with(queue_in.as_fd(), &WAKE, &[]);
        }
    }

    pub(crate) fn watch(&mut self, services: &mut Services, id: PoolId) {
        let Some(pool) = self.by_id.get_mut(&id) else {
            return;
        };
        if pool.watched {
            return;
        }
        pool.watched = true;
        let listeners = pool.listener.iter().chain(&pool.http);
        for fd in listeners
            .map(|listener| &listener.socket)
            .chain(pool.queues.work())
        {
            services.sources.watch_of_pool(&pool.name, fd, Source::Work(id));
        }
    }

    pub(crate) fn unwatch(&mut self, services: &mut Services, id: PoolId) {
        let Some(pool) = self.by_id.get_mut(&id) else {
            return;
        };
        pool.watched = false;
        for listener in pool.listener.iter().chain(&pool.http) {
            services.sources.forget(&listener.socket);
        }
        for out in pool.queues.work() {
            services.sources.forget(out);
        }
    }

    pub(crate) fn take_groups(&mut self, groups: Vec<Group>) {
        let before = std::mem::take(&mut self.groups);
        let gone = before.into_iter().filter(|group| !groups.contains(group));
        let left = gone.filter(|group| !confine::remove_group(group, Duration::ZERO));
        let left: Vec<Group> = left.collect();
        self.groups = groups;
        self.groups.extend(left);
    }

    pub(crate) fn remove_socket_files(&self) {
        for pool in self.by_id.values() {
            let listeners = pool.listener.iter().chain(&pool.http);
            listeners.for_each(Listener::remove_file);
        }
        for group in &self.groups {
            if !confine::remove_group(group, LAST_GROUPS) {
                log::warn!("the control group {} is not empty and stays", group.display());
            }
        }
    }
}

pub(crate) fn policy(pool: &Pool) -> Policy {
    let application = &pool.application;
    let extra = match (application.php(), application.program()) {
        // The warm-up extends the deadline.
        (Some(php), _) if php.warm_up > 0 => WARM_TIMEOUT + php.warm_up_time,
        (_, Some(_)) => START_TIMEOUT,
        _ => Duration::ZERO,
    };
    let preloader = application.start_times().map(|times| PreloaderPolicy {
        start_timeout: times.start_timeout + extra,
        idle_timeout: times.idle_timeout,
        reforks: application.wrapped().is_some_and(Wrapped::reforks),
        is_needed_by_workers: application.program().is_some(),
    });
    // A worker that ignores its own time limit is stuck.
    let by_itself = match application.is_concurrent() {
        true => LOOP_TIMEOUT,
        false => Duration::ZERO,
    };
    let terminate_timeout = pool.serving.request_terminate_timeout;
    Policy {
        pm: pool.pm,
        choice: None,
        concurrency: application.concurrency(),
        terminate_timeout: terminate_timeout.map(|limit| limit + by_itself),
        slow_timeout: pool.logs.slow_log.as_ref().map(|slow| slow.timeout),
        drain_timeout: pool.replacement.drain_timeout,
        stop_timeout: pool.replacement.stop_timeout,
        preloader,
        starts_from_disk: application.traits().starts_from_disk,
    }
}

//! Performs the core's actions: one match, no decisions. A failure goes back in as an event.

mod adoption;
mod app_log;
mod apply_error;
mod births;
mod control;
mod deaths;
mod entries;
mod errors;
mod estate;
mod events;
mod failure;
mod generation;
mod helper;
mod launches;
mod needs;
mod opening;
mod output;
mod pools;
mod preloader;
mod programs;
mod promotion;
mod reloads;
mod renewal;
mod reporter;
mod reports;
mod routers;
mod said;
mod say;
mod shared;
mod slow;
mod sockets;
mod sources;
mod spawner;
mod stand_in;
mod starts;
mod store;
mod tallies;
mod totals;
mod unborn;
mod upgrade;
mod warm;

use super::action::{Action, Force};
use super::event::{Event, GenerationId, OrderId, PoolId, Row, Told, WorkerId};
use crate::config::Config;
use crate::estate::names;
use crate::listen::Inherited;
use crate::logs::Log;
use crate::scoreboard::{Stage, census, header};
use crate::sys::{clock, last_word, pidfd, process};
use crate::tick::Tick;
use crate::worker::Runtime;
use generation::Generation;
use mio::Registry;
use nix::sys::signal::Signal;
use output::Lines;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;

pub use apply_error::ApplyError;
pub(super) use control::Rights;
pub use failure::RunError;
pub(crate) use needs::programs as needed_programs;
pub(super) use renewal::Extent;
pub(super) use sources::{SIGNALS, Source};
pub(super) use totals::Totals;
pub(super) use upgrade::UpgradeError;
pub(crate) use upgrade::{ANSWER as REHEARSAL_ANSWER, OPTION as REHEARSAL_OPTION};

/// Workers' runtimes that live in this process: by pool name.
pub type Handlers = HashMap<String, Box<dyn Runtime>>;

/// Everything that the master holds of the world.
pub(super) struct Edge {
    registry: Registry,
    log: &'static Log,
    config: Config,
    handlers: Handlers,
    /// The directory in which the preloaders' executables are.
    libexec: PathBuf,
    descriptor_limit: Option<(u64, u64)>,
    pools: HashMap<PoolId, pools::PoolEdge>,
    generations: HashMap<GenerationId, Generation>,
    workers: HashMap<WorkerId, WorkerEdge>,
    reporters: HashMap<PoolId, reporter::ReporterEdge>,
    /// Who refuses requests.
    stand_ins: HashMap<PoolId, stand_in::StandInEdge>,
    /// Why starts failed.
    errors: errors::Errors,
    /// What was counted of pools.
    tallies: tallies::Tallies,
    /// Of application pools.
    routers: BTreeMap<PoolId, routers::RouterEdge>,
    /// The pool, and the router's number of the instance, of each ordered worker and of each order.
    instances: HashMap<WorkerId, (PoolId, u64)>,
    orders: HashMap<OrderId, (PoolId, u64)>,
    next_order: u64,
    /// Who waits for the status until routers have answered.
    statuses: Vec<routers::PendingStatus>,
    /// Preloaders by pid.
    preloaders: HashMap<i32, preloader::Preloader>,
    /// Second preloaders whose process is not known yet.
    seconds: HashMap<GenerationId, preloader::Preloader>,
    /// Programs that speak HTTP.
    programs: HashMap<GenerationId, programs::ProgramEdge>,
    /// What is being started by the spawning kit.
    spawner: spawner::Spawner,
    pids: HashMap<i32, Who>,
    sources: sources::Sources,
    /// When lines that are held are written, because nothing more belongs to them.
    entries_due: Option<Tick>,
    /// Children that ended before their preloader had said that it made them.
    early_deaths: VecDeque<(i32, process::Ended)>,
    /// Workers that were reaped, until the core says so in the log.
    deaths: HashMap<WorkerId, say::Death>,
    /// What preloaders that are gone wrote last, until the core says so in the log.
    last_words: HashMap<GenerationId, VecDeque<String>>,
    /// Of whose failed starts the log has the reports, until the core says that they failed.
    reported: HashSet<GenerationId>,
    /// Which preloader was asked which scripts were run most, and for which other.
    asked: HashMap<i32, i32>,
    control: control::Control,
    /// The log has php-fpm's words alone where it has any.
    pub(super) speaks_as_fpm: bool,
    /// The last reload, as long as it is not done.
    reload: Option<reloads::Reload>,
    /// The pools' control groups.
    groups: Vec<crate::confine::Group>,
    /// Listening sockets that the daemon was started with.
    pub(super) inherited: Inherited,
    /// What PHP was started from at the daemon's start or its last reload.
    starts: starts::Starts,
    next_pool: u32,
    next_generation: u32,
    /// How often a configuration was prepared.
    reloads: u64,
    /// What is left with the service manager, if there is one that keeps descriptors.
    pub(super) store: Option<store::Store>,
    /// The new program is trying whether it could take over.
    pub(super) rehearsal: Option<upgrade::Rehearsal>,
    /// What is to be done about what was taken over.
    pub(super) todo: Vec<Action>,
    /// What happened while actions were performed.
    pub(super) happened: VecDeque<Event>,
    /// More children may have ended than were reaped at once.
    pub(super) has_more_dead: bool,
    pub(super) outcome: Option<super::action::Outcome>,
}

/// A worker, from the decision to make it until it is reaped.
struct WorkerEdge {
    generation: GenerationId,
    slot: u32,
    pid: Option<i32>,
    /// A byte, or closing it, tells the worker to finish.
    retire: Option<OwnedFd>,
    output: Vec<(Lines, &'static str)>,
    /// The end of what it wrote until it was up.
    first_words: Vec<u8>,
    begun: crate::tick::Tick,
    up: bool,
    /// How it was told to go, and when.
    told: Option<(Told, crate::tick::Tick)>,
    /// It is not this process' child: readable when it has ended.
    foreign: Option<OwnedFd>,
    /// When its process started, once that was asked for.
    start_time: std::cell::Cell<Option<u64>>,
    /// A line of its output is not complete.
    unfinished: bool,
    /// The router's end of its channel, if a router gives it its connections.
    channel: Option<OwnedFd>,
    /// How what it is busy with can be seen; `None`: it can't.
    traceable: Option<Rc<slow::Traceable>>,
    /// Over which it is asked that, if it is.
    questions: Option<OwnedFd>,
}

/// Whose a pid is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Worker(WorkerId),
    Preloader,
    /// A process of a generation's program, by its place.
    Program(GenerationId, usize),
    /// The new program, trying.
    Rehearsal,
    Reporter(PoolId),
    /// It refuses the pool's requests.
    StandIn(PoolId),
    Router(PoolId),
    Scout(PoolId),
    /// A process that writes down what the worker with this pid is busy with.
    Tracer(i32),
}

impl Edge {
    /// Nothing runs yet.
    ///
    /// # Errors
    /// `dup`.
    pub(in crate::master) fn new(
        registry: Registry,
        log: &'static Log,
        config: Config,
        handlers: Handlers,
        libexec: PathBuf,
        descriptor_limit: Option<(u64, u64)>,
    ) -> io::Result<Edge> {
        let spawner =
            spawner::Spawner::new(registry.try_clone()?, libexec.join("forkyard"), descriptor_limit);
        Ok(Edge {
            programs: HashMap::new(),
            spawner,
            registry,
            log,
            config,
            handlers,
            libexec,
            descriptor_limit,
            pools: HashMap::new(),
            generations: HashMap::new(),
            workers: HashMap::new(),
            reporters: HashMap::new(),
            stand_ins: HashMap::new(),
            errors: errors::Errors::default(),
            tallies: tallies::Tallies::default(),
            routers: BTreeMap::new(),
            instances: HashMap::new(),
            orders: HashMap::new(),
            next_order: 0,
            statuses: Vec::new(),
            preloaders: HashMap::new(),
            seconds: HashMap::new(),
            pids: HashMap::new(),
            sources: sources::Sources::default(),
            entries_due: None,
            early_deaths: VecDeque::new(),
            deaths: HashMap::new(),
            last_words: HashMap::new(),
            reported: HashSet::new(),
            inherited: Inherited::default(),
            asked: HashMap::new(),
            control: control::Control::default(),
            speaks_as_fpm: false,
            reload: None,
            groups: Vec::new(),
            starts: starts::Starts::default(),
            next_pool: 0,
            next_generation: 0,
            reloads: 0,
            store: None,
            rehearsal: None,
            todo: Vec::new(),
            happened: VecDeque::new(),
            has_more_dead: false,
            outcome: None,
        })
    }

    /// Performs one action.
    pub(in crate::master) fn perform(&mut self, action: Action) {
        self.note_change(&action);
        match action {
            Action::Watch(pool) => self.watch(pool),
            Action::Unwatch(pool) => self.unwatch(pool),
            Action::SetNotify(generation, notify) => {
                if let Some(generation) = self.generations.get_mut(&generation) {
                    generation.set_notify(notify);
                }
            }
            Action::TakeCensus(generation) => self.take_census(generation),
            Action::StartPreloader(generation) => self.start_preloader(generation),
            Action::StopPreloader(generation, force) => self.stop_preloader(generation, force),
            Action::StandIn(pool, generation, wait) => self.stand_in(pool, generation, wait),
            Action::StandDown(pool) => self.stand_down(pool),
            Action::Promote(worker, generation) => self.promote(worker, generation),
            Action::Succeed(generation) => self.succeed(generation),
            Action::StopSecond(generation, force) => self.stop_second(generation, force),
            Action::Fork(worker, generation, slot) => self.fork(worker, generation, slot.0),
            Action::Retire(worker) => self.retire(worker),
            Action::Fill(order, worker) => self.fill_order(order, worker),
            Action::Fail(order) => self.fail_order(order),
            Action::Nudge(pool) => self.nudge(pool),
            Action::TimeUp(worker) => self.time_up(worker),
            Action::Kill(worker, force) => self.kill(worker, force),
            Action::Publish(generation, figures) => {
                if let Some(resources) = self
                    .generations
                    .get(&generation)
                    .and_then(|g| g.resources.as_ref())
                {
                    let counter = crate::scoreboard::layout::header::MAX_CHILDREN_REACHED;
                    header::raise(resources.board.header(), counter, figures.max_children_reached);
                    let counter = crate::scoreboard::layout::header::SLOW_REQUESTS;
                    header::raise(resources.board.header(), counter, figures.slow_requests);
                }
            }
            Action::Trace(worker) => self.trace(worker),
            Action::Renew => self.renew(),
            Action::DropGeneration(generation) => self.drop_generation(generation),
            Action::ClosePool(pool) => self.close_pool(pool),
            Action::Note(fact) => {
                self.follow_reload(fact);
                self.note(fact);
            }
            Action::Say(notice) => self.say(&notice),
            Action::Exit(outcome) => self.outcome = Some(outcome),
        }
    }

    fn take_census(&mut self, id: GenerationId) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let mut rows = Vec::new();
        if let Some(resources) = &generation.resources {
            for (&slot, &worker) in &generation.seats {
                let Some(page) = resources.board.slot(slot as usize) else {
                    continue;
                };
                rows.push(row(
                    worker,
                    page,
                    generation.settings.pool.request_terminate_timeout_track_finished,
                ));
            }
        }
        let queued = self.pools.get(&generation.pool).map(pools::PoolEdge::queued);
        self.happened.push_back(Event::Census(id, rows, queued.flatten()));
    }

    fn retire(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.told.get_or_insert((Told::Retire, clock::now()));
        let (generation, slot) = (worker.generation, worker.slot);
        self.close_retire(id);
        if let Some(resources) = self
            .generations
            .get(&generation)
            .and_then(|g| g.resources.as_ref())
        {
            header::set_retire(resources.board.header(), slot as usize, true);
        }
    }

    fn kill(&mut self, id: WorkerId, force: Force) {
        self.close_retire(id);
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let (signal, told) = match force {
            Force::Ask => return,
            Force::Terminate => (Signal::SIGTERM, Told::Terminate),
            Force::Kill => (Signal::SIGKILL, Told::Kill),
        };
        worker.told = Some((told, clock::now()));
        let sent = match (&worker.foreign, worker.pid) {
            (Some(process), _) => pidfd::send_signal(process.as_fd(), signal),
            (None, Some(pid)) => process::send_signal(pid, signal),
            (None, None) => Ok(()),
        };
        if let Err(error) = sent {
            log::error!("{error}");
        }
    }

    /// The worker answers for its request, and ends.
    fn time_up(&mut self, id: WorkerId) {
        self.count_terminated(id);
        self.close_retire(id);
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.told = Some((Told::Terminate, clock::now()));
        let sent = match (&worker.foreign, worker.pid) {
            // The word goes with the signal to a child only.
            (Some(process), _) => Some(pidfd::send_signal(process.as_fd(), Signal::SIGTERM)),
            (None, pid) => pid.map(last_word::send_time_up),
        };
        if let Some(Err(error)) = sent {
            log::error!("{error}");
        }
    }

    fn drop_generation(&mut self, id: GenerationId) {
        self.forget_reload_of(id);
        self.take_over_counts(id);
        let Some(generation) = self.generations.remove(&id) else {
            return;
        };
        self.programs.remove(&id);
        if generation.share.is_some() {
            self.unkeep([names::program_table(id.0)]);
        }
        let is_ordered = generation.is_ordered();
        if let Some(mut resources) = generation.resources {
            if !is_ordered {
                self.unkeep(names::of_generation(id.0));
                if resources.reports.is_some() {
                    self.unkeep(names::reports(id.0));
                }
            }
            if let Some(reports) = &mut resources.reports {
                self.hear_last_reports(&generation.settings, reports);
                self.sources.forget(&self.registry, reports.ends().0);
            }
            self.sources.forget(&self.registry, &resources.child_accept.0);
            self.drain_messages(&generation.settings.pool.name, &mut resources.messages);
            self.sources.forget(&self.registry, resources.messages.pipe());
        }
    }

    fn pool_name(&self, pool: PoolId) -> &str {
        self.pools.get(&pool).map_or("?", |pool| pool.name.as_str())
    }

    fn generation_name(&self, generation: GenerationId) -> &str {
        self.generations
            .get(&generation)
            .map_or("?", |g| g.settings.pool.name.as_str())
    }
}

/// A slot, as far as the core looks at it. `track_finished`: a request that is answered may still be ended.
fn row(worker: WorkerId, page: &[std::sync::atomic::AtomicU64], track_finished: bool) -> Row {
    use crate::scoreboard::layout::slot;
    let stage = census::stage(page);
    let (since, running) = match stage {
        Stage::Creating | Stage::Accepting | Stage::Accepted | Stage::Finished => (slot::SINCE, false),
        Stage::ReadingHeaders | Stage::Info | Stage::Executing | Stage::Working => (slot::TAKEN, true),
        Stage::End => (slot::TAKEN, track_finished),
    };
    Row {
        worker,
        idle: stage == Stage::Accepting,
        since: crate::tick::Tick::from_nanos(census::word(page, since)),
        running,
        executing: stage == Stage::Executing,
        kept: u32::try_from(census::word(page, slot::KEPT)).unwrap_or(u32::MAX),
    }
}

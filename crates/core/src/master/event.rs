//! What can happen to the master's core. One value per happening; nothing here has an effect.

use crate::tick::Tick;
pub use forkyard_protocol::handover::document::StopRequest;
use std::fmt;
use std::time::Duration;

/// A pool over the daemon's whole life: its listening socket and the generations of workers behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);

/// One configuration of one pool, with its own scoreboard, preloader and workers. Never used twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GenerationId(pub u32);

/// One worker, from the decision to make it until it is reaped. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u64);

/// One order for a worker of an application pool. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpawnRequestId(pub u64);

/// A slot of a generation's scoreboard, `0..max_children`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotIndex(pub u32);

impl fmt::Display for SlotIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What the core is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// What the master before this one has left: pools, generations and workers that go on. The first event, or none.
    Adopt(Adopted),
    /// The pools that are to run from now on: at start, and after a reload whose configuration was read, checked and
    /// whose new sockets are bound. Pools that run and are not named here are drained and closed. A daemon that is
    /// ending answers with [`super::action::Action::DropGeneration`] and [`super::action::Action::ClosePool`] for what is new.
    Apply(CoreConfig),
    /// A worker is ordered. Ends in [`super::action::Action::Fill`] or [`super::action::Action::Fail`]; a worker may be
    /// filled in once more if the first could not be made. A pool, or generation, that is not known begins with it; one
    /// that can't begin is answered with [`super::action::Action::DropGeneration`] and
    /// [`super::action::Action::ClosePool`], too.
    SpawnRequest(SpawnRequest),
    /// An order is not wanted any more: if it has a worker that is told to finish, or killed; otherwise it ends in
    /// [`super::action::Action::Fail`]. Unknown: nothing.
    Cancel(SpawnRequestId, bool),
    /// No router orders workers of this pool any more: those that it has finish.
    Disband(PoolId),
    /// What is left of a pool that is closed, or is to be disbanded, ends now.
    Expel(PoolId),
    /// The pool's source of work (listening socket or hand-off queue of kept connections) is ready. Only told while
    /// it is watched, once per [`super::action::Action::Watch`].
    SourceReady(PoolId),
    /// An operator ends the request of a worker: its client is answered as one whose request has taken too long.
    EndRequest(WorkerId),
    /// At least one byte came down a generation's accept-notify pipe (they are drained before this is told).
    ChildAccept(GenerationId),
    /// The answer to [`super::action::Action::TakeSnapshot`]; answers come in the order in which they were asked for. With
    /// it, how many connections wait in the pool's source (listen queue and hand-off queue together), measured at the
    /// same time; `None` if that can't be measured.
    Snapshot(GenerationId, Vec<Row>, Option<u32>),
    /// A worker asked for by [`super::action::Action::Fork`] exists.
    Forked(WorkerId),
    /// It could not be made. For a generation with a preloader, the preloader itself is still well.
    ForkFailed(WorkerId),
    /// A worker told for the first time that it has called accept: it is up.
    WorkerUp(WorkerId),
    /// A worker was reaped. What it had told by its accept-notify pipe is told before, so that one that was up and is
    /// gone is not taken for one that never came up. `true`: its slot says that it had taken up work. One that lies
    /// there is replaced as fast as one that crashes at work, or held back as one that does not: its own pool's matter.
    WorkerExited(WorkerId, Exit, bool),
    /// A generation's preloader is ready to fork.
    PreloaderReady(GenerationId),
    /// A generation's preloader is gone, wanted or not; outstanding forks it was asked for are told with
    /// `ForkFailed` before this.
    PreloaderGone(GenerationId, Exit),
    /// A generation's preloader did not start, and is started once more with other settings: it has its whole time again.
    PreloaderAgain(GenerationId),
    /// The process that was to refuse a pool's requests could not be started, or has ended without having been told to.
    UnavailableResponderGone(PoolId),
    /// A worker told that it has served as many requests as are to be served before the next preloader is made.
    MoldCandidate(WorkerId),
    /// The preloader that was made from a worker is ready to fork.
    NextMoldReady(GenerationId),
    /// A generation's next mold, wanted or not, is gone, or none came of the worker that was to make it.
    NextMoldGone(GenerationId, Exit),
    /// Stop now (SIGTERM, SIGINT).
    Terminate,
    /// Stop after the requests that are running (SIGQUIT), but go on with orders and leave their workers: routers have
    /// applications started as long as a request waits. `Finish` follows when they are gone.
    Drain,
    /// Stop after the requests that are running (SIGQUIT), and take no order any more.
    Finish,
    /// The deadline that `next_deadline` named has come.
    Deadline,
}

impl Event {
    /// The same, told after the generation's first and next mold have changed places.
    pub fn in_other_place(self, generation: GenerationId) -> Event {
        match self {
            Event::PreloaderReady(id) if id == generation => Event::NextMoldReady(id),
            Event::NextMoldReady(id) if id == generation => Event::PreloaderReady(id),
            Event::PreloaderGone(id, exit) if id == generation => Event::NextMoldGone(id, exit),
            Event::NextMoldGone(id, exit) if id == generation => Event::PreloaderGone(id, exit),
            other => other,
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// exit(2) with this status.
    Code(i32),
    /// Killed by this signal; `core`: a core was dumped.
    Signal {
        /// The signal's number.
        signal: i32,
        /// Whether a core was dumped.
        core: bool,
    },
    /// Unknown: another process reaped it.
    Unknown,
}

impl Exit {
    /// Whether a signal ended it that others send: SIGQUIT, SIGKILL (also the kernel's, where memory is short) or SIGTERM.
    pub fn is_from_outside(self) -> bool {
        matches!(
            self,
            Exit::Signal {
                signal: 3 | 9 | 15,
                ..
            }
        )
    }

    /// Whether the kernel ended the process for what it did to memory: SIGSEGV or SIGBUS, whose numbers are the same on
    /// every architecture that forkyard is built for.
    pub fn is_crash(self) -> bool {
        matches!(self, Exit::Signal { signal: 7 | 11, .. })
    }
}

/// What one worker's slot says. The worker wrote it: any of it may be nonsense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The worker that the slot was given to.
    pub worker: WorkerId,
    /// The stage is ACCEPTING: the worker waits for work.
    pub idle: bool,
    /// It has work and takes more at once: it serves several requests at a time.
    pub has_room: bool,
    /// When the request was taken up, if one is being served; else when the stage last changed to ACCEPTING (idle) or
    /// left it (busy).
    pub since: Tick,
    /// The request may be ended by `request_terminate_timeout`: its stage is after ACCEPTED and, unless the time after
    /// the answer counts too, before END.
    pub running: bool,
    /// The application runs: the stage is EXECUTING, and the request may be slow.
    pub executing: bool,
    /// Idle kept connections that the worker holds.
    pub kept: u32,
}

/// What a master takes over from the one before it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Adopted {
    /// As in [`CoreConfig`], until a configuration says otherwise.
    pub process_max: Option<u32>,
    /// The same.
    pub control_timeout: Duration,
    /// The first number that no worker has had.
    pub next_worker: u64,
    /// Pools whose listening socket is there.
    pub pools: Vec<PoolId>,
    /// Generations whose scoreboard and pipes are there. A pool that only they name is closed already.
    pub generations: Vec<AdoptedGeneration>,
}

/// A generation that goes on. Its preloader does not, unless that is a program: another is started when one is needed.
#[derive(Debug, Clone, PartialEq)]
pub struct AdoptedGeneration {
    /// Its id.
    pub generation: GenerationId,
    /// Its pool.
    pub pool: PoolId,
    /// Its policy.
    pub policy: Policy,
    /// Slots of its scoreboard, whatever the policy says.
    pub slots: u32,
    /// It is the one of its pool that serves; the others leave.
    pub serves: bool,
    /// Its workers that live.
    pub workers: Vec<AdoptedWorker>,
    /// Slots that may be used by an unknown process. They are not given away again.
    pub lost: Vec<SlotIndex>,
    /// Its preloader is there and ready.
    pub has_preloader: bool,
}

/// A worker that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdoptedWorker {
    /// Its id.
    pub worker: WorkerId,
    /// Its slot.
    pub slot: SlotIndex,
    /// When it was made.
    pub forked: Tick,
    /// It has told that it called accept.
    pub up: bool,
    /// What it was told, and when.
    pub told: Option<(StopRequest, Tick)>,
}

/// A configuration, as far as the core needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreConfig {
    /// Cap on workers over all pools and generations; `None`: no cap.
    pub process_max: Option<u32>,
    /// How long a retiring worker may go on before SIGTERM.
    pub control_timeout: Duration,
    /// When crashed workers have everything made anew; `None`: never.
    pub emergency: Option<crate::config::EmergencyRestart>,
    /// The daemon ends if it is its first configuration, and no pool can make a worker that it is to have from the beginning. Else
    /// it stays, and tries again.
    pub gives_up: bool,
    /// The pools, in configuration order.
    pub pools: Vec<WantedPool>,
}

/// One pool of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedPool {
    /// The pool: a known one is given a new generation beside its old one, an unknown one is begun.
    pub pool: PoolId,
    /// The new generation's id. Same id as the running one: nothing changed for its workers, and they stay.
    pub generation: GenerationId,
    /// Its policy. A generation that runs already takes over `drain_timeout` alone: nothing else of it can differ.
    pub policy: Policy,
    /// A new generation takes over after one worker of it has come up, even where it would have none.
    pub trial: bool,
}

/// An order for one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpawnRequest {
    /// Its number.
    pub order: SpawnRequestId,
    /// The pool: one that is known by earlier orders, or a new one.
    pub pool: PoolId,
    /// The generation that makes the worker: the pool's present one, or a new one, which takes its place.
    pub generation: GenerationId,
    /// Its policy, with [`crate::config::ProcessManager::Ordered`].
    pub policy: Policy,
}

/// What decides how many workers a generation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// static, dynamic or ondemand with their numbers.
    pub pm: crate::config::ProcessManager,
    /// How many connections that wait one worker takes, at least 1.
    pub concurrency: u32,
    /// A request that runs longer is ended with its worker.
    pub terminate_timeout: Option<Duration>,
    /// A request that runs longer is slow: what it is busy with is written down.
    pub slow_timeout: Option<Duration>,
    /// A worker that leaves while the daemon goes on has this long, if that is longer than `control_timeout`.
    pub drain_timeout: Option<Duration>,
    /// From SIGTERM to SIGKILL, for a worker or a program that is stopped.
    pub stop_timeout: Duration,
    /// `Some`: workers come from a preloader, which may take `start_timeout` to be ready and is stopped after
    /// `idle_timeout` without a worker.
    pub preloader: Option<PreloaderPolicy>,
    /// Each worker starts a program of its own from disk: one of an old generation gets new code.
    pub starts_from_disk: bool,
}

impl Policy {
    /// How many workers take so many connections that wait.
    pub(super) fn workers_for(&self, waiting: u32) -> u32 {
        waiting.div_ceil(self.concurrency.max(1))
    }
}

/// When a preloader is given up and when it is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreloaderPolicy {
    /// From its start to `PreloaderReady`.
    pub start_timeout: Duration,
    /// Without any worker.
    pub idle_timeout: Duration,
    /// The next preloader is made from a worker once that says that it has served enough requests.
    pub reforks: bool,
    /// Its workers can't do without it: when its generation leaves, it stays until the last of them is gone.
    pub is_needed_by_workers: bool,
}

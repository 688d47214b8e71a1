//! Events of the master's core.

pub use crate::spawn::error::Ended;
use forkyard_base::tick::Tick;
pub use forkyard_protocol::handover::document::StopRequest;
use std::fmt;
use std::time::Duration;

/// A pool: its listening socket and its generations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);

/// One configuration of a pool, with its scoreboard, preloader and workers. Never reused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GenerationId(pub u32);

/// One worker, from the fork decision until it is reaped. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u64);

/// One request for a worker: an application pool and the number of an instance in it. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpawnRequestId(pub PoolId, pub u64);

/// A slot of a generation's scoreboard, `0..max_children`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotIndex(pub u32);

impl fmt::Display for SlotIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The state that the previous master left. The first event, if sent.
    Adopt(Adopted),
    /// The pools to run, valid and bound. Others are drained and closed. A daemon that exits answers with
    /// [`super::action::Action::DropGeneration`] and [`super::action::Action::ClosePool`].
    Apply(CoreConfig),
    /// A router requests a worker; ends in [`super::action::Action::Fill`], which a retry may repeat, or
    /// [`super::action::Action::Fail`]. An unknown pool or generation is created, or dropped at once.
    SpawnRequest(SpawnRequest),
    /// A spawn request is canceled: its worker exits or is killed. A request without a worker ends in
    /// [`super::action::Action::Fail`].
    Cancel(SpawnRequestId, bool),
    /// No router needs this pool's workers any more: they finish and exit.
    Disband(PoolId),
    /// The remains of a closed or disbanded pool exit now.
    Expel(PoolId),
    /// The pool's listening socket or hand-off queue is ready. Sent once per [`super::action::Action::Watch`].
    SourceReady(PoolId),
    /// An operator ends a worker's request: the client gets a timeout answer.
    EndRequest(WorkerId),
    /// The accept-notify pipe had bytes, which have been read.
    ChildAccept(GenerationId),
    /// The answer to [`super::action::Action::TakeSnapshot`], in order, with the waiting connections (`None` if
    /// unknown).
    Snapshot(GenerationId, Vec<Row>, Option<u32>),
    /// A worker from [`super::action::Action::Fork`] exists.
    Forked(WorkerId),
    /// It could not be forked. The preloader, if any, is still well.
    ForkFailed(WorkerId),
    /// A worker called accept for the first time.
    WorkerUp(WorkerId),
    /// A worker was reaped. Sent after its accept notifications. `true`: its slot shows work, which it may fake.
    WorkerExited(WorkerId, Ended, bool),
    /// The coming generation of a pool gets this part of the requests, in percent, if it has a share. 100: it takes over
    /// once it is warm.
    Share { pool: PoolId, percent: u8 },
    /// The autopilot of a generation's pool has chosen.
    Chosen(GenerationId, Choice),
    /// A generation's preloader is ready to fork.
    PreloaderReady(GenerationId),
    /// A generation's preloader exited. Sent after `ForkFailed` for its pending forks.
    PreloaderGone(GenerationId, Ended),
    /// A generation's preloader failed and restarts with other settings; its timeout begins again.
    PreloaderAgain(GenerationId),
    /// A pool's 503 responder failed to start or exited unexpectedly.
    UnavailableResponderGone(PoolId),
    /// A worker has served enough requests for a refork.
    MoldCandidate(WorkerId),
    /// The preloader made from a worker is ready to fork.
    NextMoldReady(GenerationId),
    /// The next mold exited, or was not made.
    NextMoldGone(GenerationId, Ended),
    /// Stop now (SIGTERM, SIGINT).
    Terminate,
    /// Stop after the running requests (SIGQUIT), but serve routers. `Finish` follows.
    Drain,
    /// Stop after the running requests (SIGQUIT), without further spawn requests.
    Finish,
    /// The time from `next_deadline` has come.
    Deadline,
}

impl Event {
    /// Translates an event for a generation after the swap of its preloader and next mold.
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

/// How many workers a generation may have, in place of the number of its process manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The most workers, including leaving ones; at least 1.
    pub most: u32,
    /// Whether memory allows another worker; the first is always allowed.
    pub may_fork: bool,
}

/// The content of a worker's slot. Untrusted: the worker wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub worker: WorkerId,
    /// Its stage is ACCEPTING.
    pub idle: bool,
    /// It is busy and takes more requests.
    pub has_room: bool,
    /// Start of the present request, or the last change to or from ACCEPTING.
    pub since: Tick,
    /// `request_terminate_timeout` applies: its stage is after ACCEPTED and, unless the time after the answer counts,
    /// before END.
    pub running: bool,
    /// Its stage is EXECUTING, so the request may be slow.
    pub executing: bool,
    /// Its idle kept connections.
    pub kept: u32,
    /// Its own memory in bytes; 0 if unknown.
    pub memory: u64,
}

/// The state that a master takes over.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Adopted {
    /// As in [`CoreConfig`].
    pub process_max: Option<u32>,
    /// As in [`CoreConfig`].
    pub control_timeout: Duration,
    /// The first unused worker number.
    pub next_worker: u64,
    /// Pools with a listening socket.
    pub pools: Vec<PoolId>,
    /// Generations with a scoreboard and pipes. A pool that only they name is closed.
    pub generations: Vec<AdoptedGeneration>,
}

/// An adopted generation. Its preloader is not adopted unless it is a program.
#[derive(Debug, Clone, PartialEq)]
pub struct AdoptedGeneration {
    pub generation: GenerationId,
    pub pool: PoolId,
    pub policy: Policy,
    /// The size of its scoreboard.
    pub slots: u32,
    /// Whether it serves; others leave.
    pub serves: bool,
    pub workers: Vec<AdoptedWorker>,
    /// Slots that an unknown process may use; never assigned again.
    pub lost: Vec<SlotIndex>,
    /// Whether its preloader is ready.
    pub has_preloader: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdoptedWorker {
    pub worker: WorkerId,
    pub slot: SlotIndex,
    /// When it was forked.
    pub forked: Tick,
    /// Whether it has called accept.
    pub up: bool,
    /// The order that it got, and when.
    pub told: Option<(StopRequest, Tick)>,
}

/// The core's part of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreConfig {
    /// The most workers of all pools; `None`: no limit.
    pub process_max: Option<u32>,
    /// How long a retiring worker may take before SIGTERM.
    pub control_timeout: Duration,
    /// The rule of the emergency restart; `None`: off.
    pub emergency: Option<crate::config::EmergencyRestart>,
    /// At the first start the daemon exits if no required worker can be started.
    pub gives_up: bool,
    /// The pools in configuration order.
    pub pools: Vec<WantedPool>,
}

/// One pool of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedPool {
    /// The pool: a known one gets a new generation, an unknown one is created.
    pub pool: PoolId,
    /// The generation. If it is the running one, its workers stay.
    pub generation: GenerationId,
    /// Its policy. A running generation updates only `drain_timeout`.
    pub policy: Policy,
    /// The new generation takes over only after one of its workers is up.
    pub trial: bool,
    /// The new generation gets this part of the requests, in percent, and takes over only at 100 ([`Event::Share`]).
    /// `None`: it takes over once it is warm.
    pub share: Option<u8>,
}

/// A request for one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpawnRequest {
    pub order: SpawnRequestId,
    /// Its pool, known or new.
    pub pool: PoolId,
    /// Its generation: the pool's present one, or its successor.
    pub generation: GenerationId,
    /// Its policy, with [`crate::config::ProcessManager::Ordered`].
    pub policy: Policy,
}

/// Settings that determine a generation's workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policy {
    /// The process manager with its numbers.
    pub pm: crate::config::ProcessManager,
    /// At the start, if an autopilot chooses the number of workers. `None`: the process manager's number counts.
    pub choice: Option<Choice>,
    /// Waiting connections that one worker takes, at least 1.
    pub concurrency: u32,
    /// A request and its worker are ended after this time.
    pub terminate_timeout: Option<Duration>,
    /// A request is logged as slow after this time.
    pub slow_timeout: Option<Duration>,
    /// The time a leaving worker gets while the daemon runs, if longer than `control_timeout`.
    pub drain_timeout: Option<Duration>,
    /// From SIGTERM to SIGKILL for a stopped worker or program.
    pub stop_timeout: Duration,
    /// Set if workers are forked from a preloader.
    pub preloader: Option<PreloaderPolicy>,
    /// Each worker loads its program from disk, so old generations get new code.
    pub starts_from_disk: bool,
}

impl Policy {
    /// Returns the process manager with the number that counts now.
    pub(super) fn manager(&self) -> crate::config::ProcessManager {
        match self.choice {
            Some(choice) => self.pm.limited_to(choice.most),
            None => self.pm,
        }
    }

    pub(super) fn workers_for(&self, waiting: u32) -> u32 {
        waiting.div_ceil(self.concurrency.max(1))
    }
}

/// Settings of a preloader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreloaderPolicy {
    /// How long it may take to be ready.
    pub start_timeout: Duration,
    /// How long it stays without workers.
    pub idle_timeout: Duration,
    /// Whether it is replaced by copies of workers.
    pub reforks: bool,
    /// Its workers need it: it stays until the last one has exited.
    pub is_needed_by_workers: bool,
}

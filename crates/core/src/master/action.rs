//! Actions of the master's core. The executor performs them in order and reports failures as events.

use super::event::{Ended, GenerationId, PoolId, SlotIndex, SpawnRequestId, WorkerId};
use crate::config::EmergencyRestart;
pub use crate::life::Force;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Watch the pool's listening socket and hand-off queue. If one is ready already, `SourceReady` comes at once.
    Watch(PoolId),
    Unwatch(PoolId),
    /// Publish when workers must write to the accept-notify pipe. Stored with sequential consistency before later
    /// actions.
    SetWakeOnAccept(GenerationId, WakeOnAccept),
    /// Read all slots of the generation; ends in `Snapshot`.
    TakeSnapshot(GenerationId),
    /// Start the generation's preloader; ends in `PreloaderReady` or `PreloaderGone`.
    StartPreloader(GenerationId),
    /// Stop it; ends in `PreloaderGone`.
    StopPreloader(GenerationId, Force),
    /// Refuse the pool's requests, or update the report; the delay until the next start. May end in
    /// `UnavailableResponderGone`.
    UnavailableResponder(PoolId, GenerationId, Duration),
    StopUnavailableResponder(PoolId),
    /// Have a worker fork the next preloader; ends in `NextMoldReady` or `NextMoldGone`.
    Promote(WorkerId, GenerationId),
    /// Swap the generation's preloader and next mold. Events not yet delivered are translated by
    /// [`super::event::Event::in_other_place`].
    SwitchMold(GenerationId),
    /// Stop the next mold; ends in `NextMoldGone`.
    StopNextMold(GenerationId, Force),
    /// Fork a worker into this slot; ends in `Forked` or `ForkFailed`.
    Fork(WorkerId, GenerationId, SlotIndex),
    /// Assign a worker to a spawn request. Comes right before its `Fork`.
    Fill(SpawnRequestId, WorkerId),
    /// A spawn request has failed for good.
    Fail(SpawnRequestId),
    /// Tell a worker to exit between requests.
    Retire(WorkerId),
    /// Send a worker SIGTERM and have it answer that its request timed out.
    RespondTimeout(WorkerId),
    /// Send a worker a signal.
    Kill(WorkerId, Force),
    /// Log what the worker's request is doing, without disturbing it.
    Trace(WorkerId),
    /// Prepare the present configuration with new generations for all pools; ends in `Apply`.
    Renew,
    /// Wake another worker: one that died may have taken the kernel's wake-up with it.
    Wake(PoolId),
    /// Publish counters of the generation that the master keeps.
    Publish(GenerationId, Figures),
    /// Two generations of a pool share its requests: the new one gets this part. `None`: no more.
    Share {
        old: GenerationId,
        new: GenerationId,
        percent: Option<u8>,
    },
    /// Release the scoreboard and pipes of a generation that has no processes left.
    DropGeneration(GenerationId),
    /// Close the pool's listening socket and remove its path. Comes before its workers are gone, so that no client
    /// connects to a socket without a server.
    ClosePool(PoolId),
    /// Record a fact for the reload's progress and the hand-over document.
    Note(Fact),
    /// Log a notice and keep it as an event. Must have no other effect.
    Say(Notice),
    /// All workers are gone: leave the event loop.
    Exit(ExitOutcome),
}

/// How the daemon exits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExitOutcome {
    #[default]
    Stopped,
    /// At the first start no required worker could be started.
    NoWorkerAtStart,
}

/// When a worker that takes up work notifies the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WakeOnAccept {
    /// Always.
    pub always: bool,
    /// When fewer than this many workers stay idle.
    pub idle_below: u32,
}

/// Counters of a generation that only the master has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// How often `max_children` was reached.
    pub max_children_reached: u64,
    /// Requests that exceeded `request_slowlog_timeout`.
    pub slow_requests: u64,
}

/// A fact for the executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// A generation serves, and the previous one retires.
    Serves(GenerationId),
    /// A coming generation that shares the pool's requests has its first worker.
    Shares(GenerationId),
    /// A serving generation has its first worker, or needs none yet.
    Up(GenerationId),
    /// `process.max` leaves no room for a serving generation's first worker.
    Waits(GenerationId),
    /// A worker or preloader could not be started or died early; retried after a delay.
    Fails(GenerationId),
    /// A worker was reaped.
    Gone(WorkerId),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// `max_children` is reached and another worker would help. Logged once until fewer are needed.
    MaxChildrenReached(PoolId, u32),
    /// Fewer workers than `max_children` are needed again.
    MaxChildrenOver(PoolId),
    /// `process.max` is reached and another worker would help. Logged once until a fork succeeds.
    ProcessMaxReached(u32),
    /// The pool has no worker and can't start one; the delay, or `None` to wait for another pool's worker to exit.
    NoWorkerPossible(PoolId, Option<Duration>),
    /// Workers die at start or can't be forked; the delay until the next try.
    BackingOff(PoolId, Duration),
    /// More workers than this crashed at work within a second; the delay before further forks.
    CrashingFast(PoolId, u32, Duration),
    /// Many workers start at once: started, idle, running.
    SeemsBusy(PoolId, u32, u32, u32),
    /// A request exceeded `request_slowlog_timeout`; its duration. Logged once per request.
    RequestSlow(WorkerId, Duration),
    /// Many workers crashed in a short time: everything restarts.
    EmergencyRestart(EmergencyRestart),
    /// A request exceeded `request_terminate_timeout`; the worker gets a signal.
    RequestTimedOut(WorkerId, Duration, Force),
    /// An operator ends a request; the worker gets a signal.
    RequestEnded(WorkerId, Force),
    /// A worker did not exit in time; it gets a signal.
    RetireTimedOut(WorkerId, Force),
    /// The daemon exits without a killed worker that the kernel does not release.
    WorkerStays(WorkerId),
    /// The daemon exits without a killed preloader.
    PreloaderStays(GenerationId),
    /// A preloader exceeded a timeout and is killed.
    PreloaderTimedOut(GenerationId, Duration),
    /// A worker was reaped. `true`: it was told to exit.
    WorkerGone(WorkerId, Ended, bool),
    /// A preloader exited unexpectedly; the delay before the next.
    PreloaderLost(GenerationId, Ended, Duration),
    /// A preloader is made from this worker.
    Promoting(WorkerId),
    /// The preloader made from a worker has taken over.
    MoldSwitched(GenerationId),
    /// A worker did not become a preloader; the least delay before the next try.
    PromotionFailed(GenerationId, Ended, Duration),
    /// A generation serves and the previous one retires.
    GenerationServes(GenerationId),
}

//! What the master's core can ask for. The executor performs each in order, decides nothing, and tells failures back as
//! events.

use super::event::{Exit, GenerationId, PoolId, SlotIndex, SpawnRequestId, WorkerId};
use crate::config::EmergencyRestart;
pub use crate::life::Force;
use std::time::Duration;

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Watch the pool's listening socket and hand-off queue. If either is ready already, `SourceReady` comes at once.
    Watch(PoolId),
    /// Stop watching them.
    Unwatch(PoolId),
    /// Publish in the generation's scoreboard header when a worker that goes from idle to busy has to write to the
    /// accept-notify pipe. Stored with sequential consistency before any later action.
    SetWakeOnAccept(GenerationId, WakeOnAccept),
    /// Read every slot of the generation and tell `Snapshot`.
    TakeSnapshot(GenerationId),
    /// Start the generation's preloader; ends in `PreloaderReady` or `PreloaderGone`.
    StartPreloader(GenerationId),
    /// Stop it; ends in `PreloaderGone`.
    StopPreloader(GenerationId, Force),
    /// Refuse every request to the pool at once, because the generation's preloader failed to start; the next try is in
    /// this time. A process that refuses them already is told of the new failure. May end in
    /// `UnavailableResponderGone`.
    UnavailableResponder(PoolId, GenerationId, Duration),
    /// Refuse them no more.
    StopUnavailableResponder(PoolId),
    /// Have a worker, which may be gone, make its generation's next mold; ends in `NextMoldReady` or `NextMoldGone`.
    Promote(WorkerId, GenerationId),
    /// The next mold makes the generation's workers from now on. The first, if there is one, becomes the second. An
    /// event about one that is not told yet is told as one about the other ([`super::event::Event::in_other_place`]).
    SwitchMold(GenerationId),
    /// Stop the next mold; ends in `NextMoldGone`.
    StopNextMold(GenerationId, Force),
    /// Make a worker in this slot; ends in `Forked` or `ForkFailed`.
    Fork(WorkerId, GenerationId, SlotIndex),
    /// This worker is for that order. Comes right before its `Fork`.
    Fill(SpawnRequestId, WorkerId),
    /// Nothing came of an order, and nothing will.
    Fail(SpawnRequestId),
    /// Tell a worker to finish: seen between requests.
    Retire(WorkerId),
    /// Send a worker SIGTERM with the word that its request's time is up, so that the client is answered.
    RespondTimeout(WorkerId),
    /// Send a worker a signal.
    Kill(WorkerId, Force),
    /// Write down what the worker's request is busy with, without disturbing it. The core is told nothing of it.
    Trace(WorkerId),
    /// Prepare the present configuration once more, with new generations for all pools, and tell `Apply`.
    Renew,
    /// A worker of the pool died. The kernel may have woken it alone for work: wake another that waits.
    Wake(PoolId),
    /// Publish the generation's counters that the master keeps.
    Publish(GenerationId, Figures),
    /// The generation has no worker and no preloader left and will have none: release its scoreboard and pipes.
    DropGeneration(GenerationId),
    /// The pool is no longer wanted: close its listening socket and remove a unix socket's path. Comes before its
    /// workers are gone, so that no client connects to a socket without a server.
    ClosePool(PoolId),
    /// Something has happened that the executor keeps account of: in a reload that is under way, in the hand-over document.
    Note(Fact),
    /// Say something in the log. This must have no other effect.
    Say(Notice),
    /// Every worker is gone and the daemon is to stop: leave the loop.
    Exit(ExitOutcome),
}

/// How the daemon ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitOutcome {
    /// It was asked to.
    Stopped,
    /// At the first start, none of the wanted workers could be made.
    NoWorkerAtStart,
}

/// When a worker that takes up work tells the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WakeOnAccept {
    /// Always.
    pub always: bool,
    /// When fewer than this many workers of the generation stay idle.
    pub idle_below: u32,
}

/// Counters of a generation that only the master knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// How often more workers were wanted than `max_children` allows.
    pub max_children_reached: u64,
    /// Requests that ran past `request_slowlog_timeout`.
    pub slow_requests: u64,
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// A generation serves, and the one before it retires.
    Serves(GenerationId),
    /// A generation that serves has its first worker up, or is to have none before it is asked.
    Up(GenerationId),
    /// `process.max` leaves no room for the first worker of a generation that serves.
    Waits(GenerationId),
    /// A generation has a worker less than it should have, or no preloader: it could not be made or did not live, and is tried
    /// again after a while.
    Fails(GenerationId),
    /// A worker was reaped.
    Gone(WorkerId),
}

/// A line for the log, as a value, so that tests can tell lines apart.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// `max_children` is reached and another worker would be of use. Once until the pool needs fewer again.
    MaxChildrenReached(PoolId, u32),
    /// `process.max` is reached and another worker would be of use. Once until a fork succeeds again.
    ProcessMaxReached(u32),
    /// No worker is left and none can be made. Trying again after this long; `None`: as soon as a worker
    /// of another pool ends (`process.max`). Once until the pool has a worker again.
    NoWorkerPossible(PoolId, Option<Duration>),
    /// Workers die as they start, or can't be forked; the next try comes after this long. Once per step.
    BackingOff(PoolId, Duration),
    /// More than so many workers crashed within a second while they had work: the next are made after this long, and then
    /// as many a second. Once until fewer crash.
    CrashingFast(PoolId, u32, Duration),
    /// Many workers are being made at once: the number made, idle, running.
    SeemsBusy(PoolId, u32, u32, u32),
    /// A worker's request has been running for so long, past `request_slowlog_timeout`. Once for each request.
    RequestSlow(WorkerId, Duration),
    /// So many workers crashed in so short a time that everything is made anew.
    EmergencyRestart(EmergencyRestart),
    /// A worker's request ran past `request_terminate_timeout`; the worker gets a signal.
    RequestTimedOut(WorkerId, Duration, Force),
    /// An operator ends a worker's request; the worker gets a signal.
    RequestEnded(WorkerId, Force),
    /// A worker that was told to go is still there after its time; it gets a signal.
    RetireTimedOut(WorkerId, Force),
    /// A preloader did not become ready, or did not answer a request to fork, in time; it is killed.
    PreloaderTimedOut(GenerationId, Duration),
    /// A worker was reaped. True: it had been told to go.
    WorkerGone(WorkerId, Exit, bool),
    /// A preloader has ended unexpectedly; a new one is started after this long.
    PreloaderLost(GenerationId, Exit, Duration),
    /// A preloader is made from this worker.
    Promoting(WorkerId),
    /// The preloader that was made from a worker makes the workers from now on.
    MoldSwitched(GenerationId),
    /// A worker did not become a preloader; the next try is made after this long at the earliest.
    PromotionFailed(GenerationId, Exit, Duration),
    /// A generation serves and the one before it retires.
    GenerationServes(GenerationId),
}

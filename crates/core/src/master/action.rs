//! What the master's core can ask for. The executor performs each in order, decides nothing, and tells failures back as
//! events.

use super::event::{Exit, GenerationId, OrderId, PoolId, SlotIndex, WorkerId};
use crate::config::EmergencyRestart;
pub use crate::life::Force;
use std::time::Duration;

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Watch the pool's listening socket and hand-over queue. If either is ready already, `SourceReady` comes at once.
    Watch(PoolId),
    /// Stop watching them ("park").
    Unwatch(PoolId),
    /// Publish in the generation's scoreboard header when a worker that goes from idle to busy has to write to the
    /// child_accept pipe. Stored with sequential consistency before any later action.
    SetNotify(GenerationId, Notify),
    /// Read every slot of the generation and tell `Census`.
    TakeCensus(GenerationId),
    /// Start the generation's preloader; ends in `PreloaderReady` or `PreloaderGone`.
    StartPreloader(GenerationId),
    /// Stop it; ends in `PreloaderGone`.
    StopPreloader(GenerationId, Force),
    /// Refuse every request to the pool at once, because the generation's preloader failed to start; the next try is in this
    /// time. Somebody who refuses them already is told of the new failure. May end in `StandInGone`.
    StandIn(PoolId, GenerationId, Duration),
    /// Refuse them no more.
    StandDown(PoolId),
    /// Have a worker, which may be gone, make its generation's second preloader; ends in `SecondReady` or `SecondGone`.
    Promote(WorkerId, GenerationId),
    /// The second preloader makes the generation's workers from now on. The first, if there is one, becomes the second. What
    /// was about to be told of one is told of the other after this ([`super::event::Event::in_other_place`]).
    Succeed(GenerationId),
    /// Stop the second preloader; ends in `SecondGone`.
    StopSecond(GenerationId, Force),
    /// Make a worker in this slot; ends in `Forked` or `ForkFailed`.
    Fork(WorkerId, GenerationId, SlotIndex),
    /// This worker is for that order. Comes right before its `Fork`.
    Fill(OrderId, WorkerId),
    /// Nothing came of an order, and nothing will.
    Fail(OrderId),
    /// Tell a worker to finish: seen between requests.
    Retire(WorkerId),
    /// Send a worker SIGTERM with the word that its request's time is up, so that the client is answered.
    TimeUp(WorkerId),
    /// Send a worker a signal.
    Kill(WorkerId, Force),
    /// Write down what the worker's request is busy with, without disturbing it. Nothing comes of it for the core.
    Trace(WorkerId),
    /// Prepare the present configuration once more, with new generations for all pools, and tell `Apply`.
    Renew,
    /// A worker of the pool died that the kernel may have woken for work, and nobody else was: wake another that waits.
    Nudge(PoolId),
    /// Publish the generation's counters that the master keeps.
    Publish(GenerationId, Figures),
    /// The generation has no worker and no preloader left and will have none: release its scoreboard and pipes.
    DropGeneration(GenerationId),
    /// The pool is no longer wanted: close its listening socket and remove a unix socket's path. Comes before its
    /// workers are gone, so that nobody connects to what nobody will answer.
    ClosePool(PoolId),
    /// Something has happened that the executor keeps account of: in a reload that is under way, in the hand-over document.
    Note(Fact),
    /// Say something in the log. Nothing else may come of it.
    Say(Notice),
    /// Every worker is gone and the daemon is to stop: leave the loop.
    Exit(Outcome),
}

/// Why the daemon ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was asked to.
    Stopped,
    /// At the first start, not one of the workers that were to be there could be made.
    NoWorkerAtStart,
}

/// When a worker that takes up work tells the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notify {
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
    /// No worker is left and none can be made: requests wait. Trying again after this long; `None`: as soon as a worker
    /// of another pool ends (`process.max`). Once until the pool has a worker again.
    NoWorkerPossible(PoolId, Option<Duration>),
    /// Workers die at birth, or can't be forked; the next try comes after this long. Once per step.
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
    /// A worker that was told to go is still there after its time; it gets a signal.
    RetireTimedOut(WorkerId, Force),
    /// A preloader did not become ready, or did not answer a request to fork, in time; it is killed.
    PreloaderTimedOut(GenerationId, Duration),
    /// A worker was reaped. `expected`: it had been told to go, or retired by itself with code 0.
    WorkerGone(WorkerId, Exit, bool),
    /// A preloader is gone that should not be; a new one is started after this long.
    PreloaderLost(GenerationId, Exit, Duration),
    /// A preloader is made from this worker.
    Promoting(WorkerId),
    /// The preloader that was made from a worker makes the workers from now on.
    Succeeded(GenerationId),
    /// No preloader came of a worker; the next try is made after this long at the earliest.
    PromotionFailed(GenerationId, Exit, Duration),
    /// A generation serves and the one before it retires.
    GenerationServes(GenerationId),
}

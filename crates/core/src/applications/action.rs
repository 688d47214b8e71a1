//! What the pool can ask for. The router performs each in order and decides nothing.

use super::event::{ErrorId, InstanceId, SessionId};
use std::sync::Arc;
use std::time::Duration;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start an instance of the application; ends in `Spawned`, `SpawnFailed` or `Exited`. The number is how often the
    /// application was restarted: a preloader of an earlier number has old code.
    Spawn(InstanceId, Arc<str>, u32),
    /// Stop an instance, also one that is still being started; ends in `Exited` (or `SpawnFailed`).
    Stop(InstanceId, Force),
    /// The session is on this instance, until it is closed.
    CheckOut(SessionId, InstanceId),
    /// The session gets no instance.
    Refuse(SessionId, Refusal),
    /// The instance of this session is gone or about to be killed. `began` is false for one that still waited in the
    /// instance's private queue and may be asked for again. The session is over: nothing is to be closed.
    Lost {
        /// The session.
        session: SessionId,
        /// Whether the instance may have begun to work on it.
        began: bool,
    },
    /// Have the instance do its out-of-band work; ends in `Worked` or `Exited`.
    Work(InstanceId),
    /// The answer to `Disable`.
    Disabled(InstanceId, Disabling),
    /// An application that was removed has no instance left.
    Removed(Arc<str>),
    /// After `Shutdown`: nothing is left.
    Finished,
    /// Something worth a line in the log.
    Say(Notice),
}

/// How an instance is made to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// Close its channel, or SIGTERM.
    Ask,
    /// SIGKILL.
    Kill,
}

/// Why there is no instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `max_request_queue_size` requests wait already: 503.
    #[error("too many wait already")]
    QueueFull,
    /// The waiter's deadline has come: 504.
    #[error("none was free in time")]
    TimedOut,
    /// None is free, and the request does not wait.
    #[error("none is free")]
    NoneFree,
    /// None can be started: 503.
    #[error("none can be started")]
    Trouble(Trouble),
    /// There is no such application or group.
    #[error("there is no such application or group")]
    Unknown,
    /// The application was removed while the request waited.
    #[error("it was removed")]
    Removed,
    /// Everything ends.
    #[error("everything ends")]
    ShuttingDown,
    /// The session's number is not higher than all before.
    #[error("the order came too late")]
    Stale,
}

/// Why an instance could not be started, or did not live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Its start failed; the report says why.
    Failed(ErrorId),
    /// It was not up within `start_timeout`.
    TimedOut,
    /// It died before it had answered anything.
    Died,
}

/// What became of `Disable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disabling {
    /// It has no session and gets none.
    Done,
    /// It had none already.
    Already,
    /// It is the only one that serves, and another can't be started.
    Impossible,
    /// It was enabled again before.
    Canceled,
    /// It is gone, or on its way out.
    Gone,
}

/// Why an instance leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Not used for `max_idle_time`.
    Idle,
    /// Its place was needed by another application, or the pool's total was lowered.
    Evicted,
    /// It has served `max_requests`.
    MaxRequests,
    /// It uses more than `memory_limit`.
    Memory,
    /// A request ran for `max_request_time`.
    RequestTime,
    /// It was returned as failed.
    Failed,
    /// Its application restarts.
    Restart,
    /// It was detached.
    Detached,
    /// Its application is removed, or all ends.
    Removed,
    /// It was not up within `start_timeout`.
    StartTimeout,
    /// Its out-of-band work did not end.
    Work,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Reason::Idle => "it was not used for max_idle_time",
            Reason::Evicted => "its place is needed",
            Reason::MaxRequests => "it has served max_requests",
            Reason::Memory => "it uses more than memory_limit",
            Reason::RequestTime => "a request ran for max_request_time",
            Reason::Failed => "it does not take requests",
            Reason::Restart => "its application restarts",
            Reason::Detached => "it was detached",
            Reason::Removed => "its application is removed",
            Reason::StartTimeout => "it was not up within start_timeout",
            Reason::Work => "its out-of-band work did not end",
        })
    }
}

/// A line for the log, as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// An instance leaves.
    Leaves(InstanceId, Reason),
    /// An instance that was to leave goes on: its place is not needed, or another one's is taken.
    Stays(InstanceId),
    /// An instance ended by itself.
    Ended(InstanceId),
    /// An instance that was asked to stop is still there, and is killed.
    StopTimedOut(InstanceId),
    /// An instance's sessions have not ended in `drain_timeout`.
    DrainTimedOut(InstanceId),
    /// None could be started; `Some`: none is tried for so long.
    Trouble(Arc<str>, Trouble, Option<Duration>),
    /// The application restarts.
    Restarting(Arc<str>),
    /// The program that its instances pass requests on to is replaced, for this reason.
    Renewing(Arc<str>, Reason),
    /// A rolling restart is over: every instance has the new code.
    Restarted(Arc<str>),
    /// The new code can't be started; the old instances go on until the next restart.
    Resisting(Arc<str>, Trouble),
    /// A request was refused because the queue is full. Once until the queue has been empty.
    QueueFull(Arc<str>),
    /// An application of this name is there already; nothing was added.
    NameTaken(Arc<str>),
}

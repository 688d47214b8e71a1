//! Actions that the application pool asks the router for. The router performs them in order.

use super::event::{ErrorId, InstanceId, SessionId};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start an instance; ends in `Spawned`, `SpawnFailed` or `Exited`. The number is the application's restart count.
    Spawn(InstanceId, Arc<str>, u32),
    /// Stop an instance, even while it starts; ends in `Exited` or `SpawnFailed`.
    Stop(InstanceId, Force),
    /// The session has this instance until it is closed.
    CheckOut(SessionId, InstanceId),
    /// The session gets no instance.
    Refuse(SessionId, Refusal),
    /// The session's instance is gone or will be killed; no `Close` is needed.
    Lost {
        session: SessionId,
        /// Whether the instance may have started the request. If not, it can be retried.
        began: bool,
    },
    /// Run the instance's out-of-band work; ends in `Worked` or `Exited`.
    Work(InstanceId),
    /// The answer to `Disable`.
    Disabled(InstanceId, Disabling),
    Say(Notice),
}

/// How to end an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// Close its channel, or send SIGTERM.
    Ask,
    Kill,
}

/// Why a request gets no instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `max_request_queue_size` requests wait already: 503.
    #[error("too many wait already")]
    QueueFull,
    /// The deadline passed: 504.
    #[error("none was free in time")]
    TimedOut,
    /// No instance is free, and the request does not wait.
    #[error("none is free")]
    NoneFree,
    /// No instance can be started: 503.
    #[error("none can be started")]
    Trouble(Trouble),
    /// No such application or group.
    #[error("there is no such application or group")]
    Unknown,
    /// The application was removed while the request waited.
    #[error("it was removed")]
    Removed,
    /// The pool shuts down.
    #[error("everything ends")]
    ShuttingDown,
    /// The session's number is not higher than all earlier ones.
    #[error("the order came too late")]
    Stale,
}

/// Why an instance failed to start or died early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Its start failed; the report has the reason.
    Failed(ErrorId),
    /// It exceeded `start_timeout`.
    TimedOut,
    /// It died before its first answer.
    Died,
}

/// Results of `Disable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disabling {
    /// It has no sessions and gets none.
    Done,
    /// It was disabled already.
    Already,
    /// No other instance serves, and none can be started.
    Impossible,
    /// It was enabled again first.
    Canceled,
    /// It is gone or leaving.
    Gone,
}

/// Why an instance leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Idle for `max_idle_time`.
    Idle,
    /// Another application needs its place, or the total was lowered.
    Evicted,
    /// It has served `max_requests`.
    MaxRequests,
    /// It uses more than `memory_limit`.
    Memory,
    /// A request exceeded `max_request_time`.
    RequestTime,
    /// It was returned as failed.
    Failed,
    Restart,
    Detached,
    /// Its application is removed, or the pool shuts down.
    Removed,
    /// It exceeded `start_timeout`.
    StartTimeout,
    /// Its out-of-band work timed out.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    Leaves(InstanceId, Reason),
    /// A leaving instance stays after all.
    Stays(InstanceId),
    /// An instance exited on its own.
    Ended(InstanceId),
    /// An instance did not stop in time and is killed.
    StopTimedOut(InstanceId),
    /// Sessions outlasted `drain_timeout`.
    DrainTimedOut(InstanceId),
    /// An instance failed to start; `Some`: the delay before the next attempt.
    Trouble(Arc<str>, Trouble, Option<Duration>),
    Restarting(Arc<str>),
    /// The program behind the instances is replaced.
    Renewing(Arc<str>, Reason),
    /// A rolling restart is complete.
    Restarted(Arc<str>),
    /// The new code can't start; old instances stay until the next restart.
    Resisting(Arc<str>, Trouble),
    /// The queue is full. Sent once until the queue has been empty.
    QueueFull(Arc<str>),
    /// An application with this name exists; nothing was added.
    NameTaken(Arc<str>),
}

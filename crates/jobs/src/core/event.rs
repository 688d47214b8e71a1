//! The scheduler's contract: its events and actions.

use serde::{Deserialize, Serialize};

pub type JobId = i64;

/// A group: the jobs of one queue and tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName {
    pub queue: String,
    pub tenant: String,
}

impl GroupName {
    pub fn new(queue: impl Into<String>, tenant: impl Into<String>) -> GroupName {
        GroupName {
            queue: queue.into(),
            tenant: tenant.into(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The wall clock, which may be set: milliseconds since 1970.
    pub wall_ms: i64,
    pub mono_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    pub name: String,
    pub workers: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    pub name: String,
    pub pool: String,
    /// Its groups' weight, at least 1.
    pub weight: u32,
    pub max_running: u32,
    pub reserve: bool,
    /// The time limit of a job or of one step, milliseconds.
    pub timeout_ms: u64,
    pub limits: Limits,
    /// The most starts in a time, milliseconds.
    pub rate: Option<(u32, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub failures: u32,
    /// The most crashes in a row, at least 1.
    pub crashes: u32,
    /// The wait after the first failure, milliseconds.
    pub first_ms: u64,
    pub factor: u32,
    pub most_ms: u64,
    pub jitter_percent: u32,
}

impl Limits {
    /// The limits of a job that ends without its own outcome: it waits again.
    pub const NONE: Limits = Limits {
        failures: u32::MAX,
        crashes: u32::MAX,
        first_ms: 0,
        factor: 1,
        most_ms: 0,
        jitter_percent: 0,
    };
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub failures: u32,
    pub crashes: u32,
    pub snoozes: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    pub id: JobId,
    pub attempt: u32,
    pub counters: Counters,
    pub most_failures: Option<u32>,
    pub timeout_ms: Option<u64>,
    pub expires_ms: Option<i64>,
    /// The number of steps; 0: the job is one task.
    pub steps: usize,
    /// The first undecided step.
    pub step: usize,
    pub worst: TaskStatus,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    #[default]
    NotApplicable,
    Ok,
    Warning,
    Error,
    TaskError,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Ok(TaskStatus),
    Failed,
    Crashed,
    Dead,
    Discard,
    /// It asks for another try after this time, milliseconds.
    Snooze(u64),
    Unreached,
    Stopped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Configured(Vec<PoolSettings>, Vec<QueueSettings>),
    /// More or fewer of the group's jobs wait.
    Waiting(GroupName, i64),
    Paused {
        queue: String,
        is_paused: bool,
    },
    /// Other processes run more or fewer of the group's jobs.
    Elsewhere(GroupName, i32),
    /// The reply to [`Action::Claim`]; `None`: no job was found, or the claim failed.
    Claimed(GroupName, Option<Start>),
    Answered {
        id: JobId,
        attempt: u32,
        answer: Answer,
    },
    Cancel(JobId),
    Due(Option<i64>),
    StoreFailed,
    StoreWell,
    Drain,
    Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    TimedOut,
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Claim(GroupName),
    Send {
        id: JobId,
        step: usize,
    },
    Abort {
        id: JobId,
        why: Why,
    },
    StepDone {
        id: JobId,
        attempt: u32,
        step: usize,
        status: TaskStatus,
    },
    Finish {
        id: JobId,
        attempt: u32,
        verdict: Verdict,
    },
    Promote,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Done(TaskStatus),
    Failed,
    Dead,
    TimedOut,
    Expired,
    Crashed,
    Cancelled,
    Discarded,
    Snoozed(u64),
    Returned,
    Stopped,
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Becomes {
    Done(TaskStatus),
    /// It is tried again at this time, milliseconds since 1970.
    Again(i64),
    Failed,
    Quarantined,
    Cancelled,
    Discarded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Done,
    Failed,
    TimedOut,
    Expired,
    Crashed,
    Cancelled,
    Discarded,
    Snoozed,
    Returned,
    Stopped,
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub becomes: Becomes,
    pub counters: Counters,
    pub outcome: Outcome,
}

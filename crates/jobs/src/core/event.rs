//! What the scheduler is told, and what it wants done: its contract.

use serde::{Deserialize, Serialize};

pub type JobId = i64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// By the clock on the wall, which may be set: milliseconds since 1970.
    pub wall_ms: i64,
    /// By the clock that is never set, milliseconds.
    pub mono_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    pub name: String,
    /// How many jobs it runs at once.
    pub workers: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    pub name: String,
    pub pool: String,
    /// Its groups' share, at least 1.
    pub weight: u32,
    /// Most of its jobs at once.
    pub max_running: u32,
    pub reserve: bool,
    /// A job, or a step of one, may take this long, milliseconds.
    pub timeout_ms: u64,
    pub limits: Limits,
    /// Most starts in so many milliseconds.
    pub rate: Option<(u32, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub failures: u32,
    /// Crashes in a row, at least 1.
    pub crashes: u32,
    /// What it waits after the first failure, milliseconds.
    pub first_ms: u64,
    pub factor: u32,
    pub most_ms: u64,
    pub jitter_percent: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub failures: u32,
    pub crashes: u32,
    pub snoozes: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    pub id: JobId,
    pub attempt: u32,
    pub counters: Counters,
    pub most_failures: Option<u32>,
    pub timeout_ms: Option<u64>,
    /// It is not to be started after this, milliseconds since 1970.
    pub expires_ms: Option<i64>,
    /// How many steps it has; 0: it is one task.
    pub steps: usize,
    /// The first that is not decided.
    pub step: usize,
    pub worst: TaskStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
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
    /// It asks to be tried after so many milliseconds.
    Snooze(u64),
    Unreached,
    Stopped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Configured(Vec<PoolSettings>, Vec<QueueSettings>),
    Waiting {
        queue: String,
        tenant: String,
        change: i64,
    },
    Paused {
        queue: String,
        is_paused: bool,
    },
    Elsewhere {
        queue: String,
        tenant: String,
        change: i32,
    },
    /// What [`Action::Claim`] brought; `None`: there was nothing, or it failed.
    Claimed {
        queue: String,
        tenant: String,
        job: Option<Start>,
    },
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
    Claim {
        queue: String,
        tenant: String,
    },
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
    /// It is tried again, then; milliseconds since 1970.
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

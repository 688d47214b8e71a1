//! What the scheduler is told, and what it wants done: its contract.

use serde::{Deserialize, Serialize};

/// A job's number in the store.
pub type JobId = i64;

/// A moment, by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// By the clock on the wall, which may be set: milliseconds since 1970.
    pub wall_ms: i64,
    /// By the clock that is never set, milliseconds.
    pub mono_ms: u64,
}

/// A pool that runs jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    /// Its name.
    pub name: String,
    /// How many jobs it runs at once.
    pub workers: u32,
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    /// Its name.
    pub name: String,
    /// The pool that runs its jobs.
    pub pool: String,
    /// Its groups' share, at least 1.
    pub weight: u32,
    /// Most of its jobs at once.
    pub max_running: u32,
    /// Its groups leave the reserve to those with nothing running.
    pub reserve: bool,
    /// A job, or a step of one, may take this long, milliseconds.
    pub timeout_ms: u64,
    /// When a job is not tried again.
    pub limits: Limits,
    /// Most starts in so many milliseconds.
    pub rate: Option<(u32, u64)>,
}

/// When a job is not tried again, and when it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Failures, at least 1.
    pub failures: u32,
    /// Crashes in a row, at least 1.
    pub crashes: u32,
    /// What it waits after the first failure, milliseconds.
    pub first_ms: u64,
    /// So many times as long after each further one.
    pub factor: u32,
    /// Never longer.
    pub most_ms: u64,
    /// More or less, percent.
    pub jitter_percent: u32,
}

/// What has happened to a job so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Starts that ended in failure.
    pub failures: u32,
    /// Workers that died under it, in a row.
    pub crashes: u32,
    /// How often it asked to be tried later.
    pub snoozes: u32,
}

/// A job that was claimed: it is written that it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Its number.
    pub id: JobId,
    /// How often it was started, this time included.
    pub attempt: u32,
    /// What has happened to it.
    pub counters: Counters,
    /// Its own limit on failures.
    pub most_failures: Option<u32>,
    /// Its own time limit, milliseconds.
    pub timeout_ms: Option<u64>,
    /// It is not to be started after this, milliseconds since 1970.
    pub expires_ms: Option<i64>,
    /// How many steps it has; 0: it is one task.
    pub steps: usize,
    /// The first that is not decided.
    pub step: usize,
    /// The worst result of those before it.
    pub worst: TaskStatus,
}

/// The result of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// There was nothing to do: no result is kept.
    NotApplicable,
    /// All is well.
    Ok,
    /// All is well, with a remark.
    Warning,
    /// The task was carried out, and what it looked at is not well: no further step.
    Error,
    /// The task could not be carried out.
    TaskError,
}

/// How a request for a job, or for a step of one, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It was carried out.
    Ok(TaskStatus),
    /// It was not.
    Failed,
    /// The connection ended before the answer did.
    Crashed,
    /// It was not, and no other try would be of use.
    Dead,
    /// It is not wanted any more.
    Discard,
    /// It asks to be tried after so many milliseconds.
    Snooze(u64),
    /// The pool could not be reached: nothing was started.
    Unreached,
    /// The daemon ends, and its workers with it.
    Stopped,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// What there is from now on.
    Configured(Vec<PoolSettings>, Vec<QueueSettings>),
    /// So many more jobs of a group can be claimed; or fewer, not by a claim.
    Waiting {
        queue: String,
        tenant: String,
        change: i64,
    },
    /// A queue was paused, or goes on.
    Paused { queue: String, is_paused: bool },
    /// So many more jobs of a group are under way in other processes; or fewer.
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
    /// A request ended.
    Answered { id: JobId, attempt: u32, answer: Answer },
    /// A job that is under way is not wanted any more.
    Cancel(JobId),
    /// When the next job that waits for a time is due. Answers [`Action::Promote`], and tells of earlier ones.
    Due(Option<i64>),
    /// The store can't be written to.
    StoreFailed,
    /// It can again.
    StoreWell,
    /// No further job is to start.
    Drain,
    /// A deadline has come.
    Time,
}

/// Why a job that is under way is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its time is over.
    TimedOut,
    /// It is not wanted any more.
    Cancelled,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Take the next job of a group out of the store, and count its start.
    Claim { queue: String, tenant: String },
    /// Send the request for a job, or for a step of it.
    Send { id: JobId, step: usize },
    /// Tell a job's worker to give up, and end it if it does not.
    Abort { id: JobId, why: Why },
    /// Write down how a step ended.
    StepDone {
        id: JobId,
        attempt: u32,
        step: usize,
        status: TaskStatus,
    },
    /// Write down how a job ended; nothing more is known of it here.
    Finish {
        id: JobId,
        attempt: u32,
        verdict: Verdict,
    },
    /// Let in what is due.
    Promote,
}

/// How a start of a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Done(TaskStatus),
    Failed,
    /// No other try would be of use.
    Dead,
    TimedOut,
    /// It was too late to start it.
    Expired,
    Crashed,
    Cancelled,
    Discarded,
    Snoozed(u64),
    /// Nothing was started.
    Returned,
    /// The daemon ended.
    Stopped,
    /// The process that kept it died.
    Lost,
}

/// What becomes of a job.
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

/// How a start ended, in the words of metrics.
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

/// What becomes of a job whose start has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// What becomes of it.
    pub becomes: Becomes,
    /// What has happened to it, this time included.
    pub counters: Counters,
    /// How this start ended.
    pub outcome: Outcome,
}

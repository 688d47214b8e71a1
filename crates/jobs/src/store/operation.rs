//! What the store is asked to do, and what it answers.

use super::State;
use crate::core::schedule::Kept;
use crate::core::{Counters, JobId, TaskStatus, Verdict};
use forkyard_protocol::jobs::{HeldKeys, JobView, NewJob, Pushed, SequenceView};
use std::collections::BTreeMap;

/// A job that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    pub id: JobId,
    pub attempt: u32,
    pub queue: String,
    pub tenant: String,
    pub kind: String,
    pub payload: Vec<u8>,
    pub content_type: String,
    pub key: Option<String>,
    pub traceparent: Option<String>,
    pub counters: Counters,
    pub most_failures: Option<u32>,
    pub timeout_ms: Option<u64>,
    pub expires_ms: Option<i64>,
    pub steps: Vec<String>,
    /// The first step that is not decided.
    pub step: usize,
    /// The worst result of those before it.
    pub worst: TaskStatus,
    /// How long it could have been started and was not.
    pub waited_ms: u64,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub id: JobId,
    pub attempt: u32,
    pub verdict: Verdict,
    pub result: Vec<u8>,
    /// How many bytes of the result were left out.
    pub result_cut: u64,
    /// Why it did not succeed, in a line.
    pub error: Option<String>,
    /// What it wrote to its error stream.
    pub log: Vec<u8>,
    /// What it is given when it is tried again, where that changes.
    pub payload: Option<Vec<u8>>,
    pub duration_ms: u64,
}

/// What is due of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fired {
    pub name: String,
    pub spec: String,
    pub jobs: Vec<NewJob>,
    /// The last time that is due; none: it is only kept when the next is.
    pub due_ms: Option<i64>,
    pub next_ms: Option<i64>,
    /// Nothing is pushed while the last job has not ended.
    pub skips_overlap: bool,
}

/// A job that another process has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignJob {
    pub id: JobId,
    pub attempt: u32,
    pub owner: String,
    pub queue: String,
    pub tenant: String,
    pub kind: String,
    pub counters: Counters,
    pub expires_ms: Option<i64>,
    pub most_failures: Option<u32>,
    /// When this start began, Unix milliseconds.
    pub started_ms: i64,
    /// The time limit of each of its requests, if it is not the queue's, and how many requests it has.
    pub timeout_ms: Option<u64>,
    pub requests: u32,
    /// How it is to end.
    pub ending: Ending,
}

/// How a start is to end, as it is written beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ending(i64);

impl Ending {
    /// It is not wanted any more.
    pub(super) const CANCELLED: u8 = 1;
    /// Its worker does not end, and its process has no master that could end that; or kill it.
    pub(super) const TERMINATED: u8 = 2;
    pub(super) const KILLED: u8 = 4;

    fn has(self, how: u8) -> bool {
        self.0 & i64::from(how) != 0
    }

    /// Whether it is cancelled.
    pub fn is_cancelled(self) -> bool {
        self.has(Ending::CANCELLED)
    }

    /// Whether its worker is to be ended, and by force.
    pub fn press(self) -> Option<bool> {
        let is_forced = self.has(Ending::KILLED);
        (is_forced || self.has(Ending::TERMINATED)).then_some(is_forced)
    }
}

impl From<i64> for Ending {
    fn from(bits: i64) -> Ending {
        Ending(bits)
    }
}

/// Which jobs are meant: those that are all of what is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of one of these queues.
    pub queues: Option<Vec<String>>,
    pub state: Option<State>,
    pub tenant: Option<String>,
    pub kind: Option<String>,
    pub key: Option<String>,
    /// With this result of its task.
    pub status: Option<String>,
    /// That has done a step of this name.
    pub step: Option<String>,
    /// Pushed then or later, and before then.
    pub since_ms: Option<i64>,
    pub until_ms: Option<i64>,
    /// With a smaller number.
    pub before: Option<i64>,
    /// At most so many, of a list.
    pub limit: u32,
}

/// What the last job is looked for of each value of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Key,
    Tenant,
    Kind,
}

/// Jobs that something is done to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// This one, if it is of one of these queues; `None`: whatever its queue.
    One(JobId, Option<Vec<String>>),
    All(Filter),
    /// The one of a queue that is called so by who pushed it.
    Ref(String, String),
    /// What is left of all: with numbers above the first, and up to the second.
    Rest(Filter, JobId, JobId),
}

/// How many jobs of a queue are in a state that the scheduler does not count, and since when the oldest waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateCount {
    pub queue: String,
    pub scheduled: u64,
    pub blocked: u64,
    pub failed: u64,
    pub quarantined: u64,
    pub oldest_waiting_ms: Option<i64>,
}

/// What is to be done. All but [`Operation::Claim`] carry a number that the answer repeats.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    Push(Vec<NewJob>),
    /// Something about jobs that come from one source.
    Sequence(SequenceOperation),
    Claim {
        queue: String,
        tenant: String,
    },
    StepDone {
        id: JobId,
        attempt: u32,
        step: usize,
        name: String,
        status: TaskStatus,
        output: Vec<u8>,
        /// How many bytes of it were left out.
        output_cut: u64,
        duration_ms: u64,
    },
    Finish(Box<Finished>),
    /// `queues`: as of a [`SequenceOperation`].
    Progress {
        id: JobId,
        attempt: u32,
        queues: Option<Vec<String>>,
        percent: u32,
        text: String,
    },
    /// Let in what is due.
    Promote,
    /// Another process is to have the worker of a start ended, whose own process has no master any more.
    Press {
        id: JobId,
        attempt: u32,
        is_forced: bool,
    },
    Fire(Box<Fired>),
    List(Filter),
    Show(JobId),
    /// The same of the one of a queue that is called so by who pushed it.
    ShowRef(String, String),
    /// The last job of each key, tenant or kind that is like this.
    Last(By, Filter, Option<String>),
    /// Push jobs of a queue again as they were pushed, as a sequence.
    Again(String, Vec<JobId>),
    /// How many jobs are in each state.
    Count(Filter),
    Counts,
    /// Let jobs that have ended or are scheduled wait again, as if they had never been started.
    Retry(Selection),
    /// Take jobs out of their queues; one that is under way is only named.
    Cancel(Selection),
    /// Give up jobs that failed or are quarantined.
    Discard(Selection),
    /// Forget jobs that have ended at once.
    Purge(Selection),
    Pause {
        queue: String,
        reason: Option<String>,
        is_paused: bool,
    },
    /// Forget what ended before then.
    Clean {
        before_ms: i64,
        /// The same of jobs that failed or are quarantined.
        failed_before_ms: i64,
    },
    /// What other processes have under way, and what they have changed.
    Foreign,
    /// Forget a process that is gone.
    Forget(String),
    /// What there is at the start.
    Load,
}

/// What is to be done about a sequence: jobs that come from one source, one after the other. `queues`: it is of one of these
/// queues; `None`: whatever its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SequenceOperation {
    /// Begin one; or go on with the open one of this name.
    Begin {
        queue: String,
        name: Option<String>,
        total: Option<u64>,
    },
    /// Add jobs that the source gave, and remember together with them how far it is. `from`: how many it gave before; where
    /// that is not so nothing is added, because it was added before.
    Add {
        id: i64,
        queues: Option<Vec<String>>,
        from: u64,
        jobs: Vec<NewJob>,
    },
    /// The source has no more.
    End {
        id: i64,
        queues: Option<Vec<String>>,
    },
    /// Take no more of it, and its jobs out of their queue.
    Cancel {
        id: i64,
        queues: Option<Vec<String>>,
    },
    Show {
        id: i64,
        queues: Option<Vec<String>>,
    },
    /// The newest first.
    List {
        limit: u32,
    },
}

impl Operation {
    /// Whether it changes nothing and may have to read much: others do not wait for it.
    pub(super) fn is_look(&self) -> bool {
        matches!(
            self,
            Operation::List(_) | Operation::Last(..) | Operation::Count(_) | Operation::Counts
        )
    }

    /// Whether it is kept and tried again as long as the database can't be written to.
    pub(super) fn has_to_be_written(&self) -> bool {
        matches!(
            self,
            Operation::Finish(_) | Operation::StepDone { .. } | Operation::Promote | Operation::Load
        )
    }
}

impl SequenceOperation {
    /// Whether it changes nothing.
    pub fn is_look(&self) -> bool {
        matches!(
            self,
            SequenceOperation::Show { .. } | SequenceOperation::List { .. }
        )
    }
}

/// What was done.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Pushed(Vec<Pushed>),
    /// There is no such sequence.
    NoSequence,
    /// A sequence, and its jobs that are under way and have to be told that they are cancelled.
    Sequence(Box<SequenceView>, Vec<JobId>),
    Sequences(Vec<SequenceView>),
    Claimed {
        queue: String,
        tenant: String,
        job: Option<Box<Claimed>>,
    },
    /// Nothing to be told.
    Done,
    Promoted,
    Fired {
        name: String,
        pushed: usize,
    },
    List(Vec<JobView>),
    Show(Option<Box<JobView>>),
    /// By the words of the states.
    Count(BTreeMap<String, u64>),
    Counts(Vec<StateCount>),
    /// So many jobs were changed; these are under way, and have to be told.
    Changed {
        count: u64,
        running: Vec<JobId>,
        held: Option<HeldKeys>,
        /// What is to be asked for next: not all that was meant was looked at.
        rest: Option<Box<Operation>>,
    },
    /// Whether there was more than was forgotten at once.
    Cleaned {
        is_more: bool,
    },
    Foreign {
        jobs: Vec<ForeignJob>,
        /// The processes, of which some may be gone.
        owners: Vec<String>,
        /// The queues that are paused.
        paused: Vec<String>,
        /// This process' own jobs that are to give up.
        cancelled: Vec<JobId>,
        /// How far this machine's clock is ahead of the store's.
        ahead_ms: i64,
    },
    Loaded {
        paused: Vec<String>,
        schedules: Vec<Kept>,
        /// How far this machine's clock is ahead of the store's.
        ahead_ms: i64,
    },
    /// It was not done, and why.
    Failed(String),
}

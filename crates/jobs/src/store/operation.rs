//! The store's operations and replies.

use super::State;
use crate::core::schedule::{Kept, Planned, spec};
use crate::core::{GroupName, JobId, Start, TaskStatus, Verdict};
use forkyard_protocol::jobs::{HeldKeys, JobView, NewJob, Pushed, SequenceView};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    pub start: Start,
    pub queue: String,
    pub tenant: String,
    pub kind: String,
    pub payload: Vec<u8>,
    pub content_type: String,
    pub key: Option<String>,
    pub traceparent: Option<String>,
    pub steps: Vec<String>,
    pub waited_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub id: JobId,
    pub attempt: u32,
    pub verdict: Verdict,
    pub output: Output,
    pub duration_ms: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    pub result: Vec<u8>,
    /// Bytes of the result that were cut.
    pub cut: u64,
    pub error: Option<String>,
    pub log: Vec<u8>,
    /// The payload of the next start, if it is another.
    pub payload: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepDone {
    pub id: JobId,
    pub attempt: u32,
    pub step: usize,
    pub name: String,
    pub status: TaskStatus,
    pub output: Vec<u8>,
    /// Bytes of it that were cut.
    pub output_cut: u64,
    pub duration_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub id: JobId,
    pub attempt: u32,
    /// Only in these queues; `None`: in any.
    pub queues: Option<Vec<String>>,
    pub percent: u32,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fired {
    pub name: String,
    pub spec: String,
    pub jobs: Vec<NewJob>,
    /// The last due time; `None`: only the next time is stored.
    pub due_ms: Option<i64>,
    pub next_ms: Option<i64>,
    pub skips_overlap: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignJob {
    pub start: Start,
    pub owner: String,
    pub queue: String,
    pub tenant: String,
    pub kind: String,
    /// When this start began, Unix milliseconds.
    pub started_ms: i64,
    pub ending: Ending,
}

impl Fired {
    /// Stores the next time alone.
    pub fn planned(planned: &Planned) -> Fired {
        Fired {
            name: planned.schedule.name.clone(),
            spec: spec(&planned.schedule),
            jobs: Vec::new(),
            due_ms: None,
            next_ms: planned.next_ms,
            skips_overlap: false,
        }
    }
}

impl ForeignJob {
    pub fn group(&self) -> GroupName {
        GroupName::new(&self.queue, &self.tenant)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ending(i64);

impl Ending {
    pub(super) const CANCELLED: u8 = 1;
    pub(super) const TERMINATED: u8 = 2;
    pub(super) const KILLED: u8 = 4;

    fn has(self, how: u8) -> bool {
        self.0 & i64::from(how) != 0
    }

    pub fn is_cancelled(self) -> bool {
        self.has(Ending::CANCELLED)
    }

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

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub queues: Option<Vec<String>>,
    pub state: Option<State>,
    pub tenant: Option<String>,
    pub kind: Option<String>,
    pub key: Option<String>,
    pub status: Option<String>,
    pub step: Option<String>,
    pub since_ms: Option<i64>,
    pub until_ms: Option<i64>,
    pub before: Option<i64>,
    pub limit: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Key,
    Tenant,
    Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Puts ended or scheduled jobs back into their queues with fresh counters.
    Retry,
    /// Takes jobs out of their queues; running ones are only named.
    Cancel,
    Discard,
    /// Forgets ended jobs at once.
    Purge,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// This job, if it is in one of the queues; `None`: any queue.
    One(JobId, Option<Vec<String>>),
    All(Filter),
    Ref(String, String),
    /// The rest of all jobs: with numbers above the first, up to the second.
    Rest(Filter, JobId, JobId),
}

/// The number of a queue's jobs in a state that the scheduler does not count, and since when its oldest waiting
/// job could start, milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateCount {
    pub queue: String,
    pub scheduled: u64,
    pub blocked: u64,
    pub failed: u64,
    pub quarantined: u64,
    pub oldest_waiting_ms: Option<i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    Push(Vec<NewJob>),
    BeginSequence {
        queue: String,
        name: Option<String>,
        total: Option<u64>,
    },
    /// Changes this sequence, if it is in one of the queues (`None`: any queue), and shows it.
    Sequence(i64, Option<Vec<String>>, SequenceChange),
    Sequences {
        limit: u32,
    },
    Claim(GroupName),
    StepDone(StepDone),
    Finish(Box<Finished>),
    Progress(Progress),
    Promote,
    Press {
        id: JobId,
        attempt: u32,
        is_forced: bool,
    },
    Fire(Box<Fired>),
    List(Filter),
    Show(JobId),
    ShowRef(String, String),
    /// The last job of each key, tenant or kind that matches.
    Last(By, Filter, Option<String>),
    Again(String, Vec<JobId>),
    Count(Filter),
    Counts,
    Change(Change, Selection),
    Pause {
        queue: String,
        reason: Option<String>,
        is_paused: bool,
    },
    Clean {
        before_ms: i64,
        failed_before_ms: i64,
    },
    Foreign,
    Forget(String),
    Load,
}

/// A change of a sequence: jobs from one source, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SequenceChange {
    /// Adds jobs from the source, and stores its position in the same transaction. `from`: the position before;
    /// otherwise nothing is added, because it was added already.
    Add {
        from: u64,
        jobs: Vec<NewJob>,
    },
    End,
    Cancel,
    /// The sequence is only shown.
    Nothing,
}

impl Operation {
    /// Whether it only reads, possibly much: others do not wait for it.
    pub(super) fn is_look(&self) -> bool {
        matches!(
            self,
            Operation::List(_) | Operation::Last(..) | Operation::Count(_) | Operation::Counts
        )
    }

    pub(super) fn has_to_be_written(&self) -> bool {
        matches!(
            self,
            Operation::Finish(_) | Operation::StepDone(_) | Operation::Promote | Operation::Load
        )
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Pushed(Vec<Pushed>),
    NoSequence,
    Sequence(Box<SequenceView>, Vec<JobId>),
    Sequences(Vec<SequenceView>),
    Claimed(GroupName, Option<Box<Claimed>>),
    Done,
    Paused {
        queue: String,
        is_paused: bool,
    },
    Promoted,
    Fired {
        name: String,
        pushed: usize,
    },
    List(Vec<JobView>),
    Show(Option<Box<JobView>>),
    Count(BTreeMap<String, u64>),
    Counts(Vec<StateCount>),
    Changed {
        count: u64,
        running: Vec<JobId>,
        held: Option<HeldKeys>,
        rest: Option<Box<Operation>>,
    },
    /// Whether more remains.
    Cleaned {
        is_more: bool,
    },
    Foreign {
        jobs: Vec<ForeignJob>,
        /// The other processes; some may be dead.
        owners: Vec<String>,
        paused: Vec<String>,
        cancelled: Vec<JobId>,
        /// This machine's clock minus the store's.
        ahead_ms: i64,
    },
    Loaded {
        paused: Vec<String>,
        schedules: Vec<Kept>,
        /// This machine's clock minus the store's.
        ahead_ms: i64,
    },
    Failed(String),
}

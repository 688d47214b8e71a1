//! The protocols of background jobs: between clients and the jobs process, and between it and the master.
//!
//! Clients send lines of JSON. A request is an object with `command`; an answer is one with `result`.

mod requests;

pub use requests::*;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The longest line of a client, in bytes: a thousand jobs of usual size.
pub const LONGEST_REQUEST: usize = 32 << 20;
pub const PATH: &str = "/jobs/";
/// The longest message between the master and the jobs process, in bytes.
pub const MOST_BYTES: usize = 128 * 1024;

pub fn query(id: i64, attempt: u32) -> String {
    format!("job={id}&attempt={attempt}")
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum JobsAnswer {
    /// The jobs were added; in the order of the request.
    Pushed {
        jobs: Vec<Pushed>,
    },
    Job {
        job: Box<JobView>,
    },
    Jobs {
        jobs: Vec<JobView>,
    },
    Counts {
        counts: BTreeMap<String, u64>,
    },
    Sequence {
        sequence: Box<SequenceView>,
    },
    Sequences {
        sequences: Vec<SequenceView>,
    },
    Changed {
        count: u64,
        ending: u64,
        held: Option<HeldKeys>,
    },
    Queues {
        queues: Vec<QueueView>,
    },
    Schedules {
        schedules: Vec<ScheduleView>,
    },
    Stats(Box<Stats>),
    Kinds {
        kinds: Vec<KindView>,
    },
    Connections {
        connections: Vec<ConnectionView>,
    },
    Done {},
    Error {
        message: String,
        /// The store is busy or not writable: the same request may succeed later.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_temporary: bool,
        /// The outcome is unknown: the request may still be carried out.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_unknown: bool,
    },
}

impl JobsAnswer {
    pub fn error(message: impl Into<String>) -> JobsAnswer {
        JobsAnswer::Error {
            message: message.into(),
            is_temporary: false,
            is_unknown: false,
        }
    }

    /// A refusal that may end; nothing was done.
    pub fn not_now(message: impl Into<String>) -> JobsAnswer {
        JobsAnswer::Error {
            message: message.into(),
            is_temporary: true,
            is_unknown: false,
        }
    }
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceView {
    pub id: i64,
    pub queue: String,
    pub name: Option<String>,
    /// `open`: more jobs may come; `complete`: the source has ended; `cancelled`.
    pub state: String,
    pub total: Option<u64>,
    pub given: u64,
    /// Entries of the source with a key or ref that another job already had. The figures from here to `cancelled` add
    /// up to `given`.
    #[serde(default)]
    pub existed: u64,
    pub waiting: u64,
    pub running: u64,
    pub done: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub begun_ms: i64,
    pub ended_ms: Option<i64>,
}

impl SequenceView {
    pub fn is_over(&self) -> bool {
        self.state != "open" && self.waiting == 0 && self.running == 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldKeys {
    pub jobs: u64,
    pub job: i64,
    pub holder: i64,
}

impl HeldKeys {
    pub fn sum(one: Option<HeldKeys>, other: Option<HeldKeys>) -> Option<HeldKeys> {
        match (one, other) {
            (Some(one), Some(other)) => Some(HeldKeys {
                jobs: one.jobs + other.jobs,
                ..one
            }),
            (one, other) => one.or(other),
        }
    }
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueView {
    pub name: String,
    pub pool: Option<String>,
    pub waiting: u64,
    pub scheduled: u64,
    pub blocked: u64,
    pub running: u64,
    pub limit: Option<u64>,
    pub failed: u64,
    pub quarantined: u64,
    pub paused: bool,
    pub oldest_waiting_ms: Option<u64>,
    #[serde(default)]
    pub ended: BTreeMap<String, u64>,
    #[serde(default)]
    pub wait: Histogram,
    #[serde(default)]
    pub run: Histogram,
}

/// The upper ends of a histogram's buckets, milliseconds; one more bucket takes the rest.
pub const BUCKETS_MS: [u64; 10] = [5, 25, 100, 500, 1_000, 5_000, 30_000, 120_000, 600_000, 3_600_000];

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    pub buckets: [u64; BUCKETS_MS.len() + 1],
    pub sum_ms: u64,
}

impl Histogram {
    pub fn add(&mut self, millis: u64) {
        let index = BUCKETS_MS.partition_point(|end| *end < millis);
        self.buckets[index] += 1;
        self.sum_ms = self.sum_ms.saturating_add(millis);
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleView {
    pub name: String,
    pub queue: String,
    pub kind: String,
    pub cron: String,
    pub timezone: String,
    pub next_ms: Option<i64>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindView {
    pub queue: String,
    pub kind: Option<String>,
    pub pool: Option<String>,
    pub script: Option<PathBuf>,
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<String>,
    #[serde(default)]
    pub ended: BTreeMap<String, u64>,
    #[serde(default)]
    pub took_ms: u64,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionView {
    pub id: u64,
    /// The client's user on the unix socket, from the kernel.
    pub uid: Option<u32>,
    pub pid: Option<i32>,
    pub address: Option<String>,
    /// `all`; `own`: the queues that the user may push into; `none`: not authenticated yet.
    pub rights: String,
    pub age_ms: u64,
    pub idle_ms: u64,
    pub requests: u64,
    pub last: String,
    pub waits: bool,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    pub pid: u32,
    pub version: String,
    pub store_up: bool,
    pub store_error: Option<String>,
    pub queues: Vec<QueueView>,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum ToJobs<S> {
    /// New settings. With the listening sockets: the unix socket, and the TCP socket if there is one.
    Settings(Box<S>),
    Stopping,
    /// The starts of jobs that a pool's workers show, as queries; `is_settled`: none is on its way to a worker.
    Running {
        pool: String,
        queries: Vec<String>,
        is_settled: bool,
        abandoned: u32,
    },
    Died {
        pool: String,
        query: String,
        /// Such as `worker 123 exited on signal 9`.
        how: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub enum FromJobs {
    Running {
        pool: String,
    },
    Terminate {
        pool: String,
        query: String,
        is_forced: bool,
    },
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    pub queue: String,
    pub kind: String,
    /// The client's name for the job: while the queue keeps a job of this name, a push returns that one.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "payload")]
    pub payload: Vec<u8>,
    pub payload_base64: Option<String>,
    /// The payload's type; by default JSON, or application/octet-stream for bytes.
    pub content_type: Option<String>,
    /// The tenant: fairness is between tenants.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// Smaller numbers come first; 100 by default.
    pub priority: Option<i64>,
    pub at_ms: Option<i64>,
    /// The delay before the start, milliseconds.
    pub in_ms: Option<u64>,
    /// The job does not start after this, milliseconds since 1970.
    pub expires_ms: Option<i64>,
    pub key: Option<String>,
    pub serial: Option<String>,
    /// The tasks, in order; empty: the job is one task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    pub attempts: Option<u32>,
    pub timeout_ms: Option<u64>,
    pub traceparent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pushed {
    pub id: i64,
    pub existed: bool,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    pub id: i64,
    pub queue: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    pub state: String,
    pub priority: i64,
    pub attempt: u32,
    pub failures: u32,
    pub crashes: u32,
    pub pushed_ms: i64,
    /// The earliest start of a scheduled job.
    pub run_at_ms: Option<i64>,
    pub started_ms: Option<i64>,
    pub ended_ms: Option<i64>,
    pub duration_ms: Option<u64>,
    pub key: Option<String>,
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    pub progress: Option<u32>,
    pub progress_text: Option<String>,
    pub status: Option<String>,
    pub outcome: Option<String>,
    pub error: Option<String>,
    pub result: Option<String>,
    /// Bytes that were cut because the result was longer than `max_result`.
    pub result_cut: Option<u64>,
    pub log: Option<String>,
    pub payload: Option<String>,
    pub payload_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepView>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<EndView>,
    pub sequence: Option<i64>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndView {
    pub attempt: u32,
    pub outcome: String,
    pub error: Option<String>,
    pub ended_ms: i64,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepView {
    pub name: String,
    pub status: Option<String>,
    pub duration_ms: Option<u64>,
    pub output: Option<String>,
    /// Bytes that were cut.
    pub output_cut: Option<u64>,
}

/// A payload within JSON: any value, kept as written except for blanks; shown as text.
mod payload {
    use serde::{Deserialize, Deserializer, Serializer};
    use serde_json::value::RawValue;

    pub(super) fn serialize<S: Serializer>(payload: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let text = String::from_utf8_lossy(payload);
        match RawValue::from_string(text.clone().into_owned()) {
            Ok(value) => serde::Serialize::serialize(&value, serializer),
            Err(_) => serializer.serialize_str(&text),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let value = <&RawValue>::deserialize(deserializer)?;
        Ok(value.get().as_bytes().to_vec())
    }
}

//! The data of one frame: the daemon's answers, and the kernel's numbers of its processes.

use crate::why::Finding;
use forkyard_protocol::control::{CrashLine, Status};
use forkyard_protocol::jobs::Stats;
use forkyard_protocol::routes::RouteStatus;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All that a frame is made of.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Readings {
    /// Seconds of a clock that never jumps.
    pub(crate) at: f64,
    /// Seconds since 1970.
    pub(crate) time: u64,
    pub(crate) status: Status,
    /// Processes by pid.
    pub(crate) processes: BTreeMap<i32, ProcessReading>,
    /// Observed busy processes.
    pub(crate) looks: Vec<Look>,
    /// Routes by pool; empty if no view shows them.
    pub(crate) routes: BTreeMap<String, Vec<RouteStatus>>,
    pub(crate) crashes: Vec<CrashLine>,
    pub(crate) jobs: Option<Stats>,
    /// Requests that the daemon does not know.
    pub(crate) unknown: Vec<Part>,
}

/// A part of the readings that an older daemon may not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Part {
    Routes,
    Crashes,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessReading {
    /// `None` if this user may not read it.
    pub(crate) schedule: Option<Schedule>,
    /// Proportional share of memory, in bytes. `None` if this user may not read it.
    pub(crate) memory: Option<u64>,
}

/// Times of all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Schedule {
    pub(crate) run_ns: u64,
    pub(crate) queue_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Look {
    pub(crate) pool: String,
    pub(crate) pid: i32,
    pub(crate) sight: Sight,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sight {
    Seen(Finding),
    /// This user may not look.
    Denied,
    /// The kernel did not answer in time.
    Late,
}

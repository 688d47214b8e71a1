//! The document that the daemon passes to a helper.

use forkyard_config::{Applications, LogLevel};
use forkyard_sys::identity::Identity;
use forkyard_worker::Settings;
use serde::{Deserialize, Serialize};
use std::os::fd::RawFd;

/// The descriptor of the [`HelperStart`] document: JSON in sealed memory.
pub const DOCUMENT: RawFd = 3;
/// The first descriptor that the document refers to; the others follow.
pub const FIRST: RawFd = DOCUMENT + 1;

/// The start of a helper.
#[derive(Debug, Serialize, Deserialize)]
pub struct HelperStart {
    /// The process' title.
    pub title: String,
    /// The number of descriptors from [`FIRST`] on.
    pub descriptors: usize,
    /// The lowest level that is logged.
    pub log_level: LogLevel,
    pub role: Role,
}

/// The role of a helper, with its descriptors in order.
#[derive(Debug, Serialize, Deserialize)]
pub enum Role {
    /// Answers status and ping, or 503. Descriptor: its channel ([`forkyard_reporter::Brief`]).
    Reporter,
    /// Routes the requests of an application pool. Descriptors: the socket to the master, the log, the heartbeat.
    Router {
        identity: Option<Identity>,
        one_user: bool,
    },
    /// Inspects the directories of an application pool. Descriptors: the sockets to router and master, the log, the
    /// heartbeat.
    Inspector {
        identity: Option<Identity>,
        applications: Box<Applications>,
    },
    /// Serves numbers over HTTP. Descriptors: the listening socket, the socket to the master, the log, the heartbeat.
    Web {
        identity: Option<Identity>,
        hosts: Vec<String>,
    },
    /// Serves a pool. Descriptors: the generation's, the worker's, then those that [`WorkerStart`] names.
    Worker(Box<WorkerStart>),
}

/// The settings and descriptors of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkerStart {
    pub settings: Settings,
    /// The number of descriptors of the generation's context; they come first.
    #[serde(rename = "kit")]
    pub context: usize,
    pub slot: u32,
    /// The number of the worker's own descriptors; they come next.
    #[serde(rename = "seat")]
    pub own: usize,
    pub is_routed: bool,
    /// The number of processes of the pool's program; the next descriptor is their table.
    pub processes: Option<usize>,
    /// The last descriptor takes reports of programs that failed to start.
    pub has_reports: bool,
    /// Others serve the pool: workers of an earlier generation, or of a next one on trial.
    pub has_elder: bool,
}

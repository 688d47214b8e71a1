//! The document with which the daemon starts a helper.

use crate::config::{Applications, LogLevel};
use crate::sys::identity::Identity;
use crate::worker::Settings;
use serde::{Deserialize, Serialize};
use std::os::fd::RawFd;

/// The descriptor on which a helper finds its [`HelperStart`], as JSON in memory that can't be changed.
pub const DOCUMENT: RawFd = 3;
/// The first descriptor that the document refers to. The others follow it.
pub const FIRST: RawFd = DOCUMENT + 1;

/// A helper's role and settings.
#[derive(Debug, Serialize, Deserialize)]
pub struct HelperStart {
    /// The process' title.
    pub title: String,
    /// Descriptors from [`FIRST`] on.
    pub descriptors: usize,
    /// The lowest severity to log.
    pub log_level: LogLevel,
    /// Its role.
    pub role: Role,
}

/// What a helper does, with its descriptors in order.
#[derive(Debug, Serialize, Deserialize)]
pub enum Role {
    /// Answers status and ping, or 503. Descriptor: the channel that [`crate::reporter::Brief`] arrives on.
    Reporter,
    /// Routes the requests of an application pool. Descriptors: the socket to the master, the log, its heartbeat.
    Router {
        /// The user to run as; `None`: the daemon's.
        identity: Option<Identity>,
        /// All applications run as the same user.
        one_user: bool,
    },
    /// Inspects the directories of an application pool. Descriptors: the sockets to router and master, the log, its
    /// heartbeat.
    Inspector {
        /// The user to run as; `None`: the daemon's.
        identity: Option<Identity>,
        /// Where applications are.
        applications: Box<Applications>,
    },
    /// Serves a pool. Descriptors: the generation's, the worker's own, then those that [`WorkerStart`] names.
    Worker(Box<WorkerStart>),
}

/// What a worker receives in addition to the descriptors of its generation and its own.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkerStart {
    /// The settings of its generation.
    pub settings: Settings,
    /// The number of the generation's descriptors, which come first.
    #[serde(rename = "kit")]
    pub context: usize,
    /// Its slot in the scoreboard.
    pub slot: u32,
    /// The number of the worker's own descriptors, which come next.
    #[serde(rename = "seat")]
    pub own: usize,
    /// Its connections come from a router.
    pub is_routed: bool,
    /// The number of processes of the pool's program. Their table is the next descriptor.
    pub processes: Option<usize>,
    /// Whether the last descriptor is the one to report failed program starts on.
    pub has_reports: bool,
    /// Workers of an earlier generation serve the pool, too.
    pub has_elder: bool,
}

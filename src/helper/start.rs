//! What the daemon tells a helper.

use crate::config::{Applications, LogLevel};
use crate::sys::identity::Identity;
use crate::worker::Settings;
use serde::{Deserialize, Serialize};
use std::os::fd::RawFd;

/// The descriptor on which a helper finds its [`HelperStart`], as JSON in memory that can't be changed.
pub const DOCUMENT: RawFd = 3;
/// The first of the descriptors that the document speaks of; the others follow it.
pub const FIRST: RawFd = DOCUMENT + 1;

/// What a helper is to be.
#[derive(Debug, Serialize, Deserialize)]
pub struct HelperStart {
    /// The process' title.
    pub title: String,
    /// Descriptors from [`FIRST`] on.
    pub descriptors: usize,
    /// What is less severe is not said.
    pub log_level: LogLevel,
    /// What it does.
    pub role: Role,
}

/// What a helper does, with its descriptors in order.
#[derive(Debug, Serialize, Deserialize)]
pub enum Role {
    /// Answers status and ping, or 503. Its channel ([`crate::reporter::Brief`] comes over it).
    Reporter,
    /// Routes the requests of an application pool. The socket to the master; the log; its heartbeat.
    Router {
        /// The user that it becomes; `None`: the daemon's.
        identity: Option<Identity>,
        /// All applications run as the same user.
        one_user: bool,
    },
    /// Looks at the directories of an application pool. The sockets to router and master; the log; its heartbeat.
    Inspector {
        /// The user that it becomes; `None`: the daemon's.
        identity: Option<Identity>,
        /// Where applications are.
        applications: Box<Applications>,
    },
    /// Serves a pool. the generation's, the worker's own, then what [`WorkerStart`] names.
    Worker(Box<WorkerStart>),
}

/// What a worker is given beside the descriptors of its generation's context and its own.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkerStart {
    /// What all workers of its generation have.
    pub settings: Settings,
    /// Descriptors of the context, which come first.
    #[serde(rename = "kit")]
    pub context: usize,
    /// Its slot in the scoreboard.
    pub slot: u32,
    /// Descriptors of its own, which come next.
    #[serde(rename = "seat")]
    pub own: usize,
    /// Its connections come from a router.
    pub is_routed: bool,
    /// Processes of the program behind its pool; their table is the next descriptor.
    pub processes: Option<usize>,
    /// The last descriptor is where it tells of programs that could not be started.
    pub has_reports: bool,
    /// Workers of an earlier generation serve the pool, too.
    pub has_elder: bool,
}

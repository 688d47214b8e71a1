//! Messages between master and router: one JSON value per message over a `SOCK_SEQPACKET` socket.
//!
//! The master does not trust the router. Messages with unknown numbers or too many of anything are answered or logged
//! but have no effect.

use super::reason::Reason;
use crate::dead_work::{DeadCount, REASONS};
use crate::history::{WAITS, class_of};
use crate::numbers::{CLASSES, StatusClass};
use forkyard_base::origin::Origin;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

pub const MOST_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToMaster {
    /// Starts an instance. Answered with [`ToRouter::Up`], [`ToRouter::Failed`] or [`ToRouter::Gone`].
    Spawn {
        /// Its number in the pool, higher than all earlier ones.
        instance: u64,
        application: PathBuf,
        /// The application's restart number. A higher number requires newly loaded code.
        restarts: u32,
    },
    /// Stops an instance. Answered with [`ToRouter::Gone`] or `Failed`.
    Stop { instance: u64, kill: bool },
    /// The answer to [`ToRouter::AdminRequest`].
    Done {
        admin_request: u64,
        result: Result<Value, Reason>,
    },
    /// Requests that the router answered itself, since the last such message.
    Refused(Refusals),
    /// The release that the router has read from a link. The master keeps it for the next router.
    Serves { link: PathBuf, release: PathBuf },
    /// The router exits after [`ToRouter::Finish`].
    Finished,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToRouter<Pool> {
    /// The first message, and each change of the configuration. The first comes with the listening socket and a socket
    /// to the inspector.
    Settings(Box<Pool>),
    /// The access log, with its descriptor; without one there is none. `limit`: the longest line.
    AccessLog { limit: usize },
    /// A running instance with its channel, before `Begin`.
    Running(Instance),
    /// The end of the running instances.
    Begin {
        /// The first unused number.
        next: u64,
    },
    /// An instance is up. Comes with its channel.
    Up(Instance),
    /// An instance failed to start, and nothing of it is left.
    Failed {
        instance: u64,
        /// The error id for visitors, also in the log and for `forkyard error`.
        error: String,
        /// The report as a page, if visitors may see it.
        page: Option<String>,
    },
    /// An instance's process has exited.
    Gone { instance: u64 },
    /// An operator's request, answered with [`ToMaster::Done`].
    AdminRequest { admin_request: u64, what: AdminRequest },
    /// What an application's requests get from now on.
    Release(Served),
    /// Stop accepting and exit when waiting requests are served, or after the given time.
    Finish(Option<Duration>),
}

/// The releases of an application that requests get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The link that names the application.
    pub link: PathBuf,
    pub release: PathBuf,
    /// The release of a deployment, and its part of the requests in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coming: Option<(PathBuf, u8)>,
}

/// Requests that a router answered itself, or did not answer because their client had left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Refusals {
    /// By the class of their status.
    pub classes: [u64; CLASSES],
    /// By the reason, if they are [dead work](crate::dead_work).
    pub dead: [u64; REASONS],
    /// By the class of their wait.
    pub waits: [u64; WAITS],
}

impl Refusals {
    pub fn add(&mut self, status: u16, dead: Option<DeadCount>, waited: Duration) {
        self.classes[StatusClass::of(status).index()] += 1;
        if let Some(count) = dead.and_then(|dead| self.dead.get_mut(dead.index())) {
            *count += 1;
        }
        let millis = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        self.waits[class_of(millis)] += 1;
    }

    pub fn is_nothing(&self) -> bool {
        *self == Refusals::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    pub instance: u64,
    pub application: PathBuf,
    /// As in [`ToMaster::Spawn`].
    pub restarts: u32,
    pub pid: i32,
    /// The code's version, as in [`crate::inspector::FoundApplication`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The identity of root and startup file, as in [`crate::inspector::FoundApplication`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// How a restart treats an application without instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unstarted {
    Stays,
    Starts,
    StartsFor(u32),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdminRequest {
    /// Returns the pool for the status.
    View,
    Restart {
        application: PathBuf,
        /// Restarts one instance at a time. `None`: as in the application's settings.
        rolling: Option<bool>,
        /// How to treat an application without instances.
        unstarted: Unstarted,
    },
    Detach {
        pid: i32,
    },
    Disable {
        pid: i32,
        enable: bool,
    },
    SetMax {
        max: u32,
    },
    /// Leases an instance. Returns its pid and the lease.
    Take {
        /// An application's root or a group's name.
        of: String,
        wait: Option<Duration>,
    },
    Return {
        lease: u64,
        /// Whether the instance is healthy. Otherwise it is replaced.
        ok: bool,
    },
}

//! Questions to the directory inspector and its answers.

use super::reason::Reason;
pub use super::runtimes::Kind;
use forkyard_base::origin::Origin;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

pub const MOST_BYTES: usize = 64 * 1024;

/// The number of a refusal sent to the master unasked, a copy of the router's answer.
pub const UNASKED: u64 = 0;

/// Encodes a message. Returns `None` if it is too long or contains a path that isn't UTF-8.
pub fn encode<T: Serialize>(value: &T) -> Option<Vec<u8>> {
    let bytes = serde_json::to_vec(value).ok()?;
    (bytes.len() <= MOST_BYTES).then_some(bytes)
}

/// Decodes a message. Returns `None` if it is invalid.
pub fn decode<T: DeserializeOwned>(message: &[u8]) -> Option<T> {
    serde_json::from_slice(message).ok()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectRequest {
    /// Repeated in the answer.
    pub number: u64,
    /// The application's root, as named by the request.
    pub root: PathBuf,
    /// The link that names or named the root as its release. `None`: the inspector looks for a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectReply {
    pub number: u64,
    /// The application, or an error that names the path and the fix.
    pub found: Result<FoundApplication, Reason>,
    /// The inspection failed, so whether the application exists is unknown.
    #[serde(default)]
    pub is_unknown: bool,
    /// Details if the directory exists but isn't run or can't be inspected.
    #[serde(default)]
    pub refusal: Option<Refusal>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Refusal {
    /// The error id in the log, in reports and for visitors. Repeated mistakes keep their id.
    pub id: u32,
    pub root: PathBuf,
    /// The owner's user and group, who may read the report. `None`: only root.
    pub owner: Option<(u32, u32)>,
    /// The directory is not marked as an application. `false` means it is one, with an error.
    pub is_no_application: bool,
}

impl Refusal {
    /// A refusal of a faulty application, without an error id yet.
    pub fn of(root: &Path, owner: Option<(u32, u32)>) -> Refusal {
        Refusal {
            // The longest id, so that the real one always fits into the message.
            id: u32::MAX,
            root: root.to_owned(),
            owner,
            is_no_application: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundApplication {
    /// The root, with links resolved, below one of the pool's directories.
    pub root: PathBuf,
    pub kind: Kind,
    /// The absolute path of the startup file. `None` if only `forkyard.toml` marks the application.
    pub startup_file: Option<PathBuf>,
    /// User and group of the startup file or the root (of a link: the link's own).
    pub owner: (u32, u32),
    /// The identity of root and startup file. `None` if ownership is not checked.
    #[serde(default)]
    pub origin: Option<Origin>,
    /// Checked settings from `forkyard.toml`, `Passengerfile.json` or the start script of `package.json`.
    pub settings: Option<Settings>,
    /// The Python of a virtual environment in the root.
    #[serde(default)]
    pub python: Option<PathBuf>,
    /// `restart.txt`: modification time (nanoseconds since 1970) and inode.
    pub restart: Option<(i128, u64)>,
    /// `always_restart.txt` exists.
    pub always_restart: bool,
    /// The link to the application's release in service, in a directory without links, if the pool has releases. The root is
    /// the link's target, or a release that the question names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<PathBuf>,
    /// The deployed version: the first line of `REVISION`, or the name of a directory in `releases`.
    #[serde(default)]
    pub revision: Option<String>,
}

/// The way to learn an HTTP server program's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Handshake {
    Usual,
    /// The address reported through the spawning kit's handshake.
    Spoken,
    /// The unix socket `$SOCKET`.
    Socket,
}

/// The process that loads a Python or Ruby application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preload {
    /// The preloader, or each worker if loading leaves a connection open.
    #[default]
    Auto,
    /// The preloader that forks the workers.
    Always,
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The runtime, if the files don't determine it.
    pub runtime: Option<Kind>,
    /// The entry point, as `entry` of the runtime.
    pub entry: Option<String>,
    pub start_command: Option<String>,
    #[serde(default)]
    pub env: std::collections::BTreeMap<String, String>,
    /// The maximum of instances, below the pool's limit.
    pub max_per_app: Option<u32>,
    /// Instances to keep running, within the pool's limit.
    pub min_instances: Option<u32>,
    pub max_requests: Option<u32>,
    pub rolling_restarts: Option<bool>,
    /// Concurrent requests per instance; 0 means no limit.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// Threads per instance, one request each.
    #[serde(default)]
    pub threads: Option<u32>,
    #[serde(default)]
    pub instances: Option<u32>,
    #[serde(default)]
    pub handshake: Option<Handshake>,
    #[serde(default)]
    pub preload: Option<Preload>,
    #[serde(default)]
    pub max_idle_time: Option<std::time::Duration>,
    #[serde(default)]
    pub max_request_time: Option<std::time::Duration>,
    #[serde(default)]
    pub max_request_queue_size: Option<u32>,
    /// Bytes of memory before an instance is replaced.
    #[serde(default)]
    pub memory_limit: Option<u64>,
    #[serde(default)]
    pub start_timeout: Option<std::time::Duration>,
    /// The output log, as a path below the root.
    #[serde(default)]
    pub app_log: Option<String>,
    /// A file with environment variables, as a path below the root.
    #[serde(default)]
    pub env_file: Option<String>,
}

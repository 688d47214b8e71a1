//! What an inspector is asked and what it answers.

use forkyard_base::origin::Origin;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Most bytes of a message.
pub const MOST_BYTES: usize = 64 * 1024;

/// The number of an answer that the master has not asked for: the router has had it, and it is a refusal.
pub const UNASKED: u64 = 0;

/// A question or an answer as a message; `None`: it is too long for one, or has a path in it that is not UTF-8.
pub fn encode<T: Serialize>(value: &T) -> Option<Vec<u8>> {
    let bytes = serde_json::to_vec(value).ok()?;
    (bytes.len() <= MOST_BYTES).then_some(bytes)
}

/// The question or answer in a message; `None`: there is none.
pub fn decode<T: DeserializeOwned>(message: &[u8]) -> Option<T> {
    serde_json::from_slice(message).ok()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectRequest {
    /// Comes back with the answer.
    pub number: u64,
    /// The application's root as the request names it.
    pub root: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectReply {
    /// The question's.
    pub number: u64,
    /// What is there, or why it is no application of the pool: names the path and what would be right.
    pub found: Result<FoundApplication, String>,
    /// Nothing could be looked at: whether there is an application is not known.
    #[serde(default)]
    pub is_unknown: bool,
    /// Of a directory that is there and not run, or can't be looked at; absent: there is no such directory, or it is run.
    #[serde(default)]
    pub refusal: Option<Refusal>,
}

/// A directory that is not run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Refusal {
    /// Names the error, in the log, in reports and to visitors. The same mistake keeps it.
    pub id: u32,
    /// The directory, by its real path where that is known.
    pub root: PathBuf,
    /// Its owner, user and group, who may read why; absent: root alone may.
    pub owner: Option<(u32, u32)>,
    /// Nothing says that it is to be an application. Otherwise something is wrong with it.
    pub is_no_application: bool,
}

impl Refusal {
    /// One whose error has no name yet, of a directory with which something is wrong.
    pub fn of(root: &Path, owner: Option<(u32, u32)>) -> Refusal {
        Refusal {
            // No name is longer in a message.
            id: u32::MAX,
            root: root.to_owned(),
            owner,
            is_no_application: false,
        }
    }
}

/// An application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundApplication {
    /// Its root, all links resolved, below one of the pool's directories.
    pub root: PathBuf,
    pub kind: Kind,
    /// The file that says so; absolute. `None`: its `forkyard.toml` alone does.
    pub startup_file: Option<PathBuf>,
    /// Owner of that file, or of the root: user and group. Of a symbolic link, its own.
    pub owner: (u32, u32),
    /// What tells root and start-up file from others of their names; absent: whose they are does not matter.
    #[serde(default)]
    pub origin: Option<Origin>,
    /// What its `forkyard.toml` says, checked, or else its `Passengerfile.json`, or the start script of its `package.json`;
    /// absent: there is none of these.
    pub settings: Option<Settings>,
    /// The Python of a virtual environment in the root.
    #[serde(default)]
    pub python: Option<PathBuf>,
    /// `restart.txt`: modified (nanoseconds since 1970), inode.
    pub restart: Option<(i128, u64)>,
    /// `always_restart.txt` is there.
    pub always_restart: bool,
    /// The version that is deployed, as far as the directory says it: the first line of its file `REVISION`, or its own name
    /// if it is in a directory of `releases`.
    #[serde(default)]
    pub revision: Option<String>,
}

/// What an application is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Php,
    Wsgi,
    Asgi,
    Rack,
    Node,
    /// A program that speaks HTTP.
    Http,
    /// A program that speaks FastCGI.
    Fastcgi,
    /// A program for each request.
    Cgi,
}

/// Where a program that speaks HTTP listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Handshake {
    /// As usual for its runtime.
    Usual,
    /// Where it says: it speaks the handshake of the spawning kit.
    Spoken,
    /// On the unix socket `$SOCKET`.
    Socket,
}

/// Where an application in Python or Ruby is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preload {
    /// In the preloader, of which workers are forked; in each worker if it has left a connection open there.
    #[default]
    Auto,
    /// In the preloader.
    Always,
    /// In each worker.
    Never,
}

/// What an application may say of itself in its `forkyard.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// What it is, if its files do not say so.
    pub runtime: Option<Kind>,
    /// What is loaded: as `entry` of the runtime.
    pub entry: Option<String>,
    /// How it is started: for programs.
    pub start_command: Option<String>,
    #[serde(default)]
    pub env: std::collections::BTreeMap<String, String>,
    /// Fewer instances than the pool allows an application.
    pub max_per_app: Option<u32>,
    /// Instances that are kept, up to what the pool allows.
    pub min_instances: Option<u32>,
    /// Requests after which an instance is replaced.
    pub max_requests: Option<u32>,
    /// Restart one instance after the other.
    pub rolling_restarts: Option<bool>,
    /// Requests that an instance works on at once; 0: any number.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// Threads of an instance, each with a request.
    #[serde(default)]
    pub threads: Option<u32>,
    /// How many instances it is spread over.
    #[serde(default)]
    pub instances: Option<u32>,
    /// Where its program listens.
    #[serde(default)]
    pub handshake: Option<Handshake>,
    /// Where it is loaded.
    #[serde(default)]
    pub preload: Option<Preload>,
    /// Time without a request after which an instance is stopped.
    #[serde(default)]
    pub max_idle_time: Option<std::time::Duration>,
    /// How long a request may take.
    #[serde(default)]
    pub max_request_time: Option<std::time::Duration>,
    /// Most requests that wait.
    #[serde(default)]
    pub max_request_queue_size: Option<u32>,
    /// Bytes above which an instance is replaced.
    #[serde(default)]
    pub memory_limit: Option<u64>,
    /// How long an instance may take to be up.
    #[serde(default)]
    pub start_timeout: Option<std::time::Duration>,
    /// Where what it writes goes: a path below its root.
    #[serde(default)]
    pub app_log: Option<String>,
    /// A file with variables of the environment: a path below its root.
    #[serde(default)]
    pub env_file: Option<String>,
}

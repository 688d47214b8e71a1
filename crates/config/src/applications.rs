//! What a pool with `routing = "application"` is told of its applications.

use forkyard_core::applications::Options;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// The user that a package makes for router and inspector.
pub const OWN_USER: &str = "forkyard";
/// Whom they run as without it, where all applications are one user.
pub const FALLBACK_USER: &str = "nobody";

/// The applications of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applications {
    /// Applications' roots are below one of these, links resolved; absolute, at least one.
    pub directories: Vec<PathBuf>,
    /// The FastCGI parameter that names a request's application by its root. Where it is absent, `PASSENGER_APP_ROOT`
    /// does, and else the parent of `DOCUMENT_ROOT`.
    pub root_parameter: String,
    /// Most instances of all applications.
    pub max: NonZeroU32,
    /// Most of them that are being started at a time.
    pub max_spawning: NonZeroU32,
    /// How many of `max` only applications can take that have no instance.
    #[serde(default)]
    pub reserve: u32,
    /// Most requests that an instance works on at once, of what can work on several; 0: any number; `None`: as its runtime has
    /// it.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// What holds for an application that says nothing else, and the bounds of what it may say.
    pub options: Options,
    /// Where restart files are; relative to the application's root. `None`: `tmp`.
    pub restart_dir: Option<PathBuf>,
    /// How long a look at an application's files is good.
    pub stat_throttle_rate: Duration,
    /// Most time that a request waits for an instance; `None`: as long as its client does.
    pub max_request_queue_time: Option<Duration>,
    /// An application without a request and an instance for so long is forgotten.
    pub forget_after: Duration,
    /// Owners of applications have at least this user id.
    pub min_uid: u32,
    /// Applications run as their owners; otherwise all as `default_user`. Without root always
    /// false: all run as the daemon.
    pub user_switching: bool,
    /// Applications may be on file systems where a user decides whose a file is.
    #[serde(default)]
    pub user_mounts: bool,
    /// Whom the applications of an owner run as who may have none; `None`: they are refused.
    pub default_user: Option<String>,
    /// Names of groups, and the roots of the applications of which any may be taken by that name.
    #[serde(default)]
    pub groups: BTreeMap<String, Vec<PathBuf>>,
    /// Whom the router runs as.
    pub router_user: Option<String>,
}

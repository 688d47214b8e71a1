//! Settings of a pool with `routing = "application"`.

use crate::release::Release;
use forkyard_core::applications::Options;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// The packages' user for router and inspector.
pub const OWN_USER: &str = "forkyard";
/// The router's default user if `forkyard` does not exist and all applications share a user.
pub const FALLBACK_USER: &str = "nobody";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applications {
    /// Absolute directories, with links resolved, that contain the applications. At least one.
    pub directories: Vec<PathBuf>,
    /// The FastCGI parameter with the application's root. Fallbacks: `PASSENGER_APP_ROOT`, then the parent of
    /// `DOCUMENT_ROOT`.
    pub root_parameter: String,
    pub max: NonZeroU32,
    pub max_spawning: NonZeroU32,
    /// Places of `max` reserved for applications without instances.
    #[serde(default)]
    pub reserve: u32,
    /// Concurrent requests per instance; 0 means no limit, `None` the runtime's default.
    #[serde(default)]
    pub concurrency: Option<u32>,
    pub options: Options,
    /// The directory of restart files, relative to the root. `None`: `tmp`.
    pub restart_dir: Option<PathBuf>,
    pub stat_throttle_rate: Duration,
    /// How long a request waits for an instance. `None`: without limit.
    pub max_request_queue_time: Option<Duration>,
    /// How long an application without requests and instances is remembered.
    pub forget_after: Duration,
    pub min_uid: u32,
    /// Run applications as their owners, otherwise as `default_user`. Always false without root: all run as the
    /// daemon's user.
    pub user_switching: bool,
    /// Allow file systems mounted by users, which can fake owners.
    #[serde(default)]
    pub user_mounts: bool,
    /// The user for applications whose owner may not run any. `None`: refuse them.
    pub default_user: Option<String>,
    /// The releases of applications; the link is a name below each root. `None`: every directory is an application of
    /// its own.
    #[serde(default)]
    pub releases: Option<Box<Release>>,
    #[serde(default)]
    pub groups: BTreeMap<String, Vec<PathBuf>>,
    pub router_user: Option<String>,
}

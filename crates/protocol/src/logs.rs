//! Where logs are.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where the daemon's own log goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DaemonLog {
    /// To its standard error stream.
    Stderr,
    File(PathBuf),
    /// To the system's log, under this name.
    Syslog(String),
}

/// A log of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolLog {
    pub kind: PoolLogKind,
    /// Its file. Of an application pool it may be below each application's root, and has no slash before it then.
    pub path: PathBuf,
}

/// What a log of a pool is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolLogKind {
    /// Each request.
    Access,
    /// Slow requests.
    Slow,
    /// What the application writes to its standard output and error.
    Output,
    /// PHP's own messages: its setting `error_log`.
    Php,
}

impl PoolLogKind {
    pub fn in_words(self) -> &'static str {
        match self {
            PoolLogKind::Access => "requests",
            PoolLogKind::Slow => "slow requests",
            PoolLogKind::Output => "output of the application",
            PoolLogKind::Php => "PHP's messages",
        }
    }
}

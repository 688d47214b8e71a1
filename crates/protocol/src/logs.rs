//! Destinations of logs.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The destination of the daemon's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DaemonLog {
    /// Standard error.
    Stderr,
    File(PathBuf),
    /// The system log, under this name.
    Syslog(String),
}

/// A pool's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolLog {
    pub kind: PoolLogKind,
    /// The file. A relative path is below the root of each application.
    pub path: PathBuf,
}

/// The content of a pool's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolLogKind {
    /// One line per request.
    Access,
    Slow,
    /// The application's standard output and error.
    Output,
    /// PHP's `error_log`.
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

//! Destinations of logs.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DaemonLog {
    Stderr,
    File(PathBuf),
    /// The system log, under this name.
    Syslog(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolLog {
    pub kind: PoolLogKind,
    /// The file. A relative path is below the root of each application.
    pub path: PathBuf,
}

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

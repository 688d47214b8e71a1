//! Answers that list pools or deaths.

use crate::skipped::Skipped;
use serde::{Deserialize, Serialize};

/// A worker's death at work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashLine {
    /// The id of its report.
    pub id: String,
    /// Seconds since 1970.
    pub time: u64,
    pub pool: String,
    /// A word for programs: `signal`, `exit`, `time_limit`.
    pub kind: String,
    pub cause: String,
    /// Its method, path and query.
    pub request: String,
    pub script: String,
    /// How often the same cause has ended the same script, with this death.
    pub deaths: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    pub added: Vec<String>,
    /// Pools with new workers that serve.
    pub replaced: Vec<Cause>,
    pub kept: Vec<String>,
    /// Closed pools. Their workers finish first.
    pub removed: Vec<String>,
    /// Pools with failed new workers. The old workers serve while the daemon retries.
    pub failed: Vec<Cause>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    pub pool: String,
    pub reason: String,
}

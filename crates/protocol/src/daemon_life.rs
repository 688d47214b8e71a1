//! The daemon's program, times and last upgrade, as parts of its status.

use crate::last_upgrade::LastUpgrade;
use crate::program::Program;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonLife {
    pub program: Option<Program>,
    /// When the daemon started, in seconds since 1970. An upgrade, or another master after a killed one, continues it.
    pub started: u64,
    /// When the running program started or took over, in seconds since 1970.
    pub program_started: u64,
    pub last_upgrade: Option<LastUpgrade>,
    /// When the daemon last began to read its configuration, in milliseconds since 1970.
    pub read_ms: u64,
    /// The changes of a reload, a line each. Added by the client; `None` if the files have not changed since they were read.
    pub would_change: Option<Vec<String>>,
}

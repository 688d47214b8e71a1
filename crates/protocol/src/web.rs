//! The messages between the master and the web process, as JSON.

use serde::{Deserialize, Serialize};

/// The longest message, in bytes.
pub const MOST_BYTES: usize = 256;

/// From the web process to the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromWeb {
    /// Answered with [`ToWeb::Numbers`].
    Numbers,
}

/// From the master to the web process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWeb {
    /// With a descriptor: sealed memory with the numbers as JSON.
    Numbers {
        /// For how long they are used; the master answers no earlier question sooner.
        fresh_ms: u64,
    },
}

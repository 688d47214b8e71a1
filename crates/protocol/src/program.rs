//! Which program the daemon runs.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The program that runs, and what has become of its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its version, and the commit that it was built of, where that is known.
    pub build: String,
    /// Its file.
    pub path: PathBuf,
    /// Another file has taken its place: an upgrade runs that.
    pub replaced: bool,
}

//! The program that the daemon runs.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Version and, if known, commit.
    pub build: String,
    pub path: PathBuf,
    /// Another file replaced it on disk. An upgrade would run that file.
    pub replaced: bool,
    /// There is no file at its path, so that neither an upgrade nor a new process of forkyard can start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

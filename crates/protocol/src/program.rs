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
}

//! A pool that can't be had.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// A pool that can't be had, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its name; `None`: all that is known is the file.
    pub pool: Option<String>,
    /// The file that it is written in.
    pub file: PathBuf,
    /// What is wrong, each with its place.
    pub reasons: Vec<String>,
    /// It runs, with the settings that it had.
    #[serde(default)]
    pub goes_on: bool,
}

impl Skipped {
    /// Its name in messages: the pool's, or the file's.
    pub fn name(&self) -> String {
        match &self.pool {
            Some(pool) => format!("[pool {pool}]"),
            None => self.file.display().to_string(),
        }
    }

    /// Whether it is the pool of this name.
    pub fn is_of(&self, name: &str) -> bool {
        self.pool.as_deref() == Some(name)
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if self.goes_on {
            "goes on with the settings that it had"
        } else {
            "is skipped, the others serve without it"
        };
        write!(f, "{} {outcome}; correct it, then reload", self.name())
    }
}

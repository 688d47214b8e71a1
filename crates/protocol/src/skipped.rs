//! Pools with configuration errors.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The name, or `None` if only the file is known.
    pub pool: Option<String>,
    pub file: PathBuf,
    /// The errors, each with its place.
    pub reasons: Vec<String>,
    /// The pool runs with its old settings.
    #[serde(default)]
    pub goes_on: bool,
}

impl Skipped {
    /// The name in messages: the pool's, or else the file's.
    pub fn name(&self) -> String {
        match &self.pool {
            Some(pool) => format!("[pool {pool}]"),
            None => self.file.display().to_string(),
        }
    }

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

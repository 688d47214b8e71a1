//! The daemon's answer to a dry run of a reload.

use crate::skipped::Skipped;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The differences between the configuration in force and the files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub global: Vec<KeyChange>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<KeyChange>,
    /// Pools that would change, in file order, then the removed ones.
    pub pools: Vec<PoolChange>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChange {
    /// The full key, with dots between table and name.
    pub key: String,
    /// The value in force, or `None` if unset.
    pub before: Option<String>,
    /// The new value, or `None` if unset.
    pub after: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolChange {
    pub pool: String,
    pub outcome: Outcome,
    /// The reason for the replacement or failure.
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyChange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The pool starts.
    Added,
    /// New workers start and old workers finish.
    Replaced,
    /// The workers stay.
    Kept,
    /// The pool closes.
    Removed,
    /// The pool has errors.
    Failed,
}

impl Changes {
    /// Returns whether the files match the configuration in force. Pools replaced for other reasons don't count.
    pub fn is_in_force(&self) -> bool {
        let is_same = |pool: &PoolChange| {
            matches!(pool.outcome, Outcome::Kept | Outcome::Replaced) && pool.keys.is_empty()
        };
        self.global.is_empty()
            && self.jobs.is_empty()
            && self.skipped.is_empty()
            && self.pools.iter().all(is_same)
    }
}

//! What a reload would change, as the daemon answers it.

use crate::skipped::Skipped;
use serde::{Deserialize, Serialize};

/// The configuration that is written beside the one in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Keys of `[global]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub global: Vec<KeyChange>,
    /// Keys of `[jobs]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<KeyChange>,
    /// Pools of which something would change, in the order of the files; those that would end come last.
    pub pools: Vec<PoolChange>,
    /// Pools that can't be had as they are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
}

/// A key with another value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChange {
    /// Its tables and its name, with dots between them.
    pub key: String,
    /// The value in force; nothing where there is none.
    pub before: Option<String>,
    /// The value that is written; the same.
    pub after: Option<String>,
}

/// What would become of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolChange {
    /// The pool's name.
    pub pool: String,
    pub outcome: Outcome,
    /// Why it would be replaced, or can't be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is written otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyChange>,
}

/// What a reload does to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It begins.
    Added,
    /// It gets new workers, and the old ones finish.
    Replaced,
    /// It keeps its workers.
    Kept,
    /// It ends.
    Removed,
    /// It can't be had.
    Failed,
}

impl Changes {
    /// Whether what is written is in force. A pool may get new workers for another reason: that is none of the configuration's.
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

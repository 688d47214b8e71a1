//! The limits of a pool's workers, and the autopilot's advice.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::fmt;

#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkerLimits {
    pub max_children: u32,
    /// The minimum of idle workers. `None` unless `pm` is `dynamic`.
    pub min_spare_servers: Option<u32>,
    pub max_spare_servers: Option<u32>,
}

/// What the autopilot would choose for a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Advice {
    /// The number in force.
    pub max_children: u32,
    /// The number that it would choose.
    pub chosen: u32,
    pub because: String,
    /// It has looked at the pool while more than half of its workers were busy.
    pub has_looked: bool,
    /// The pool follows it: `max_children = "auto"`.
    pub is_followed: bool,
}

impl fmt::Display for Advice {
    /// Writes the number in force and the autopilot's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (most, chosen, because) = (self.max_children, self.chosen, &self.because);
        match (self.is_followed, most == chosen) {
            (true, true) => write!(f, "max_children auto = {most}: {because}"),
            // A static pool waits for a reload.
            (true, false) => write!(
                f,
                "max_children auto = {most}, after a reload {chosen}: {because}"
            ),
            (false, _) => write!(
                f,
                "max_children = {most}; the autopilot would choose {chosen}: {because}"
            ),
        }
    }
}

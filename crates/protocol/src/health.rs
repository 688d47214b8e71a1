//! What a status means: a pool's state, and whether it should get requests.

use crate::control::PoolStatus;
use std::fmt;

/// Why a pool should get no requests, or fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It does not serve: its state.
    State(&'static str),
    /// All its workers are busy, and connections or requests wait.
    Full { busy: u32, waiting: u64 },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::State(state) => f.write_str(state),
            Trouble::Full { busy, waiting } => {
                write!(f, "all {busy} workers are busy, and {waiting} wait")
            }
        }
    }
}

/// Returns why a pool should get no requests. `is_busy_wrong`: also if it has no free worker and a queue.
pub fn trouble(pool: &PoolStatus, is_busy_wrong: bool) -> Option<Trouble> {
    let state = pool.state();
    if !matches!(state, "serving" | "reloading") {
        return Some(Trouble::State(state));
    }
    let (busy, waiting) = (pool.busy, pool.waiting().unwrap_or(0));
    let is_full = busy >= pool.limits.max_children && waiting > 0;
    (is_busy_wrong && is_full).then_some(Trouble::Full { busy, waiting })
}

//! The settings that decisions go by, as plain values.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When crashed workers are taken as a sign that what they share is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmergencyRestart {
    /// Workers killed by SIGSEGV or SIGBUS, at least 1.
    pub threshold: u32,
    /// The time within which they were, above zero.
    pub interval: Duration,
}

/// How many workers a pool has and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessManager {
    /// Always `max_children`.
    Static {
        /// Number of workers, at least 1.
        max_children: u32,
    },
    /// Between `min_spare_servers` and `max_spare_servers` idle ones, at most `max_children`.
    Dynamic {
        /// Most workers, at least 1.
        max_children: u32,
        /// Workers at start.
        start_servers: u32,
        /// Fewest idle workers, at least 1.
        min_spare_servers: u32,
        /// Most idle workers.
        max_spare_servers: u32,
        /// Most workers forked in one step, at least 1.
        max_spawn_rate: u32,
        /// A surplus worker is retired after it has been idle this long.
        process_idle_timeout: Duration,
    },
    /// None until one is needed.
    Ondemand {
        /// Most workers, at least 1.
        max_children: u32,
        /// A worker is retired after it has been idle this long.
        process_idle_timeout: Duration,
    },
    /// Those that were ordered, until they are dismissed: of an application pool.
    Ordered {
        /// Most workers, at least 1.
        max_children: u32,
    },
}

impl ProcessManager {
    /// The most workers the pool may have.
    pub fn max_children(&self) -> u32 {
        match *self {
            ProcessManager::Static { max_children }
            | ProcessManager::Dynamic { max_children, .. }
            | ProcessManager::Ondemand { max_children, .. }
            | ProcessManager::Ordered { max_children } => max_children,
        }
    }

    /// The name php-fpm gives it: `static`, `dynamic` or `ondemand`; or `ordered`.
    pub fn name(&self) -> &'static str {
        match self {
            ProcessManager::Static { .. } => "static",
            ProcessManager::Dynamic { .. } => "dynamic",
            ProcessManager::Ondemand { .. } => "ondemand",
            ProcessManager::Ordered { .. } => "ordered",
        }
    }
}

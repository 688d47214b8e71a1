//! Settings that the core decides by.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The rule of the emergency restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmergencyRestart {
    /// Workers killed by SIGSEGV or SIGBUS, at least 1.
    pub threshold: u32,
    /// The time window, above zero.
    pub interval: Duration,
}

/// How many workers a pool has, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessManager {
    /// Always `max_children`.
    Static {
        /// The number of workers, at least 1.
        max_children: u32,
    },
    /// Keeps `min_spare_servers` to `max_spare_servers` workers idle, up to `max_children`.
    Dynamic {
        /// The most workers, at least 1.
        max_children: u32,
        /// Workers at the start.
        start_servers: u32,
        /// The fewest idle workers, at least 1.
        min_spare_servers: u32,
        /// The most idle workers.
        max_spare_servers: u32,
        /// The most forks at a time, at least 1.
        max_spawn_rate: u32,
        /// A surplus worker is retired after this idle time.
        process_idle_timeout: Duration,
    },
    /// Starts workers on demand.
    Ondemand {
        /// The most workers, at least 1.
        max_children: u32,
        /// A worker is retired after this idle time.
        process_idle_timeout: Duration,
    },
    /// Workers of an application pool, ordered and dismissed by its router.
    Ordered {
        /// The most workers, at least 1.
        max_children: u32,
    },
}

impl Default for ProcessManager {
    fn default() -> ProcessManager {
        ProcessManager::Static { max_children: 1 }
    }
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

    /// Returns the same with more workers.
    #[must_use]
    pub fn with_more(self, more: u32) -> ProcessManager {
        self.with_max_children(self.max_children().saturating_add(more))
    }

    /// Returns the same with at most so many workers.
    #[must_use]
    pub fn limited_to(self, most: u32) -> ProcessManager {
        self.with_max_children(self.max_children().min(most.max(1)))
    }

    fn with_max_children(mut self, most: u32) -> ProcessManager {
        let (ProcessManager::Static { max_children }
        | ProcessManager::Dynamic { max_children, .. }
        | ProcessManager::Ondemand { max_children, .. }
        | ProcessManager::Ordered { max_children }) = &mut self;
        *max_children = most;
        self
    }

    /// The name in php-fpm's configuration; or `ordered`.
    pub fn name(&self) -> &'static str {
        match self {
            ProcessManager::Static { .. } => "static",
            ProcessManager::Dynamic { .. } => "dynamic",
            ProcessManager::Ondemand { .. } => "ondemand",
            ProcessManager::Ordered { .. } => "ordered",
        }
    }
}

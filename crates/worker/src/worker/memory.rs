//! How much memory a worker uses, with the program beside it: measured now and then, after a request.

use crate::config::Pool;
use crate::sys::clock;
use crate::sys::process::{family_memory_bytes, proportional_memory_bytes};
use crate::tick::Tick;
use std::time::Duration;

/// How often memory is measured at most. The kernel looks at every page for it.
const INTERVAL: Duration = Duration::from_secs(5);

/// Measures memory where the pool limits it.
#[derive(Debug)]
pub(super) struct Scale {
    /// When it was last done.
    measured: Tick,
}

impl Scale {
    /// `None`: how much memory workers of this pool use does not matter.
    pub(super) fn new(pool: &Pool) -> Option<Scale> {
        let is_limited = pool.tells_memory || pool.memory_limit.is_some();
        is_limited.then(|| Scale {
            measured: clock::now(),
        })
    }

    /// When it was last done: a process that is put back has to carry it over.
    pub(super) fn measured_mut(&mut self) -> &mut Tick {
        &mut self.measured
    }

    /// The MiB that the worker, with its program, is found to use, if they are more than the pool's `memory_limit`.
    pub(super) fn beyond_limit(&mut self, pool: &Pool, program: i32) -> Option<u64> {
        let limit = pool.memory_limit?;
        let used = self.weigh(program).filter(|used| *used > limit)?;
        Some(used >> 20)
    }

    /// Bytes that the worker uses, with the program that has this pid (0: there is none) and what that has started. `None`: it is
    /// not time, or the kernel does not tell.
    pub(super) fn weigh(&mut self, program: i32) -> Option<u64> {
        let now = clock::now();
        if now.since(self.measured) < INTERVAL {
            return None;
        }
        self.measured = now;
        let own = proportional_memory_bytes(None)?;
        // A program that is gone, or that the worker may not look into, uses nothing.
        let beside = if program > 0 {
            family_memory_bytes(program)
        } else {
            0
        };
        Some(own.saturating_add(beside))
    }
}

/// Says that a worker leaves because it uses so many MiB.
pub(super) fn say_replaced(used: u64) {
    log::info!(
        "a worker is replaced: it uses {used} MiB, more than its limit (memory_limit, or loop_memory of a worker script)"
    );
}

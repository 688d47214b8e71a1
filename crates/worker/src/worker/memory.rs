//! How much memory a worker uses, with the program beside it.

use super::memory_pace::Pace;
use crate::config::Pool;
use crate::sys::clock;
use crate::sys::process::{
    family_memory_bytes, family_resident_bytes, open_statm, proportional_memory_bytes, resident_bytes,
};
use crate::tick::Tick;
use std::fs::File;
use std::time::Duration;

/// How often a worker that is put back after each request is weighed at most: it does not grow, and forgets what it has seen.
const PUT_BACK_INTERVAL: Duration = Duration::from_secs(5);

/// Measures memory where the pool limits it.
#[derive(Debug)]
pub(super) struct Scale {
    statm: File,
    pace: Pace,
    /// When a worker that is put back was last weighed.
    measured: Tick,
}

/// When memory is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// After a request, as the pace has it.
    Request,
    /// Each second: a worker that serves several requests at a time.
    Second,
    /// The worker is put back after each request.
    PutBack,
}

impl Scale {
    /// `None`: how much memory workers of this pool use does not matter, or the kernel does not tell.
    pub(super) fn new(pool: &Pool) -> Option<Scale> {
        let limit = pool.memory_limit.or(pool.told_memory_limit)?;
        let (statm, now) = (open_statm(None)?, clock::now());
        let resident = resident_bytes(&statm)?;
        Some(Scale {
            statm,
            pace: Pace::new(limit, resident, now),
            measured: now,
        })
    }

    /// When a worker that is put back was last weighed: it has to carry that over.
    pub(super) fn measured_mut(&mut self) -> &mut Tick {
        &mut self.measured
    }

    /// When a worker looks that serves several requests at a time.
    pub(super) fn due(&self) -> Tick {
        self.pace.late_at()
    }

    /// The MiB that the worker, with its program, is found to use, if they are more than it may.
    pub(super) fn beyond_limit(&mut self, program: i32, occasion: Occasion) -> Option<u64> {
        let now = clock::now();
        let used = self.look(program, occasion, now)?;
        self.pace.weigh(used, now).then_some(used >> 20)
    }

    /// The bytes that a router is to be told of: those of a worker that may use more than it may, or that has not said for a while.
    pub(super) fn news(&mut self, program: i32, occasion: Occasion) -> Option<u64> {
        let now = clock::now();
        let used = match self.look(program, occasion, now) {
            Some(used) => used,
            None if self.pace.is_stale(now) => weigh(program)?,
            None => return None,
        };
        self.pace.weigh(used, now);
        Some(used)
    }

    /// Looks if it is time, and weighs if that is needed.
    fn look(&mut self, program: i32, occasion: Occasion, now: Tick) -> Option<u64> {
        if occasion == Occasion::PutBack {
            if now.since(self.measured) < PUT_BACK_INTERVAL {
                return None;
            }
            self.measured = now;
            return weigh(program);
        }
        let is_due = self.pace.is_due(now);
        let by_time = occasion == Occasion::Second || program > 0;
        if !(if by_time { self.pace.is_late(now) } else { is_due }) {
            return None;
        }
        let own = resident_bytes(&self.statm)?;
        let resident = own.saturating_add(beside(program, family_resident_bytes));
        self.pace.see(resident, now).then(|| weigh(program)).flatten()
    }
}

/// Bytes that the worker uses, with the program that has this pid (0: there is none) and what that has started. `None`: the kernel
/// does not tell.
fn weigh(program: i32) -> Option<u64> {
    let own = proportional_memory_bytes(None)?;
    Some(own.saturating_add(beside(program, family_memory_bytes)))
}

/// A program that is gone, or that the worker may not look into, uses nothing.
fn beside(program: i32, bytes: fn(i32) -> u64) -> u64 {
    if program > 0 { bytes(program) } else { 0 }
}

/// Says that a worker leaves because it uses so many MiB.
pub(super) fn say_replaced(used: u64) {
    log::info!(
        "a worker is replaced: it uses {used} MiB, more than its limit (memory_limit, or loop_memory of a worker script)"
    );
}

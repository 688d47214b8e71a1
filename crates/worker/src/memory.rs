//! Measures the memory of a worker and its program.

use super::memory_pace::Pace;
use forkyard_base::tick::Tick;
use forkyard_config::Pool;
use forkyard_sys::clock;
use forkyard_sys::process::{
    family_memory_bytes, family_resident_bytes, open_statm, proportional_memory_bytes, resident_bytes,
};
use std::fs::File;
use std::time::Duration;

const PUT_BACK_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Scale {
    statm: File,
    pace: Pace,
    pub(super) measured: Tick,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    Request,
    Second,
    PutBack,
}

impl Scale {
    pub(super) fn new(pool: &Pool) -> Option<Scale> {
        let limit = pool
            .retirement
            .memory_limit
            .or(pool.retirement.told_memory_limit)?;
        let (statm, now) = (open_statm(None)?, clock::now());
        let resident = resident_bytes(&statm)?;
        Some(Scale {
            statm,
            pace: Pace::new(limit, resident, now),
            measured: now,
        })
    }

    pub(super) fn due(&self) -> Tick {
        self.pace.late_at()
    }

    pub(super) fn beyond_limit(&mut self, program: i32, occasion: Occasion) -> Option<u64> {
        let now = clock::now();
        let used = self.look(program, occasion, now)?;
        self.pace.weigh(used, now).then_some(used >> 20)
    }

    /// The bytes to report to a router: if they may exceed the limit, or the last report is old.
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

fn weigh(program: i32) -> Option<u64> {
    let own = proportional_memory_bytes(None)?;
    Some(own.saturating_add(beside(program, family_memory_bytes)))
}

fn beside(program: i32, bytes: fn(i32) -> u64) -> u64 {
    if program > 0 { bytes(program) } else { 0 }
}

pub(super) fn say_replaced(used: u64) {
    log::info!(
        "a worker is replaced: it uses {used} MiB, more than its limit (memory_limit, or loop_memory of a worker script)"
    );
}

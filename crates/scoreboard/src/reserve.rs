//! How many workers low requests leave idle: as many as people needed lately.

use forkyard_base::tick::Tick;
use std::time::Duration;

const LEAST: u32 = 1;
/// The next step waits until the last one could help.
const GROWS_AFTER: Duration = Duration::from_millis(200);
const SHRINKS_AFTER: Duration = Duration::from_secs(20);

const WORKERS: u32 = 0xffff;
const HAS_GROWN: u64 = 1 << 16;
const TIME_AT: u32 = 17;
const NANOS_IN_MILLI: u64 = 1_000_000;

/// A reserve that follows the demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    workers: u32,
    /// When it last grew, or shrank.
    changed: Tick,
    has_grown: bool,
}

impl Reserve {
    pub fn new(now: Tick) -> Reserve {
        Reserve {
            workers: LEAST,
            changed: now,
            has_grown: false,
        }
    }

    /// Reads it from one word of shared memory: the milliseconds of the last change, whether it grew, and the workers. 0:
    /// new.
    pub fn from_word(word: u64, now: Tick) -> Reserve {
        if word == 0 {
            return Reserve::new(now);
        }
        Reserve {
            workers: (word as u32 & WORKERS).max(LEAST),
            changed: Tick::from_nanos((word >> TIME_AT).saturating_mul(NANOS_IN_MILLI)),
            has_grown: word & HAS_GROWN != 0,
        }
    }

    /// Returns the word for [`Reserve::from_word`].
    pub fn word(self) -> u64 {
        let grown = if self.has_grown { HAS_GROWN } else { 0 };
        (self.changed.as_nanos() / NANOS_IN_MILLI) << TIME_AT | grown | u64::from(self.workers & WORKERS)
    }

    pub fn workers(self) -> u32 {
        self.workers
    }

    /// Returns the reserve after a high request found no free worker. `low`: how many low requests run.
    #[must_use]
    pub fn wanted(self, low: u32, max_children: u32, now: Tick) -> Reserve {
        let reserve = self.rest(now);
        let is_too_soon = reserve.has_grown && now.since(reserve.changed) < GROWS_AFTER;
        // A single low request runs in any case.
        if low < 2 || is_too_soon || reserve.workers >= most(max_children) {
            return reserve;
        }
        Reserve {
            workers: reserve.workers + 1,
            changed: now,
            has_grown: true,
        }
    }

    /// Returns the reserve at this time: one worker less for each interval without growth.
    #[must_use]
    pub fn rest(mut self, now: Tick) -> Reserve {
        while self.workers > LEAST && now.since(self.changed) >= SHRINKS_AFTER {
            self.workers -= 1;
            self.changed = self.changed + SHRINKS_AFTER;
            self.has_grown = false;
        }
        self
    }
}

fn most(max_children: u32) -> u32 {
    (max_children / 2).max(LEAST)
}

//! Monotonic time as a value, so that pure code never reads a clock.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds of `CLOCK_MONOTONIC` (clock_gettime(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(u64);

impl Tick {
    /// The start of the clock.
    pub const ZERO: Tick = Tick(0);

    /// Creates a tick from nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Tick {
        Tick(nanos)
    }

    /// Returns the nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if that is later.
    pub const fn since(self, earlier: Tick) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Returns the nanoseconds of a time, at most what fits.
#[inline]
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Tick {
    type Output = Tick;

    fn add(self, by: Duration) -> Tick {
        Tick(self.0.saturating_add(nanos(by)))
    }
}

impl Sub<Duration> for Tick {
    type Output = Tick;

    fn sub(self, by: Duration) -> Tick {
        Tick(self.0.saturating_sub(nanos(by)))
    }
}

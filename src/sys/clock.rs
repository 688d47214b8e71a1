//! The clocks. Both calls are answered by the vDSO, without entering the kernel.

use crate::tick::Tick;
use nix::time::{ClockId, clock_gettime};

/// Now, on the monotonic clock.
pub fn now() -> Tick {
    match clock_gettime(ClockId::CLOCK_MONOTONIC) {
        Ok(time) => Tick::from_nanos(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64),
        // Only fails for a clock that doesn't exist (clock_gettime(2)).
        Err(_) => Tick::ZERO,
    }
}

/// Now, in seconds since 1970 (UTC).
pub fn epoch_seconds() -> u64 {
    match clock_gettime(ClockId::CLOCK_REALTIME) {
        Ok(time) => time.tv_sec() as u64,
        Err(_) => 0,
    }
}

/// Now, in microseconds since 1970 (UTC).
pub fn epoch_micros() -> u64 {
    match clock_gettime(ClockId::CLOCK_REALTIME) {
        Ok(time) => time.tv_sec() as u64 * 1_000_000 + time.tv_nsec() as u64 / 1_000,
        Err(_) => 0,
    }
}

/// CPU time of this process so far, user and system, in microseconds. Enters the kernel.
pub fn process_cpu_micros() -> u64 {
    match clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID) {
        Ok(time) => time.tv_sec() as u64 * 1_000_000 + time.tv_nsec() as u64 / 1_000,
        Err(_) => 0,
    }
}

/// Seconds east of UTC of the local time zone now.
pub fn utc_offset_seconds() -> i32 {
    let now = epoch_seconds() as libc::time_t;
    // SAFETY: `tm` is plain data for which all zeroes is valid; both pointers live for the call, and localtime_r
    // only writes through the second.
    unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut tm).is_null() {
            0
        } else {
            tm.tm_gmtoff as i32
        }
    }
}

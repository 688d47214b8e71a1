//! The clocks. Both calls are answered by the vDSO, without entering the kernel.

use forkyard_base::tick::Tick;
use nix::time::{ClockId, clock_gettime};

/// Now, on the monotonic clock.
pub fn now() -> Tick {
    match clock_gettime(ClockId::CLOCK_MONOTONIC) {
        Ok(time) => Tick::from_nanos(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64),
        // Only fails for a clock that doesn't exist (clock_gettime(2)).
        Err(_) => Tick::ZERO,
    }
}

/// Milliseconds since the machine was started, those in which it slept included.
pub fn boot_millis() -> u64 {
    match clock_gettime(ClockId::CLOCK_BOOTTIME) {
        Ok(time) => time.tv_sec() as u64 * 1_000 + time.tv_nsec() as u64 / 1_000_000,
        Err(_) => 0,
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

/// The clock of another process' CPU time (clock_getcpuclockid(3)). Counts that process alone, not its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessClock(ClockId);

impl ProcessClock {
    /// The clock of the process with this pid; `None`: there is none.
    pub fn of(pid: i32) -> Option<ProcessClock> {
        nix::time::clock_getcpuclockid(nix::unistd::Pid::from_raw(pid))
            .ok()
            .map(ProcessClock)
    }

    /// CPU time so far, user and system, in microseconds; 0 once the process is gone. Enters the kernel.
    pub fn micros(self) -> u64 {
        match clock_gettime(self.0) {
            Ok(time) => time.tv_sec() as u64 * 1_000_000 + time.tv_nsec() as u64 / 1_000,
            Err(_) => 0,
        }
    }
}

/// CPU time, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    /// Of the program itself.
    pub user_micros: u64,
    /// Of the kernel on its behalf.
    pub system_micros: u64,
}

impl CpuTimes {
    /// What was used since an earlier time.
    pub fn since(self, earlier: CpuTimes) -> CpuTimes {
        CpuTimes {
            user_micros: self.user_micros.saturating_sub(earlier.user_micros),
            system_micros: self.system_micros.saturating_sub(earlier.system_micros),
        }
    }
}

/// CPU time so far of this process and of its children that were waited for. Two system calls.
pub fn cpu_times() -> CpuTimes {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    let mut sum = CpuTimes::default();
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        // Fails only for an invalid `who` (getrusage(2)).
        if let Ok(usage) = getrusage(who) {
            let micros = |time: nix::sys::time::TimeVal| u64::try_from(time.num_microseconds()).unwrap_or(0);
            sum.user_micros += micros(usage.user_time());
            sum.system_micros += micros(usage.system_time());
        }
    }
    sum
}

/// Bytes of a formatted time.
const TIME_BYTES: usize = 256;

/// A time in the local zone, by a strftime(3) format; empty if it is longer than 255 bytes.
pub fn format_local_time(epoch_seconds: u64, format: &str) -> Vec<u8> {
    let Ok(format) = std::ffi::CString::new(format) else {
        return Vec::new();
    };
    let time = epoch_seconds as libc::time_t;
    let mut buffer = [0_u8; TIME_BYTES];
    // SAFETY: `tm` is plain data for which all zeroes is valid; the pointers live for the calls; strftime writes at
    // most the length that it is given and reads a C string and a `tm`, which localtime_r has filled.
    let length = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&time, &mut tm).is_null() {
            0
        } else {
            libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr(), &tm)
        }
    };
    buffer[..length.min(TIME_BYTES)].to_vec()
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

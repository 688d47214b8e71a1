//! Clocks. Reading one doesn't enter the kernel (vDSO) unless noted.

use forkyard_base::tick::Tick;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the monotonic time.
pub fn now() -> Tick {
    match clock_gettime(ClockId::CLOCK_MONOTONIC) {
        Ok(time) => Tick::from_nanos(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64),
        Err(_) => Tick::ZERO,
    }
}

#[inline]
fn read(clock: ClockId) -> Duration {
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

/// Milliseconds since boot, including suspend.
pub fn boot_millis() -> u64 {
    read(ClockId::CLOCK_BOOTTIME).as_millis() as u64
}

/// Seconds since 1970 (UTC).
pub fn epoch_seconds() -> u64 {
    read(ClockId::CLOCK_REALTIME).as_secs()
}

/// Milliseconds since 1970 (UTC).
pub fn epoch_millis() -> u64 {
    epoch_micros() / 1000
}

/// Microseconds since 1970 (UTC).
pub fn epoch_micros() -> u64 {
    read(ClockId::CLOCK_REALTIME).as_micros() as u64
}

/// CPU time of this process in microseconds. A system call.
pub fn process_cpu_micros() -> u64 {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID).as_micros() as u64
}

/// CPU clock of another process, without its children (clock_getcpuclockid(3)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessClock(ClockId);

impl ProcessClock {
    /// Returns the process's clock, `None` if the process does not exist.
    pub fn of(pid: i32) -> Option<ProcessClock> {
        nix::time::clock_getcpuclockid(nix::unistd::Pid::from_raw(pid))
            .ok()
            .map(ProcessClock)
    }

    /// CPU time in microseconds; 0 after exit. A system call.
    pub fn micros(self) -> u64 {
        read(self.0).as_micros() as u64
    }
}

/// CPU time in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    /// In user mode.
    pub user_micros: u64,
    /// In the kernel.
    pub system_micros: u64,
}

impl CpuTimes {
    /// CPU time used since `earlier`.
    pub fn since(self, earlier: CpuTimes) -> CpuTimes {
        CpuTimes {
            user_micros: self.user_micros.saturating_sub(earlier.user_micros),
            system_micros: self.system_micros.saturating_sub(earlier.system_micros),
        }
    }
}

/// CPU time of this process and its reaped children.
pub fn cpu_times() -> CpuTimes {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    let mut sum = CpuTimes::default();
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        if let Ok(usage) = getrusage(who) {
            let micros = |time: nix::sys::time::TimeVal| u64::try_from(time.num_microseconds()).unwrap_or(0);
            sum.user_micros += micros(usage.user_time());
            sum.system_micros += micros(usage.system_time());
        }
    }
    sum
}

const TIME_BYTES: usize = 256;

/// Formats a local time (strftime(3)); empty if longer than 255 bytes.
pub fn format_local_time(epoch_seconds: u64, format: &str) -> Vec<u8> {
    let Ok(format) = std::ffi::CString::new(format) else {
        return Vec::new();
    };
    let time = epoch_seconds as libc::time_t;
    let mut buffer = [0_u8; TIME_BYTES];
    // SAFETY: all zeroes is a valid `tm`; the pointers outlive the calls; strftime writes at most the given length.
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

/// Local time's offset, in seconds east of UTC.
pub fn utc_offset_seconds() -> i32 {
    let now = epoch_seconds() as libc::time_t;
    // SAFETY: all zeroes is a valid `tm`; both pointers outlive the call.
    unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut tm).is_null() {
            0
        } else {
            tm.tm_gmtoff as i32
        }
    }
}

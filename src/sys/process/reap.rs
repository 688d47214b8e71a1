//! How children ended, and what they have used.

use crate::sys::error::{Error, Result};
use crate::sys::{clock, pidfd, socket};
use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::os::fd::AsFd;
use std::time::Duration;

/// Reaps a child that is about to end. One that does not end within `limit` is left as it is.
pub fn reap_soon(pid: i32, limit: Duration) {
    let end = clock::now() + limit;
    while let Ok(WaitStatus::StillAlive) = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)) {
        if clock::now() >= end {
            return;
        }
        let _ = nix::poll::poll(&mut [], 1_u8);
    }
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With an exit code.
    Code(i32),
    /// By a signal; `true`: with a core dump.
    Signal(i32, bool),
}

/// Reaps one child that has ended, if there is one.
pub fn reap() -> Option<(i32, Ended)> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => return Some((pid.as_raw(), Ended::Code(code))),
            Ok(WaitStatus::Signaled(pid, signal, core)) => {
                return Some((pid.as_raw(), Ended::Signal(signal as i32, core)));
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return None,
            // Stops and continues are not asked for; real-time signals have no name in nix.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Waits for one child to end.
pub fn reap_pid(pid: i32) -> Result<Ended> {
    loop {
        match waitpid(Pid::from_raw(pid), None) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(Ended::Code(code)),
            Ok(WaitStatus::Signaled(_, signal, core)) => return Ok(Ended::Signal(signal as i32, core)),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new("waitpid", pid.to_string(), errno)),
        }
    }
}

/// What a process has used, with those of its children that it has waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Processor time of program and kernel.
    pub cpu_micros: u64,
    /// The most memory that it has had.
    pub peak_memory_bytes: u64,
}

/// As [`reap_pid`], with what the child has used (wait4(2)).
pub fn reap_used(pid: i32) -> Result<(Ended, Usage)> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: the kernel writes to two values that live for the call.
        let result = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
        match Errno::result(result) {
            Ok(_) if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) => break,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new("wait4", pid.to_string(), errno)),
        }
    }
    // SAFETY: all zeros was a valid value already.
    let usage = unsafe { usage.assume_init() };
    let number = |number: libc::c_long| u64::try_from(number).unwrap_or(0);
    let micros = |time: libc::timeval| number(time.tv_sec) * 1_000_000 + number(time.tv_usec);
    let ended = if libc::WIFEXITED(status) {
        Ended::Code(libc::WEXITSTATUS(status))
    } else {
        Ended::Signal(libc::WTERMSIG(status), libc::WCOREDUMP(status))
    };
    let used = Usage {
        cpu_micros: micros(usage.ru_utime) + micros(usage.ru_stime),
        // The kernel counts in units of 1024 bytes.
        peak_memory_bytes: number(usage.ru_maxrss) * 1024,
    };
    Ok((ended, used))
}

/// As [`reap_used`] if the child ends within `limit`.
pub fn reap_within(pid: i32, limit: Duration) -> Option<(Ended, Usage)> {
    let process = pidfd::open(pid).ok()?;
    let readable = socket::Readiness::Readable;
    let has_ended = socket::wait(process.as_fd(), readable, limit).ok()?;
    has_ended.then(|| reap_used(pid).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::process::{Side, exit_now, fork};

    #[test]
    fn what_a_child_has_used_is_told() {
        // SAFETY: the child makes no system call but the last.
        let busy = || match unsafe { fork() }.unwrap() {
            Side::Child => {
                let mut sum = 0_u64;
                for number in 0..20_000_000_u64 {
                    sum = std::hint::black_box(sum ^ number);
                }
                exit_now(if sum == 1 { 1 } else { 9 })
            }
            Side::Parent(pid) => pid,
        };
        let (ended, usage) = reap_used(busy()).unwrap();
        assert_eq!(ended, Ended::Code(9));
        assert!(
            usage.cpu_micros > 1_000 && usage.peak_memory_bytes > 100_000,
            "{usage:?}"
        );
        let pid = busy();
        assert_eq!(reap_within(pid, Duration::ZERO), None);
        let late = reap_within(pid, Duration::from_secs(60));
        assert_eq!(late.map(|(ended, _)| ended), Some(Ended::Code(9)));
        assert!(reap_used(pid).is_err());
    }
}

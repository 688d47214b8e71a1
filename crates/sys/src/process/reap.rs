//! Reaps children and reports their resource usage.

use crate::error::{Error, Result};
use crate::{clock, pidfd, socket};
use forkyard_base::ended::Ended;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::os::fd::AsFd;
use std::time::Duration;

/// Reaps an exiting child; gives up after `limit`.
pub fn reap_soon(pid: i32, limit: Duration) {
    let end = clock::now() + limit;
    while let Ok(WaitStatus::StillAlive) = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)) {
        if clock::now() >= end {
            return;
        }
        let _ = nix::poll::poll(&mut [], 1_u8);
    }
}

const KILLED_LIMIT: Duration = Duration::from_secs(5);

/// Reaps one child, if any has ended, and returns its usage.
pub fn reap_any() -> Option<(i32, Ended, Usage)> {
    loop {
        match wait4(-1, libc::WNOHANG) {
            Ok((pid, status, usage)) if pid > 0 => {
                if let Some(ended) = ended(status) {
                    return Some((pid, ended, usage));
                }
            }
            Err(Errno::EINTR) => {}
            Ok(_) | Err(_) => return None,
        }
    }
}

/// Returns an ended child without reaping it.
pub fn ended_child() -> Option<(i32, Ended)> {
    look(libc::P_ALL, 0, libc::WNOHANG).ok().flatten()
}

/// Whether a child was stopped since the last call (waitid(2)).
pub fn was_stopped(pid: i32) -> bool {
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
    matches!(
        nix::sys::wait::waitid(nix::sys::wait::Id::Pid(Pid::from_raw(pid)), flags),
        Ok(WaitStatus::Stopped(..))
    )
}

/// Reaps one child, if any has ended.
pub fn reap() -> Option<(i32, Ended)> {
    reap_any().map(|(pid, ended, _)| (pid, ended))
}

/// Waits for a child and reaps it.
///
/// # Errors
/// wait4(2).
pub fn reap_pid(pid: i32) -> Result<Ended> {
    reap_used(pid).map(|(ended, _)| ended)
}

/// Waits for a child to end without reaping it.
///
/// # Errors
/// waitid(2).
pub fn wait_for_end(pid: i32) -> Result<()> {
    let id = pid.unsigned_abs();
    look(libc::P_PID, id, 0)
        .map(drop)
        .map_err(|errno| Error::new("waitid", pid.to_string(), errno))
}

/// Sees children killed by a real-time signal, too.
fn look(of: libc::idtype_t, id: libc::id_t, options: libc::c_int) -> nix::Result<Option<(i32, Ended)>> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = options | libc::WEXITED | libc::WNOWAIT;
    loop {
        // SAFETY: the value outlives the call.
        match Errno::result(unsafe { libc::waitid(of, id, info.as_mut_ptr(), options) }) {
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    // SAFETY: all zeros is valid; the kernel has filled the fields of waitid(2) or left zeros.
    let (pid, status, code) = unsafe {
        let info = info.assume_init();
        (info.si_pid(), info.si_status(), info.si_code)
    };
    let ended = match code {
        libc::CLD_EXITED => Ended::Code(status),
        code => Ended::Signal {
            number: status,
            core: code == libc::CLD_DUMPED,
        },
    };
    Ok((pid > 0).then_some((pid, ended)))
}

/// Resource usage of a process and its reaped children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// CPU time, user and system.
    pub cpu_micros: u64,
    /// Peak memory.
    pub peak_memory_bytes: u64,
}

/// Like [`reap_pid`], with the child's usage (wait4(2)).
///
/// # Errors
/// wait4(2).
pub fn reap_used(pid: i32) -> Result<(Ended, Usage)> {
    loop {
        match wait4(pid, 0) {
            Ok((_, status, usage)) => {
                if let Some(ended) = ended(status) {
                    return Ok((ended, usage));
                }
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new("wait4", pid.to_string(), errno)),
        }
    }
}

/// Pid 0 if no child has ended.
fn wait4(pid: i32, options: i32) -> nix::Result<(i32, i32, Usage)> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both values outlive the call.
    let result = unsafe { libc::wait4(pid, &raw mut status, options, usage.as_mut_ptr()) };
    let pid = Errno::result(result)?;
    // SAFETY: all zeros is valid.
    let usage = unsafe { usage.assume_init() };
    let number = |number: libc::c_long| u64::try_from(number).unwrap_or(0);
    let micros = |time: libc::timeval| number(time.tv_sec) * 1_000_000 + number(time.tv_usec);
    let used = Usage {
        cpu_micros: micros(usage.ru_utime) + micros(usage.ru_stime),
        peak_memory_bytes: number(usage.ru_maxrss) * 1024,
    };
    Ok((pid, status, used))
}

fn ended(status: i32) -> Option<Ended> {
    if libc::WIFEXITED(status) {
        Some(Ended::Code(libc::WEXITSTATUS(status)))
    } else if libc::WIFSIGNALED(status) {
        Some(Ended::Signal {
            number: libc::WTERMSIG(status),
            core: libc::WCOREDUMP(status),
        })
    } else {
        None
    }
}

/// Like [`reap_used`], `None` after `limit`.
pub fn reap_within(pid: i32, limit: Duration) -> Option<(Ended, Usage)> {
    ends_within(pid, limit).then(|| reap_used(pid).ok()).flatten()
}

/// Kills and reaps a child; gives up if the kernel blocks it.
pub fn kill_and_reap(pid: i32) {
    if !super::is_child(pid) {
        return;
    }
    let _ = super::send_signal(pid, Signal::SIGKILL);
    if reap_within(pid, KILLED_LIMIT).is_none() {
        log::error!("process {pid} was killed, and the kernel does not let it go");
    }
}

/// Whether a child ends within `limit`. Does not reap it.
pub fn ends_within(pid: i32, limit: Duration) -> bool {
    let readable = socket::Readiness::Readable;
    let has_ended = pidfd::open(pid).and_then(|process| socket::wait(process.as_fd(), readable, limit));
    has_ended.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Side, exit_now, fork};

    #[test]
    fn a_child_that_has_ended_is_seen_and_left() {
        // SAFETY: the child makes only system calls.
        let pid = match unsafe { fork() }.unwrap() {
            Side::Child => {
                crate::signal::reset_in_child();
                // SAFETY: ends the process.
                unsafe { libc::kill(libc::getpid(), libc::SIGRTMIN() + 3) };
                exit_now(1)
            }
            Side::Parent(pid) => pid,
        };
        wait_for_end(pid).unwrap();
        let killed = Ended::killed(libc::SIGRTMIN() + 3);
        let of_it = look(libc::P_PID, pid.unsigned_abs(), libc::WNOHANG);
        assert_eq!(of_it, Ok(Some((pid, killed))));
        assert_eq!(reap_used(pid).map(|(ended, _)| ended), Ok(killed));
        assert_eq!(wait_for_end(pid).unwrap_err().errno, Errno::ECHILD);
    }

    #[test]
    fn what_a_child_has_used_is_told() {
        // SAFETY: the child's only system call is the last one.
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

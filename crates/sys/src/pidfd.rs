//! Process descriptors (pidfd_open(2)), which stay valid when the pid is recycled.

use super::error::{Error, Named, Result};
use super::process::Ended;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Opens a process, close-on-exec; readable after it exits.
///
/// # Errors
/// pidfd_open(2).
pub fn open(pid: i32) -> Result<OwnedFd> {
    // SAFETY: the call takes only numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = Errno::result(fd).named("pidfd_open", &pid.to_string())?;
    // SAFETY: a new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Sends a signal, if the process has not exited.
///
/// # Errors
/// pidfd_send_signal(2).
pub fn send_signal(process: BorrowedFd<'_>, signal: Signal) -> Result<()> {
    let none: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: a system call with numbers and a null pointer.
    let done = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            signal as i32,
            none,
            0,
        )
    };
    match Errno::result(done) {
        Ok(_) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(Error::new("pidfd_send_signal", signal.as_str(), errno)),
    }
}

/// Returns how a child ended, without reaping it.
///
/// # Errors
/// ECHILD if it is not our child.
pub fn peek(process: BorrowedFd<'_>) -> Result<Option<Ended>> {
    wait(process, WaitPidFlag::WNOWAIT)
}

/// Reaps a child if it has ended.
///
/// # Errors
/// ECHILD if it is not our child.
pub fn reap(process: BorrowedFd<'_>) -> Result<Option<Ended>> {
    wait(process, WaitPidFlag::empty())
}

fn wait(process: BorrowedFd<'_>, more: WaitPidFlag) -> Result<Option<Ended>> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | more;
    match waitid(Id::PIDFd(process), flags).named("waitid", "")? {
        WaitStatus::Exited(_, code) => Ok(Some(Ended::Code(code))),
        WaitStatus::Signaled(_, signal, core) => Ok(Some(Ended::Signal {
            number: signal as i32,
            core,
        })),
        _ => Ok(None),
    }
}

/// Argument of PIDFD_GET_INFO (Linux 6.13).
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    pid: u32,
    thread_group: u32,
    parent: u32,
    real_user: u32,
    real_group: u32,
    others: [u32; 6],
    exit_code: i32,
}

/// `_IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info)`; encodes the size of the struct.
const GET_INFO: libc::Ioctl = (3 << 30) | ((size_of::<Info>() as libc::Ioctl) << 16) | (0xff << 8) | 11;
/// PIDFD_INFO_CREDS.
const CREDENTIALS: u64 = 1 << 1;

/// Returns a process's real user, `None` if unknown. Ten times faster than /proc/PID/status.
pub fn real_user(process: BorrowedFd<'_>) -> Option<u32> {
    let mut info = Info {
        mask: CREDENTIALS,
        ..Info::default()
    };
    // SAFETY: the request encodes the size of `info`.
    let done = unsafe { libc::ioctl(process.as_raw_fd(), GET_INFO, &raw mut info) };
    (done == 0 && info.mask & CREDENTIALS != 0).then_some(info.real_user)
}

/// Whether a process has exited (poll(2)); not limited to children.
pub fn has_ended(process: BorrowedFd<'_>) -> bool {
    let now = std::time::Duration::ZERO;
    super::socket::wait(process, super::socket::Readiness::Readable, now).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn a_child_is_seen_to_end_before_it_is_reaped() {
        let mut command = std::process::Command::new("/bin/cat");
        let command = command.stdin(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let process = open(child.id() as i32).unwrap();
        assert_eq!(peek(process.as_fd()), Ok(None));
        assert!(!has_ended(process.as_fd()));
        send_signal(process.as_fd(), Signal::SIGKILL).unwrap();
        let readable = super::super::socket::Readiness::Readable;
        assert_eq!(
            super::super::socket::wait(process.as_fd(), readable, Duration::from_secs(30)),
            Ok(true)
        );
        assert_eq!(peek(process.as_fd()), Ok(Some(Ended::killed(9))));
        assert_eq!(reap(process.as_fd()), Ok(Some(Ended::killed(9))));
        assert_eq!(peek(process.as_fd()).map_err(|e| e.errno), Err(Errno::ECHILD));
        send_signal(process.as_fd(), Signal::SIGKILL).unwrap();
        assert!(child.wait().is_err(), "it was reaped");
    }
}

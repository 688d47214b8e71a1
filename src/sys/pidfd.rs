//! Processes that are not our children, held by a descriptor (pidfd_open(2)): the number can't come to mean another.

use super::error::{Error, Result};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A descriptor for a process, close-on-exec; readable once the process has ended.
pub fn open(pid: i32) -> Result<OwnedFd> {
    // SAFETY: a system call with two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match RawFd::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(Error::last("pidfd_open", pid.to_string())),
    }
}

/// Sends a signal; a process that is gone already is no error.
pub fn send_signal(process: BorrowedFd<'_>, signal: Signal) -> Result<()> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a system call with numbers and a null pointer, which asks for what kill(2) would send.
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
        Err(errno) => Err(Error::new("pidfd_send_signal", "", errno)),
    }
}

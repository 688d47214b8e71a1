//! File locks (fcntl(2), `F_SETLK`). They end with the process, and forked children don't inherit them.

use super::error::{Named, Result};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, openat};
use nix::libc;
use nix::sys::stat::{Mode, fstat};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Creates a lock file, mode 0600.
///
/// # Errors
/// openat(2).
pub fn create(directory: BorrowedFd<'_>, name: &str) -> Result<OwnedFd> {
    let flags = flags() | OFlag::O_CREAT | OFlag::O_EXCL;
    openat(directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR).named("openat", name)
}

/// Opens a lock file. Not if this process has locked it: closing any descriptor releases the lock.
///
/// # Errors
/// openat(2).
pub fn open(directory: BorrowedFd<'_>, name: &str) -> Result<OwnedFd> {
    openat(directory, name, flags(), Mode::empty()).named("openat", name)
}

fn flags() -> OFlag {
    OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC
}

/// Locks a file. `false` if another process holds the lock or removed the file.
///
/// # Errors
/// fcntl(2) or fstat(2).
pub fn take(file: BorrowedFd<'_>) -> Result<bool> {
    let whole = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_SETLK(&whole)) {
        Ok(_) => Ok(fstat(file).named("fstat", "lock")?.st_nlink > 0),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(super::Error::new("fcntl F_SETLK", "lock", errno)),
    }
}

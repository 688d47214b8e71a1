//! Session keyrings (session-keyring(7)), which a process's descendants share even across users.

use super::error::{Error, Result};
use nix::errno::Errno;

/// keyctl(2) operations (linux/keyctl.h).
const JOIN_SESSION_KEYRING: libc::c_long = 1;
const SET_PERMISSIONS: libc::c_long = 5;
const SESSION_KEYRING: libc::c_long = -3;

/// Starts a new session keyring, if the kernel permits it.
///
/// # Errors
/// keyctl(2).
pub fn begin() -> Result<()> {
    keyctl(JOIN_SESSION_KEYRING, 0, 0)
}

/// Like [`begin`], without access for anyone.
///
/// # Errors
/// keyctl(2).
pub fn begin_closed() -> Result<()> {
    begin()?;
    keyctl(SET_PERMISSIONS, SESSION_KEYRING, 0)
}

fn keyctl(operation: libc::c_long, first: libc::c_long, second: libc::c_long) -> Result<()> {
    // SAFETY: the call takes only numbers; 0 is no name.
    let done = unsafe { libc::syscall(libc::SYS_keyctl, operation, first, second, 0, 0) };
    match Errno::result(done) {
        // Most containers filter keyctl(2). A user over quota keeps the master's closed keyring.
        Ok(_) | Err(Errno::ENOSYS | Errno::EPERM | Errno::EDQUOT) => Ok(()),
        Err(errno) => Err(Error::new("keyctl", "the session keyring", errno)),
    }
}

//! The keyring that a process has from its session (session-keyring(7)). What descends from a process shares it, whatever its user.

use super::error::{Error, Result};
use nix::errno::Errno;

/// keyctl(2), by <linux/keyctl.h>.
const JOIN_SESSION_KEYRING: libc::c_long = 1;
const SET_PERMISSIONS: libc::c_long = 5;
const SESSION_KEYRING: libc::c_long = -3;

/// Gives this process, and what it starts, a session keyring of its own. Nothing where the kernel has no keys, or lets nobody here
/// use them.
///
/// # Errors
/// keyctl(2).
pub fn begin() -> Result<()> {
    // Without a name, by which others could join it.
    keyctl(JOIN_SESSION_KEYRING, 0, 0)
}

/// The same, and nobody may read, change or search it, nor allow it: for processes that start those of several users.
///
/// # Errors
/// keyctl(2).
pub fn begin_closed() -> Result<()> {
    begin()?;
    keyctl(SET_PERMISSIONS, SESSION_KEYRING, 0)
}

fn keyctl(operation: libc::c_long, first: libc::c_long, second: libc::c_long) -> Result<()> {
    // SAFETY: numbers; 0 is no name.
    let done = unsafe { libc::syscall(libc::SYS_keyctl, operation, first, second, 0, 0) };
    match Errno::result(done) {
        // Containers mostly have keyctl(2) filtered, for all that runs in them. Who has as many keys as he may keeps the closed one
        // of the master.
        Ok(_) | Err(Errno::ENOSYS | Errno::EPERM | Errno::EDQUOT) => Ok(()),
        Err(errno) => Err(Error::new("keyctl", "the session keyring", errno)),
    }
}

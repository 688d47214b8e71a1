//! Calls on listening TCP sockets that tenants' processes share. A tenant can hold the socket's lock: setsockopt(2)
//! holds it while it reads the option's value, which may be on a file system that doesn't answer. listen(2),
//! getsockname(2), setsockopt(2) and accept(2) need the lock; poll(2) and the options of [`forkyard_sys::socket`] don't.
//! Unix sockets have no such lock.
//!
//! Root makes these calls in a child process with a deadline.

use forkyard_config::Address;
use forkyard_sys::identity::is_root;
use forkyard_sys::process::{Finding, within_a_moment_with};
use forkyard_sys::socket::{self, Bound, is_unix};
use forkyard_sys::{Error, Result};
use nix::errno::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const WHOSE: &str = "sockets";

/// Changes a listening socket's backlog.
///
/// # Errors
/// listen(2). ETIMEDOUT if a process holds the socket's lock.
pub(super) fn listen_again(fd: &OwnedFd, address: &Address, backlog: i32) -> Result<()> {
    if is_unix(fd.as_fd()) || !is_root() {
        return socket::listen(fd, backlog, "");
    }
    let address = address.to_string();
    let told = within_a_moment_with(&address, &[fd.as_fd()], || {
        let errno = socket::listen(fd, backlog, "")
            .err()
            .map_or(0, |error| error.errno as i32);
        Finding::from(errno.to_ne_bytes().to_vec())
    });
    let errno = told.and_then(|told| Some(i32::from_ne_bytes(*told.bytes.first_chunk()?)));
    match errno {
        Some(0) => Ok(()),
        Some(errno) => Err(Error::new("listen", address, Errno::from_raw(errno))),
        None => Err(Error::new(
            "listen",
            format!("{address}: a process holds its lock"),
            Errno::ETIMEDOUT,
        )),
    }
}

/// Returns a socket's address ([`socket::local_address`]); `None` also if a process holds the socket's lock.
pub fn local_address(fd: BorrowedFd<'_>) -> Option<Bound> {
    if is_unix(fd) || !is_root() {
        return socket::local_address(fd);
    }
    let told = within_a_moment_with(WHOSE, &[fd], || match socket::local_address(fd) {
        Some(Bound::Port(address)) => Finding::from(address.to_string().into_bytes()),
        Some(Bound::Path(_)) | None => Finding::default(),
    });
    let address = String::from_utf8(told?.bytes).ok()?;
    Some(Bound::Port(address.parse().ok()?))
}

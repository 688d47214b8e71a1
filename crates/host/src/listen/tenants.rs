//! Calls on TCP sockets that listen and that tenants' processes have. Such a process can hold the socket's lock: setsockopt(2) has it
//! while it copies what an option is set to, and a page of that can be of a file system that does not answer. The lock is wanted by
//! listen(2), getsockname(2), setsockopt(2) and accept(2); not by poll(2), nor for the options that [`crate::sys::socket`] asks for.
//! Calls on unix sockets want another lock, which nobody can keep.
//!
//! Root has a process of its own make them, and waits a moment.

use crate::config::Address;
use crate::sys::identity::is_root;
use crate::sys::process::{Finding, within_a_moment_with};
use crate::sys::socket::{self, Bound, is_unix};
use crate::sys::{Error, Result};
use nix::errno::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Sockets of which it is not known where they listen.
const WHOSE: &str = "sockets";

/// Calls listen(2) for a socket that listens already: it has another backlog then.
///
/// # Errors
/// listen(2). ETIMEDOUT: a process holds the socket's lock.
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

/// Where a socket is bound ([`socket::local_address`]); `None`, too, where a process holds the socket's lock.
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

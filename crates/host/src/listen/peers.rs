//! Which clients may connect.

use crate::sys::socket::peer_address;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// Why the other end of a connection may not connect; `None`: it is one of those that may. An empty list is for all. Who
/// comes over a unix socket was let in by its permissions.
pub fn disallowed(allowed: &[IpAddr], connection: BorrowedFd<'_>) -> Option<String> {
    if allowed.is_empty() {
        return None;
    }
    match peer_address(connection) {
        Ok(None) => None,
        Ok(Some(peer)) if allowed.iter().any(|one| one.to_canonical() == peer) => None,
        Ok(Some(peer)) => Some(format!(
            "Connection disallowed: IP address '{peer}' has been dropped."
        )),
        Err(error) => Some(format!("Connection disallowed: {error}")),
    }
}

/// Whether the other end of a connection may connect; if not, the log says why.
pub fn may_connect(allowed: &[IpAddr], connection: BorrowedFd<'_>) -> bool {
    let why = disallowed(allowed, connection);
    if let Some(why) = &why {
        log::error!("{why}");
    }
    why.is_none()
}

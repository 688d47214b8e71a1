//! Checks which clients may connect.

use forkyard_sys::socket::peer_address;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// Returns why a peer may not connect, `None` if it may. An empty list permits everyone; unix sockets have their own
/// permissions.
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

/// Whether a peer may connect; logs a rejection.
pub fn may_connect(allowed: &[IpAddr], connection: BorrowedFd<'_>) -> bool {
    let why = disallowed(allowed, connection);
    if let Some(why) = &why {
        log::error!("{why}");
    }
    why.is_none()
}

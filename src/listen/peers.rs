//! Who may connect.

use crate::sys::socket::peer_address;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// Whether the other end of a connection is one of those that may connect; if not, the log says so. Nobody at all is named:
/// any may. Whoever comes over a unix socket was let in by its permissions.
pub fn may_connect(allowed: &[IpAddr], connection: BorrowedFd<'_>) -> bool {
    if allowed.is_empty() {
        return true;
    }
    match peer_address(connection) {
        Ok(None) => true,
        Ok(Some(peer)) if allowed.iter().any(|one| one.to_canonical() == peer) => true,
        Ok(Some(peer)) => {
            log::error!("Connection disallowed: IP address '{peer}' has been dropped.");
            false
        }
        Err(error) => {
            log::error!("Connection disallowed: {error}");
            false
        }
    }
}

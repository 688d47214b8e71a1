//! Listening sockets that a service manager opened for the daemon (socket activation).

use crate::config::Address;
use crate::sys::socket::{self, Bound};
use std::os::fd::{AsFd, OwnedFd};

/// The sockets that the daemon was started with and nobody has taken yet.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: Vec<(Address, OwnedFd)>,
}

impl Inherited {
    /// Takes over listening sockets that this process was started with.
    pub fn new(sockets: Vec<OwnedFd>) -> Inherited {
        let with_address = |socket: OwnedFd| {
            let address = match socket::local_address(socket.as_fd())? {
                Bound::Path(path) => Address::Unix(path),
                Bound::Port(address) => Address::Tcp(address),
            };
            Some((address, socket))
        };
        Inherited {
            sockets: sockets.into_iter().filter_map(with_address).collect(),
        }
    }

    /// The socket that listens where a pool wants to.
    pub fn take(&mut self, wanted: &Address) -> Option<OwnedFd> {
        let at = self
            .sockets
            .iter()
            .position(|(address, _)| serves(address, wanted))?;
        Some(self.sockets.swap_remove(at).1)
    }

    /// Where the sockets listen that no pool has taken.
    pub fn left(&self) -> impl Iterator<Item = &Address> {
        self.sockets.iter().map(|(address, _)| address)
    }
}

/// Whether a socket that listens on `address` is what a pool that wants `wanted` is looking for.
fn serves(address: &Address, wanted: &Address) -> bool {
    match (address, wanted) {
        (Address::Tcp(is), Address::TcpAny(port)) => is.ip().is_unspecified() && is.port() == *port,
        (is, wanted) => is == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_port_is_served_by_any_address_only() {
        let tcp = |text: &str| Address::Tcp(text.parse().unwrap());
        assert!(serves(&tcp("[::]:9000"), &Address::TcpAny(9000)));
        assert!(serves(&tcp("0.0.0.0:9000"), &Address::TcpAny(9000)));
        assert!(!serves(&tcp("127.0.0.1:9000"), &Address::TcpAny(9000)));
        assert!(serves(&tcp("127.0.0.1:9000"), &tcp("127.0.0.1:9000")));
        assert!(!serves(&tcp("127.0.0.1:9000"), &tcp("127.0.0.1:9001")));
    }
}

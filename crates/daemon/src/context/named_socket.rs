//! php-fpm's names of listening sockets.

use forkyard_config::Address;
use forkyard_host::listen::{Listener, local_address};
use forkyard_sys::socket::Bound;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// A listening socket: its descriptor, and php-fpm's name for it.
pub(crate) type NamedSocket = (RawFd, String);

pub(crate) fn named(listener: &Listener) -> NamedSocket {
    let socket = listener.socket.as_fd();
    let bound = match &listener.address {
        Address::Tcp(address) => Some(Bound::Port(*address)),
        Address::Unix(path) => Some(Bound::Path(path.clone())),
        Address::TcpAny(_) => local_address(socket),
    };
    let name = match bound {
        // Without brackets around an IPv6 address.
        Some(Bound::Port(address)) => format!("{}:{}", address.ip(), address.port()),
        Some(Bound::Path(path)) => path.display().to_string(),
        None => String::new(),
    };
    (socket.as_raw_fd(), name)
}

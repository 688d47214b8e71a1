//! Free ports for applications that listen on an assigned port.

use forkyard_sys as sys;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrLike, SockaddrStorage, bind,
    getsockname, setsockopt, socket, sockopt,
};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

const MOST_TRIES: u32 = 512;

/// Assigns each port to one journey at a time.
#[derive(Debug)]
pub(super) struct Ports {
    first: u16,
    last: u16,
    next: u16,
    given: BTreeSet<u16>,
}

impl Ports {
    pub(super) fn new((first, last): (u16, u16)) -> Ports {
        let width = u32::from(last.saturating_sub(first)) + 1;
        let offset = std::process::id().wrapping_mul(2_654_435_761) % width;
        Ports {
            first,
            last,
            next: first + u16::try_from(offset).unwrap_or(0),
            given: BTreeSet::new(),
        }
    }

    /// Returns a port without a listener. Another program can still take it before the application does, because some
    /// programs can't inherit a socket.
    pub(super) fn take(&mut self, address: IpAddr) -> sys::Result<u16> {
        for _ in 0..MOST_TRIES {
            let port = self.next;
            self.next = if port >= self.last { self.first } else { port + 1 };
            if !self.given.contains(&port) && is_free(address, port) {
                self.given.insert(port);
                return Ok(port);
            }
        }
        Err(sys::Error::new(
            "bind",
            "no free port was found",
            Errno::EADDRINUSE,
        ))
    }

    pub(super) fn release(&mut self, port: u16) {
        self.given.remove(&port);
    }
}

fn is_free(address: IpAddr, port: u16) -> bool {
    let any = match address {
        IpAddr::V4(_) => IpAddr::from([0, 0, 0, 0]),
        IpAddr::V6(_) => IpAddr::from([0_u16; 8]),
    };
    [address, any]
        .into_iter()
        .all(|ip| can_bind(SocketAddr::new(ip, port)).is_ok())
}

/// Binds without listening: no client can connect, and a copy of the socket in a child does not block the port.
fn can_bind(address: SocketAddr) -> nix::Result<()> {
    let address = SockaddrStorage::from(address);
    let socket = tcp(address.family().ok_or(Errno::EAFNOSUPPORT)?)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    bind(socket.as_raw_fd(), &address)
}

/// Binds a socket to a kernel-chosen port on every address, without listening. While it is open, no other process can
/// listen there: sharing a port requires SO_REUSEADDR or SO_REUSEPORT on both sockets. The kernel picks ephemeral
/// ports, which services don't use (ip(7), ip_local_port_range).
pub(super) fn hold() -> sys::Result<(OwnedFd, u16)> {
    let held = hold_both().or_else(|errno| match errno {
        // No IPv6.
        Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL => hold_v4(),
        errno => Err(errno),
    });
    held.map_err(|errno| sys::Error::new("bind", "a port to hold", errno))
}

fn hold_both() -> nix::Result<(OwnedFd, u16)> {
    let held = tcp(AddressFamily::Inet6)?;
    setsockopt(&held, sockopt::Ipv6V6Only, &false)?;
    let any = SocketAddrV6::new([0_u16; 8].into(), 0, 0, 0);
    let bound: SockaddrIn6 = bind_to(&held, &SockaddrIn6::from(any))?;
    Ok((held, bound.port()))
}

fn hold_v4() -> nix::Result<(OwnedFd, u16)> {
    let held = tcp(AddressFamily::Inet)?;
    let any = SocketAddrV4::new([0; 4].into(), 0);
    let bound: SockaddrIn = bind_to(&held, &SockaddrIn::from(any))?;
    Ok((held, bound.port()))
}

fn tcp(family: AddressFamily) -> nix::Result<OwnedFd> {
    socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
}

fn bind_to<A: SockaddrLike>(held: &OwnedFd, address: &A) -> nix::Result<A> {
    bind(held.as_raw_fd(), address)?;
    getsockname(held.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// A process that another test starts has a copy of the socket until its exec.
    fn is_freed(port: u16) -> bool {
        (0..1_000_000).any(|_| is_free(HERE, port))
    }

    #[test]
    fn a_port_that_is_held_is_nobody_elses() {
        for held in [hold_both(), hold_v4()] {
            let (socket, port) = held.unwrap();
            for address in ["127.0.0.1", "0.0.0.0"] {
                assert!(TcpListener::bind((address, port)).is_err(), "{address}");
            }
            assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
            drop(socket);
            assert!(is_freed(port));
        }
    }

    #[test]
    fn a_port_is_given_once_and_not_while_a_process_listens() {
        // Ephemeral ports and those from 10,000 belong to other tests.
        let port = Ports::new((30_000, 32_000)).take(HERE).unwrap();
        let listener = TcpListener::bind((HERE, port)).unwrap();
        let mut ports = Ports::new((port, port));
        assert!(ports.take(HERE).is_err());
        drop(listener);
        assert!(is_freed(port));
        assert_eq!(ports.take(HERE), Ok(port));
        assert!(ports.take(HERE).is_err());
        ports.release(port);
        assert_eq!(ports.take(HERE), Ok(port));
    }
}

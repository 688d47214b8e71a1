//! Free ports for applications that are told where to listen.

use crate::sys;
use nix::errno::Errno;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpListener};

/// Most ports that are tried at once.
const MOST_TRIES: u32 = 512;

/// Gives out ports, each to one journey at a time.
#[derive(Debug)]
pub(super) struct Ports {
    first: u16,
    last: u16,
    next: u16,
    given: BTreeSet<u16>,
}

impl Ports {
    pub(super) fn new((first, last): (u16, u16)) -> Ports {
        // Several daemons on one machine begin at different places.
        let width = u32::from(last.saturating_sub(first)) + 1;
        let offset = std::process::id().wrapping_mul(2_654_435_761) % width;
        Ports {
            first,
            last,
            next: first + u16::try_from(offset).unwrap_or(0),
            given: BTreeSet::new(),
        }
    }

    /// A port on which no process listens now. It is free until the application takes it, or another program does. This
    /// can't be helped, since not every program can be handed a socket.
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

/// Whether it can be listened on, there and everywhere.
fn is_free(address: IpAddr, port: u16) -> bool {
    let any = match address {
        IpAddr::V4(_) => IpAddr::from([0, 0, 0, 0]),
        IpAddr::V6(_) => IpAddr::from([0_u16; 8]),
    };
    let can = |ip: IpAddr| TcpListener::bind(SocketAddr::new(ip, port)).is_ok();
    can(address) && can(any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_not_while_a_process_listens() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let listener = TcpListener::bind((here, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut ports = Ports::new((port, port));
        assert!(ports.take(here).is_err());
        drop(listener);
        assert_eq!(ports.take(here), Ok(port));
        assert!(ports.take(here).is_err());
        ports.release(port);
        assert_eq!(ports.take(here), Ok(port));
    }
}

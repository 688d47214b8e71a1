//! Finds out whether the client of a connection has left.
//!
//! A unix socket reports it exactly: POLLHUP after close(2), POLLRDHUP alone after a half-close. Over TCP both are a FIN
//! (POLLRDHUP). If the peer is a process of this machine, sock_diag(7) distinguishes the two: a closed socket has no inode.

use super::peer;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The client's end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherSide {
    Connected,
    /// It sends nothing more. It may still read; over TCP from another machine it may also be closed.
    HalfClosed,
    Closed,
}

/// Looks at the client's end: one poll(2), and only for a TCP connection with a FIN also sock_diag(7).
pub fn look(socket: BorrowedFd<'_>) -> OtherSide {
    // nix has no POLLRDHUP.
    let mut looked = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLRDHUP,
        revents: 0,
    };
    // SAFETY: the kernel reads and writes this one pollfd, and does not wait.
    let count = unsafe { libc::poll(&raw mut looked, 1, 0) };
    let has = |flags| looked.revents & flags != 0;
    if count <= 0 {
        OtherSide::Connected
    } else if has(libc::POLLHUP | libc::POLLERR) || has(libc::POLLRDHUP) && peer::has_left(socket) {
        OtherSide::Closed
    } else if has(libc::POLLRDHUP) {
        OtherSide::HalfClosed
    } else {
        OtherSide::Connected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    fn comes_to(socket: BorrowedFd<'_>, side: OtherSide) {
        let limit = Instant::now() + Duration::from_secs(20);
        while look(socket) != side {
            assert!(Instant::now() < limit, "{:?} instead of {side:?}", look(socket));
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_unix_socket_tells_a_half_close_from_a_close() {
        let (mut client, server) = UnixStream::pair().unwrap();
        assert_eq!(look(server.as_fd()), OtherSide::Connected);
        client.write_all(b"unread").unwrap();
        assert_eq!(look(server.as_fd()), OtherSide::Connected);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(look(server.as_fd()), OtherSide::HalfClosed);
        drop(client);
        assert_eq!(look(server.as_fd()), OtherSide::Closed);
    }

    #[test]
    fn a_tcp_connection_of_this_machine_does_so_too() {
        for (listens, to) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
        ] {
            let Ok(listener) = TcpListener::bind(listens) else {
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            let begin = || {
                let mut client = TcpStream::connect((to, port)).unwrap();
                client.write_all(b"unread").unwrap();
                (client, listener.accept().unwrap().0)
            };
            let (client, server) = begin();
            assert_eq!(look(server.as_fd()), OtherSide::Connected, "{listens}");
            client.shutdown(Shutdown::Write).unwrap();
            comes_to(server.as_fd(), OtherSide::HalfClosed);
            drop(client);
            comes_to(server.as_fd(), OtherSide::Closed);
            let (client, server) = begin();
            drop(client);
            comes_to(server.as_fd(), OtherSide::Closed);
        }
    }
}

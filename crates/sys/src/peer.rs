//! Finds the users at the other end of a local connection (sock_diag(7), SO_PEERCRED).

use super::diag::{self, SOCK_DIAG_BY_FAMILY, half, word};
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockaddrLike, SockaddrStorage, getpeername, getsockname, getsockopt};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The users at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OtherEnd {
    /// Owner of the listening socket, `None` if nothing listens.
    pub listener: Option<u32>,
    /// Owner of the accepted connection, `None` if it was not accepted.
    pub holder: Option<u32>,
}

/// Returns the peer's users; `None` if it is remote. For a unix socket only `listener`.
pub fn other_end(socket: BorrowedFd<'_>) -> Option<OtherEnd> {
    let own: SockaddrStorage = getsockname(socket.as_raw_fd()).ok()?;
    if own.family() == Some(AddressFamily::Unix) {
        let credentials = getsockopt(&socket, PeerCredentials).ok()?;
        return Some(OtherEnd {
            listener: Some(credentials.uid()),
            holder: None,
        });
    }
    let peer = match getpeername::<SockaddrStorage>(socket.as_raw_fd()) {
        Ok(peer) => tcp_address(&peer)?,
        Err(Errno::ENOTCONN) => return Some(OtherEnd::default()),
        Err(_) => return None,
    };
    let own = tcp_address(&own)?;
    let connection = ask(peer, own)?;
    // Port 0 matches only the listener.
    let listener = ask(peer, SocketAddr::new(own.ip(), 0))?;
    if connection.is_none() && listener.is_none() {
        let is_gone = getpeername::<SockaddrStorage>(socket.as_raw_fd()) == Err(Errno::ENOTCONN);
        return is_gone.then(OtherEnd::default);
    }
    Some(OtherEnd {
        listener: listener.map(|found| found.uid),
        // The kernel reports no user before accept or after close.
        holder: connection.filter(|found| found.inode != 0).map(|found| found.uid),
    })
}

/// Whether the peer of a TCP connection was a process of this machine, and has closed its socket.
pub(super) fn has_left(socket: BorrowedFd<'_>) -> bool {
    let address = |found: nix::Result<SockaddrStorage>| found.ok().as_ref().and_then(tcp_address);
    let own = address(getsockname(socket.as_raw_fd()));
    let peer = address(getpeername(socket.as_raw_fd()));
    let (Some(own), Some(peer)) = (own, peer) else {
        return false;
    };
    match ask(peer, own) {
        Some(Some(found)) => found.inode == 0,
        // The kernel knows only sockets of this network namespace.
        Some(None) => peer.ip().to_canonical().is_loopback() || peer.ip() == own.ip(),
        None => false,
    }
}

fn tcp_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}

#[derive(Debug, Clone, Copy)]
struct SocketEntry {
    uid: u32,
    inode: u32,
}

/// `Some(None)` if there is no such socket, `None` if the kernel can't answer.
fn ask(local: SocketAddr, remote: SocketAddr) -> Option<Option<SocketEntry>> {
    parse(diag::ask(&request(local, remote), &mut [0; 1024])?)
}

const NLMSG_ERROR: u16 = 2;
/// Interface index of local traffic.
const LOOPBACK: u32 = 1;

/// struct nlmsghdr and struct inet_diag_req_v2 (linux/inet_diag.h).
fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    const LENGTH: usize = 72;
    let family = match local {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let mut request = Vec::with_capacity(LENGTH);
    request.extend_from_slice(&(LENGTH as u32).to_ne_bytes());
    request.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    request.extend_from_slice(&[0; 8]);
    request.extend_from_slice(&[family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    request.extend_from_slice(&u32::MAX.to_ne_bytes());
    request.extend_from_slice(&local.port().to_be_bytes());
    request.extend_from_slice(&remote.port().to_be_bytes());
    for address in [local, remote] {
        let mut bytes = [0; 16];
        match address {
            SocketAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.ip().octets()),
            SocketAddr::V6(v6) => bytes = v6.ip().octets(),
        }
        request.extend_from_slice(&bytes);
    }
    request.extend_from_slice(&LOOPBACK.to_ne_bytes());
    request.extend_from_slice(&[0xff; 8]);
    request
}

fn parse(answer: &[u8]) -> Option<Option<SocketEntry>> {
    match half(answer, 4)? {
        SOCK_DIAG_BY_FAMILY => Some(Some(SocketEntry {
            uid: word(answer, 80)?,
            inode: word(answer, 84)?,
        })),
        NLMSG_ERROR if word(answer, 16)?.wrapping_neg() == Errno::ENOENT as u32 => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{setsockopt, sockopt};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn own() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    #[test]
    fn both_ends_of_a_tcp_connection_are_found() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            let clients = match address {
                "[::1]:0" => vec!["[::1]"],
                "[::]:0" => vec!["[::1]", "127.0.0.1"],
                _ => vec!["127.0.0.1"],
            };
            for to in clients {
                let client = TcpStream::connect(format!("{to}:{port}")).unwrap();
                let waits = OtherEnd {
                    listener: Some(own()),
                    holder: None,
                };
                assert_eq!(other_end(client.as_fd()), Some(waits), "{address} {to}");
                let accepted = listener.accept().unwrap();
                let holder = Some(own());
                assert_eq!(
                    other_end(client.as_fd()),
                    Some(OtherEnd { holder, ..waits }),
                    "{address} {to}"
                );
                drop(accepted);
            }
        }
    }

    #[test]
    fn a_listener_that_is_gone_leaves_who_has_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _accepted = listener.accept().unwrap();
        drop(listener);
        let held = OtherEnd {
            listener: None,
            holder: Some(own()),
        };
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while other_end(client.as_fd()) != Some(held) {
            assert!(std::time::Instant::now() < limit);
            std::thread::yield_now();
        }
    }

    #[test]
    fn sockets_that_are_bound_to_the_loopback_device_do_not_hide() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = std::ffi::OsString::from("lo");
        setsockopt(&listener, sockopt::BindToDevice, &name).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _accepted = listener.accept().unwrap();
        let found = other_end(client.as_fd()).unwrap();
        assert_eq!((found.listener, found.holder), (Some(own()), Some(own())));
    }

    #[test]
    fn of_a_unix_socket_the_listener_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        assert_eq!(other_end(client.as_fd()).unwrap().listener, Some(own()));
    }

    #[test]
    fn a_cut_answer_is_no_answer() {
        for length in 0..84 {
            assert!(parse(&vec![20; length]).is_none());
        }
        let mut error = vec![0; 36];
        error[4] = 2;
        error[16..20].copy_from_slice(&(-2_i32).to_ne_bytes());
        assert!(matches!(parse(&error), Some(None)));
        error[16..20].copy_from_slice(&(-95_i32).to_ne_bytes());
        assert!(parse(&error).is_none());
    }
}

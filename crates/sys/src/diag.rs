//! The listen queue of a socket: TCP by TCP_INFO (tcp(7)), unix sockets by sock_diag(7).

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use std::os::fd::{AsRawFd, BorrowedFd};

/// How many connections wait to be accepted, and how many may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListenQueue {
    /// Waiting now.
    pub current: u32,
    /// The backlog that the kernel granted.
    pub limit: u32,
}

/// The listen queue; `None` where the kernel can't say.
pub fn listen_queue(listener: BorrowedFd<'_>) -> Option<ListenQueue> {
    tcp_queue(listener).or_else(|| unix_queue(listener))
}

fn tcp_queue(listener: BorrowedFd<'_>) -> Option<ListenQueue> {
    // SAFETY: tcp_info is plain data; the kernel writes at most `length` bytes of it.
    let info = unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        let done = libc::getsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut length,
        );
        if done != 0 {
            return None;
        }
        info
    };
    // For a listening socket these two fields hold its queue and its backlog.
    Some(ListenQueue {
        current: info.tcpi_unacked,
        limit: info.tcpi_sacked,
    })
}

/// The inode number that names a socket in /proc and to sock_diag.
fn inode(fd: BorrowedFd<'_>) -> Option<u64> {
    Some(nix::sys::stat::fstat(fd).ok()?.st_ino)
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_RQLEN: u32 = 0x10;
const UNIX_DIAG_RQLEN: u16 = 4;

fn unix_queue(listener: BorrowedFd<'_>) -> Option<ListenQueue> {
    let inode = u32::try_from(inode(listener)?).ok()?;
    let netlink = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )
    .ok()?;
    // struct nlmsghdr and struct unix_diag_req (linux/unix_diag.h), native byte order.
    let mut request = Vec::with_capacity(40);
    request.extend_from_slice(&40_u32.to_ne_bytes());
    request.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    request.extend_from_slice(&[0; 8]);
    request.extend_from_slice(&[libc::AF_UNIX as u8, 0, 0, 0]);
    request.extend_from_slice(&u32::MAX.to_ne_bytes());
    request.extend_from_slice(&inode.to_ne_bytes());
    request.extend_from_slice(&UDIAG_SHOW_RQLEN.to_ne_bytes());
    // No cookie: all ones.
    request.extend_from_slice(&[0xff; 8]);
    send(netlink.as_raw_fd(), &request, MsgFlags::empty()).ok()?;
    let mut answer = [0_u8; 1024];
    let count = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT).ok()?;
    parse_unix_answer(&answer[..count])
}

/// Finds the UNIX_DIAG_RQLEN attribute: `struct { u32 rqueue, wqueue }`.
fn parse_unix_answer(answer: &[u8]) -> Option<ListenQueue> {
    let half = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    if half(4)? != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let end = (word(0)? as usize).min(answer.len());
    // nlmsghdr is 16 bytes, struct unix_diag_msg 16 more.
    let mut at = 32;
    while at + 4 <= end {
        let length = usize::from(half(at)?);
        if half(at + 2)? == UNIX_DIAG_RQLEN {
            return Some(ListenQueue {
                current: word(at + 4)?,
                limit: word(at + 8)?,
            });
        }
        at += length.max(4).next_multiple_of(4);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn unix_queue_counts_waiting_connections() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let _waiting: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let queue = listen_queue(listener.as_fd()).unwrap();
        assert_eq!(queue.current, 3);
        assert!(queue.limit > 0);
    }

    #[test]
    fn tcp_queue_counts_waiting_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _waiting: Vec<_> = (0..2).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert_eq!(listen_queue(listener.as_fd()).unwrap().current, 2);
    }

    #[test]
    fn a_cut_answer_is_no_answer() {
        for length in 0..40 {
            assert_eq!(parse_unix_answer(&vec![20; length]), None);
        }
    }
}

//! Listen queues: TCP through TCP_INFO (tcp(7)), unix sockets through sock_diag(7).

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Length and limit of a listen queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListenQueue {
    /// Connections that wait for accept(2).
    pub current: u32,
    /// Backlog that the kernel granted.
    pub limit: u32,
}

/// Returns the listen queue, `None` if the kernel can't report it.
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
    // A listener reports its queue in these fields.
    Some(ListenQueue {
        current: info.tcpi_unacked,
        limit: info.tcpi_sacked,
    })
}

fn inode(fd: BorrowedFd<'_>) -> Option<u64> {
    Some(nix::sys::stat::fstat(fd).ok()?.st_ino)
}

/// Counts connections without a client, accepted or not; `None` if unknown.
pub fn abandoned_connections(listener: &Path) -> Option<u32> {
    let request = unix_request(DUMP, 1 << ESTABLISHED, 0, UDIAG_SHOW_NAME | UDIAG_SHOW_PEER);
    let netlink = netlink()?;
    send(netlink.as_raw_fd(), &request, MsgFlags::empty()).ok()?;
    let mut answer = vec![0_u8; 32 * 1024];
    let mut count = 0;
    loop {
        // Never blocks: the kernel generates the dump during the read.
        let length = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty()).ok()?;
        let (found, is_over) = count_abandoned(answer.get(..length)?, listener.as_os_str().as_bytes())?;
        count += found;
        if is_over {
            return Some(count);
        }
    }
}

/// The paths of a unix connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnixPaths {
    pub own: Option<PathBuf>,
    pub peer: Option<PathBuf>,
}

/// Returns the paths of a connection of this network namespace; `None` if the kernel does not know it.
pub fn unix_paths(inode: u32) -> Option<UnixPaths> {
    let (own, peer) = name_and_peer(inode)?;
    let peer = peer.and_then(name_and_peer).and_then(|(name, _)| name);
    Some(UnixPaths { own, peer })
}

fn name_and_peer(inode: u32) -> Option<(Option<PathBuf>, Option<u32>)> {
    let flags = libc::NLM_F_REQUEST as u16;
    let request = unix_request(flags, u32::MAX, inode, UDIAG_SHOW_NAME | UDIAG_SHOW_PEER);
    parse_name_and_peer(ask(&request, &mut [0; 1024])?)
}

fn parse_name_and_peer(answer: &[u8]) -> Option<(Option<PathBuf>, Option<u32>)> {
    if half(answer, 4)? != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let end = (word(answer, 0)? as usize).min(answer.len());
    let (mut name, mut peer) = (None, None);
    for (kind, value) in attributes(answer.get(..end)?) {
        match kind {
            UNIX_DIAG_NAME => name = Some(value.strip_suffix(&[0]).unwrap_or(value)),
            UNIX_DIAG_PEER => peer = word(value, 0),
            _ => {}
        }
    }
    let name = name.filter(|name| !name.is_empty());
    Some((name.map(|name| PathBuf::from(OsStr::from_bytes(name))), peer))
}

/// Counts abandoned connections to a TCP port. Once the server writes to one, the client's kernel resets it.
pub fn abandoned_tcp_connections(port: u16) -> Option<u32> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let is_read = !tables[0].is_empty();
    is_read.then(|| tables.iter().map(|table| count_abandoned_tcp(table, port)).sum())
}

/// Lines in CLOSE_WAIT with this local port.
fn count_abandoned_tcp(table: &str, port: u16) -> u32 {
    const CLOSE_WAIT: &str = "08";
    let own = format!(":{port:04X}");
    let is_abandoned = |line: &&str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, state) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
        local.ends_with(&own) && state == CLOSE_WAIT
    };
    u32::try_from(table.lines().skip(1).filter(is_abandoned).count()).unwrap_or(u32::MAX)
}

/// Also returns whether this was the last part of the dump.
fn count_abandoned(mut answer: &[u8], name: &[u8]) -> Option<(u32, bool)> {
    let mut count = 0;
    while !answer.is_empty() {
        let length = usize::try_from(word(answer, 0)?).ok()?;
        match half(answer, 4)? {
            SOCK_DIAG_BY_FAMILY => {}
            NLMSG_DONE => return Some((count, true)),
            _ => return None,
        }
        let message = answer.get(..length).filter(|message| message.len() >= 32)?;
        let (mut is_named, mut peer) = (false, 0);
        for (kind, value) in attributes(message) {
            match kind {
                UNIX_DIAG_NAME => is_named = value.strip_suffix(&[0]).unwrap_or(value) == name,
                UNIX_DIAG_PEER => peer = word(value, 0)?,
                _ => {}
            }
        }
        count += u32::from(is_named && peer == 0);
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some((count, false))
}

fn attributes(message: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut at = 32;
    std::iter::from_fn(move || {
        let length = usize::from(half(message, at)?);
        let value = message.get(at + 4..at + length)?;
        let kind = half(message, at + 2)?;
        at += length.next_multiple_of(4);
        Some((kind, value))
    })
}

pub(super) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// TCP_ESTABLISHED, also for unix sockets.
const ESTABLISHED: u32 = 1;
const NLMSG_DONE: u16 = 3;
const DUMP: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
const UDIAG_SHOW_NAME: u32 = 0x1;
const UDIAG_SHOW_PEER: u32 = 0x4;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_PEER: u16 = 2;
pub(super) const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_RQLEN: u32 = 0x10;
const UNIX_DIAG_RQLEN: u16 = 4;

fn unix_queue(listener: BorrowedFd<'_>) -> Option<ListenQueue> {
    let inode = u32::try_from(inode(listener)?).ok()?;
    let request = unix_request(libc::NLM_F_REQUEST as u16, u32::MAX, inode, UDIAG_SHOW_RQLEN);
    parse_unix_answer(ask(&request, &mut [0; 1024])?)
}

/// Sends the kernel a request about sockets. Returns the answer; nothing if it is not there at once.
pub(super) fn ask<'a>(request: &[u8], answer: &'a mut [u8]) -> Option<&'a [u8]> {
    let netlink = netlink()?;
    send(netlink.as_raw_fd(), request, MsgFlags::empty()).ok()?;
    let count = recv(netlink.as_raw_fd(), answer, MsgFlags::MSG_DONTWAIT).ok()?;
    answer.get(..count)
}

fn netlink() -> Option<OwnedFd> {
    let (family, kind) = (AddressFamily::Netlink, SockType::Raw);
    socket(
        family,
        kind,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )
    .ok()
}

/// struct nlmsghdr and struct unix_diag_req (linux/unix_diag.h), native byte order.
fn unix_request(flags: u16, states: u32, inode: u32, show: u32) -> Vec<u8> {
    let mut request = Vec::with_capacity(40);
    request.extend_from_slice(&40_u32.to_ne_bytes());
    request.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&flags.to_ne_bytes());
    request.extend_from_slice(&[0; 8]);
    request.extend_from_slice(&[libc::AF_UNIX as u8, 0, 0, 0]);
    request.extend_from_slice(&states.to_ne_bytes());
    request.extend_from_slice(&inode.to_ne_bytes());
    request.extend_from_slice(&show.to_ne_bytes());
    request.extend_from_slice(&[0xff; 8]);
    request
}

/// Finds the attribute UNIX_DIAG_RQLEN: `struct { u32 rqueue, wqueue }`.
fn parse_unix_answer(answer: &[u8]) -> Option<ListenQueue> {
    if half(answer, 4)? != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let end = (word(answer, 0)? as usize).min(answer.len());
    let (_, queue) = attributes(&answer[..end]).find(|(kind, _)| *kind == UNIX_DIAG_RQLEN)?;
    Some(ListenQueue {
        current: word(queue, 0)?,
        limit: word(queue, 4)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::time::{Duration, Instant};

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
    fn a_connection_is_abandoned_when_its_client_is_gone_and_it_is_still_held() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let clients: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let mut held: Vec<_> = (0..3).map(|_| listener.accept().unwrap()).collect();
        assert_eq!(abandoned_connections(&path), Some(0));
        let mut clients = clients.into_iter();
        drop(clients.next());
        drop(clients.next());
        assert_eq!(abandoned_connections(&path), Some(2));
        held.remove(0);
        assert_eq!(abandoned_connections(&path), Some(1));
        assert_eq!(abandoned_connections(&dir.path().join("other")), Some(0));
    }

    #[test]
    fn both_ends_of_a_connection_have_the_listener_s_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let held = listener.accept().unwrap().0;
        let paths = |fd: BorrowedFd<'_>| unix_paths(u32::try_from(inode(fd).unwrap()).unwrap()).unwrap();
        let (own, peer) = (None, Some(path.clone()));
        assert_eq!(paths(client.as_fd()), UnixPaths { own, peer });
        let (own, peer) = (Some(path), None);
        assert_eq!(paths(held.as_fd()), UnixPaths { own, peer });
        assert_eq!(unix_paths(1), None);
    }

    #[test]
    fn a_tcp_connection_is_abandoned_in_the_same_way() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let address = listener.local_addr().unwrap();
            let clients: Vec<_> = (0..2).map(|_| TcpStream::connect(address).unwrap()).collect();
            let held: Vec<_> = (0..2).map(|_| listener.accept().unwrap()).collect();
            let comes_to = |count| {
                let limit = Instant::now() + Duration::from_secs(20);
                while abandoned_tcp_connections(address.port()) != Some(count) {
                    assert!(Instant::now() < limit, "{address}: never {count}");
                    std::thread::yield_now();
                }
            };
            comes_to(0);
            drop(clients);
            comes_to(2);
            drop(held);
            comes_to(0);
        }
    }

    #[test]
    fn a_cut_answer_is_no_answer() {
        for length in 0..40 {
            assert_eq!(parse_unix_answer(&vec![20; length]), None);
            assert_eq!(parse_name_and_peer(&vec![20; length]), None);
            assert!(count_abandoned(&vec![20; length], b"s").is_none_or(|(count, _)| count == 0));
        }
    }
}

//! Sockets: accept, read, write, wait.

use super::error::{Error, Named, Result};
use super::timeout::{millis, poll_timeout};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, SockFlag, SockaddrLike, SockaddrStorage, accept4};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// <asm-generic/socket.h>, since Linux 6.16.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Result of a non-blocking call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Number of bytes; 0 from a read is end of file.
    Done(usize),
    /// Nothing is possible now.
    WouldBlock,
}

/// Accepts a connection, close-on-exec; `None` if none is pending or it was aborted.
///
/// # Errors
/// accept(2) errors of the listening socket or the process (EMFILE, EINVAL …).
pub fn accept(listener: BorrowedFd<'_>) -> Result<Option<OwnedFd>> {
    match accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
        // SAFETY: a new descriptor.
        Ok(fd) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        Err(
            Errno::EAGAIN
            | Errno::EINTR
            | Errno::ECONNABORTED
            | Errno::EPROTO
            | Errno::EPERM
            | Errno::ENETDOWN
            | Errno::ENOPROTOOPT
            | Errno::EHOSTDOWN
            | Errno::ENONET
            | Errno::EHOSTUNREACH
            | Errno::EOPNOTSUPP
            | Errno::ENETUNREACH,
        ) => Ok(None),
        Err(errno) => Err(Error::new("accept4", "", errno)),
    }
}

/// Makes a unix socket, and those accepted from it, reject descriptors (SO_PASSRIGHTS). `false` before Linux 6.16.
pub fn refuse_descriptors(socket: BorrowedFd<'_>) -> bool {
    // Setting an unknown option takes the socket's lock, which a peer can hold. getsockopt(2) needs no lock.
    if option(socket, SO_PASSRIGHTS).is_none() {
        return false;
    }
    let off: libc::c_int = 0;
    let size = size_of_val(&off) as libc::socklen_t;
    // SAFETY: the number outlives the call.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size,
        )
    };
    failed == 0
}

/// Whether a unix socket rejects descriptors.
pub fn refuses_descriptors(socket: BorrowedFd<'_>) -> bool {
    option(socket, SO_PASSRIGHTS) == Some(0)
}

/// Doesn't take the socket's lock; `None` on error.
fn option(socket: BorrowedFd<'_>, name: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: both values outlive the call, and no more bytes than `length` allows.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut size,
        )
    };
    (failed == 0).then_some(value)
}

/// Whether this is a unix socket.
pub fn is_unix(socket: BorrowedFd<'_>) -> bool {
    option(socket, libc::SO_DOMAIN) == Some(libc::AF_UNIX)
}

/// Whether this socket listens.
pub fn listens(socket: BorrowedFd<'_>) -> bool {
    option(socket, libc::SO_ACCEPTCONN) == Some(1)
}

/// Whether any holder has shut down a listening socket.
pub fn is_shut_down(listener: BorrowedFd<'_>) -> bool {
    // Also after SHUT_RD.
    let ends = PollFlags::from_bits_retain(libc::POLLRDHUP);
    let mut watched = [PollFd::new(listener, ends)];
    poll(&mut watched, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}

/// Reads without blocking.
///
/// # Errors
/// recv(2).
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Progress> {
    receive_flagged(socket, buffer, MsgFlags::MSG_DONTWAIT)
}

fn receive_flagged(socket: BorrowedFd<'_>, buffer: &mut [u8], flags: MsgFlags) -> Result<Progress> {
    loop {
        match nix::sys::socket::recv(socket.as_raw_fd(), buffer, flags) {
            Ok(count) => return Ok(Progress::Done(count)),
            Err(Errno::EAGAIN) => return Ok(Progress::WouldBlock),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new("recv", "", errno)),
        }
    }
}

/// Reads and discards the queued bytes.
///
/// # Errors
/// EPIPE if the peer has closed; recv(2).
pub fn drain(socket: BorrowedFd<'_>) -> Result<()> {
    let mut buffer = [0; 64];
    loop {
        match receive(socket, &mut buffer)? {
            Progress::Done(0) => return Err(Error::new("recv", "its end", Errno::EPIPE)),
            Progress::Done(_) => {}
            Progress::WouldBlock => return Ok(()),
        }
    }
}

/// Writes as much as fits.
///
/// # Errors
/// send(2).
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<Progress> {
    loop {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match nix::sys::socket::send(socket.as_raw_fd(), bytes, flags) {
            Ok(count) => return Ok(Progress::Done(count)),
            Err(Errno::EAGAIN) => return Ok(Progress::WouldBlock),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new("send", "", errno)),
        }
    }
}

/// Writes as much as fits from several buffers.
///
/// # Errors
/// sendmsg(2).
pub fn send_gathered(socket: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> Result<Progress> {
    loop {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match nix::sys::socket::sendmsg::<()>(socket.as_raw_fd(), pieces, &[], flags, None) {
            Ok(count) => return Ok(Progress::Done(count)),
            Err(Errno::EAGAIN) => return Ok(Progress::WouldBlock),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new("sendmsg", "", errno)),
        }
    }
}

/// The event to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// Data, end of file or an error to read.
    Readable,
    /// Space to write, or an error.
    Writable,
}

/// Waits until `socket` is ready, at most `limit`; continues after signals.
///
/// # Errors
/// poll(2).
pub fn wait(socket: BorrowedFd<'_>, what: Readiness, limit: Duration) -> Result<bool> {
    let flags = match what {
        Readiness::Readable => PollFlags::POLLIN,
        Readiness::Writable => PollFlags::POLLOUT,
    };
    let end = super::clock::now() + limit;
    loop {
        let left = end.since(super::clock::now());
        match poll(&mut [PollFd::new(socket.as_fd(), flags)], poll_timeout(left)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new("poll", "", errno)),
        }
    }
}

/// Waits until `bell` or some descriptors are readable; returns their indexes. One that is closed during the wait
/// counts as readable.
pub fn readable_of(descriptors: &[RawFd], bell: BorrowedFd<'_>, limit: Duration) -> Vec<usize> {
    let about = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN | libc::POLLRDHUP,
        revents: 0,
    };
    let mut all: Vec<libc::pollfd> = descriptors.iter().copied().map(about).collect();
    all.push(about(bell.as_raw_fd()));
    // SAFETY: pointer and length describe a slice that outlives the call.
    let count = unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, millis(limit)) };
    if count <= 0 {
        return Vec::new();
    }
    all.pop();
    let is_ready = |(index, fd): (usize, &libc::pollfd)| (fd.revents != 0).then_some(index);
    all.iter().enumerate().filter_map(is_ready).collect()
}

/// poll(2) flag: the peer has closed its sending side (`POLLRDHUP`), unknown to nix.
pub const PEER_CLOSED: PollFlags = PollFlags::from_bits_retain(libc::POLLRDHUP);

/// Shuts down the sending side.
pub fn shutdown_write(socket: BorrowedFd<'_>) {
    let _ = nix::sys::socket::shutdown(socket.as_raw_fd(), Shutdown::Write);
}

/// Shuts down a connection for all holders of the socket.
pub fn shutdown(socket: BorrowedFd<'_>) {
    let _ = nix::sys::socket::shutdown(socket.as_raw_fd(), Shutdown::Both);
}

/// Shuts down the receiving side; queued data stays readable.
pub fn shutdown_read(socket: BorrowedFd<'_>) {
    let _ = nix::sys::socket::shutdown(socket.as_raw_fd(), Shutdown::Read);
}

/// Reads without removing the data from the queue.
///
/// # Errors
/// recv(2).
pub fn peek(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Progress> {
    receive_flagged(socket, buffer, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK)
}

/// Returns the peer's address (IPv4-mapped as IPv4); `None` for a unix socket.
///
/// # Errors
/// getpeername(2).
pub fn peer_address(socket: BorrowedFd<'_>) -> Result<Option<IpAddr>> {
    let address: SockaddrStorage =
        nix::sys::socket::getpeername(socket.as_raw_fd()).named("getpeername", "")?;
    Ok(match address.family() {
        Some(nix::sys::socket::AddressFamily::Inet) => address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip())),
        Some(nix::sys::socket::AddressFamily::Inet6) => address
            .as_sockaddr_in6()
            .map(|a| IpAddr::V6(a.ip()).to_canonical()),
        _ => None,
    })
}

/// Returns the peer's address as text, `None` if it has none.
pub fn peer_name(socket: BorrowedFd<'_>) -> Option<String> {
    let address = nix::sys::socket::getpeername::<SockaddrStorage>(socket.as_raw_fd()).ok()?;
    let name = address.to_string();
    (!name.is_empty()).then_some(name)
}

/// Returns the server of a stream socket: address or unix path (abstract: `@`). `None` for other sockets.
pub fn server_name(number: RawFd) -> Option<String> {
    // SAFETY: the descriptor is only borrowed; the calls fail if it is not open.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    use nix::sys::socket::sockopt::SockType as KindOfSocket;
    let kind = nix::sys::socket::getsockopt(&socket, KindOfSocket).ok()?;
    if kind != nix::sys::socket::SockType::Stream {
        return None;
    }
    let address = nix::sys::socket::getpeername::<SockaddrStorage>(socket.as_raw_fd()).ok()?;
    let Some(unix) = address.as_unix_addr() else {
        let is_of_network = address.as_sockaddr_in().is_some() || address.as_sockaddr_in6().is_some();
        return is_of_network.then(|| address.to_string());
    };
    match (unix.path(), unix.as_abstract()) {
        (Some(path), _) => Some(path.display().to_string()),
        (None, Some(name)) => Some(format!("@{}", String::from_utf8_lossy(name))),
        (None, None) => None,
    }
}

/// Returns an internet socket's local port and whether it listens.
pub fn own_port(number: RawFd) -> Option<(u16, bool)> {
    // SAFETY: the descriptor is only borrowed; the calls fail if it is not open.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    let address = nix::sys::socket::getsockname::<SockaddrStorage>(number).ok()?;
    let v4 = address.as_sockaddr_in().map(|address| address.port());
    let port = v4.or_else(|| Some(address.as_sockaddr_in6()?.port()))?;
    let listens = nix::sys::socket::getsockopt(&socket, nix::sys::socket::sockopt::AcceptConn);
    Some((port, listens.unwrap_or(false)))
}

/// Returns the process that listens on the other end (SO_PEERCRED, unix(7)).
///
/// # Errors
/// getsockopt(2).
pub fn listener_pid(connected: BorrowedFd<'_>) -> Result<i32> {
    peer_process(connected).map(|(_, pid)| pid)
}

/// Returns the user that connected a unix socket (SO_PEERCRED, unix(7)).
///
/// # Errors
/// getsockopt(2).
pub fn peer_user(connected: BorrowedFd<'_>) -> Result<u32> {
    peer_process(connected).map(|(uid, _)| uid)
}

/// Returns the connecting user and pid; pid 0 in another namespace.
///
/// # Errors
/// getsockopt(2).
pub fn peer_process(connected: BorrowedFd<'_>) -> Result<(u32, i32)> {
    let credentials = nix::sys::socket::getsockopt(&connected, nix::sys::socket::sockopt::PeerCredentials)
        .named("getsockopt SO_PEERCRED", "")?;
    Ok((credentials.uid(), credentials.pid()))
}

/// Connects to a unix socket without blocking. `None` if the backlog is full.
///
/// # Errors
/// socket(2) or connect(2).
pub fn connect_unix(path: &std::path::Path) -> Result<Option<OwnedFd>> {
    use nix::sys::socket::{AddressFamily, SockType, UnixAddr, connect, socket};
    let shown = path.display().to_string();
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None).named("socket", &shown)?;
    let address = UnixAddr::new(path).named("connect", &shown)?;
    match connect(fd.as_raw_fd(), &address) {
        Ok(()) => Ok(Some(fd)),
        Err(Errno::EAGAIN) => Ok(None),
        Err(errno) => Err(Error::new("connect", shown, errno)),
    }
}

/// Connects to a unix socket, and waits while the backlog is full, each time at most this long. Later writes have the same limit.
///
/// # Errors
/// socket(2), setsockopt(2) or connect(2); EAGAIN after that time.
pub fn connect_unix_within(path: &std::path::Path, limit: Duration) -> Result<OwnedFd> {
    use nix::sys::socket::{AddressFamily, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
    let shown = path.display().to_string();
    let fd = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .named("socket", &shown)?;
    let limit = nix::sys::time::TimeVal::new(limit.as_secs() as libc::time_t, 0);
    setsockopt(&fd, sockopt::SendTimeout, &limit).named("setsockopt SO_SNDTIMEO", &shown)?;
    let address = UnixAddr::new(path).named("connect", &shown)?;
    connect(fd.as_raw_fd(), &address).named("connect", &shown)?;
    Ok(fd)
}

/// Answers must not wait for a delayed acknowledgement; accepted sockets inherit the option.
fn tcp_socket(address: SocketAddr, subject: &str) -> Result<OwnedFd> {
    use nix::sys::socket::{AddressFamily, SockType, setsockopt, socket, sockopt};
    let family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Stream, flags, None).named("socket", subject)?;
    setsockopt(&fd, sockopt::TcpNoDelay, &true).named("setsockopt TCP_NODELAY", subject)?;
    Ok(fd)
}

/// Starts a TCP connection. It is established once writable without an error ([`take_error`]).
///
/// # Errors
/// socket(2), setsockopt(2) or connect(2).
pub fn connect_tcp(address: SocketAddr) -> Result<OwnedFd> {
    use nix::sys::socket::connect;
    let shown = address.to_string();
    let fd = tcp_socket(address, &shown)?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd),
        Err(errno) => Err(Error::new("connect", shown, errno)),
    }
}

/// Returns the result of a started connection (SO_ERROR, socket(7)).
///
/// # Errors
/// Why it failed.
pub fn take_error(socket: BorrowedFd<'_>) -> Result<()> {
    let number = nix::sys::socket::getsockopt(&socket, nix::sys::socket::sockopt::SocketError)
        .named("getsockopt SO_ERROR", "")?;
    match number {
        0 => Ok(()),
        number => Err(Error::new("connect", "", Errno::from_raw(number))),
    }
}

/// Opens a listening TCP socket. `is_for_both`: `[::]` accepts IPv4; otherwise `net.ipv6.bindv6only` decides.
///
/// # Errors
/// socket(2), setsockopt(2), bind(2) or listen(2).
pub fn listen_tcp(address: SocketAddr, backlog: i32, is_for_both: bool) -> Result<OwnedFd> {
    use nix::sys::socket::{bind, setsockopt, sockopt};
    let subject = address.to_string();
    let fd = tcp_socket(address, &subject)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true).named("setsockopt SO_REUSEADDR", &subject)?;
    if address.is_ipv6() && is_for_both {
        setsockopt(&fd, sockopt::Ipv6V6Only, &false).named("setsockopt IPV6_V6ONLY", &subject)?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address)).named("bind", &subject)?;
    listen(&fd, backlog, &subject)?;
    Ok(fd)
}

/// Listens. A negative backlog means `net.core.somaxconn`.
///
/// # Errors
/// listen(2).
pub fn listen(fd: &OwnedFd, backlog: i32, subject: &str) -> Result<()> {
    let backlog = if backlog < 0 { i32::MAX } else { backlog };
    // SAFETY: the call takes only numbers; nix rejects backlogs over its own constant.
    let result = unsafe { libc::listen(fd.as_raw_fd(), backlog) };
    if result == 0 {
        Ok(())
    } else {
        Err(Error::last("listen", subject))
    }
}

/// The address of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// A file system path.
    Path(std::path::PathBuf),
    /// An address and port.
    Port(SocketAddr),
}

/// Returns a socket's address; `None` for unnamed and abstract unix sockets.
pub fn local_address(socket: BorrowedFd<'_>) -> Option<Bound> {
    let address: SockaddrStorage = nix::sys::socket::getsockname(socket.as_raw_fd()).ok()?;
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(Bound::Port(SocketAddr::from((v4.ip(), v4.port()))));
    }
    if let Some(v6) = address.as_sockaddr_in6() {
        return Some(Bound::Port(SocketAddr::from((v6.ip(), v6.port()))));
    }
    address
        .as_unix_addr()?
        .path()
        .map(|path| Bound::Path(path.to_owned()))
}

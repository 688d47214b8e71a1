//! Descriptors: pipes, socket pairs, passing, and closing descriptors that a child must not inherit.

use super::error::{Error, Named, Result};
use super::file::OwnStream;
use super::guarded::Guarded;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg,
    socketpair,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Descriptor limit per message, below the kernel's SCM_MAX_FD of 253 (unix(7)).
pub const MAX_PASSED: usize = 250;

/// Duplicates a descriptor, close-on-exec.
///
/// # Errors
/// dup(2).
pub fn copy(fd: impl AsFd) -> Result<OwnedFd> {
    let copied = fd.as_fd().try_clone_to_owned();
    copied.map_err(|error| Error::from_io("dup", "", &error))
}

/// Creates a close-on-exec pipe: read end, write end.
///
/// # Errors
/// pipe2(2).
pub fn pipe(nonblocking: bool) -> Result<(OwnedFd, OwnedFd)> {
    let flags = if nonblocking {
        OFlag::O_CLOEXEC | OFlag::O_NONBLOCK
    } else {
        OFlag::O_CLOEXEC
    };
    nix::unistd::pipe2(flags).named("pipe2", "")
}

/// Creates a one-way channel for another user's process: non-blocking read end, write end. A socket pair, because a
/// writer can hold a pipe's lock and block its reader and close(2).
///
/// # Errors
/// socketpair(2), fcntl(2) or shutdown(2).
pub fn one_way() -> Result<(Guarded, OwnedFd)> {
    let (reader, writer) = socket_pair(SockType::Stream)?;
    let reader = Guarded::new(reader);
    set_nonblocking(writer.as_fd(), false)?;
    nix::sys::socket::shutdown(reader.as_raw_fd(), nix::sys::socket::Shutdown::Write)
        .named("shutdown", "")?;
    Ok((reader, writer))
}

/// Creates a channel for a process's output: for root [`one_way`], otherwise a pipe, which `/dev/stdout` can reopen.
///
/// # Errors
/// As [`one_way`]; pipe2(2).
pub fn output() -> Result<(Guarded, OwnedFd)> {
    if super::identity::is_root() {
        return one_way();
    }
    let (reader, writer) = pipe(false)?;
    set_nonblocking(reader.as_fd(), true)?;
    Ok((Guarded::new(reader), writer))
}

/// Creates connected unix sockets, close-on-exec and non-blocking.
///
/// # Errors
/// socketpair(2).
pub fn socket_pair(kind: SockType) -> Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socketpair(AddressFamily::Unix, kind, None, flags).named("socketpair", "")
}

/// Limits the send buffer in bytes; the kernel doubles it (socket(7)).
///
/// # Errors
/// setsockopt(2).
pub fn set_send_buffer(socket: BorrowedFd<'_>, bytes: usize) -> Result<()> {
    use nix::sys::socket::{setsockopt, sockopt};
    setsockopt(&socket, sockopt::SndBufForce, &bytes)
        .or_else(|_| setsockopt(&socket, sockopt::SndBuf, &bytes))
        .named("setsockopt SO_SNDBUF", "")
}

/// Sets the mode for all holders of the open file.
///
/// # Errors
/// fcntl(2).
pub fn set_nonblocking(fd: BorrowedFd<'_>, nonblocking: bool) -> Result<()> {
    let bits = fcntl(fd, FcntlArg::F_GETFL).named("fcntl F_GETFL", "")?;
    let mut flags = OFlag::from_bits_truncate(bits);
    flags.set(OFlag::O_NONBLOCK, nonblocking);
    fcntl(fd, FcntlArg::F_SETFL(flags)).named("fcntl F_SETFL", "")?;
    Ok(())
}

/// Sets or clears close-on-exec.
///
/// # Errors
/// fcntl(2).
pub fn set_close_on_exec(fd: BorrowedFd<'_>, close: bool) -> Result<()> {
    let flags = if close {
        FdFlag::FD_CLOEXEC
    } else {
        FdFlag::empty()
    };
    fcntl(fd, FcntlArg::F_SETFD(flags)).named("fcntl F_SETFD", "")?;
    Ok(())
}

/// Takes ownership of an inherited descriptor.
///
/// # Safety
/// `fd` is open and has no other owner.
pub unsafe fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller's promise.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Takes ownership of an inherited descriptor below 64.
///
/// # Errors
/// EBADF if it is not open or already taken.
pub fn adopt_passed(fd: RawFd) -> Result<OwnedFd> {
    static TAKEN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let unfit = || Error::new("adopt", fd.to_string(), nix::errno::Errno::EBADF);
    let bit = u32::try_from(fd).ok().and_then(|fd| 1_u64.checked_shl(fd));
    let bit = bit.filter(|_| fd > 2).ok_or_else(unfit)?;
    // SAFETY: the descriptor is only borrowed; the call fails if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    set_close_on_exec(borrowed, true)?;
    if TAKEN.fetch_or(bit, std::sync::atomic::Ordering::SeqCst) & bit != 0 {
        return Err(unfit());
    }
    // SAFETY: it is open, was passed to us, and is taken once.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends bytes and at most [`MAX_PASSED`] descriptors (unix(7)); returns the bytes sent.
///
/// # Errors
/// sendmsg(2); EAGAIN if the socket is full.
pub fn send_with(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[RawFd]) -> Result<usize> {
    send_gathered_with(socket, &[IoSlice::new(bytes)], descriptors)
}

/// Like [`send_with`], from several buffers.
///
/// # Errors
/// As [`send_with`].
pub fn send_gathered_with(
    socket: BorrowedFd<'_>,
    pieces: &[IoSlice<'_>],
    descriptors: &[RawFd],
) -> Result<usize> {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let control: &[ControlMessage<'_>] = if descriptors.is_empty() { &[] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    sendmsg::<()>(socket.as_raw_fd(), pieces, control, flags, None).named("sendmsg", "")
}

/// Unread bytes in a pipe; 0 if unknown.
pub fn unread(pipe: BorrowedFd<'_>) -> usize {
    count(pipe, libc::FIONREAD).unwrap_or(0)
}

/// Unread bytes of the peer (SIOCOUTQ, unix(7)).
pub fn unread_by_peer(socket: BorrowedFd<'_>) -> Option<usize> {
    count(socket, libc::TIOCOUTQ)
}

/// `request`: one that writes one int (ioctl_pipe(2), unix(7)).
fn count(fd: BorrowedFd<'_>, request: libc::Ioctl) -> Option<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which outlives the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, &mut count) };
    usize::try_from(count).ok().filter(|_| result == 0)
}

/// A received message.
#[derive(Debug, Default)]
pub struct Received {
    /// Number of bytes; 0 is end of file on a stream.
    pub bytes: usize,
    /// The descriptors, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
}

/// Receives bytes and descriptors; blocks if `wait`.
///
/// # Errors
/// recvmsg(2); EAGAIN if nothing is queued.
pub fn receive_with(socket: BorrowedFd<'_>, buffer: &mut [u8], wait: bool) -> Result<Received> {
    let flags = if wait {
        MsgFlags::empty()
    } else {
        MsgFlags::MSG_DONTWAIT
    };
    receive_flagged(socket, buffer, flags).map(|(received, _)| received)
}

pub(super) fn receive_datagram(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<(Received, Option<i32>)> {
    receive_flagged(socket, buffer, MsgFlags::MSG_DONTWAIT)
}

/// Returns copies of the first queued datagram's descriptors, without removing it.
///
/// # Errors
/// recvmsg(2); EAGAIN if nothing is queued.
pub fn look_at(socket: BorrowedFd<'_>) -> Result<Vec<OwnedFd>> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
    receive_flagged(socket, &mut [0; 1], flags).map(|(received, _)| received.descriptors)
}

fn receive_flagged(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: MsgFlags,
) -> Result<(Received, Option<i32>)> {
    let mut control = nix::cmsg_space!([RawFd; MAX_PASSED], nix::sys::socket::UnixCredentials);
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
    let message =
        recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags).named("recvmsg", "")?;
    let mut received = Received {
        bytes: message.bytes,
        descriptors: Vec::new(),
    };
    let mut sender = None;
    let control = message
        .cmsgs()
        .map_err(|errno| Error::new("recvmsg", "control data", errno))?;
    for part in control {
        match part {
            // SAFETY: the kernel has just installed these descriptors; nothing else owns them.
            ControlMessageOwned::ScmRights(raw) => received
                .descriptors
                .extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })),
            ControlMessageOwned::ScmCredentials(credentials) => sender = Some(credentials.pid()),
            _ => {}
        }
    }
    Ok((received, sender))
}

/// Closes all descriptors from 3 up but `sorted_keep`, without allocating.
///
/// # Safety
/// No owner of the closed descriptors is used or dropped again.
pub unsafe fn close_all_but(sorted_keep: &[RawFd]) {
    let mut first: libc::c_uint = 3;
    for &fd in sorted_keep {
        let fd = fd as libc::c_uint;
        if fd > first {
            // SAFETY: the caller's promise.
            unsafe { close_range(first, fd - 1) };
        }
        first = first.max(fd.saturating_add(1));
    }
    // SAFETY: the caller's promise.
    unsafe { close_range(first, libc::c_uint::MAX) };
}

unsafe fn close_range(first: libc::c_uint, last: libc::c_uint) {
    // SAFETY: the call takes only numbers; the caller guarantees that the descriptors are unused.
    let failed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0;
    if failed {
        // Linux 5.9.
        for fd in first..=last.min(65_535) {
            // SAFETY: as above.
            unsafe { libc::close(fd as libc::c_int) };
        }
    }
}

/// Sets close-on-exec on all but the standard streams and `kept`.
///
/// # Errors
/// fcntl(2).
pub fn pass_on_only(kept: &[RawFd]) -> Result<()> {
    if !mark_close_on_exec() {
        for (number, _) in open_ones()?.iter().filter(|(number, _)| *number > 2) {
            // SAFETY: the descriptor is only borrowed; the call fails if it is not open.
            let _ = set_close_on_exec(unsafe { BorrowedFd::borrow_raw(*number) }, true);
        }
    }
    for number in kept {
        // SAFETY: as above.
        set_close_on_exec(unsafe { BorrowedFd::borrow_raw(*number) }, false)?;
    }
    Ok(())
}

/// Returns the open descriptors with their link text.
///
/// # Errors
/// /proc/self/fd can't be read.
pub fn open_ones() -> Result<Vec<(RawFd, String)>> {
    const DIRECTORY: &str = "/proc/self/fd";
    let failed = |e: std::io::Error| Error::from_io("read", DIRECTORY, &e);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(DIRECTORY).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        let target = std::fs::read_link(&path).map(|target| target.to_string_lossy().into_owned());
        if let (Some(number), Ok(target)) = (number, target) {
            found.push((number, target));
        }
    }
    found.retain(|(_, target)| !(target.starts_with("/proc/") && target.ends_with("/fd")));
    Ok(found)
}

const MOST_PROBED: u64 = 65_536;

/// Returns the open sockets with their inodes, without /proc.
pub fn open_sockets() -> Vec<(RawFd, u64)> {
    use nix::sys::resource::{Resource, getrlimit};
    use nix::sys::stat::{SFlag, fstat};
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(MOST_PROBED, |(soft, _)| soft.min(MOST_PROBED));
    let is_socket = |mode: u32| mode & SFlag::S_IFMT.bits() == SFlag::S_IFSOCK.bits();
    let numbers = 0..RawFd::try_from(most).unwrap_or(RawFd::MAX);
    // SAFETY: the descriptor is only borrowed; the call fails if it is not open.
    let open = |number| fstat(unsafe { BorrowedFd::borrow_raw(number) }).ok();
    numbers
        .filter_map(|number| Some((number, open(number)?)))
        .filter(|(_, entry)| is_socket(entry.st_mode))
        .map(|(number, entry)| (number, entry.st_ino))
        .collect()
}

/// Raises the descriptor limit to its hard limit; returns the old limits.
///
/// # Errors
/// getrlimit(2) or setrlimit(2).
pub fn raise_descriptor_limit() -> Result<(u64, u64)> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).named("getrlimit", "RLIMIT_NOFILE")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).named("setrlimit", "RLIMIT_NOFILE")?;
    Ok((soft, hard))
}

/// Raises the descriptor limit to `wanted` if possible; returns the limit in force.
///
/// # Errors
/// getrlimit(2).
pub fn raise_descriptor_limit_to(wanted: u64) -> Result<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).named("getrlimit", "RLIMIT_NOFILE")?;
    // Exceeding the hard limit needs CAP_SYS_RESOURCE; fs.nr_open is the maximum.
    if wanted <= soft || setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted.max(hard)).is_err() {
        return Ok(soft);
    }
    Ok(wanted)
}

/// False before Linux 5.11.
fn mark_close_on_exec() -> bool {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: the call takes only numbers; closes nothing.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, flags) == 0 }
}

/// For a child between fork and exec.
pub(super) fn close_all_on_exec() {
    if !mark_close_on_exec() {
        for fd in 3..=65_535 {
            // SAFETY: fcntl(2) fails for a number that is not open.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
}

/// Opens /dev/null for reading and writing.
///
/// # Errors
/// open(2).
pub fn null() -> Result<OwnedFd> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null");
    null.map(OwnedFd::from)
        .map_err(|e| Error::from_io("open", "/dev/null", &e))
}

/// Replaces input by `null`, output and error by the given descriptors or `null`.
///
/// # Errors
/// dup2(2).
pub fn replace_standard_streams(
    null: BorrowedFd<'_>,
    output: Option<(BorrowedFd<'_>, BorrowedFd<'_>)>,
) -> Result<()> {
    let place = |fd: RawFd, target: RawFd| -> Result<()> {
        // SAFETY: the targets are the standard streams, which std never closes; dup2 keeps them open throughout.
        let done = unsafe { libc::dup2(fd, target) };
        if done < 0 {
            Err(Error::last("dup2", ""))
        } else {
            Ok(())
        }
    };
    place(null.as_raw_fd(), 0)?;
    place(output.map_or(null.as_raw_fd(), |(out, _)| out.as_raw_fd()), 1)?;
    place(output.map_or(null.as_raw_fd(), |(_, error)| error.as_raw_fd()), 2)
}

/// Identity of an open file.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    device: u64,
    inode: u64,
}

impl File {
    /// Returns the identity, `None` if the descriptor is not open.
    pub fn of(descriptor: RawFd) -> Option<File> {
        // SAFETY: the descriptor is only borrowed; the call fails if it is not open.
        let status = nix::sys::stat::fstat(unsafe { BorrowedFd::borrow_raw(descriptor) }).ok()?;
        Some(File {
            device: status.st_dev,
            inode: status.st_ino,
        })
    }
}

/// Replaces these descriptors by /dev/null, close-on-exec.
///
/// # Errors
/// open(2) or dup3(2).
///
/// # Safety
/// Nothing uses the old files, as after a fork.
pub unsafe fn replace_with_null(descriptors: &[RawFd]) -> Result<()> {
    let null = null()?;
    for descriptor in descriptors {
        // SAFETY: the caller's promise; the number stays open, so nobody else can get it.
        if unsafe { libc::dup3(null.as_raw_fd(), *descriptor, libc::O_CLOEXEC) } < 0 {
            return Err(Error::last("dup3", ""));
        }
    }
    Ok(())
}

/// Replaces standard streams without logs by /dev/null.
///
/// # Errors
/// open(2) or dup2(2).
pub fn let_go_of_standard_streams(kept: &[OwnStream]) -> Result<()> {
    let null = null()?;
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    let output = match kept.contains(&OwnStream::Output) {
        true => stdout.as_fd(),
        false => null.as_fd(),
    };
    let error = match kept.contains(&OwnStream::Error) {
        true => stderr.as_fd(),
        false => null.as_fd(),
    };
    replace_standard_streams(null.as_fd(), Some((output, error)))
}

const FIRST_PASSED: RawFd = 3;

/// Takes an inherited listening socket, close-on-exec and non-blocking. `None` for anything else or a second call.
pub fn passed_listener(fd: RawFd) -> Option<OwnedFd> {
    static TAKEN: std::sync::Mutex<Vec<RawFd>> = std::sync::Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().ok()?;
    if fd < FIRST_PASSED || taken.contains(&fd) {
        return None;
    }
    // SAFETY: the descriptor is only borrowed; the calls fail if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let listens = nix::sys::socket::getsockopt(&borrowed, nix::sys::socket::sockopt::AcceptConn);
    if !listens.is_ok_and(|listens| listens) {
        return None;
    }
    set_close_on_exec(borrowed, true).ok()?;
    set_nonblocking(borrowed, true).ok()?;
    taken.push(fd);
    // SAFETY: it is open, was passed to us, and is taken once.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn sockets_are_found_with_and_without_proc() {
        let (one, other) = socket_pair(nix::sys::socket::SockType::Stream).unwrap();
        let file = null().unwrap();
        let probed = open_sockets();
        let named = open_ones().unwrap();
        for socket in [&one, &other] {
            let number = socket.as_raw_fd();
            let (_, inode) = probed.iter().find(|(it, _)| *it == number).unwrap();
            assert!(named.contains(&(number, format!("socket:[{inode}]"))));
        }
        assert!(probed.iter().all(|(number, _)| *number != file.as_raw_fd()));
    }
}

//! Descriptors: pipes, socket pairs, passing them on, and closing what a child must not have.

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

/// Most descriptors in one message: the kernel's SCM_MAX_FD is 253 (unix(7)).
pub const MAX_PASSED: usize = 250;

/// A pipe, read end first; both close-on-exec, non-blocking where asked for.
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

/// What other users' processes write and this one reads: a pair of sockets that is used as a pipe is, read end first. The read end
/// is non-blocking, the write end blocks; both are close-on-exec. Whoever writes to a pipe can hold its lock for as long as he likes,
/// and so keep a reader waiting, or one that closes it, even without blocking; not with a socket.
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

/// What a process writes its output to, read end first. For root it is [`one_way`]. Otherwise reader and writer are one user, and it
/// is a pipe, which the process can open by name as well (`/dev/stdout`); a socket can't be opened.
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

/// A pair of connected unix sockets, close-on-exec and non-blocking.
///
/// # Errors
/// socketpair(2).
pub fn socket_pair(kind: SockType) -> Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socketpair(AddressFamily::Unix, kind, None, flags).named("socketpair", "")
}

/// Bounds what may wait in a socket that is written to, in bytes; the kernel doubles that for its own needs (socket(7)).
///
/// # Errors
/// setsockopt(2).
pub fn set_send_buffer(socket: BorrowedFd<'_>, bytes: usize) -> Result<()> {
    use nix::sys::socket::{setsockopt, sockopt};
    // Above the machine's limit that needs CAP_NET_ADMIN.
    setsockopt(&socket, sockopt::SndBufForce, &bytes)
        .or_else(|_| setsockopt(&socket, sockopt::SndBuf, &bytes))
        .named("setsockopt SO_SNDBUF", "")
}

/// Makes a descriptor blocking or non-blocking. The setting belongs to the open file: all who share it see it.
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

/// Lets a descriptor survive exec, or not.
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

/// Takes ownership of a descriptor that this process was started with.
///
/// # Safety
/// `fd` is open and nothing else in the process owns it.
pub unsafe fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller's promise.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Takes ownership of a descriptor that this program was started with beside the standard streams, by its number, below
/// 64.
///
/// # Errors
/// EBADF: it is not open, or was taken before.
pub fn adopt_passed(fd: RawFd) -> Result<OwnedFd> {
    static TAKEN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let unfit = || Error::new("adopt", fd.to_string(), nix::errno::Errno::EBADF);
    let bit = u32::try_from(fd).ok().and_then(|fd| 1_u64.checked_shl(fd));
    let bit = bit.filter(|_| fd > 2).ok_or_else(unfit)?;
    // SAFETY: only borrowed for one call, which fails for a descriptor that is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    set_close_on_exec(borrowed, true)?;
    if TAKEN.fetch_or(bit, std::sync::atomic::Ordering::SeqCst) & bit != 0 {
        return Err(unfit());
    }
    // SAFETY: it is open, was passed to this program for its own use, and is taken once.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends bytes with descriptors (SCM_RIGHTS, unix(7)); at most [`MAX_PASSED`]. Says how many bytes were sent.
///
/// # Errors
/// sendmsg(2); EAGAIN where the socket is full.
pub fn send_with(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[RawFd]) -> Result<usize> {
    send_gathered_with(socket, &[IoSlice::new(bytes)], descriptors)
}

/// As [`send_with`], of several pieces.
///
/// # Errors
/// sendmsg(2); EAGAIN where the socket is full.
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

/// Bytes in a pipe that wait to be read; 0 if the kernel can't tell.
pub fn unread(pipe: BorrowedFd<'_>) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes one int to where the pointer leads, which lives for the call (ioctl_pipe(2)).
    let result = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &mut count) };
    if result == 0 {
        usize::try_from(count).unwrap_or(0)
    } else {
        0
    }
}

/// Bytes that were sent over a unix socket and that its other end has not read yet (SIOCOUTQ, unix(7)); `None` if that can't
/// be told.
pub fn unread_by_peer(socket: BorrowedFd<'_>) -> Option<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes one int to where the pointer leads, which lives for the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut count) };
    usize::try_from(count).ok().filter(|_| result == 0)
}

/// What came in one message.
#[derive(Debug, Default)]
pub struct Received {
    /// Number of bytes; 0 is end of file on a stream.
    pub bytes: usize,
    /// The descriptors, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
}

/// Receives bytes and descriptors. `wait`: block until something comes.
///
/// # Errors
/// recvmsg(2); EAGAIN where nothing waits and `wait` is not set.
pub fn receive_with(socket: BorrowedFd<'_>, buffer: &mut [u8], wait: bool) -> Result<Received> {
    let flags = if wait {
        MsgFlags::empty()
    } else {
        MsgFlags::MSG_DONTWAIT
    };
    receive_flagged(socket, buffer, flags).map(|(received, _)| received)
}

/// Receives a message, its descriptors and, where the socket asks for that (SO_PASSCRED), its sender's pid. Never blocks.
pub(super) fn receive_datagram(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<(Received, Option<i32>)> {
    receive_flagged(socket, buffer, MsgFlags::MSG_DONTWAIT)
}

/// Copies of the descriptors of the first message that waits in a socket of datagrams, which stays there.
///
/// # Errors
/// recvmsg(2); EAGAIN where nothing waits.
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
            // SAFETY: the kernel has just installed these descriptors for us; no other value owns them.
            ControlMessageOwned::ScmRights(raw) => received
                .descriptors
                .extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })),
            ControlMessageOwned::ScmCredentials(credentials) => sender = Some(credentials.pid()),
            _ => {}
        }
    }
    Ok((received, sender))
}

/// Closes every descriptor from 3 up that is not in `keep` (close_range(2)). For a child after fork: it allocates
/// nothing but a sorted copy made by the caller.
///
/// # Safety
/// Whatever owns the closed descriptors in this process is never used or dropped again.
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

/// # Safety
/// As [`close_all_but`].
unsafe fn close_range(first: libc::c_uint, last: libc::c_uint) {
    // SAFETY: a system call with three numbers; the caller answers for what it closes.
    let failed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0;
    if failed {
        // Before Linux 5.9 there is no close_range(2).
        for fd in first..=last.min(65_535) {
            // SAFETY: the same.
            unsafe { libc::close(fd as libc::c_int) };
        }
    }
}

/// Leaves to the program that this process becomes the standard streams and these descriptors, and no other.
///
/// # Errors
/// fcntl(2), of one of them.
pub fn pass_on_only(kept: &[RawFd]) -> Result<()> {
    // There from Linux 5.11 on.
    // SAFETY: a system call with three numbers, which closes nothing now.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    } != 0;
    if failed {
        for (number, _) in open_ones()?.iter().filter(|(number, _)| *number > 2) {
            // SAFETY: only borrowed for one call, which fails for a descriptor that is not open.
            let _ = set_close_on_exec(unsafe { BorrowedFd::borrow_raw(*number) }, true);
        }
    }
    for number in kept {
        // SAFETY: the same.
        set_close_on_exec(unsafe { BorrowedFd::borrow_raw(*number) }, false)?;
    }
    Ok(())
}

/// The descriptors that this process has open, and where each leads, as /proc says it.
///
/// # Errors
/// The directory can't be read.
pub fn open_ones() -> Result<Vec<(RawFd, String)>> {
    const DIRECTORY: &str = "/proc/self/fd";
    let failed = |e: std::io::Error| Error::from_io("read", DIRECTORY, &e);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(DIRECTORY).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        // The link of the directory's own descriptor leads nowhere by the time it is read, or to the directory.
        let target = std::fs::read_link(&path).map(|target| target.to_string_lossy().into_owned());
        if let (Some(number), Ok(target)) = (number, target) {
            found.push((number, target));
        }
    }
    found.retain(|(_, target)| !(target.starts_with("/proc/") && target.ends_with("/fd")));
    Ok(found)
}

/// The numbers that a descriptor of a process without /proc is looked for in.
const MOST_PROBED: u64 = 65_536;

/// The sockets that this process has open, with their inodes, without the help of /proc: a chroot has none.
pub fn open_sockets() -> Vec<(RawFd, u64)> {
    use nix::sys::resource::{Resource, getrlimit};
    use nix::sys::stat::{SFlag, fstat};
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(MOST_PROBED, |(soft, _)| soft.min(MOST_PROBED));
    let is_socket = |mode: u32| mode & SFlag::S_IFMT.bits() == SFlag::S_IFSOCK.bits();
    let numbers = 0..RawFd::try_from(most).unwrap_or(RawFd::MAX);
    // SAFETY: only asked about at once, and a number that is not open is an error of the call.
    let open = |number| fstat(unsafe { BorrowedFd::borrow_raw(number) }).ok();
    numbers
        .filter_map(|number| Some((number, open(number)?)))
        .filter(|(_, entry)| is_socket(entry.st_mode))
        .map(|(number, entry)| (number, entry.st_ino))
        .collect()
}

/// The highest limit on open descriptors that this process may give itself; done once at start, so that a thousand
/// pools fit. Says the soft limit before, for children to return to.
///
/// # Errors
/// getrlimit(2) or setrlimit(2).
pub fn raise_descriptor_limit() -> Result<(u64, u64)> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).named("getrlimit", "RLIMIT_NOFILE")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).named("setrlimit", "RLIMIT_NOFILE")?;
    Ok((soft, hard))
}

/// Raises the limit of this process to as many descriptors, if that may be done, and says what it is then.
///
/// # Errors
/// getrlimit(2).
pub fn raise_descriptor_limit_to(wanted: u64) -> Result<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).named("getrlimit", "RLIMIT_NOFILE")?;
    // Above the hard limit only with CAP_SYS_RESOURCE, and never above fs.nr_open.
    if wanted <= soft || setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted.max(hard)).is_err() {
        return Ok(soft);
    }
    Ok(wanted)
}

/// Sets close-on-exec on every descriptor from 3 up, also on those that C libraries opened. For a child between fork and exec.
pub(super) fn close_all_on_exec() {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: a system call with three numbers; nothing is closed.
    let failed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, flags) } != 0;
    if failed {
        // Linux 5.11 has the flag.
        for fd in 3..=65_535 {
            // SAFETY: the same; a number that is no descriptor is refused.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
}

/// /dev/null, to read and to write.
///
/// # Errors
/// open(2).
pub fn null() -> Result<OwnedFd> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null");
    null.map(OwnedFd::from)
        .map_err(|e| Error::from_io("open", "/dev/null", &e))
}

/// Puts `null` in place of standard input, and the given descriptors or `null` in place of output and error.
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

/// Which file a descriptor is.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    device: u64,
    inode: u64,
}

impl File {
    /// `None`: it is not open.
    pub fn of(descriptor: RawFd) -> Option<File> {
        // SAFETY: only borrowed for one call, which fails for a descriptor that is not open.
        let status = nix::sys::stat::fstat(unsafe { BorrowedFd::borrow_raw(descriptor) }).ok()?;
        Some(File {
            device: status.st_dev,
            inode: status.st_ino,
        })
    }
}

/// Puts /dev/null, close-on-exec, in place of these descriptors.
///
/// # Errors
/// open(2) or dup3(2).
///
/// # Safety
/// No code of this process uses what the descriptors were, as after a fork.
pub unsafe fn replace_with_null(descriptors: &[RawFd]) -> Result<()> {
    let null = null()?;
    for descriptor in descriptors {
        // SAFETY: the caller's promise; a descriptor that stays open is nobody else's meanwhile.
        if unsafe { libc::dup3(null.as_raw_fd(), *descriptor, libc::O_CLOEXEC) } < 0 {
            return Err(Error::last("dup3", ""));
        }
    }
    Ok(())
}

/// Lets go of standard input, so that a reader of its other end sees the end now, and likewise of standard output and
/// standard error, each unless a log goes there.
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

/// First descriptor that may have been passed: below are the standard streams.
const FIRST_PASSED: RawFd = 3;

/// A listening socket that this process was started with, close-on-exec and non-blocking; `None` if the descriptor is no
/// such thing, is a standard stream, or was asked for before.
pub fn passed_listener(fd: RawFd) -> Option<OwnedFd> {
    static TAKEN: std::sync::Mutex<Vec<RawFd>> = std::sync::Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().ok()?;
    if fd < FIRST_PASSED || taken.contains(&fd) {
        return None;
    }
    // SAFETY: only borrowed for two calls, both of which fail for a descriptor that is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let listens = nix::sys::socket::getsockopt(&borrowed, nix::sys::socket::sockopt::AcceptConn);
    if !listens.is_ok_and(|listens| listens) {
        return None;
    }
    set_close_on_exec(borrowed, true).ok()?;
    set_nonblocking(borrowed, true).ok()?;
    taken.push(fd);
    // SAFETY: it is open, was passed to this process for its own use, and is taken once.
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

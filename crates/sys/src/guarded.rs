//! Sockets with a peer that may be malicious.
//!
//! The peer can send descriptors (SCM_RIGHTS, unix(7)) whose last close blocks: a TCP connection with SO_LINGER, or a
//! file on a user's own file system. A receiver closes those that it does not take, and closing a socket closes those
//! still queued.
//!
//! From Linux 6.16 the kernel can reject descriptors (SO_PASSRIGHTS). Otherwise a peek detects them without installing
//! any; the socket then counts as ended, and a child process closes it ([`close_apart`]).

use crate::error::{Error, Result};
use crate::fd::pipe;
use crate::pidfd;
use crate::process::{fork_child, is_child};
use crate::socket::{self, Progress, receive, refuse_descriptors, shutdown_read};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockType, getsockopt, recvmsg, setsockopt, sockopt};
use std::io::IoSliceMut;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;

const MOST_CLOSERS: usize = 16;
const CLOSER_SECONDS: u32 = 60;
const PIECE: usize = 16 * 1024;
const MOST_FAILURES: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// No descriptors can arrive.
    Refusing,
    Stream,
    /// A datagram or listening socket. A check for descriptors could block: a receiver may hold the lock, and an empty
    /// message looks like end of file.
    Packets,
    Pipe,
}

/// A pipe, or a socket with a peer that may be malicious.
///
/// Receiving and dropping never block. Dropping shuts it down for all holders.
#[derive(Debug)]
pub struct Guarded {
    fd: ManuallyDrop<OwnedFd>,
    kind: Kind,
}

impl Guarded {
    /// Wraps a new socket and makes it reject descriptors.
    pub fn new(fd: OwnedFd) -> Guarded {
        let kind = match kind(fd.as_fd()) {
            Kind::Stream | Kind::Packets if refuse_descriptors(fd.as_fd()) => Kind::Refusing,
            kind => kind,
        };
        Guarded::of_kind(fd, kind)
    }

    /// Wraps a socket that may have queued descriptors.
    pub fn with_descriptors(fd: OwnedFd) -> Guarded {
        let kind = kind(fd.as_fd());
        Guarded::of_kind(fd, kind)
    }

    fn of_kind(fd: OwnedFd, kind: Kind) -> Guarded {
        if kind == Kind::Stream {
            look_at_urgent_bytes(fd.as_fd());
        }
        let fd = ManuallyDrop::new(fd);
        Guarded { fd, kind }
    }

    /// Reads without blocking.
    ///
    /// # Errors
    /// recv(2) or read(2). EBADMSG if descriptors are queued.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Progress> {
        match self.kind {
            Kind::Refusing => receive(self.fd.as_fd(), buffer),
            Kind::Stream | Kind::Packets => receive_bytes(self.fd.as_fd(), buffer),
            Kind::Pipe => read(&self.fd, buffer),
        }
    }
}

impl Deref for Guarded {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.fd
    }
}

impl AsFd for Guarded {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Guarded {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: dropped here, and taken once.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        let has_some = match self.kind {
            Kind::Refusing | Kind::Pipe => false,
            Kind::Stream => !is_emptied(fd.as_fd()),
            Kind::Packets => true,
        };
        if has_some {
            close_apart(vec![fd]);
        }
    }
}

fn kind(fd: BorrowedFd<'_>) -> Kind {
    match getsockopt(&fd, sockopt::SockType) {
        Err(_) => Kind::Pipe,
        Ok(_) if !socket::is_unix(fd) => Kind::Refusing,
        Ok(SockType::Stream) if !socket::listens(fd) => Kind::Stream,
        Ok(_) => Kind::Packets,
    }
}

/// Keeps urgent bytes (MSG_OOB) in line: the next receive would drop them and their descriptors.
fn look_at_urgent_bytes(socket: BorrowedFd<'_>) {
    let _ = setsockopt(&socket, sockopt::OobInline, &true);
}

/// Reads without blocking. Urgent bytes must be in line.
///
/// # Errors
/// recvmsg(2). EBADMSG if descriptors are queued.
pub fn receive_bytes(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Progress> {
    let (count, has_descriptors) = match look(socket, buffer)? {
        Some(seen) => seen,
        None => return Ok(Progress::WouldBlock),
    };
    if has_descriptors {
        return Err(Error::new(
            "recvmsg",
            "descriptors that nobody wants",
            Errno::EBADMSG,
        ));
    }
    // The peeked bytes are still first. Also removes an empty message.
    receive(socket, buffer.get_mut(..count).unwrap_or_default())
}

/// Peeks: number of bytes, and whether descriptors come with them or, in a stream, after them.
fn look(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Option<(usize, bool)>> {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    loop {
        // The control buffer is missing: the kernel reports descriptors (MSG_CTRUNC) without installing them.
        match recvmsg::<()>(socket.as_raw_fd(), &mut [IoSliceMut::new(buffer)], None, flags) {
            Ok(seen) => {
                return Ok(Some((seen.bytes, seen.flags.contains(MsgFlags::MSG_CTRUNC))));
            }
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new("recvmsg", "", errno)),
        }
    }
}

/// `false` if it has descriptors or can't be drained.
fn is_emptied(socket: BorrowedFd<'_>) -> bool {
    // Senders hold the lock that shutdown takes, so nothing arrives later.
    shutdown_read(socket);
    let mut buffer = [0; PIECE];
    let mut failures = 0;
    while failures < MOST_FAILURES {
        match receive_bytes(socket, &mut buffer) {
            Ok(Progress::WouldBlock | Progress::Done(0)) => return true,
            Ok(Progress::Done(_)) => failures = 0,
            Err(error) if error.errno == Errno::EBADMSG => return false,
            // E.g. ECONNRESET, reported once before the queued bytes.
            Err(_) => failures += 1,
        }
    }
    false
}

#[derive(Debug)]
struct Closers {
    waiting: Vec<OwnedFd>,
    at_work: Vec<i32>,
}

static CLOSERS: Mutex<Closers> = Mutex::new(Closers {
    waiting: Vec::new(),
    at_work: Vec::new(),
});

/// Closes descriptors in a child process, because close may block. The caller must have one thread.
pub fn close_apart(descriptors: Vec<OwnedFd>) {
    if descriptors.is_empty() {
        return;
    }
    let Ok(mut closers) = CLOSERS.lock() else {
        return std::mem::forget(descriptors);
    };
    closers.waiting.extend(descriptors);
    // A recycled pid is not our child, or counts for a while.
    let is_at_work = |pid: &i32| {
        is_child(*pid) && pidfd::open(*pid).is_ok_and(|process| !pidfd::has_ended(process.as_fd()))
    };
    closers.at_work.retain(is_at_work);
    if closers.at_work.len() >= MOST_CLOSERS {
        return;
    }
    let Ok((gate, held)) = pipe(false) else {
        return;
    };
    let mut kept: Vec<RawFd> = closers.waiting.iter().map(AsRawFd::as_raw_fd).collect();
    kept.push(gate.as_raw_fd());
    let closer = fork_child(&kept, || {
        nix::unistd::alarm::set(CLOSER_SECONDS);
        // Waits until this process is the last holder.
        let _ = nix::unistd::read(&gate, &mut [0]);
        0
    });
    if let Ok(pid) = closer {
        closers.waiting.clear();
        closers.at_work.push(pid);
    }
    drop(held);
}

fn read(pipe: &OwnedFd, buffer: &mut [u8]) -> Result<Progress> {
    loop {
        match nix::unistd::read(pipe, buffer) {
            Ok(count) => return Ok(Progress::Done(count)),
            Err(Errno::EAGAIN) => return Ok(Progress::WouldBlock),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new("read", "pipe", errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd::{null, one_way, send_with, socket_pair};
    use std::io::{ErrorKind, Read};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(20);

    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        one.set_nonblocking(true).unwrap();
        loop {
            match nix::unistd::write(&one, &[0; 65536]) {
                Ok(_) => {}
                Err(errno) => break assert_eq!(errno, Errno::EAGAIN),
            }
        }
        one.set_nonblocking(false).unwrap();
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 120,
        };
        setsockopt(&one, sockopt::Linger, &linger).unwrap();
        (one.into(), other)
    }

    fn at_once<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        thread::spawn(move || tell.send(act()));
        told.recv_timeout(LONG).expect("it lasts")
    }

    fn assert_closed(mut other: TcpStream) {
        other.set_read_timeout(Some(LONG)).unwrap();
        let mut buffer = vec![0; 1 << 20];
        loop {
            match other.read(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
                Err(error) => panic!("it is not closed: {error}"),
            }
        }
    }

    fn received(
        kind: SockType,
        send: impl FnOnce(BorrowedFd<'_>, RawFd),
    ) -> (Vec<Vec<u8>>, Errno, TcpStream) {
        let (ours, theirs) = socket_pair(kind).unwrap();
        let (lingering, other) = lingering();
        let ours = Guarded::with_descriptors(ours);
        send(theirs.as_fd(), lingering.as_raw_fd());
        drop(lingering);
        let (pieces, errno) = at_once(move || {
            let mut pieces = Vec::new();
            let mut buffer = [0; 16];
            let errno = loop {
                match ours.receive(&mut buffer) {
                    Ok(Progress::Done(count)) => pieces.push(buffer[..count].to_vec()),
                    Ok(Progress::WouldBlock) => break Errno::EAGAIN,
                    Err(error) => break error.errno,
                }
            };
            drop(ours);
            (pieces, errno)
        });
        (pieces, errno, other)
    }

    #[test]
    fn no_last_close_of_what_is_sent_is_waited_for() {
        let in_front = vec![b"one".to_vec()];
        // A peek at a stream reads on to the first descriptors.
        for (kind, expected) in [(SockType::Stream, Vec::new()), (SockType::SeqPacket, in_front)] {
            let (pieces, errno, other) = received(kind, |socket, lingering| {
                send_with(socket, b"one", &[]).unwrap();
                send_with(socket, b"two", &[lingering]).unwrap();
                send_with(socket, b"three", &[]).unwrap();
            });
            assert_eq!((pieces, errno), (expected, Errno::EBADMSG), "{kind:?}");
            assert_closed(other);
        }
    }

    #[test]
    fn an_empty_message_has_descriptors_too() {
        let (pieces, errno, other) = received(SockType::SeqPacket, |socket, lingering| {
            send_with(socket, b"", &[lingering]).unwrap();
        });
        assert_eq!((pieces, errno), (Vec::new(), Errno::EBADMSG));
        assert_closed(other);
    }

    #[test]
    fn so_have_urgent_bytes() {
        let (pieces, errno, other) = received(SockType::Stream, |socket, lingering| {
            let rights = [nix::sys::socket::ControlMessage::ScmRights(&[lingering])];
            let piece = [std::io::IoSlice::new(b"!")];
            let flags = MsgFlags::MSG_OOB;
            nix::sys::socket::sendmsg::<()>(socket.as_raw_fd(), &piece, &rights, flags, None).unwrap();
            send_with(socket, b"one", &[]).unwrap();
        });
        assert_eq!((pieces, errno), (Vec::new(), Errno::EBADMSG));
        assert_closed(other);
    }

    #[test]
    fn what_is_closed_with_descriptors_in_it_is_not_waited_for() {
        for kind in [SockType::Stream, SockType::SeqPacket] {
            for is_theirs_open in [false, true] {
                let (ours, theirs) = socket_pair(kind).unwrap();
                let (lingering, other) = lingering();
                let ours = Guarded::with_descriptors(ours);
                send_with(theirs.as_fd(), b"one", &[]).unwrap();
                send_with(theirs.as_fd(), b"two", &[lingering.as_raw_fd()]).unwrap();
                drop(lingering);
                let theirs = is_theirs_open.then_some(theirs);
                at_once(move || drop(ours));
                assert_closed(other);
                drop(theirs);
            }
        }
    }

    #[test]
    fn nor_is_a_listening_socket_whose_connections_have_some() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = Guarded::with_descriptors(UnixListener::bind(&path).unwrap().into());
        let client = UnixStream::connect(&path).unwrap();
        let (lingering, other) = lingering();
        send_with(client.as_fd(), b"one", &[lingering.as_raw_fd()]).unwrap();
        drop(lingering);
        at_once(move || drop(listener));
        assert_closed(other);
    }

    #[test]
    fn what_has_none_is_emptied_and_closed_here() {
        let (ours, theirs) = socket_pair(SockType::Stream).unwrap();
        send_with(theirs.as_fd(), &[0; 100_000], &[]).unwrap();
        assert!(is_emptied(ours.as_fd()));
        assert_eq!(
            send_with(theirs.as_fd(), b"x", &[]).unwrap_err().errno,
            Errno::EPIPE
        );
        drop(theirs);
        assert!(is_emptied(ours.as_fd()));
    }

    #[test]
    fn a_pipe_is_read_and_a_socket_over_which_none_can_come_is_known() {
        let (reader, writer) = crate::fd::pipe(true).unwrap();
        let reader = Guarded::new(reader);
        nix::unistd::write(&writer, b"one").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(reader.receive(&mut buffer), Ok(Progress::Done(3)));
        assert_eq!(reader.receive(&mut buffer), Ok(Progress::WouldBlock));
        drop(writer);
        assert_eq!(reader.receive(&mut buffer), Ok(Progress::Done(0)));
        let tcp = Guarded::new(TcpListener::bind("127.0.0.1:0").unwrap().into());
        assert_eq!(tcp.kind, Kind::Refusing);
        let (ours, theirs) = one_way().unwrap();
        let sent = send_with(theirs.as_fd(), b"x", &[null().unwrap().as_raw_fd()]);
        assert_eq!(sent.is_err(), ours.kind == Kind::Refusing);
    }
}

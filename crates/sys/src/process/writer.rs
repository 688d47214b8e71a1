//! A process that appends to tenants' files, with a thread for each file.
//!
//! Anyone who may open a file for writing can hold its lock and block writers, even after SIGKILL. Root therefore only sends
//! the bytes over a socket, which can at worst be full.

use super::fork::fork_child;
use crate::error::{Error, Result};
use crate::fd::{
    null, receive_with, replace_standard_streams, send_with, set_nonblocking, set_send_buffer, socket_pair,
};
use crate::socket::{Readiness, refuse_descriptors, shutdown_write, wait};
use crate::{identity, title};
use nix::errno::Errno;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::{MsgFlags, SockType, recv};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, scope};
use std::time::Duration;

/// Limit on one append, in bytes.
pub const MOST_BYTES: usize = 64 * 1024;
const QUEUE_BYTES: usize = 1 << 20;
/// A tenant above it opens no new file.
const MOST_AT_WORK: usize = 16;
const MOST_FILES: usize = 4096;
const STACK_BYTES: usize = 64 * 1024;

thread_local! {
    static WRITER: RefCell<Option<Writer>> = const { RefCell::new(None) };
}

#[derive(Debug)]
struct Writer {
    pid: i32,
    socket: OwnedFd,
}

/// Appends to a file without blocking on its locks.
#[derive(Debug)]
pub struct Appender {
    file: File,
    whose: u32,
    queue: RefCell<Option<Queue>>,
}

#[derive(Debug)]
struct Queue {
    socket: Rc<OwnedFd>,
    has_file: bool,
}

impl Appender {
    /// Creates an appender for a user's file.
    pub fn new(file: File, whose: u32) -> Appender {
        Appender {
            file,
            whose,
            queue: RefCell::new(None),
        }
    }

    /// Switches to another file; queued bytes go to the old one.
    pub fn turn_to(&mut self, file: File) {
        self.file = file;
        if let Some(queue) = self.queue.get_mut() {
            queue.has_file = false;
        }
    }

    /// Closes the socket until the next append.
    pub fn rest(&self) {
        self.queue.take();
    }

    /// The file to append to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Appends at most [`MOST_BYTES`]. Root does not block on the file.
    ///
    /// # Errors
    /// `WouldBlock` if the queue is full; write(2) if not root.
    pub fn append(&self, bytes: &[u8]) -> io::Result<()> {
        if !identity::is_root() {
            return (&self.file).write_all(bytes);
        }
        self.send(bytes).map_err(|error| io::Error::from(error.errno))
    }

    /// Whether the queue has room.
    pub fn is_ready(&self) -> bool {
        let queue = self.queue.borrow();
        queue.as_ref().is_none_or(|queue| {
            wait(queue.socket.as_fd(), Readiness::Writable, Duration::ZERO).unwrap_or(true)
        })
    }

    /// A socket that is writable when the queue has room.
    pub fn socket(&self) -> Option<Rc<OwnedFd>> {
        self.queue.borrow().as_ref().map(|queue| Rc::clone(&queue.socket))
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        let mut place = self.queue.borrow_mut();
        let mut is_first = true;
        loop {
            let mut queue = match place.take() {
                Some(queue) => queue,
                None => connect(self.whose)?,
            };
            let file = [self.file.as_raw_fd()];
            let sent = send_with(
                queue.socket.as_fd(),
                bytes,
                if queue.has_file { &[] } else { &file },
            );
            match sent {
                Ok(_) => {
                    queue.has_file = true;
                    *place = Some(queue);
                    return Ok(());
                }
                Err(error) if error.errno == Errno::EPIPE && is_first => is_first = false,
                Err(error) => {
                    *place = Some(queue);
                    return Err(error);
                }
            }
        }
    }
}

/// Waits briefly for appends to closed files.
pub fn finish_appending(limit: Duration) {
    if let Some(writer) = WRITER.take() {
        shutdown_write(writer.socket.as_fd());
        let _ = wait(writer.socket.as_fd(), Readiness::Readable, limit);
    }
}

/// Whether this ended process was the writer, which breaks the sockets of [`appended_by_others`].
pub fn is_writer(pid: i32) -> bool {
    WRITER.with_borrow(|writer| writer.as_ref().is_some_and(|writer| writer.pid == pid))
}

/// Returns a socket in place of a log file, for a user's processes: the writer appends each message, at most
/// [`MOST_BYTES`], as a whole. Writes block while the queue is full.
///
/// # Errors
/// socketpair(2), sendmsg(2) or fork(2).
pub fn appended_by_others(file: &OwnedFd, whose: u32) -> Result<OwnedFd> {
    let (socket, theirs) = socket_pair(SockType::SeqPacket)?;
    // Otherwise malicious descriptors block only this socket's thread.
    let _ = refuse_descriptors(theirs.as_fd());
    set_send_buffer(socket.as_fd(), QUEUE_BYTES)?;
    set_nonblocking(socket.as_fd(), false)?;
    give(whose, &theirs, Some(file))?;
    Ok(socket)
}

fn connect(whose: u32) -> Result<Queue> {
    let (socket, theirs) = socket_pair(SockType::SeqPacket)?;
    set_send_buffer(socket.as_fd(), QUEUE_BYTES)?;
    give(whose, &theirs, None)?;
    Ok(Queue {
        socket: Rc::new(socket),
        has_file: false,
    })
}

/// Gives the writer a socket and its file. If `file` is `None`, the socket's first message carries the file.
fn give(whose: u32, socket: &OwnedFd, file: Option<&OwnedFd>) -> Result<()> {
    set_nonblocking(socket.as_fd(), false)?;
    let descriptors: Vec<RawFd> = [socket].into_iter().chain(file).map(AsRawFd::as_raw_fd).collect();
    let give = |writer: &Writer| send_with(writer.socket.as_fd(), &whose.to_ne_bytes(), &descriptors);
    let given = WRITER.with_borrow(|writer| writer.as_ref().map(&give));
    match given {
        Some(Ok(_)) => {}
        Some(Err(error)) if error.errno != Errno::EPIPE => return Err(error),
        _ => {
            let writer = begin()?;
            give(&writer)?;
            WRITER.set(Some(writer));
        }
    }
    Ok(())
}

fn begin() -> Result<Writer> {
    let (socket, theirs) = socket_pair(SockType::SeqPacket)?;
    set_nonblocking(theirs.as_fd(), false)?;
    let pid = fork_child(&[theirs.as_raw_fd()], || {
        title::set("forkyard: writer of logs");
        // The writer exits with its last socket, not by signals to the group.
        for ignored in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP] {
            // SAFETY: sets no handler.
            let _ = unsafe { signal(ignored, SigHandler::SigIgn) };
        }
        if let Ok(null) = null() {
            let _ = replace_standard_streams(null.as_fd(), Some((null.as_fd(), null.as_fd())));
        }
        i32::from(catch_unwind(AssertUnwindSafe(|| serve(&theirs))).is_err())
    })?;
    Ok(Writer { pid, socket })
}

fn serve(sockets: &OwnedFd) {
    let mut tenants: BTreeMap<u32, Arc<AtomicUsize>> = BTreeMap::new();
    scope(|threads| {
        let mut whose = [0; 4];
        loop {
            let received = match receive_with(sockets.as_fd(), &mut whose, true) {
                Ok(received) if received.bytes == 0 => return,
                Ok(received) => received,
                Err(Error {
                    errno: Errno::EINTR, ..
                }) => continue,
                Err(_) => return,
            };
            let mut descriptors = received.descriptors.into_iter();
            let Some(socket) = descriptors.next() else {
                continue;
            };
            let file = descriptors.next().map(File::from);
            let at_work = tenants.entry(u32::from_ne_bytes(whose)).or_default();
            let has_room = Arc::strong_count(at_work) <= MOST_FILES;
            if has_room && at_work.load(Ordering::Relaxed) < MOST_AT_WORK {
                let at_work = Arc::clone(at_work);
                let _ = Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(threads, move || match file {
                        Some(file) => write_what_others_say(&socket, &file, &at_work),
                        None => write_what_comes(&socket, &at_work),
                    });
            }
        }
    });
}

/// recv(2) without a control buffer discards descriptors.
fn write_what_others_say(socket: &OwnedFd, mut file: &File, at_work: &AtomicUsize) {
    let mut buffer = vec![0; MOST_BYTES];
    loop {
        match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(0) => return,
            Ok(count) => {
                at_work.fetch_add(1, Ordering::Relaxed);
                let _ = file.write_all(&buffer[..count]);
                at_work.fetch_sub(1, Ordering::Relaxed);
            }
            Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

fn write_what_comes(socket: &OwnedFd, at_work: &AtomicUsize) {
    let mut buffer = vec![0; MOST_BYTES];
    let mut file: Option<File> = None;
    loop {
        match receive_with(socket.as_fd(), &mut buffer, true) {
            Ok(received) if received.bytes == 0 => return,
            Ok(mut received) => {
                at_work.fetch_add(1, Ordering::Relaxed);
                file = received.descriptors.pop().map(File::from).or(file);
                if let Some(mut file) = file.as_ref() {
                    let _ = file.write_all(&buffer[..received.bytes]);
                }
                at_work.fetch_sub(1, Ordering::Relaxed);
            }
            Err(Error {
                errno: Errno::EINTR, ..
            }) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const LONG: Duration = Duration::from_secs(60);

    /// A full pipe stands for a file that blocks writers.
    #[test]
    fn a_file_that_is_held_is_not_waited_for_and_has_everything_afterwards() {
        let (reader, writer) = crate::fd::pipe(false).unwrap();
        let held = Appender::new(writer.into(), 5);
        let mut sent = Vec::new();
        let full = loop {
            let piece = vec![sent.len().to_le_bytes()[2]; 4096];
            match held.send(&piece) {
                Ok(()) => sent.extend(piece),
                Err(error) => break error,
            }
        };
        assert_eq!(full.errno, Errno::EAGAIN);
        assert!(!held.is_ready());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut other = Appender::new(File::create(&path).unwrap(), 5);
        other.send(b"one\n").unwrap();
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        other.turn_to(File::create(&path).unwrap());
        other.send(b"two\n").unwrap();
        drop(other);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            File::from(reader).read_to_end(&mut all).map(|_| all)
        });
        let socket = held.socket().unwrap();
        assert!(wait(socket.as_fd(), Readiness::Writable, LONG).unwrap() && held.is_ready());
        drop((held, socket));
        finish_appending(LONG);
        assert!(reader.join().unwrap().unwrap() == sent);
        assert_eq!(std::fs::read(dir.path().join("old")).unwrap(), b"one\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
    }

    #[test]
    fn who_writes_through_others_has_nothing_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let file = File::create(&path).unwrap().into();
        let theirs = appended_by_others(&file, 5).unwrap();
        let another = appended_by_others(&file, 6).unwrap();
        assert!(nix::unistd::ftruncate(&theirs, 0).is_err());
        let (_, stray) = crate::fd::pipe(false).unwrap();
        if send_with(theirs.as_fd(), b"first\n", &[stray.as_raw_fd()]).is_err() {
            send_with(theirs.as_fd(), b"first\n", &[]).unwrap();
        }
        assert_eq!(nix::unistd::write(&another, b"second\n"), Ok(7));
        drop((theirs, another));
        finish_appending(LONG);
        let log = std::fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = log.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["first", "second"]);
    }
}

//! Lines with descriptors between preloader and master.

use crate::php::protocol::Answer;
use forkyard_base::tick::Tick;
use forkyard_sys::timeout::poll_timeout;
use forkyard_sys::{self as sys, clock, fd};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

const MAX_LINE_BYTES: usize = 4 << 20;
/// Bytes per read. Each page written here is copied once more in a process that forks per line.
const READ_BYTES: usize = 4 << 10;

/// The preloader's end of the socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    buffer: Vec<u8>,
    /// Each line's descriptors arrive with its first byte: one group per line.
    groups: VecDeque<Vec<OwnedFd>>,
}

/// A line and its descriptors.
#[derive(Debug)]
pub struct Message {
    /// The line without its newline.
    pub line: Vec<u8>,
    /// The descriptors sent with it.
    pub descriptors: Vec<OwnedFd>,
}

impl Socket {
    /// Uses the descriptor left by the master ([`SOCKET`](crate::php::protocol::SOCKET)).
    ///
    /// # Errors
    /// It is not open.
    pub fn new(fd: OwnedFd) -> sys::Result<Socket> {
        fd::set_close_on_exec(fd.as_fd(), true)?;
        fd::set_nonblocking(fd.as_fd(), false)?;
        Ok(Socket {
            fd,
            buffer: Vec::new(),
            groups: VecDeque::new(),
        })
    }

    /// Receives a line within `limit`. `None`: timeout, or the master closed the socket.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub fn receive_within(&mut self, limit: Duration) -> sys::Result<Option<Message>> {
        let is_there = self.buffer.contains(&b'\n');
        if is_there || sys::socket::wait(self.fd.as_fd(), sys::socket::Readiness::Readable, limit)? {
            return self.receive();
        }
        Ok(None)
    }

    /// Waits for the master, another descriptor or a deadline. Returns true if the socket is readable.
    ///
    /// # Errors
    /// poll(2).
    pub(super) fn wait_beside(&self, other: BorrowedFd<'_>, until: Option<Tick>) -> sys::Result<bool> {
        if self.buffer.contains(&b'\n') {
            return Ok(true);
        }
        let timeout = until.map_or(PollTimeout::NONE, |until| poll_timeout(until.since(clock::now())));
        let mut both = [
            PollFd::new(self.fd.as_fd(), PollFlags::POLLIN),
            PollFd::new(other, PollFlags::POLLIN),
        ];
        match poll(&mut both, timeout) {
            Ok(_) => Ok(both[0].revents().is_some_and(|events| !events.is_empty())),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(sys::Error::new("poll", "", errno)),
        }
    }

    /// Waits for a line without reading it. Returns false if the master closed the socket.
    pub(super) fn expect(&self) -> sys::Result<bool> {
        if !self.buffer.is_empty() {
            return Ok(true);
        }
        let mut first = [0];
        loop {
            match recv(self.fd.as_raw_fd(), &mut first, MsgFlags::MSG_PEEK) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(sys::Error::new("recv", "", errno)),
            }
        }
    }

    /// Receives the next line; `None` if the master closed the socket.
    ///
    /// # Errors
    /// The system call that failed, or a line that is too long.
    pub fn receive(&mut self) -> sys::Result<Option<Message>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                line.pop();
                return Ok(Some(Message {
                    line,
                    descriptors: self.groups.pop_front().unwrap_or_default(),
                }));
            }
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err(sys::Error::new(
                    "recvmsg",
                    "line from the master",
                    nix::errno::Errno::EMSGSIZE,
                ));
            }
            let before = self.buffer.len();
            self.buffer.resize(before + READ_BYTES, 0);
            let received = fd::receive_with(self.fd.as_fd(), &mut self.buffer[before..], true);
            let count = received.as_ref().map_or(0, |received| received.bytes);
            self.buffer.truncate(before + count);
            match received {
                Err(error) if error.errno == nix::errno::Errno::EINTR => {}
                Err(error) => return Err(error),
                Ok(received) if received.bytes == 0 => return Ok(None),
                Ok(received) if received.descriptors.is_empty() => {}
                Ok(received) => self.groups.push_back(received.descriptors),
            }
        }
    }

    /// Sends a line. Errors are ignored: the next `receive` finds a closed socket.
    pub fn answer(&self, answer: &Answer) {
        self.answer_with(answer, None);
    }

    /// Sends a line with a descriptor, which is attached to its first byte.
    pub fn answer_with(&self, answer: &Answer, descriptor: Option<BorrowedFd<'_>>) {
        let Ok(mut line) = serde_json::to_vec(answer) else {
            return;
        };
        line.push(b'\n');
        let mut rest = line.as_slice();
        if let Some(descriptor) = descriptor {
            match fd::send_with(self.fd.as_fd(), rest, &[descriptor.as_raw_fd()]) {
                Ok(count) => rest = &rest[count..],
                Err(_) => return,
            }
        }
        while !rest.is_empty() {
            match nix::sys::socket::send(
                self.fd.as_raw_fd(),
                rest,
                nix::sys::socket::MsgFlags::MSG_NOSIGNAL,
            ) {
                Ok(count) => rest = &rest[count..],
                Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return,
            }
        }
    }
}

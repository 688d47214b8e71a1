//! A client's connection: lines of JSON in, lines of JSON out. It never waits.

use forkyard_protocol::jobs::{JobsAnswer, LONGEST_REQUEST};
use forkyard_sys::socket::{self, Progress};
use std::os::fd::{AsFd, OwnedFd};

/// What a client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Everything: root, and the user that keeps the jobs.
    All,
    /// What concerns queues that this user may push into.
    Own(u32),
}

/// What came of a look at a client.
#[derive(Debug)]
pub(crate) enum Heard {
    Nothing,
    /// A request. Until it is answered no other is read.
    Line(Vec<u8>),
    Gone,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    socket: OwnedFd,
    pub(crate) rights: Rights,
    input: Vec<u8>,
    /// So much of that has no end of a line: a long request is looked through once.
    searched: usize,
    output: Vec<u8>,
    sent: usize,
    is_waiting: bool,
    /// It is to go once it has its answer.
    pub(crate) is_last: bool,
}

impl Client {
    pub(crate) fn new(socket: OwnedFd, rights: Rights) -> Client {
        Client {
            socket,
            rights,
            input: Vec::new(),
            searched: 0,
            output: Vec::new(),
            sent: 0,
            is_waiting: false,
            is_last: false,
        }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether it has asked for nothing that is not answered.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_waiting && self.output.is_empty() && self.input.is_empty()
    }

    /// Bytes of a request that has not come whole.
    pub(crate) fn buffered(&self) -> usize {
        self.input.len()
    }

    /// Forgets what has come of a request; it goes when it has its answer.
    pub(crate) fn give_up(&mut self) {
        self.is_last = true;
        (self.input, self.searched) = (Vec::new(), 0);
    }

    pub(crate) fn answer(&mut self, answer: &JobsAnswer) {
        self.is_waiting = false;
        // Plain values to memory: it can't fail.
        self.output.extend(serde_json::to_vec(answer).unwrap_or_default());
        self.output.push(b'\n');
    }

    /// Sends what fits, and reads up to the next request.
    pub(crate) fn look(&mut self) -> Heard {
        loop {
            while self.sent < self.output.len() {
                match socket::send(self.socket.as_fd(), &self.output[self.sent..]) {
                    Ok(Progress::Done(count)) => self.sent += count,
                    Ok(Progress::WouldBlock) => return Heard::Nothing,
                    Err(_) => return Heard::Gone,
                }
            }
            (self.output, self.sent) = (Vec::new(), 0);
            if self.is_last && !self.is_waiting && self.input.is_empty() {
                return Heard::Gone;
            }
            if self.is_waiting {
                return match self.has_left() {
                    true => Heard::Gone,
                    false => Heard::Nothing,
                };
            }
            let rest = self.input.get(self.searched..).unwrap_or_default();
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let end = self.searched + end;
                (self.is_waiting, self.searched) = (true, 0);
                return Heard::Line(self.input.drain(..=end).collect());
            }
            self.searched = self.input.len();
            if self.input.len() > LONGEST_REQUEST {
                self.give_up();
                self.answer(&JobsAnswer::error(format!(
                    "a request has at most {LONGEST_REQUEST} bytes"
                )));
                continue;
            }
            let mut buffer = [0; 16 * 1024];
            match socket::receive(self.socket.as_fd(), &mut buffer) {
                Ok(Progress::Done(count)) if count > 0 => self.input.extend_from_slice(&buffer[..count]),
                Ok(Progress::WouldBlock) => return Heard::Nothing,
                Ok(Progress::Done(_)) | Err(_) => return Heard::Gone,
            }
        }
    }

    /// Whether the connection of a client that waits for its answer is broken. One that only says nothing more still listens.
    fn has_left(&self) -> bool {
        socket::peek(self.socket.as_fd(), &mut [0; 1]).is_err()
    }
}

//! A client's connection: lines of JSON in both directions. It never blocks.

use forkyard_base::text::is_control;
use forkyard_protocol::jobs::{ConnectionView, JobsAnswer, LONGEST_REQUEST};
use forkyard_sys::socket::{self, Progress};
use std::os::fd::{AsFd, OwnedFd};

/// Bytes per read, and the longest line before authentication.
const READ_BYTES: usize = 16 * 1024;
const LONGEST_FIRST: usize = 1_024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Everything: root and the jobs user.
    All,
    /// The queues that this user may push into.
    Own(u32),
    Stranger,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A user's process, as identified by the kernel.
    Unix {
        uid: u32,
        pid: i32,
    },
    Tcp(String),
}

#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) origin: Origin,
    pub(crate) since_ms: u64,
    pub(crate) last_ms: u64,
    pub(crate) requests: u64,
    pub(crate) last: String,
}

const LONGEST_WORD: usize = 20;

#[derive(Debug)]
pub(crate) enum ClientInput {
    Nothing,
    Line(Vec<u8>),
    Gone,
}

#[derive(Debug)]
pub(crate) struct Client {
    socket: OwnedFd,
    pub(crate) rights: Rights,
    input: Vec<u8>,
    /// The bytes that were already searched for a line's end.
    searched: usize,
    output: Vec<u8>,
    sent: usize,
    is_waiting: bool,
    pub(crate) conversation: Conversation,
    /// It closes after its answer.
    pub(crate) is_last: bool,
}

impl Client {
    pub(crate) fn new(socket: OwnedFd, rights: Rights, origin: Origin, now_ms: u64) -> Client {
        Client {
            socket,
            rights,
            input: Vec::new(),
            searched: 0,
            output: Vec::new(),
            sent: 0,
            is_waiting: false,
            conversation: Conversation {
                origin,
                since_ms: now_ms,
                last_ms: now_ms,
                requests: 0,
                last: String::new(),
            },
            is_last: false,
        }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.is_waiting && self.output.is_empty() && self.input.is_empty()
    }

    pub(crate) fn buffered(&self) -> usize {
        self.input.len()
    }

    pub(crate) fn give_up(&mut self) {
        self.is_last = true;
        (self.input, self.searched) = (Vec::new(), 0);
    }

    pub(crate) fn note(&mut self, command: &str, now_ms: u64) {
        let conversation = &mut self.conversation;
        conversation.requests += 1;
        conversation.last_ms = now_ms;
        if conversation.last != command {
            let shown = command.chars().filter(|c| !is_control(*c));
            conversation.last = shown.take(LONGEST_WORD).collect();
        }
    }

    pub(crate) fn view(&self, id: usize, now_ms: u64) -> ConnectionView {
        let conversation = &self.conversation;
        let (uid, pid, address) = match &conversation.origin {
            Origin::Unix { uid, pid } => (Some(*uid), Some(*pid), None),
            Origin::Tcp(address) => (None, None, Some(address.clone())),
        };
        let rights = match self.rights {
            Rights::All => "all",
            Rights::Own(_) => "own",
            Rights::Stranger => "none",
        };
        ConnectionView {
            id: id as u64,
            uid,
            pid,
            address,
            rights: rights.to_owned(),
            age_ms: now_ms.saturating_sub(conversation.since_ms),
            idle_ms: now_ms.saturating_sub(conversation.last_ms),
            requests: conversation.requests,
            last: conversation.last.clone(),
            waits: self.is_waiting,
        }
    }

    pub(crate) fn answer(&mut self, answer: &JobsAnswer) {
        self.is_waiting = false;
        // Plain values to memory can't fail.
        self.output.extend(serde_json::to_vec(answer).unwrap_or_default());
        self.output.push(b'\n');
    }

    pub(crate) fn poll(&mut self) -> ClientInput {
        loop {
            while self.sent < self.output.len() {
                match socket::send(self.socket.as_fd(), &self.output[self.sent..]) {
                    Ok(Progress::Done(count)) => self.sent += count,
                    Ok(Progress::WouldBlock) => return ClientInput::Nothing,
                    Err(_) => return ClientInput::Gone,
                }
            }
            (self.output, self.sent) = (Vec::new(), 0);
            if self.is_last && !self.is_waiting && self.input.is_empty() {
                return ClientInput::Gone;
            }
            if self.is_waiting {
                return match self.has_left() {
                    true => ClientInput::Gone,
                    false => ClientInput::Nothing,
                };
            }
            let rest = self.input.get(self.searched..).unwrap_or_default();
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let end = self.searched + end;
                (self.is_waiting, self.searched) = (true, 0);
                return ClientInput::Line(self.input.drain(..=end).collect());
            }
            self.searched = self.input.len();
            let (most, room) = match self.rights {
                Rights::Stranger => (LONGEST_FIRST, LONGEST_FIRST),
                Rights::All | Rights::Own(_) => (LONGEST_REQUEST, READ_BYTES),
            };
            if self.input.len() > most {
                self.give_up();
                self.answer(&JobsAnswer::error(format!("a request has at most {most} bytes")));
                continue;
            }
            let mut buffer = [0; READ_BYTES];
            let buffer = &mut buffer[..room];
            match socket::receive(self.socket.as_fd(), buffer) {
                Ok(Progress::Done(count)) if count > 0 => self.input.extend_from_slice(&buffer[..count]),
                Ok(Progress::WouldBlock) => return ClientInput::Nothing,
                Ok(Progress::Done(_)) | Err(_) => return ClientInput::Gone,
            }
        }
    }

    /// Whether the connection of a waiting client is broken. A half-closed client still reads.
    fn has_left(&self) -> bool {
        socket::peek(self.socket.as_fd(), &mut [0; 1]).is_err()
    }
}

//! Checks that a program accepts requests: connects and sends FCGI_GET_VALUES.
//!
//! A connection proves nothing, because the kernel completes it before accept(2). The kernel does show when the program
//! has read data. libfcgi answers and keeps the connection, php-cgi answers and closes it, and some programs ignore the
//! question; all three pass.

use super::program_socket::ProgramSocket;
use fastcgi::{Answer, Part, RecordType, get_values};
use forkyard_base::tick::Tick;
use forkyard_sys::fd::unread_by_peer;
use forkyard_sys::socket::{Progress, receive, send};
use forkyard_sys::{Error, clock};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
const ANSWER_TIMEOUT: Duration = Duration::from_millis(50);
const END_TIMEOUT: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Probe {
    connection: OwnedFd,
    answer: Answer,
    pause: Duration,
    next: Tick,
    seen: Seen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Read(Tick),
    Closed(Tick),
}

#[derive(Debug)]
pub(super) enum ProbeResult {
    Pending,
    Up(Option<OwnedFd>),
    /// The answer is not FastCGI.
    Stranger(StrangeAnswer),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum StrangeAnswer {
    #[error("its answer is not FastCGI")]
    NotFastCgi,
    #[error("it answered something else: {0}")]
    Other(&'static str),
}

impl Probe {
    pub(super) fn ask(socket: &ProgramSocket, now: Tick) -> Result<Probe, Error> {
        let connection = socket.connect()?;
        send(connection.as_fd(), &get_values())?;
        Ok(Probe {
            connection,
            answer: Answer::new(),
            pause: FIRST_PAUSE,
            next: now + FIRST_PAUSE,
            seen: Seen::Nothing,
        })
    }

    pub(super) fn connection(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    pub(super) fn next(&self) -> Tick {
        self.next
    }

    pub(super) fn poll(mut self, now: Tick) -> (Option<Probe>, ProbeResult) {
        let mut buffer = [0; 1024];
        if !matches!(self.seen, Seen::Closed(_)) {
            match receive(self.connection.as_fd(), &mut buffer) {
                Ok(Progress::Done(0)) | Err(_) => self.seen = Seen::Closed(now),
                Ok(Progress::Done(count)) => match self.take(&buffer[..count]) {
                    Ok(false) => {}
                    Ok(true) => return (None, ProbeResult::Up(Some(self.connection))),
                    Err(what) => return (None, ProbeResult::Stranger(what)),
                },
                Ok(Progress::WouldBlock) => {
                    let has_read = unread_by_peer(self.connection.as_fd()) == Some(0);
                    if has_read && self.seen == Seen::Nothing {
                        self.seen = Seen::Read(now);
                    }
                }
            }
        }
        let due = match self.seen {
            Seen::Nothing => None,
            Seen::Read(since) => Some(since + ANSWER_TIMEOUT),
            Seen::Closed(since) => Some(since + END_TIMEOUT),
        };
        if due.is_some_and(|due| due <= now) {
            return (None, ProbeResult::Up(None));
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.next = due.unwrap_or(now + self.pause);
        (Some(self), ProbeResult::Pending)
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<bool, StrangeAnswer> {
        let mut is_answered = false;
        loop {
            let (used, part) = self.answer.receive(bytes);
            bytes = &bytes[used..];
            match part {
                Part::More => return Ok(is_answered),
                Part::Other(RecordType::GetValuesResult | RecordType::UnknownType, _)
                    if self.answer.request_id() == 0 =>
                {
                    is_answered = true;
                }
                Part::Broken => return Err(StrangeAnswer::NotFastCgi),
                other => return Err(StrangeAnswer::Other(kind(&other))),
            }
        }
    }

    /// Checks until the program accepts requests. `None`: it did not before `limit`, or its answer is not FastCGI.
    pub(super) fn wait(self, process: BorrowedFd<'_>, limit: Duration) -> Option<Option<OwnedFd>> {
        let end = clock::now() + limit;
        let mut probe = self;
        loop {
            let now = clock::now();
            match probe.poll(now) {
                (_, ProbeResult::Up(connection)) => return Some(connection),
                (None, _) => return None,
                (Some(same), _) => probe = same,
            }
            if now >= end {
                return None;
            }
            let left = probe.next.min(end).since(now);
            if !super::exchange::wait_for(&[probe.connection.as_fd(), process], left) {
                continue;
            }
            if forkyard_sys::pidfd::has_ended(process) {
                return None;
            }
        }
    }
}

fn kind(part: &Part<'_>) -> &'static str {
    match part {
        Part::Stdout(_) | Part::Closed(RecordType::Stdout) => "FCGI_STDOUT",
        Part::Stderr(_) | Part::Closed(_) => "FCGI_STDERR",
        Part::End { .. } => "FCGI_END_REQUEST",
        Part::Other(..) | Part::More | Part::Broken => "a record that no application sends",
    }
}

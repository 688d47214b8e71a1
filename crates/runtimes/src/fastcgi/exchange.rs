//! Passes one request to the program and its answer back, concurrently.

use super::head_end::HeadEnd;
use super::program::RunningProgram;
use super::recorded::{REQUEST_ID, Recorded};
use crate::complaints::Complaints;
use fastcgi::{Answer, Part, ProtocolStatus, RecordType};
use forkyard_base::tick::Tick;
use forkyard_sys::clock;
use forkyard_sys::fd::unread_by_peer;
use forkyard_sys::socket::{PEER_CLOSED, Progress, receive};
use forkyard_sys::timeout::{poll_timeout, wait_for_one};
use forkyard_worker::{ClientGone, Request};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use std::os::fd::BorrowedFd;
use std::time::Duration;

pub(super) const PIECE_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExchangeOutcome {
    /// `keeps`: the connection can be used again.
    Done {
        keeps: bool,
    },
    /// `silent`: the client timed out.
    ClientGone {
        silent: bool,
    },
    Refused(ProtocolStatus),
    /// The connection closed before the end of the answer. `is_unread`: the program left a part of the request unread.
    Lost {
        is_unread: bool,
    },
    /// The program exited before it accepted the connection, so another program can.
    Unaccepted,
    Deaf,
    Malformed(&'static str),
    Failed(Errno),
}

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) recorded: Recorded,
    answer: Answer,
    heard: Heard,
}

/// How far the answer is: `Nothing ──► Records ──► Output ──► Body`, and back to `Nothing` for another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Nothing,
    /// No output yet.
    Records,
    /// Part of the header was passed on.
    Output(HeadEnd),
    Body,
}

impl From<ClientGone> for ExchangeOutcome {
    fn from(ClientGone: ClientGone) -> ExchangeOutcome {
        ExchangeOutcome::ClientGone { silent: false }
    }
}

struct Ready {
    client: bool,
    connection: bool,
    output: bool,
    process: bool,
}

impl Exchange {
    pub(super) fn new(request: &Request<'_>, more: &[String]) -> Exchange {
        Exchange {
            recorded: Recorded::new(request, more),
            answer: Answer::new(),
            heard: Heard::Nothing,
        }
    }

    pub(super) fn rewind(&mut self) -> bool {
        let has_begun = self.has_begun();
        (self.answer, self.heard) = (Answer::new(), Heard::Nothing);
        self.recorded.rewind() && !has_begun
    }

    pub(super) fn is_unheard(&self) -> bool {
        self.heard == Heard::Nothing
    }

    pub(super) fn has_begun(&self) -> bool {
        matches!(self.heard, Heard::Output(_) | Heard::Body)
    }

    /// Runs until the exchange ends. After [`ExchangeOutcome::Unaccepted`] it may run again on the same connection;
    /// then the program must read something before `due`.
    pub(super) fn run(
        &mut self,
        request: &mut Request<'_>,
        connection: BorrowedFd<'_>,
        program: &mut RunningProgram,
        complaints: &mut Complaints,
        buffer: &mut [u8],
        mut due: Option<Tick>,
    ) -> ExchangeOutcome {
        let waiting = due.and_then(|_| unread_by_peer(connection));
        loop {
            // Data that was read from the client but did not fit raises no event, so drain it before waiting.
            loop {
                match self.recorded.fill(request, buffer) {
                    Ok(has_got) => {
                        self.recorded.send(connection);
                        if !has_got || self.recorded.has_more() {
                            break;
                        }
                    }
                    Err(ClientGone) => return ExchangeOutcome::ClientGone { silent: false },
                }
            }
            let ready = match self.wait(request, connection, program, due) {
                Ok(Some(ready)) => ready,
                Ok(None) if due.take_if(|due| *due <= clock::now()).is_some() => {
                    if unread_by_peer(connection) == waiting && self.is_unheard() {
                        return ExchangeOutcome::Deaf;
                    }
                    continue;
                }
                Ok(None) => return ExchangeOutcome::ClientGone { silent: true },
                Err(errno) => return ExchangeOutcome::Failed(errno),
            };
            if ready.client && !self.recorded.wants_body() {
                return ExchangeOutcome::ClientGone { silent: false };
            }
            if ready.output {
                let mut said = Vec::new();
                program.read_in_request(&mut |bytes| said.extend_from_slice(bytes));
                self.complain(request, complaints, &said);
            }
            if ready.connection || ready.process {
                match receive(connection, buffer) {
                    Ok(Progress::Done(0)) => return ExchangeOutcome::Lost { is_unread: false },
                    // The kernel reports ECONNRESET if the peer closed with unread data (unix(7)).
                    Err(error) => {
                        return ExchangeOutcome::Lost {
                            is_unread: error.errno == Errno::ECONNRESET,
                        };
                    }
                    Ok(Progress::WouldBlock) if ready.process => return ExchangeOutcome::Unaccepted,
                    Ok(Progress::WouldBlock) => {}
                    Ok(Progress::Done(count)) => {
                        if self.is_unheard() {
                            self.heard = Heard::Records;
                        }
                        if let Err(outcome) = self.take(request, complaints, &buffer[..count]) {
                            return outcome;
                        }
                        if count < buffer.len() && request.flush().is_err() {
                            return ExchangeOutcome::ClientGone { silent: false };
                        }
                    }
                }
            }
        }
    }

    fn ended(&self, status: ProtocolStatus, has_rest: bool) -> ExchangeOutcome {
        match status {
            ProtocolStatus::RequestComplete => ExchangeOutcome::Done {
                keeps: !has_rest && self.recorded.is_done(),
            },
            _ if self.has_begun() => {
                ExchangeOutcome::Malformed("it refused a request that it had begun to answer")
            }
            _ => ExchangeOutcome::Refused(status),
        }
    }

    fn take(
        &mut self,
        request: &mut Request<'_>,
        complaints: &mut Complaints,
        mut bytes: &[u8],
    ) -> Result<(), ExchangeOutcome> {
        loop {
            let (used, part) = self.answer.receive(bytes);
            bytes = &bytes[used..];
            let is_own = self.answer.request_id() == REQUEST_ID;
            match part {
                Part::More => return Ok(()),
                Part::Stdout(piece) if is_own => {
                    self.pass(piece, request, complaints)?;
                }
                Part::Stderr(piece) if is_own => self.complain(request, complaints, piece),
                Part::Closed(_) if is_own => {}
                Part::End { app_status, status } if is_own => {
                    if status == ProtocolStatus::RequestComplete {
                        request.set_app_status(app_status);
                    }
                    return Err(self.ended(status, !bytes.is_empty()));
                }
                Part::Other(RecordType::GetValuesResult | RecordType::UnknownType, _) => {}
                Part::Other(..) => {
                    return Err(ExchangeOutcome::Malformed(
                        "it sent a record that no application sends",
                    ));
                }
                Part::Broken => return Err(ExchangeOutcome::Malformed("its answer is not FastCGI")),
                Part::Stdout(_) | Part::Stderr(_) | Part::Closed(_) | Part::End { .. } => {
                    return Err(ExchangeOutcome::Malformed(
                        "it answered a request that it was not asked",
                    ));
                }
            }
        }
    }

    fn pass(
        &mut self,
        piece: &[u8],
        request: &mut Request<'_>,
        complaints: &mut Complaints,
    ) -> Result<(), ClientGone> {
        let mut head = match self.heard {
            Heard::Nothing | Heard::Records => HeadEnd::default(),
            Heard::Output(head) => head,
            Heard::Body => return request.write(piece),
        };
        self.heard = match head.take(piece) {
            true => Heard::Body,
            false => Heard::Output(head),
        };
        request.write(piece)?;
        if self.heard == Heard::Body {
            complaints.let_go(request);
        }
        Ok(())
    }

    fn complain(&self, request: &mut Request<'_>, complaints: &mut Complaints, bytes: &[u8]) {
        complaints.take(bytes, request, self.heard == Heard::Body, super::supervisor::NAME);
    }

    fn wait(
        &self,
        request: &Request<'_>,
        connection: BorrowedFd<'_>,
        program: &RunningProgram,
        due: Option<Tick>,
    ) -> Result<Option<Ready>, Errno> {
        let wants_body = self.recorded.wants_body();
        let mut to = PollFlags::POLLIN;
        to.set(PollFlags::POLLOUT, self.recorded.has_more());
        let from_client = if wants_body {
            PollFlags::POLLIN
        } else {
            PEER_CLOSED
        };
        let mut about = vec![
            PollFd::new(connection, to),
            PollFd::new(program.process(), PollFlags::POLLIN),
        ];
        let client = request.connection().map(|client| {
            about.push(PollFd::new(client, from_client));
            about.len() - 1
        });
        let output = program.output().map(|output| {
            about.push(PollFd::new(output, PollFlags::POLLIN));
            about.len() - 1
        });
        let due = due.map(|due| due.since(clock::now()));
        let timeout_of_client = wants_body.then(|| request.client_timeout());
        let limit = timeout_of_client.into_iter().chain(due).min();
        let count = wait_for_one(&mut about, limit)?;
        let is = |index: usize| about[index].any().unwrap_or(true);
        Ok((count > 0).then(|| Ready {
            client: client.is_some_and(is),
            connection: about[0]
                .revents()
                .is_none_or(|events| !(events - PollFlags::POLLOUT).is_empty()),
            output: output.is_some_and(is),
            process: is(1),
        }))
    }
}

pub(super) fn wait_for(sources: &[BorrowedFd<'_>], limit: Duration) -> bool {
    let mut about: Vec<PollFd<'_>> = sources
        .iter()
        .map(|source| PollFd::new(*source, PollFlags::POLLIN))
        .collect();
    poll(&mut about, poll_timeout(limit)).is_ok_and(|count| count > 0)
}

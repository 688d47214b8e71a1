//! A connection of a worker with several requests, and its request.

use super::super::access::Recorder;
use super::super::connection::Connection;
use crate::tick::Tick;
use fastcgi::{Input, Output, Params, Reply, Violation};
use nix::sys::epoll::EpollFlags;

/// A connection's state.
///
/// ```text
///          bytes            parameters        room           answer ended         sent
///   Idle ────────▶ Reading ───────────▶ Waiting ───▶ Serving ────────────▶ Ending ─────▶ Idle, Rest, Lingering, Free
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ClientPhase {
    #[default]
    Free,
    Idle,
    Reading,
    Waiting,
    Serving,
    Ending,
    /// The answer is sent; the rest of the body must arrive before a router gets the connection back.
    Rest,
    /// The answer is sent. Discards the client's data, so that closing does not reset the connection before the client
    /// reads the answer.
    Lingering,
}

#[derive(Debug, Default)]
pub(super) struct Client {
    pub serial: u32,
    pub phase: ClientPhase,
    /// `None` if the place is free, or the client disconnected before the application finished.
    pub connection: Option<Box<Connection>>,
    pub input: Vec<u8>,
    pub readable: bool,
    /// The kernel reported the client's end-of-file, which is still unread.
    pub hangs_up: bool,
    pub input_ended: bool,
    pub body: Vec<u8>,
    pub body_ended: bool,
    /// The application waits for more of the body, or for the client to disconnect.
    pub wants_body: bool,
    pub output: Option<Box<Output>>,
    pub is_full: bool,
    pub watched: Option<EpollFlags>,
    pub has_begun: bool,
    pub sent: Tick,
    /// The answer has started but nothing was sent for a while; it does not count against the limit.
    pub is_quiet: bool,
    pub told_gone: bool,
    pub is_gone: bool,
    pub was_found: bool,
    pub taken: Tick,
    /// When the client has timed out; `None`: nothing is expected of it.
    pub deadline: Option<Tick>,
    pub expires: Option<Tick>,
    pub recorder: Option<Box<Recorder>>,
    pub params: Option<Box<Params>>,
    /// A long-lived connection, such as a WebSocket, without a time limit.
    pub is_endless: bool,
    pub session: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Understood {
    pub used: usize,
    pub is_request: bool,
    pub is_aborted: bool,
    pub replies: Vec<Reply>,
    pub broken: Option<Violation>,
}

const MOST_SERIAL: u32 = (1 << 29) - 1;

impl Client {
    pub(super) fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1) & MOST_SERIAL;
        self.serial
    }

    pub(super) fn understand(&mut self, bytes: &[u8]) -> Understood {
        let mut understood = Understood::default();
        let Some(connection) = self.connection.as_deref_mut() else {
            understood.used = bytes.len();
            return understood;
        };
        loop {
            let (used, input) = connection.responder.receive(&bytes[understood.used..]);
            understood.used += used;
            match input {
                Input::More => return understood,
                Input::Request => {
                    understood.is_request = true;
                    self.body.clear();
                    self.body_ended = false;
                }
                Input::Body(piece) => self.body.extend_from_slice(piece),
                Input::BodyEnd => self.body_ended = true,
                Input::Abort => understood.is_aborted = true,
                Input::Reply(reply) => understood.replies.push(reply),
                Input::Broken(violation) => {
                    understood.broken = Some(violation);
                    return understood;
                }
            }
        }
    }

    pub(super) fn has_output(&self) -> bool {
        self.output.as_ref().is_some_and(|output| !output.is_empty())
    }

    pub(super) fn has_its_answer(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.responder.is_draining())
    }

    pub(super) fn is_portable(&self) -> bool {
        self.input.is_empty() && self.connection.as_ref().is_some_and(|it| it.is_portable())
    }

    pub(super) fn wants_input(&self, ahead: usize) -> bool {
        match self.phase {
            ClientPhase::Free | ClientPhase::Waiting | ClientPhase::Ending => false,
            ClientPhase::Idle | ClientPhase::Reading | ClientPhase::Rest | ClientPhase::Lingering => true,
            ClientPhase::Serving if self.body_ended => self.input.is_empty(),
            ClientPhase::Serving => self.body.len() < ahead,
        }
    }
}

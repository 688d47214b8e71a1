//! A connection of a worker that serves several requests at a time, and the request on it.

use super::super::access::Recorder;
use super::super::connection::Connection;
use crate::tick::Tick;
use fastcgi::{Input, Output, Params, Reply, Violation};
use nix::sys::epoll::EpollFlags;

/// Where a connection is.
///
/// ```text
///          bytes            parameters        room           answer ended         sent
///   Idle ────────▶ Reading ───────────▶ Waiting ───▶ Serving ────────────▶ Ending ─────▶ Idle, Rest, Lingering, Free
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ClientPhase {
    /// There is none.
    #[default]
    Free,
    /// Between two requests; nothing of it is known here only.
    Idle,
    /// A request has come in part.
    Reading,
    /// A request is there; the worker has as many as it may have.
    Waiting,
    /// The application has the request.
    Serving,
    /// The answer is complete and not sent.
    Ending,
    /// The answer is sent; what is left of the body has to come before a router can have the connection back.
    Rest,
    /// The answer is sent, and bytes that the client still sends are dropped: it is to see the answer before the
    /// connection is closed.
    Lingering,
}

/// A place for a connection.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// The number of the request, to tell it from others in the same place.
    pub serial: u32,
    pub phase: ClientPhase,
    /// `None` in a slot that is free, and where the client is gone while the application goes on.
    pub connection: Option<Box<Connection>>,
    /// What was read and not understood yet: a part of a record, or a next request.
    pub input: Vec<u8>,
    /// There may be something to read.
    pub readable: bool,
    /// The kernel has said that the client sends nothing more, which is to be read still.
    pub hangs_up: bool,
    /// The client sends nothing more.
    pub input_ended: bool,
    /// What was read of the body and not given to the application.
    pub body: Vec<u8>,
    pub body_ended: bool,
    /// The application waits for more of the body, or for its client to leave.
    pub wants_body: bool,
    pub output: Option<Box<Output>>,
    /// The application waits until there is room to write.
    pub is_full: bool,
    /// Of what the kernel tells.
    pub watched: Option<EpollFlags>,
    /// The application has begun to answer.
    pub has_begun: bool,
    /// When a part of the answer was last sent.
    pub sent: Tick,
    /// Nothing of the answer, which has begun, was sent for a while: it does not count against the limit of requests.
    pub is_quiet: bool,
    /// The application was told that its client is gone.
    pub told_gone: bool,
    /// Nothing can be sent any more.
    pub is_gone: bool,
    /// It was shown as slow for long enough to be found.
    pub was_found: bool,
    /// When the request was taken up.
    pub taken: Tick,
    /// When the client has been idle, silent or deaf for too long; `None`: nothing is expected of it.
    pub deadline: Option<Tick>,
    /// When the request has taken too long.
    pub expires: Option<Tick>,
    pub recorder: Option<Box<Recorder>>,
    /// What a request says of itself that came by another way than a connection of the worker's.
    pub params: Option<Box<Params>>,
    /// It goes on for as long as both ends want, as a WebSocket does: no time is set for it.
    pub is_endless: bool,
    /// By which a router knows the session.
    pub session: Option<u64>,
}

/// What a piece of input came to.
#[derive(Debug, Default)]
pub(super) struct Understood {
    /// How many bytes of it are done with.
    pub used: usize,
    /// A request has begun, with all its parameters.
    pub is_request: bool,
    /// The client no longer wants the answer.
    pub is_aborted: bool,
    /// To be written between two records.
    pub replies: Vec<Reply>,
    pub broken: Option<Violation>,
}

/// Serials have so many bits, so that the numbers by which the kernel tells of connections leave others to event loops that
/// watch more with the worker's epoll.
const MOST_SERIAL: u32 = (1 << 29) - 1;

impl Client {
    /// A number for the next connection or request in this place.
    pub(super) fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1) & MOST_SERIAL;
        self.serial
    }

    /// Understands what was read.
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

    /// Whether something is to be sent.
    pub(super) fn has_output(&self) -> bool {
        self.output.as_ref().is_some_and(|output| !output.is_empty())
    }

    /// Whether all that is missing is the rest of a request that is answered.
    pub(super) fn has_its_answer(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.responder.is_draining())
    }

    /// Whether another process could go on with the connection.
    pub(super) fn is_portable(&self) -> bool {
        self.input.is_empty() && self.connection.as_ref().is_some_and(|it| it.is_portable())
    }

    /// Whether more is to be read now, with so many bytes of a body at most ahead of the application.
    pub(super) fn wants_input(&self, ahead: usize) -> bool {
        match self.phase {
            ClientPhase::Free | ClientPhase::Waiting | ClientPhase::Ending => false,
            ClientPhase::Idle | ClientPhase::Reading | ClientPhase::Rest | ClientPhase::Lingering => true,
            // Behind its end only the client's own end, or that it gives up, is of interest.
            ClientPhase::Serving if self.body_ended => self.input.is_empty(),
            ClientPhase::Serving => self.body.len() < ahead,
        }
    }
}

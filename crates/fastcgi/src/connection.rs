//! The server side of a connection: takes bytes and time, returns events and bytes to send.
//!
//! ```text
//!          bytes            parameters        start             finish           sent
//!   Idle ────────▶ Reading ───────────▶ Waiting ─────▶ Serving ────────▶ Ending ──────▶ Idle, Reading, Lingering, Closed
//!    ▲                │
//!    └────────────────┘ no request, or the rest of an answered one
//! ```
//!
//! A violation leads from Idle and Reading to Lingering. A client that closes, or that is too slow, leads from Idle,
//! Reading and Lingering to Closed. In Serving the request goes on without the client.

use super::output::Output;
use super::params::{Limits, Params, Repeated};
use super::record::ProtocolStatus;
use super::reply::Reply;
use super::responder::{Input, Responder};
use super::violation::{Fault, Violation};
use std::ops::Add;
use std::time::Duration;

/// How much of a body is read before the application asks for it.
const AHEAD_BYTES: usize = 256 * 1024;
const SPARE_BYTES: usize = 64 * 1024;
const LINGER_LIMIT: Duration = Duration::from_secs(1);

/// A connection's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Between two requests.
    #[default]
    Idle,
    /// Parameters, or the rest of the body of an answered request.
    Reading,
    /// The parameters are complete: call [`Connection::start`].
    Waiting,
    /// The application answers.
    Serving,
    /// The answer is complete, but not sent: call [`Connection::answered`] after the last pending byte.
    Ending,
    /// Send the pending bytes, then shut down the socket for writing. Discards input: unread input would make closing
    /// reset the connection before the client has read the answer.
    Lingering,
    /// Close the socket.
    Closed,
}

/// The client's part in its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Client {
    #[default]
    Present,
    /// It has cancelled the request.
    Aborted,
    /// It sends nothing more, but may read the answer.
    Ended,
    /// It gets nothing more.
    Gone,
}

/// An event of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A request with complete parameters. The phase is [`Phase::Waiting`].
    Request,
    /// More of the body is there, or its end. Only after [`Piece::NotYet`].
    Body,
    /// The client has left its request. Comes once.
    Gone,
    /// Between two requests again.
    Idle,
    /// A fault of the client. During a request, call [`Connection::lose`].
    Fault(Fault),
}

/// The next piece of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// More will come.
    More,
    /// The last piece; may be empty.
    Last,
    /// No data yet; an event will follow.
    NotYet,
    /// The client is gone.
    Gone,
}

/// How long to wait for a client.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For the rest of a request, or for room for an answer.
    pub client: Duration,
    /// For the next request.
    pub keepalive: Duration,
}

/// A connection without its socket. `T` is a point in time, such as [`std::time::Instant`].
///
/// After each call, send [`Connection::pending`] and look at [`Connection::phase`] and [`Connection::deadline`].
#[derive(Debug)]
pub struct Connection<T> {
    responder: Responder,
    timeouts: Timeouts,
    phase: Phase,
    client: Client,
    input: Vec<u8>,
    body: Vec<u8>,
    /// Exists only during an answer or a reply, because it is large.
    output: Option<Box<Output>>,
    wants_body: bool,
    wants_room: bool,
    has_reply: bool,
    is_last: bool,
    input_due: Option<T>,
    output_due: Option<T>,
}

impl<T: Copy + Ord + Add<Duration, Output = T>> Connection<T> {
    /// Creates a new connection. Its first byte is due within [`Timeouts::client`].
    pub fn new(limits: Limits, repeated: Repeated, timeouts: Timeouts, now: T) -> Connection<T> {
        let mut responder = Responder::new(limits);
        responder.set_repeated(repeated);
        Connection {
            responder,
            timeouts,
            phase: Phase::Idle,
            client: Client::Present,
            input: Vec::new(),
            body: Vec::new(),
            output: None,
            wants_body: false,
            wants_room: false,
            has_reply: false,
            is_last: false,
            input_due: Some(now + timeouts.client),
            output_due: None,
        }
    }

    /// Starts another connection with the memory of this one.
    pub fn reuse(mut self: Box<Self>, now: T) -> Box<Self> {
        self.responder.reset();
        self.input.clear();
        self.body.clear();
        self.body.shrink_to(SPARE_BYTES);
        (self.phase, self.client) = (Phase::Idle, Client::Present);
        self.output = None;
        (self.wants_body, self.wants_room) = (false, false);
        (self.has_reply, self.is_last) = (false, false);
        (self.input_due, self.output_due) = (Some(now + self.timeouts.client), None);
        self
    }

    /// Closes after the next answer, even if the client wants to keep the connection.
    pub fn set_last(&mut self, is_last: bool) {
        self.is_last = is_last;
    }

    /// Replaces the deadline for the client's next bytes.
    pub fn expect_by(&mut self, due: T) {
        self.input_due = Some(due);
    }

    /// The connection's state.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// When to call [`Connection::expire`].
    pub fn deadline(&self) -> Option<T> {
        self.input_due.into_iter().chain(self.output_due).min()
    }

    /// Parameters of the current request.
    pub fn params(&self) -> &Params {
        self.responder.params()
    }

    /// The parameters, for corrections before the request is passed on.
    pub fn params_mut(&mut self) -> &mut Params {
        self.responder.params_mut()
    }

    /// Whether the whole body was received.
    pub fn body_ended(&self) -> bool {
        self.responder.body_ended()
    }

    /// Whether the client gets nothing more of the current answer.
    pub fn is_gone(&self) -> bool {
        self.client == Client::Gone
    }

    /// Whether the client has left its request. Check it after [`Connection::start`], too.
    pub fn has_left(&self) -> bool {
        self.client != Client::Present
    }

    /// Whether the client must see now that it can't keep the connection.
    pub fn refuses_more(&self) -> bool {
        self.is_last && self.responder.keep() && self.body_ended()
    }

    /// Whether the connection has no part of a request and no output, so that it can move to another process.
    pub fn is_portable(&self) -> bool {
        self.phase == Phase::Idle && self.is_between_requests() && !self.has_output()
    }

    fn is_between_requests(&self) -> bool {
        self.input.is_empty() && self.responder.is_between_requests()
    }

    /// Whether to read from the client.
    pub fn wants_input(&self) -> bool {
        match self.phase {
            Phase::Waiting | Phase::Ending | Phase::Closed => false,
            Phase::Idle | Phase::Reading | Phase::Lingering => true,
            Phase::Serving if matches!(self.client, Client::Ended | Client::Gone) => false,
            Phase::Serving if self.body_ended() => self.input.is_empty(),
            Phase::Serving => self.body.len() < AHEAD_BYTES,
        }
    }

    /// Takes bytes from the client.
    pub fn receive(&mut self, bytes: &[u8], now: T) -> Option<Event> {
        if self.phase == Phase::Lingering {
            return None;
        }
        if !self.input.is_empty() {
            self.input.extend_from_slice(bytes);
            return self.resume(now);
        }
        let decoded = self.decode(bytes);
        self.input.extend_from_slice(&bytes[decoded.used..]);
        self.act(decoded, now)
    }

    /// Decodes input that came before the last answer ended.
    pub fn resume(&mut self, now: T) -> Option<Event> {
        let mut input = std::mem::take(&mut self.input);
        let decoded = self.decode(&input);
        input.drain(..decoded.used);
        self.input = input;
        self.act(decoded, now)
    }

    fn decode(&mut self, bytes: &[u8]) -> Decoded {
        let mut decoded = Decoded::default();
        loop {
            let (used, input) = self.responder.receive(&bytes[decoded.used..]);
            decoded.used += used;
            match input {
                Input::More => return decoded,
                Input::Request => {
                    decoded.is_request = true;
                    self.client = Client::Present;
                    self.body.clear();
                }
                Input::Body(piece) => self.body.extend_from_slice(piece),
                Input::BodyEnd => {}
                Input::Abort => decoded.is_gone = self.leave(Client::Aborted),
                Input::Reply(reply) => self.reply(&reply),
                Input::Broken(violation) => {
                    decoded.broken = Some(violation);
                    return decoded;
                }
            }
        }
    }

    fn act(&mut self, decoded: Decoded, now: T) -> Option<Event> {
        if let Some(violation) = decoded.broken {
            if self.phase != Phase::Serving {
                if let Some(reply) = violation.reply() {
                    self.reply(&reply);
                }
                self.linger(now);
            }
            return Some(Event::Fault(Fault::Violation(violation)));
        }
        match self.phase {
            Phase::Idle | Phase::Reading if decoded.is_request => {
                self.phase = Phase::Waiting;
                self.input_due = None;
                Some(Event::Request)
            }
            Phase::Idle if !self.is_between_requests() => {
                self.phase = Phase::Reading;
                self.input_due = Some(now + self.timeouts.client);
                None
            }
            Phase::Reading if self.is_between_requests() => {
                self.keep(now);
                Some(Event::Idle)
            }
            Phase::Serving if decoded.is_gone => Some(Event::Gone),
            Phase::Serving if self.wants_body && (!self.body.is_empty() || self.body_ended()) => {
                self.wants_body = false;
                Some(Event::Body)
            }
            _ => None,
        }
    }

    /// A client that reads nothing gets no more replies.
    fn reply(&mut self, reply: &Reply) {
        self.has_reply |= self.output.get_or_insert_default().reply(reply);
    }

    /// The client sends nothing more.
    pub fn end_of_input(&mut self) -> Option<Event> {
        if self.phase == Phase::Serving {
            return self.leave(Client::Ended).then_some(Event::Gone);
        }
        self.close_by(Fault::Cut)
    }

    /// The deadline has passed.
    pub fn expire(&mut self) -> Option<Event> {
        match self.phase {
            Phase::Serving | Phase::Ending => self.lose(),
            _ => {
                let within = self.timeouts.client;
                self.close_by(Fault::Late { within })
            }
        }
    }

    fn close_by(&mut self, fault: Fault) -> Option<Event> {
        let is_cut = self.phase == Phase::Reading && !self.responder.is_draining();
        match self.phase {
            Phase::Idle | Phase::Reading | Phase::Lingering => self.phase = Phase::Closed,
            Phase::Waiting | Phase::Serving | Phase::Ending | Phase::Closed => {}
        }
        is_cut.then_some(Event::Fault(fault))
    }

    /// The socket is useless. The application may go on with a request.
    pub fn lose(&mut self) -> Option<Event> {
        self.input.clear();
        (self.input_due, self.output_due) = (None, None);
        if let Some(output) = &mut self.output {
            output.abandon();
        }
        if self.phase != Phase::Serving {
            self.phase = Phase::Closed;
            return None;
        }
        self.leave(Client::Gone).then_some(Event::Gone)
    }

    /// Returns false if it had left before.
    fn leave(&mut self, how: Client) -> bool {
        let was = self.client;
        if was != Client::Gone {
            self.client = how;
        }
        self.wants_body = false;
        was == Client::Present
    }

    /// Starts the answer, with the memory of an earlier one if there is any.
    pub fn start(&mut self, spare: Option<Box<Output>>) {
        let output = self.output.get_or_insert_with(|| spare.unwrap_or_default());
        output.begin(self.responder.request_id());
        self.phase = Phase::Serving;
        (self.wants_body, self.wants_room) = (false, false);
    }

    /// The part of the body that came with the parameters.
    pub fn first_body(&self) -> &[u8] {
        &self.body
    }

    /// Removes [`Connection::first_body`].
    pub fn first_body_taken(&mut self) {
        self.body.clear();
    }

    /// Replaces the content of `piece` by the next part of the body.
    pub fn next_piece(&mut self, piece: &mut Vec<u8>) -> Piece {
        piece.clear();
        if !self.body.is_empty() || self.body_ended() {
            std::mem::swap(piece, &mut self.body);
            return if self.body_ended() {
                Piece::Last
            } else {
                Piece::More
            };
        }
        if self.has_left() {
            return Piece::Gone;
        }
        self.wants_body = true;
        Piece::NotYet
    }

    /// A thread waits for the body, and sees it without an event. The client has limited time for it.
    pub fn expect_body(&mut self, now: T) {
        self.wants_body = false;
        self.input_due.get_or_insert(now + self.timeouts.client);
    }

    /// No thread waits for the body any longer.
    pub fn expect_nothing(&mut self) {
        self.input_due = None;
    }

    /// Adds to the answer; returns how many bytes were taken.
    pub fn stdout(&mut self, bytes: &[u8]) -> usize {
        self.output
            .as_mut()
            .map_or(bytes.len(), |output| output.stdout(bytes))
    }

    /// Adds error text; returns how many bytes were taken.
    pub fn stderr(&mut self, bytes: &[u8]) -> usize {
        self.output
            .as_mut()
            .map_or(bytes.len(), |output| output.stderr(bytes))
    }

    /// Records whether the application waits for room.
    pub fn set_wants_room(&mut self, wants_room: bool) {
        self.wants_room = wants_room;
    }

    /// Whether the application waits for room.
    pub fn wants_room(&self) -> bool {
        self.wants_room
    }

    /// Whether bytes are pending.
    pub fn has_output(&self) -> bool {
        self.output.as_ref().is_some_and(|output| !output.is_empty())
    }

    /// Whether to send the pending bytes at once: they contain an answer of the protocol itself.
    pub fn has_reply(&self) -> bool {
        self.has_reply
    }

    /// The bytes to send.
    pub fn pending(&mut self) -> &[u8] {
        self.has_reply = false;
        self.output.as_mut().map_or(&[], |output| output.pending())
    }

    /// Removes bytes that were sent.
    pub fn sent(&mut self, count: usize) {
        if let Some(output) = &mut self.output {
            output.consume(count);
        }
        self.output_due = None;
    }

    /// The socket takes no more for now. The client has limited time to read something.
    pub fn blocked(&mut self, now: T) {
        self.output_due.get_or_insert(now + self.timeouts.client);
    }

    /// Ends the answer.
    pub fn finish(&mut self) {
        self.phase = Phase::Ending;
        if let Some(output) = &mut self.output {
            if self.client == Client::Gone {
                output.abandon();
            } else {
                output.end(0, ProtocolStatus::RequestComplete);
            }
        }
    }

    /// Before [`Connection::finish`]: the client gets no END_REQUEST, because the answer is incomplete.
    pub fn break_off(&mut self) {
        self.client = Client::Gone;
    }

    /// Ends the request after its answer was sent. Returns the answer's memory for the next one. In [`Phase::Reading`],
    /// call [`Connection::resume`].
    pub fn answered(&mut self, now: T) -> Option<Box<Output>> {
        let keeps = self.responder.keep() && !self.is_last;
        let is_whole = self.body_ended() && self.input.is_empty();
        self.body.clear();
        self.responder.finish();
        match self.client {
            Client::Present | Client::Aborted if keeps && self.is_between_requests() => self.keep(now),
            Client::Present | Client::Aborted if keeps => {
                self.phase = Phase::Reading;
                self.input_due = Some(now + self.timeouts.client);
            }
            Client::Ended => self.phase = Phase::Closed,
            Client::Present | Client::Aborted | Client::Gone if is_whole => self.phase = Phase::Closed,
            Client::Present | Client::Aborted | Client::Gone => self.linger(now),
        }
        self.output.take()
    }

    fn keep(&mut self, now: T) {
        self.phase = Phase::Idle;
        self.input_due = Some(now + self.timeouts.keepalive);
    }

    fn linger(&mut self, now: T) {
        self.phase = Phase::Lingering;
        self.input.clear();
        self.input_due = Some(now + LINGER_LIMIT);
    }
}

#[derive(Debug, Default)]
struct Decoded {
    used: usize,
    is_request: bool,
    is_gone: bool,
    broken: Option<Violation>,
}

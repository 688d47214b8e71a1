//! The server side of a connection.
//!
//! ```text
//!            BEGIN            empty PARAMS          empty STDIN
//!   Idle ───────────▶ Params ─────────────▶ Body ──────────────▶ Served
//!    ▲ ▲                 │ abort              │ finish               │
//!    │ └─────────────────┘                    ▼                      │ finish
//!    │◀──────────────────────────────────── Draining                 │
//!    │             empty STDIN, abort                                │
//!    └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! A request is active from BEGIN until `finish`. Records of an inactive request are skipped (section 3.3), and BEGIN
//! starts a new one. In Draining, the old request's STDIN has not ended. A rejected request is drained like one that
//! was answered early.

use super::pairs::{Excess, Pairs};
use super::params::{Limits, Params, Repeated};
use super::record::{Cursor, Header, ProtocolStatus, RecordType, Records, Role, VERSION};
use super::reply::{Reply, Values};
use super::violation::Violation;

/// A decoded event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input<'i> {
    /// Needs more input. All input is consumed, except a next request that was sent before the current one was
    /// finished: it stays, and reading more is useless.
    More,
    /// A request with complete parameters.
    Request,
    /// A non-empty part of the body.
    Body(&'i [u8]),
    /// End of the body.
    BodyEnd,
    /// The client has cancelled the request, which must still be finished.
    Abort,
    /// Send these bytes between two records.
    Reply(Reply),
    /// The connection is unusable. Returned for all later input, too.
    Broken(Violation),
}

/// Decodes a connection's requests.
#[derive(Debug)]
pub struct Responder {
    records: Records,
    sink: Sink,
    state: ResponderState,
    held: Option<Header>,
    broken: Option<Violation>,
    params: Box<Params>,
    pairs: Pairs,
    values: Values,
    request_id: u16,
    role: Role,
    keep: bool,
    body_ended: bool,
    aborted: bool,
    begin: [u8; BEGIN_LENGTH],
    begin_filled: usize,
    question: Vec<u8>,
}

const BEGIN_LENGTH: usize = 8;
const KEEP_CONNECTION: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponderState {
    Idle,
    Params,
    Body,
    Served,
    Draining,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sink {
    /// Between records.
    None,
    Skip,
    Begin,
    Params,
    Body,
    Question,
}

enum Route<'i> {
    To(Sink),
    /// Return this and skip the content.
    Say(Input<'i>),
    Hold,
}

impl Responder {
    /// Creates a decoder for a new connection.
    pub fn new(limits: Limits) -> Responder {
        Responder {
            records: Records::default(),
            sink: Sink::None,
            state: ResponderState::Idle,
            held: None,
            broken: None,
            params: Box::default(),
            pairs: Pairs::new(limits),
            values: Values::default(),
            request_id: 0,
            role: Role::Responder,
            keep: false,
            body_ended: false,
            aborted: false,
            begin: [0; BEGIN_LENGTH],
            begin_filled: 0,
            question: Vec::new(),
        }
    }

    /// Prepares for another connection; keeps the memory and the settings.
    pub fn reset(&mut self) {
        let Responder {
            records,
            sink,
            state,
            held,
            broken,
            params,
            pairs,
            values: _,
            request_id,
            role,
            keep,
            body_ended,
            aborted,
            begin: _,
            begin_filled,
            question,
        } = self;
        params.clear();
        pairs.restart();
        question.clear();
        *records = Records::default();
        (*sink, *state) = (Sink::None, ResponderState::Idle);
        (*held, *broken) = (None, None);
        (*request_id, *role, *keep) = (0, Role::Responder, false);
        (*body_ended, *aborted, *begin_filled) = (false, false, 0);
    }

    /// Sets how to handle repeated parameters.
    pub fn set_repeated(&mut self, repeated: Repeated) {
        self.pairs.repeated = repeated;
    }

    /// Sets the answers to GET_VALUES.
    pub fn set_values(&mut self, values: Values) {
        self.values = values;
    }

    /// Decodes the start of `input`; returns the bytes consumed and the event. Call it with the rest until
    /// [`Input::More`]. Accepts partial records.
    pub fn receive<'i>(&mut self, input: &'i [u8]) -> (usize, Input<'i>) {
        self.decode(input, false)
    }

    /// Decodes the rest of a finished request, and stops before the next one. Otherwise like [`Responder::receive`].
    pub fn receive_rest<'i>(&mut self, input: &'i [u8]) -> (usize, Input<'i>) {
        self.decode(input, true)
    }

    fn decode<'i>(&mut self, input: &'i [u8], stops_when_idle: bool) -> (usize, Input<'i>) {
        let mut cursor = Cursor::new(input);
        let meaning = self.next(&mut cursor, stops_when_idle);
        if let Input::Broken(violation) = meaning {
            self.broken = Some(violation);
            return (input.len(), meaning);
        }
        if self.held.is_none() {
            self.records.skip_padding(&mut cursor);
        }
        (cursor.at, meaning)
    }

    /// Parameters of the current request, complete after [`Input::Request`]. The first is FCGI_ROLE.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Memory of the received request.
    pub fn memory(&self) -> usize {
        self.params.memory() + self.question.capacity()
    }

    /// The parameters, mutably. Swap them to keep them longer than the request.
    pub fn params_mut(&mut self) -> &mut Box<Params> {
        &mut self.params
    }

    /// Id of the current or last request.
    pub fn request_id(&self) -> u16 {
        self.request_id
    }

    /// Whether to keep the connection (FCGI_KEEP_CONN, section 5.1).
    pub fn keep(&self) -> bool {
        self.keep
    }

    /// Requested role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether the whole body was received.
    pub fn body_ended(&self) -> bool {
        self.body_ended
    }

    /// Ends the current request; the rest of its body is skipped. Input left by [`Input::More`] must be passed again
    /// before reading more.
    pub fn finish(&mut self) {
        self.state = match self.state {
            ResponderState::Idle | ResponderState::Served => ResponderState::Idle,
            // After an abort the body may never end.
            ResponderState::Params | ResponderState::Body if self.aborted => ResponderState::Idle,
            ResponderState::Params | ResponderState::Body | ResponderState::Draining => {
                ResponderState::Draining
            }
        };
        if matches!(self.sink, Sink::Params | Sink::Body) {
            self.sink = Sink::Skip;
        }
    }

    /// Whether nothing of a next request was received and nothing of the last one is outstanding, so that the
    /// connection can wait or move to another process. (After an abort nothing is outstanding.)
    pub fn is_between_requests(&self) -> bool {
        self.state == ResponderState::Idle
            && self.sink == Sink::None
            && self.held.is_none()
            && self.broken.is_none()
            && self.records.is_at_boundary()
    }

    /// Whether the answer has ended and only the rest of the body is outstanding.
    pub fn is_draining(&self) -> bool {
        self.state == ResponderState::Draining
            && self.sink != Sink::Begin
            && self.held.is_none()
            && self.broken.is_none()
    }

    /// Whether the last record is consumed with its padding, and nothing of the next. For callers that pass on the
    /// following bytes, after [`Input::Request`] or [`Input::BodyEnd`].
    pub fn is_at_boundary(&self) -> bool {
        self.sink == Sink::None && self.held.is_none() && self.records.is_at_boundary()
    }

    fn next<'i>(&mut self, cursor: &mut Cursor<'i>, stops_when_idle: bool) -> Input<'i> {
        if let Some(violation) = self.broken {
            return Input::Broken(violation);
        }
        loop {
            if self.sink == Sink::None {
                if stops_when_idle && self.state == ResponderState::Idle {
                    return Input::More;
                }
                let Some(header) = self.held.take().or_else(|| self.records.header(cursor)) else {
                    return Input::More;
                };
                let begins = header.kind == RecordType::BeginRequest as u8;
                if stops_when_idle && self.state == ResponderState::Draining && begins {
                    // The rest of the body was never sent.
                    self.state = ResponderState::Idle;
                    self.held = Some(header);
                    return Input::More;
                }
                match self.route(header) {
                    Route::To(sink) => self.sink = sink,
                    Route::Say(meaning) => {
                        self.sink = if self.records.content_left() > 0 {
                            Sink::Skip
                        } else {
                            Sink::None
                        };
                        return meaning;
                    }
                    Route::Hold => {
                        self.held = Some(header);
                        return Input::More;
                    }
                }
            }
            let piece = self.records.content(cursor, usize::MAX);
            let sink = self.sink;
            let is_last = self.records.content_left() == 0;
            if is_last {
                self.sink = Sink::None;
            }
            if let Some(meaning) = self.take(sink, piece, is_last) {
                return meaning;
            }
            if !is_last {
                return Input::More;
            }
        }
    }

    fn route<'i>(&mut self, header: Header) -> Route<'i> {
        let kind = RecordType::from_number(header.kind);
        if header.version != VERSION {
            let Header { version, kind, .. } = header;
            return Route::Say(Input::Broken(Violation::NotFastcgi { version, kind }));
        }
        if header.request_id == 0 {
            if kind == Some(RecordType::GetValues) {
                self.question.clear();
                return Route::To(Sink::Question);
            }
            return Route::Say(Input::Reply(Reply::unknown_type(header.kind)));
        }
        match kind {
            Some(RecordType::BeginRequest) => self.route_begin(header),
            Some(RecordType::AbortRequest) => self.route_abort(header),
            Some(RecordType::Params) => self.route_params(header),
            Some(RecordType::Stdin) => self.route_stdin(header),
            // DATA is for filters; the others are never sent to an application.
            _ => Route::To(Sink::Skip),
        }
    }

    fn route_begin<'i>(&mut self, header: Header) -> Route<'i> {
        let request_id = header.request_id;
        match self.state {
            ResponderState::Params | ResponderState::Body | ResponderState::Served
                if request_id != self.request_id =>
            {
                Route::Say(Input::Reply(Reply::end(
                    request_id,
                    ProtocolStatus::CantMultiplex,
                )))
            }
            ResponderState::Params | ResponderState::Body => {
                Route::Say(Input::Broken(Violation::BegunTwice { request_id }))
            }
            ResponderState::Served => Route::Hold,
            ResponderState::Idle | ResponderState::Draining
                if usize::from(header.content_length) != BEGIN_LENGTH =>
            {
                let length = header.content_length;
                Route::Say(Input::Broken(Violation::BeginLength { length }))
            }
            ResponderState::Idle | ResponderState::Draining => {
                self.request_id = request_id;
                self.begin_filled = 0;
                Route::To(Sink::Begin)
            }
        }
    }

    fn route_abort<'i>(&mut self, header: Header) -> Route<'i> {
        let request_id = self.request_id;
        if header.request_id != request_id {
            return Route::To(Sink::Skip);
        }
        match self.state {
            ResponderState::Idle => Route::To(Sink::Skip),
            ResponderState::Draining => {
                self.state = ResponderState::Idle;
                Route::To(Sink::Skip)
            }
            // The caller doesn't know the request yet, so it ends here.
            ResponderState::Params => {
                self.state = ResponderState::Idle;
                if self.keep {
                    Route::Say(Input::Reply(Reply::end(
                        request_id,
                        ProtocolStatus::RequestComplete,
                    )))
                } else {
                    Route::Say(Input::Broken(Violation::AbortedEarly { request_id }))
                }
            }
            ResponderState::Body | ResponderState::Served => {
                self.aborted = true;
                Route::Say(Input::Abort)
            }
        }
    }

    fn route_params<'i>(&mut self, header: Header) -> Route<'i> {
        if self.state != ResponderState::Params || header.request_id != self.request_id {
            return Route::To(Sink::Skip);
        }
        if header.content_length > 0 {
            return Route::To(Sink::Params);
        }
        if !self.pairs.is_whole(&self.params) {
            return Route::Say(Input::Broken(Violation::PairCut {
                request_id: self.request_id,
            }));
        }
        self.state = ResponderState::Body;
        Route::Say(Input::Request)
    }

    fn route_stdin<'i>(&mut self, header: Header) -> Route<'i> {
        if header.request_id != self.request_id {
            return Route::To(Sink::Skip);
        }
        let request_id = self.request_id;
        match self.state {
            ResponderState::Idle | ResponderState::Served => Route::To(Sink::Skip),
            ResponderState::Params => Route::Say(Input::Broken(Violation::BodyBeforeParams { request_id })),
            ResponderState::Body if header.content_length > 0 => Route::To(Sink::Body),
            ResponderState::Body => {
                self.state = ResponderState::Served;
                self.body_ended = true;
                Route::Say(Input::BodyEnd)
            }
            ResponderState::Draining => {
                if header.content_length == 0 {
                    self.state = ResponderState::Idle;
                }
                Route::To(Sink::Skip)
            }
        }
    }

    fn take<'i>(&mut self, sink: Sink, piece: &'i [u8], is_last: bool) -> Option<Input<'i>> {
        match sink {
            Sink::None | Sink::Skip => None,
            Sink::Params => {
                let excess = self.params.receive(piece, &mut self.pairs).err()?;
                Some(Input::Broken(self.refusal(excess)))
            }
            Sink::Body => (!piece.is_empty()).then_some(Input::Body(piece)),
            Sink::Begin => {
                self.begin[self.begin_filled..self.begin_filled + piece.len()].copy_from_slice(piece);
                self.begin_filled += piece.len();
                if is_last { self.begin() } else { None }
            }
            Sink::Question => {
                self.question.extend_from_slice(piece);
                is_last.then(|| Input::Reply(self.values.answer(&self.question)))
            }
        }
    }

    /// Role, flags, reserved bytes (section 5.1).
    fn begin<'i>(&mut self) -> Option<Input<'i>> {
        let [role_high, role_low, flags, ..] = self.begin;
        let role = u16::from_be_bytes([role_high, role_low]);
        let request_id = self.request_id;
        self.keep = flags & KEEP_CONNECTION != 0;
        self.body_ended = false;
        self.aborted = false;
        self.params.clear();
        self.pairs.restart();
        let Some(known) = Role::from_number(role) else {
            self.state = ResponderState::Draining;
            return Some(if self.keep {
                Input::Reply(Reply::end(request_id, ProtocolStatus::UnknownRole))
            } else {
                Input::Broken(Violation::UnknownRole { request_id, role })
            });
        };
        self.role = known;
        self.state = ResponderState::Params;
        self.params.set(b"FCGI_ROLE", known.name().as_bytes());
        None
    }

    fn refusal(&self, excess: Excess) -> Violation {
        let request_id = self.request_id;
        match excess {
            Excess::Bytes => Violation::ParamsTooLong {
                request_id,
                limit: self.pairs.limits.params_bytes,
            },
            Excess::Count => Violation::ParamsTooMany {
                request_id,
                limit: self.pairs.limits.params_count,
            },
        }
    }
}

#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;

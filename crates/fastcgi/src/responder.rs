//! The server side of one connection: what a web server sends, understood.
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
//! A request is active from BEGIN until `finish`. Idle and Draining differ only in what is known of the old request's
//! STDIN: in both, records of a request that isn't active are skipped (section 3.3) and BEGIN starts a new one. A
//! refused request is drained like one that was answered early.

use super::pairs::{Excess, Pairs};
use super::params::{Limits, Params, Repeated};
use super::record::{Cursor, Header, ProtocolStatus, RecordType, Records, Role, VERSION};
use super::reply::{Reply, Values};
use super::violation::Violation;

/// What the input meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input<'i> {
    /// Nothing yet: more input is needed. All input is consumed, except that the next request, sent before the current
    /// one was finished, is left where it is until it is; then there is no use in reading more.
    More,
    /// A request began and its parameters are in.
    Request,
    /// A piece of the request's body, never empty.
    Body(&'i [u8]),
    /// The request's body is complete.
    BodyEnd,
    /// The client no longer wants the answer. It is still to be ended.
    Abort,
    /// These bytes are to be written to the peer, between two records.
    Reply(Reply),
    /// The connection can't go on. Said again for all that is received after it.
    Broken(Violation),
}

/// Understands the input of one connection, request after request.
#[derive(Debug)]
pub struct Responder {
    records: Records,
    sink: Sink,
    state: ResponderState,
    /// A BEGIN header that waits for the current request to finish.
    held: Option<Header>,
    broken: Option<Violation>,
    params: Params,
    pairs: Pairs,
    limits: Limits,
    values: Values,
    request_id: u16,
    role: Role,
    keep: bool,
    body_ended: bool,
    aborted: bool,
    /// The start of a BEGIN body that was cut.
    begin: [u8; BEGIN_LENGTH],
    begin_filled: usize,
    /// The content of a GET_VALUES record; one record bounds it.
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

/// Where the current record's content goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sink {
    /// No record is open.
    None,
    Skip,
    Begin,
    Params,
    Body,
    Question,
}

/// What a header leads to.
enum Route<'i> {
    To(Sink),
    /// Say this; the content is skipped.
    Say(Input<'i>),
    Hold,
}

impl Responder {
    /// Awaits the first request of a connection.
    pub fn new(limits: Limits) -> Responder {
        Responder {
            records: Records::default(),
            sink: Sink::None,
            state: ResponderState::Idle,
            held: None,
            broken: None,
            params: Params::new(),
            pairs: Pairs::new(limits),
            limits,
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

    /// Forgets the connection but keeps the memory, for the next connection.
    pub fn reset(&mut self) {
        self.params.clear();
        self.pairs.restart();
        *self = Responder {
            params: std::mem::take(&mut self.params),
            question: std::mem::take(&mut self.question),
            values: self.values,
            pairs: std::mem::replace(&mut self.pairs, Pairs::new(self.limits)),
            ..Responder::new(self.limits)
        };
    }

    /// Sets what becomes of parameters whose names arrive twice.
    pub fn set_repeated(&mut self, repeated: Repeated) {
        self.pairs.repeated = repeated;
    }

    /// Says what GET_VALUES is answered from now on.
    pub fn set_values(&mut self, values: Values) {
        self.values = values;
    }

    /// Looks at the start of `input`; says how many bytes it consumed and what they meant. To be called with the rest
    /// until it says [`Input::More`]. Takes partial records, so a buffer of any size will do.
    pub fn receive<'i>(&mut self, input: &'i [u8]) -> (usize, Input<'i>) {
        let mut cursor = Cursor::new(input);
        let meaning = self.next(&mut cursor);
        if let Input::Broken(violation) = meaning {
            self.broken = Some(violation);
            return (input.len(), meaning);
        }
        if self.held.is_none() {
            self.records.skip_padding(&mut cursor);
        }
        (cursor.at, meaning)
    }

    /// The parameters of the current request, complete once [`Input::Request`] was said. The first is FCGI_ROLE.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Bytes that what has come of a request takes.
    pub fn memory(&self) -> usize {
        self.params.memory() + self.pairs.memory() + self.question.capacity()
    }

    /// The parameters, to be changed.
    pub fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    /// The number by which the peer knows the current or last request.
    pub fn request_id(&self) -> u16 {
        self.request_id
    }

    /// The connection is to be kept after the current request (FCGI_KEEP_CONN, section 5.1).
    pub fn keep(&self) -> bool {
        self.keep
    }

    /// What the current request asks the application to be.
    pub fn role(&self) -> Role {
        self.role
    }

    /// All of the current request's body has been received.
    pub fn body_ended(&self) -> bool {
        self.body_ended
    }

    /// The current request's answer has ended: what still comes of its body is skipped, the next request is awaited.
    /// Input that was left because of [`Input::More`] is to be received again before more is read.
    pub fn finish(&mut self) {
        self.state = match self.state {
            ResponderState::Idle | ResponderState::Served => ResponderState::Idle,
            // After an abort the rest of the body may never come.
            ResponderState::Params | ResponderState::Body if self.aborted => ResponderState::Idle,
            ResponderState::Params | ResponderState::Body | ResponderState::Draining => {
                ResponderState::Draining
            }
        };
        if matches!(self.sink, Sink::Params | Sink::Body) {
            self.sink = Sink::Skip;
        }
    }

    /// Nothing of a next request has been seen and nothing of the last one is still to come. Only then can the
    /// connection be left to wait, or be handed to another process, without loss. (After an abort nothing is awaited.)
    pub fn is_between_requests(&self) -> bool {
        self.state == ResponderState::Idle
            && self.sink == Sink::None
            && self.held.is_none()
            && self.broken.is_none()
            && self.records.is_at_boundary()
    }

    /// All that may still come of the last request is the rest of its body, and its answer has ended; nothing of a next one has
    /// been seen.
    pub fn is_draining(&self) -> bool {
        self.state == ResponderState::Draining
            && self.sink != Sink::Begin
            && self.held.is_none()
            && self.broken.is_none()
    }

    /// The last record is wholly consumed, its padding included, and nothing of a next one is. A caller
    /// that passes the following bytes on asks this after [`Input::Request`] or [`Input::BodyEnd`].
    pub fn is_at_boundary(&self) -> bool {
        self.sink == Sink::None && self.held.is_none() && self.records.is_at_boundary()
    }

    fn next<'i>(&mut self, cursor: &mut Cursor<'i>) -> Input<'i> {
        if let Some(violation) = self.broken {
            return Input::Broken(violation);
        }
        loop {
            if self.sink == Sink::None {
                let Some(header) = self.held.take().or_else(|| self.records.header(cursor)) else {
                    return Input::More;
                };
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

    /// Decides on a record by its header.
    fn route<'i>(&mut self, header: Header) -> Route<'i> {
        let kind = RecordType::try_from(header.kind);
        if header.version != VERSION {
            let Header { version, kind, .. } = header;
            return Route::Say(Input::Broken(Violation::NotFastcgi { version, kind }));
        }
        if header.request_id == 0 {
            if kind == Ok(RecordType::GetValues) {
                self.question.clear();
                return Route::To(Sink::Question);
            }
            return Route::Say(Input::Reply(Reply::unknown_type(header.kind)));
        }
        match kind {
            Ok(RecordType::BeginRequest) => self.route_begin(header),
            Ok(RecordType::AbortRequest) => self.route_abort(header),
            Ok(RecordType::Params) => self.route_params(header),
            Ok(RecordType::Stdin) => self.route_stdin(header),
            // DATA is a filter's second input, which no runtime reads; the others are never sent to an application.
            Ok(
                RecordType::Data
                | RecordType::EndRequest
                | RecordType::Stdout
                | RecordType::Stderr
                | RecordType::GetValues
                | RecordType::GetValuesResult
                | RecordType::UnknownType,
            )
            | Err(_) => Route::To(Sink::Skip),
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
            // The caller has not been told of the request, so it is ended here.
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
        if !self.pairs.is_whole() {
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
                let excess = self.pairs.receive(piece, &mut self.params).err()?;
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

    /// The body of BEGIN_REQUEST is in: role, flags and reserved bytes (section 5.1).
    fn begin<'i>(&mut self) -> Option<Input<'i>> {
        let [role_high, role_low, flags, ..] = self.begin;
        let role = u16::from_be_bytes([role_high, role_low]);
        let request_id = self.request_id;
        self.keep = flags & KEEP_CONNECTION != 0;
        self.body_ended = false;
        self.aborted = false;
        self.params.clear();
        self.pairs.restart();
        let Ok(known) = Role::try_from(role) else {
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
                limit: self.limits.params_bytes,
            },
            Excess::Count => Violation::ParamsTooMany {
                request_id,
                limit: self.limits.params_count,
            },
        }
    }
}

#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;

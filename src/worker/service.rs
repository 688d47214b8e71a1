//! One request at a time: bytes from the connection to the protocol, answers back, stages to the scoreboard.

use super::access::Recorder;
use super::connection::Connection;
use super::kit::Settings;
use super::minder::Minder;
use super::out_of_band::Want;
use super::request::ClientGone;
use super::routed::Channel;
use super::time_up;
use super::transfer::{drain_input, send_pieces};
use crate::fastcgi::{Input, MAX_CONTENT, Output, Params, ProtocolStatus, RecordType, Violation, header};
use crate::scoreboard::stamp::{Description, Stamp};
use crate::scoreboard::{Reader, Slot, Stage};
use crate::sys::socket::{Progress, Readiness, receive, send, wait};
use crate::sys::{Error, clock, last_word};
use crate::tick::Tick;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Bytes read at once: a request with its parameters and a small body comes with one call.
const INPUT_BYTES: usize = 64 * 1024;
/// Output of at least this many bytes is written from where it is instead of being copied.
const GATHER_BYTES: usize = 16 * 1024;
/// Records in one gathered write; each is two pieces (header and content), and the kernel takes 1024 (IOV_MAX).
const GATHER_RECORDS: usize = 256;
/// Closed connections whose buffers are kept for the next.
const SPARE_CONNECTIONS: usize = 8;

/// What a look at the connection's input came to.
enum Look {
    /// The request's parameters are all in.
    Request,
    /// A piece of the body: `input[from..to]`.
    Body(usize, usize),
    BodyEnd,
    Abort,
    /// Nothing is left to look at.
    Empty,
    Broken(Violation),
}

/// Why there is no (further) request on a connection.
#[derive(Debug)]
pub(super) enum NoRequest {
    /// Nothing has come; it may still.
    Silent,
    /// The client closed it between requests.
    Closed,
    /// Said in the log by whoever gets this.
    Failed(String),
}

/// The worker's half that serves.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) settings: Settings,
    pub(super) listener: OwnedFd,
    pub(super) board: Reader,
    pub(super) minder: Minder,
    slot: Slot,
    pub(super) input: Box<[u8]>,
    pub(super) start: usize,
    pub(super) end: usize,
    output: Output,
    /// The connection whose request is being served; gone once it was closed or kept.
    current: Option<Box<Connection>>,
    #[expect(
        clippy::vec_box,
        reason = "the same boxes come from and go to the held connections"
    )]
    spare: Vec<Box<Connection>>,
    /// Memory for a next request's parameters.
    pub(super) spare_params: Params,
    /// A piece of the body that was decoded and not read yet: `input[from..to]`.
    body: (usize, usize),
    pub(super) body_ended: bool,
    finished: bool,
    client_gone: bool,
    /// Whether the application has asked for out-of-band work.
    pub(super) want: Want,
    /// The runtime wants the worker to end.
    pub(super) leaving: bool,
    pub(super) taken: Tick,
    pub(super) cpu_micros: u64,
    /// Used by a program on behalf of the request.
    pub(super) program_micros: u64,
    /// The access log, if there is one.
    pub(super) recorder: Option<Box<Recorder>>,
    /// What the end of the answer says.
    pub(super) app_status: u32,
    /// The request that the answer at the end of its time was made for.
    last_word_for: u16,
    /// Where a router gives the worker its connections.
    pub(super) channel: Option<Channel>,
}

impl Service {
    pub(super) fn new(
        settings: Settings,
        listener: OwnedFd,
        board: Reader,
        slot: Slot,
        minder: Minder,
        recorder: Option<Box<Recorder>>,
    ) -> Service {
        Service {
            settings,
            listener,
            board,
            minder,
            slot,
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            output: Output::new(),
            current: None,
            spare: Vec::new(),
            spare_params: Params::new(),
            body: (0, 0),
            body_ended: false,
            finished: true,
            client_gone: false,
            want: Want::Nothing,
            leaving: false,
            taken: Tick::ZERO,
            cpu_micros: clock::process_cpu_micros(),
            program_micros: 0,
            recorder,
            app_status: 0,
            last_word_for: 0,
            channel: None,
        }
    }

    /// The worker's pen.
    pub(super) fn stamp(&self) -> Stamp<'_> {
        Stamp::new(self.slot.words())
    }

    /// Bytes that were read and belong to a request after the current one.
    pub(super) fn has_input(&self) -> bool {
        self.start < self.end
    }

    pub(super) fn current(&self) -> Option<&Connection> {
        self.current.as_deref()
    }

    pub(super) fn current_mut(&mut self) -> Option<&mut Connection> {
        self.current.as_deref_mut()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// The request is known.
    pub(super) fn describe(&mut self, about: &Description<'_>, params: &Params) {
        self.stamp().describe(about);
        if let Some(recorder) = &mut self.recorder {
            let connection = self.current.as_deref_mut().filter(|_| recorder.wants_peer());
            recorder.describe(about, params, connection.and_then(Connection::peer));
        }
    }

    /// Peak memory of the request, bytes.
    pub(super) fn memory(&mut self, bytes: u64) {
        self.stamp().memory(bytes);
        if let Some(recorder) = &mut self.recorder {
            recorder.memory(bytes);
        }
    }

    /// Makes `connection` the current one, its first bytes still to be read.
    pub(super) fn attach(&mut self, connection: Box<Connection>) {
        (self.start, self.end) = (0, 0);
        // Whatever became of the connection before, nothing that was meant for it goes out on this one.
        self.output.abandon();
        self.current = Some(connection);
    }

    /// Takes the current connection back.
    pub(super) fn detach(&mut self) -> Option<Box<Connection>> {
        last_word::disarm();
        self.current.take()
    }

    /// Reads what is there, waiting at most `patience` for it.
    pub(super) fn fill(&mut self, patience: Duration) -> Result<(), NoRequest> {
        let Some(connection) = self.current.as_deref_mut() else {
            return Err(NoRequest::Closed);
        };
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.input.len() {
            return Err(NoRequest::Failed("more input than the decoder may leave".into()));
        }
        let failed = |error: Error| NoRequest::Failed(error.to_string());
        loop {
            match receive(connection.socket(), &mut self.input[self.end..]) {
                Ok(Progress::Done(0)) => return Err(NoRequest::Closed),
                Ok(Progress::Done(count)) => {
                    connection.spoken = true;
                    self.end += count;
                    return Ok(());
                }
                Ok(Progress::WouldBlock) if patience.is_zero() => return Err(NoRequest::Silent),
                Ok(Progress::WouldBlock) => {
                    if !wait(connection.socket(), Readiness::Readable, patience).map_err(failed)? {
                        return Err(NoRequest::Silent);
                    }
                }
                Err(error) if error.errno == nix::errno::Errno::ECONNRESET => return Err(NoRequest::Closed),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Looks at what was read.
    fn look(&mut self) -> Result<Look, NoRequest> {
        loop {
            let Some(connection) = self.current.as_deref_mut() else {
                return Err(NoRequest::Closed);
            };
            let window = &self.input[self.start..self.end];
            let base = window.as_ptr() as usize;
            let (used, input) = connection.responder.receive(window);
            let offset = self.start;
            self.start += used;
            let look = match input {
                Input::More => Look::Empty,
                Input::Request => Look::Request,
                Input::Body(piece) => {
                    let from = offset + (piece.as_ptr() as usize - base);
                    Look::Body(from, from + piece.len())
                }
                Input::BodyEnd => Look::BodyEnd,
                Input::Abort => Look::Abort,
                Input::Broken(violation) => Look::Broken(violation),
                Input::Reply(reply) => {
                    let bytes = reply.bytes().to_vec();
                    self.send_all(&bytes).map_err(|ClientGone| NoRequest::Closed)?;
                    continue;
                }
            };
            return Ok(look);
        }
    }

    /// Reads on until a request's parameters are all in.
    pub(super) fn read_request(&mut self) -> Result<(), NoRequest> {
        let mut limit = None;
        loop {
            match self.look()? {
                Look::Request => break,
                // What is left of an earlier request's body.
                Look::Body(..) | Look::BodyEnd | Look::Abort => {}
                Look::Empty => {
                    if self.current().is_none_or(|c| c.responder.is_between_requests()) {
                        return Err(NoRequest::Silent);
                    }
                    let now = clock::now();
                    let patience = self.settings.pool.client_timeout;
                    let left = limit.get_or_insert(now + patience).since(now);
                    match self.fill(left) {
                        Ok(()) => {}
                        Err(NoRequest::Silent) => {
                            return Err(NoRequest::Failed(format!(
                                "the client did not complete its request within {} s",
                                patience.as_secs_f64()
                            )));
                        }
                        Err(NoRequest::Closed) => {
                            return Err(NoRequest::Failed(
                                "the client left in the middle of its request".into(),
                            ));
                        }
                        Err(failed) => return Err(failed),
                    }
                }
                Look::Broken(violation) => {
                    if let Some(reply) = violation.reply() {
                        let reply = reply.bytes().to_vec();
                        let _ = self.send_all(&reply);
                        // What the client has sent and nobody read would reset the connection, reply and all.
                        if let Some(connection) = self.current.as_deref() {
                            drain_input(connection, &mut self.input);
                        }
                    }
                    return Err(NoRequest::Failed(violation.to_string()));
                }
            }
        }
        let Some(connection) = self.current.as_deref() else {
            return Err(NoRequest::Closed);
        };
        let id = connection.responder.request_id();
        self.output.begin(id);
        // No request has the number 0.
        if self.last_word_for != id {
            self.last_word_for = id;
            last_word::set_answer(&time_up::answer(id));
        }
        last_word::arm(connection.socket());
        self.body = (0, 0);
        (self.body_ended, self.finished, self.client_gone) = (false, false, false);
        // The end of an empty body came with the parameters, most likely.
        if self.has_input() {
            self.look_at_body();
        }
        Ok(())
    }

    /// Looks at what was read of the body. `false`: nothing is left to look at.
    fn look_at_body(&mut self) -> bool {
        match self.look() {
            Ok(Look::Body(from, end)) => self.body = (from, end),
            Ok(Look::BodyEnd) => self.body_ended = true,
            Ok(Look::Empty) => return false,
            Ok(Look::Abort | Look::Request | Look::Broken(_)) | Err(_) => self.client_gone = true,
        }
        true
    }

    /// A request begins with the bytes that were just read.
    pub(super) fn begin(&mut self, now: Tick) {
        self.taken = now;
        self.app_status = 0;
        self.stamp().reading(now);
        if let Some(recorder) = &mut self.recorder {
            recorder.begin(now);
        }
    }

    /// The next bytes of the body; 0 at its end.
    pub(super) fn read_body(&mut self, to: &mut [u8]) -> Result<usize, ClientGone> {
        loop {
            let (from, end) = self.body;
            if from < end {
                let count = to.len().min(end - from);
                to[..count].copy_from_slice(&self.input[from..from + count]);
                self.body.0 += count;
                return Ok(count);
            }
            if self.body_ended || self.finished || to.is_empty() {
                return Ok(0);
            }
            if self.client_gone {
                return Err(ClientGone);
            }
            if !self.look_at_body() && self.fill(self.settings.pool.client_timeout).is_err() {
                self.client_gone = true;
            }
        }
    }

    /// As [`Service::read_body`], without waiting: `None` where nothing has come yet.
    pub(super) fn body_now(&mut self, to: &mut [u8]) -> Result<Option<usize>, ClientGone> {
        let is_here = |service: &Service| service.body.0 < service.body.1 || service.body_ended;
        while !is_here(self) && !self.finished && !self.client_gone {
            if !self.look_at_body() {
                match self.fill(Duration::ZERO) {
                    Ok(()) => {}
                    Err(NoRequest::Silent) => return Ok(None),
                    Err(_) => self.client_gone = true,
                }
            }
        }
        self.read_body(to).map(Some)
    }

    /// Output of the application.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        if let Some(recorder) = &mut self.recorder {
            recorder.output(bytes);
        }
        if self.finished || self.client_gone {
            return Err(ClientGone);
        }
        let result = if bytes.len() >= GATHER_BYTES && bytes.len() > self.output.room() {
            self.write_gathered(bytes)
        } else {
            self.write_buffered(bytes, Output::stdout)
        };
        self.note(result)
    }

    /// Text for the web server's error log.
    pub(super) fn write_error(&mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        if self.finished || self.client_gone {
            return Err(ClientGone);
        }
        let result = self.write_buffered(bytes, Output::stderr);
        self.note(result)
    }

    /// Sends what is buffered.
    pub(super) fn flush(&mut self) -> Result<(), ClientGone> {
        if self.client_gone {
            return Err(ClientGone);
        }
        let result = self.drain_output();
        self.note(result)
    }

    fn note(&mut self, result: Result<(), ClientGone>) -> Result<(), ClientGone> {
        self.client_gone |= result.is_err();
        result
    }

    fn write_buffered(
        &mut self,
        mut bytes: &[u8],
        put: fn(&mut Output, &[u8]) -> usize,
    ) -> Result<(), ClientGone> {
        loop {
            let taken = put(&mut self.output, bytes);
            bytes = &bytes[taken..];
            if bytes.is_empty() {
                return Ok(());
            }
            self.drain_output()?;
        }
    }

    fn drain_output(&mut self) -> Result<(), ClientGone> {
        let Some(connection) = self.current.as_deref() else {
            return Err(ClientGone);
        };
        let patience = self.settings.pool.client_timeout;
        loop {
            let pending = self.output.pending();
            if pending.is_empty() {
                return Ok(());
            }
            last_word::begin();
            match send(connection.socket(), pending) {
                Ok(Progress::Done(count)) => self.output.consume(count),
                Ok(Progress::WouldBlock) => match wait(connection.socket(), Readiness::Writable, patience) {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return Err(ClientGone),
                },
                Err(_) => return Err(ClientGone),
            }
        }
    }

    /// Writes a large piece from where it is, behind what is buffered, as records of the largest size.
    fn write_gathered(&mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        const PADDING: [u8; 8] = [0; 8];
        let id = self.current().ok_or(ClientGone)?.responder.request_id();
        for batch in bytes.chunks(GATHER_RECORDS * MAX_CONTENT) {
            let chunks: Vec<&[u8]> = batch.chunks(MAX_CONTENT).collect();
            let padding = |chunk: &[u8]| (8 - chunk.len() % 8) % 8;
            let headers: Vec<[u8; 8]> = chunks
                .iter()
                .map(|chunk| header(RecordType::Stdout, id, chunk.len() as u16, padding(chunk) as u8))
                .collect();
            let buffered = self.output.pending();
            let before = buffered.len();
            let mut pieces = vec![IoSlice::new(buffered)];
            for (header, chunk) in headers.iter().zip(&chunks) {
                pieces.push(IoSlice::new(header));
                pieces.push(IoSlice::new(chunk));
            }
            if let Some(last) = chunks.last() {
                pieces.push(IoSlice::new(&PADDING[..padding(last)]));
            }
            let Some(connection) = self.current.as_deref() else {
                return Err(ClientGone);
            };
            last_word::begin();
            send_pieces(connection, &mut pieces, self.settings.pool.client_timeout)?;
            self.output.consume(before);
        }
        Ok(())
    }

    fn send_all(&mut self, mut bytes: &[u8]) -> Result<(), ClientGone> {
        let Some(connection) = self.current.as_deref() else {
            return Err(ClientGone);
        };
        while !bytes.is_empty() {
            match send(connection.socket(), bytes) {
                Ok(Progress::Done(count)) => bytes = &bytes[count..],
                Ok(Progress::WouldBlock) => {
                    let patience = self.settings.pool.client_timeout;
                    if !wait(connection.socket(), Readiness::Writable, patience).is_ok_and(|ready| ready) {
                        return Err(ClientGone);
                    }
                }
                Err(_) => return Err(ClientGone),
            }
        }
        Ok(())
    }

    /// Sends what is buffered, and closes the connection without an end of the answer.
    pub(super) fn break_off(&mut self) {
        let _ = self.flush();
        self.client_gone = true;
    }

    /// Ends the answer: closes its streams, sends what is buffered, and keeps or closes the connection.
    pub(super) fn finish(&mut self) -> Result<(), ClientGone> {
        // Before the answer is, so that whoever has the whole answer finds the line.
        if let Some(recorder) = &mut self.recorder {
            recorder.finish(self.board.header());
        }
        if self.finished {
            return if self.client_gone { Err(ClientGone) } else { Ok(()) };
        }
        if !self.client_gone {
            self.output.end(self.app_status, ProtocolStatus::RequestComplete);
            self.refuse_more();
            let result = self.drain_output();
            self.client_gone = result.is_err();
        }
        if self.client_gone {
            self.output.abandon();
        }
        self.finished = true;
        last_word::disarm();
        let Some(connection) = self.current.as_deref_mut() else {
            return Ok(());
        };
        let keep = connection.keeps() && !self.client_gone;
        connection.responder.finish();
        self.skip_body();
        if !keep {
            self.hang_up();
        }
        if self.client_gone { Err(ClientGone) } else { Ok(()) }
    }

    /// Skips what was read of the body and not wanted.
    pub(super) fn skip_body(&mut self) {
        self.body = (0, 0);
        while self.has_input() && self.current().is_some_and(|c| !c.responder.is_between_requests()) {
            if !self.look_at_body() {
                return;
            }
        }
    }

    /// Closes the current connection.
    fn hang_up(&mut self) {
        let Some(connection) = self.current.take() else {
            return;
        };
        // What the client has sent and nobody read makes close(2) reset the connection, answer and all.
        if !self.client_gone && (self.has_input() || !connection.responder.is_between_requests()) {
            drain_input(&connection, &mut self.input);
        }
        self.close(connection);
    }

    /// Closes a connection, keeping its buffers for the next.
    pub(super) fn close(&mut self, mut connection: Box<Connection>) {
        self.minder.held().close(&connection, self.minder.epoll());
        connection.hang_up();
        if self.spare.len() < SPARE_CONNECTIONS {
            self.spare.push(connection);
        }
    }

    /// A connection for a new socket.
    pub(super) fn connection(&mut self, socket: OwnedFd) -> Box<Connection> {
        match self.spare.pop() {
            Some(mut spare) => {
                spare.reuse(socket);
                spare
            }
            None => Box::new(Connection::new(socket, &self.settings.pool.limits)),
        }
    }

    /// Sets the stage.
    pub(super) fn stage(&mut self, stage: Stage) {
        self.stamp().stage(stage);
        if let (Stage::End, Some(recorder)) = (stage, &mut self.recorder) {
            recorder.end();
        }
    }
}

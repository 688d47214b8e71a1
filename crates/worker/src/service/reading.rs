//! Reads a request: parameters, then body.

use super::{NoRequest, Service};
use crate::request::ClientGone;
use crate::transfer::drain_input;
use fastcgi::{Input, Responder, Violation};
use forkyard_sys::socket::{Progress, Readiness, receive, wait};
use forkyard_sys::{Error, clock, received};
use std::time::Duration;

enum InputPart {
    Request,
    Body(usize, usize),
    BodyEnd,
    Abort,
    Empty,
    Broken(Violation),
}

type Receive = for<'i> fn(&mut Responder, &'i [u8]) -> (usize, Input<'i>);

impl Service {
    pub(crate) fn fill(&mut self, timeout: Duration) -> Result<(), NoRequest> {
        if self.start == self.end {
            // The next bytes overwrite the request.
            received::end();
            (self.start, self.end) = (0, 0);
        }
        self.fill_behind(timeout)
    }

    /// Keeps the bytes that were read if there is room for as many.
    fn fill_behind(&mut self, timeout: Duration) -> Result<(), NoRequest> {
        let Some(connection) = self.current.as_deref_mut() else {
            return Err(NoRequest::Closed);
        };
        if self.start == self.end && self.end > self.input.len() / 2 {
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
                    connection.client.spoken = true;
                    self.end += count;
                    self.tally.received += count as u64;
                    return Ok(());
                }
                Ok(Progress::WouldBlock) if timeout.is_zero() => return Err(NoRequest::Silent),
                Ok(Progress::WouldBlock) => {
                    if !wait(connection.socket(), Readiness::Readable, timeout).map_err(failed)? {
                        return Err(NoRequest::Silent);
                    }
                }
                Err(error) if error.errno == nix::errno::Errno::ECONNRESET => return Err(NoRequest::Closed),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn parse(&mut self) -> Result<InputPart, NoRequest> {
        self.parse_by(Responder::receive)
    }

    fn parse_by(&mut self, receive: Receive) -> Result<InputPart, NoRequest> {
        loop {
            let Some(connection) = self.current.as_deref_mut() else {
                return Err(NoRequest::Closed);
            };
            let window = &self.input[self.start..self.end];
            let base = window.as_ptr() as usize;
            let (used, input) = receive(&mut connection.responder, window);
            let offset = self.start;
            self.start += used;
            let look = match input {
                Input::More => InputPart::Empty,
                Input::Request => InputPart::Request,
                Input::Body(piece) => {
                    let from = offset + (piece.as_ptr() as usize - base);
                    InputPart::Body(from, from + piece.len())
                }
                Input::BodyEnd => InputPart::BodyEnd,
                Input::Abort => InputPart::Abort,
                Input::Broken(violation) => InputPart::Broken(violation),
                Input::Reply(reply) => {
                    let bytes = reply.bytes().to_vec();
                    self.send_all(&bytes).map_err(|ClientGone| NoRequest::Closed)?;
                    continue;
                }
            };
            return Ok(look);
        }
    }

    pub(crate) fn read_request(&mut self) -> Result<(), NoRequest> {
        received::end();
        let mut limit = None;
        // The request's first byte; `None`: it is no longer in the buffer.
        let mut begin = Some(self.start);
        loop {
            match self.parse()? {
                InputPart::Request => break,
                InputPart::Body(..) | InputPart::BodyEnd | InputPart::Abort => {}
                InputPart::Empty => {
                    if self.current().is_none_or(|c| c.responder.is_between_requests()) {
                        return Err(NoRequest::Silent);
                    }
                    let now = clock::now();
                    let timeout = self.settings.pool.serving.client_timeout;
                    let left = limit.get_or_insert(now + timeout).since(now);
                    let is_answered = self.current().is_some_and(|c| c.responder.is_draining());
                    let before = self.start;
                    let filled = self.fill_behind(left);
                    begin = begin.filter(|_| self.start == before);
                    match filled {
                        Ok(()) => {}
                        Err(NoRequest::Silent | NoRequest::Closed) if is_answered => {
                            return Err(NoRequest::Closed);
                        }
                        Err(NoRequest::Silent) => {
                            return Err(NoRequest::Failed(format!(
                                "the client did not complete its request within {} s",
                                timeout.as_secs_f64()
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
                InputPart::Broken(violation) => {
                    if let Some(reply) = violation.reply() {
                        let reply = reply.bytes().to_vec();
                        let _ = self.send_all(&reply);
                        // Unread client data would reset the connection and drop the reply.
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
        self.timeout_response.arm(connection);
        if let Some(begin) = begin {
            received::begin(&self.input[begin..self.start]);
        }
        self.body = (0, 0);
        (self.body_ended, self.finished, self.client_gone) = (false, false, false);
        self.input_ended = false;
        if self.has_input() {
            self.look_at_body();
        }
        Ok(())
    }

    fn look_at_body(&mut self) -> bool {
        match self.parse() {
            Ok(InputPart::Body(from, end)) => self.body = (from, end),
            Ok(InputPart::BodyEnd) => self.body_ended = true,
            Ok(InputPart::Empty) => return false,
            Ok(InputPart::Abort | InputPart::Request | InputPart::Broken(_)) | Err(_) => {
                self.client_gone = true
            }
        }
        true
    }

    pub(crate) fn read_body(&mut self, to: &mut [u8]) -> Result<usize, ClientGone> {
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
            if self.client_gone || self.input_ended {
                return Err(ClientGone);
            }
            if !self.look_at_body() {
                match self.fill(self.settings.pool.serving.client_timeout) {
                    Ok(()) => {}
                    Err(none) => self.has_no_more(&none),
                }
            }
        }
    }

    /// [`Service::read_body`] without waiting; `None`: no data yet.
    pub(crate) fn body_now(&mut self, to: &mut [u8]) -> Result<Option<usize>, ClientGone> {
        let is_here = |service: &Service| service.body.0 < service.body.1 || service.body_ended;
        while !is_here(self) && !self.finished && !self.client_gone && !self.input_ended {
            if !self.look_at_body() {
                match self.fill(Duration::ZERO) {
                    Ok(()) => {}
                    Err(NoRequest::Silent) => return Ok(None),
                    Err(none) => self.has_no_more(&none),
                }
            }
        }
        self.read_body(to).map(Some)
    }

    /// A client that has closed its side in the middle of the body may still read the answer.
    fn has_no_more(&mut self, why: &NoRequest) {
        match why {
            NoRequest::Closed => self.input_ended = true,
            NoRequest::Silent | NoRequest::Failed(_) => self.client_gone = true,
        }
    }

    pub(crate) fn skip_body(&mut self) {
        self.body = (0, 0);
        while self.has_input() && self.current().is_some_and(|c| !c.responder.is_between_requests()) {
            match self.parse_by(Responder::receive_rest) {
                Ok(InputPart::Empty) => return,
                Ok(InputPart::Body(..) | InputPart::BodyEnd) => {}
                Ok(InputPart::Abort | InputPart::Request | InputPart::Broken(_)) | Err(_) => {
                    self.client_gone = true;
                    return;
                }
            }
        }
    }
}

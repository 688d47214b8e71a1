//! One client connection of the reporter, without its socket.

use super::pages::Pages;
use fastcgi::{Input, Limits, Output, ProtocolStatus, Responder};
use forkyard_host::event_loop::{self, Wait};
use forkyard_scoreboard::status::Snapshot;

/// The most bytes of one read.
const READ_BYTES: usize = 16 << 10;

/// The protocol state of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    responder: Responder,
    output: Output,
    /// Input received during an answer.
    unread: Vec<u8>,
    /// The rest of the answer, not yet in the output buffer.
    answer: Vec<u8>,
    answered: usize,
    served: u64,
    state: State,
    /// Close after this answer: the pool's workers must answer the next request.
    is_last: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    Answering,
    Closing,
}

impl event_loop::Connection for Connection {
    fn wait(&self) -> Wait {
        match self.state {
            _ if !self.output.is_empty() => Wait::Room,
            State::Closing => Wait::Over,
            State::Answering => Wait::Room,
            State::Reading if self.responder.is_between_requests() => Wait::Idle,
            State::Reading => Wait::Request,
        }
    }

    fn served(&self) -> u64 {
        self.served
    }

    fn room(&self) -> usize {
        READ_BYTES
    }

    fn pending(&mut self) -> &[u8] {
        self.output.pending()
    }
}

impl Connection {
    /// Creates a connection without input.
    pub(crate) fn new(limits: Limits) -> Connection {
        Connection {
            responder: Responder::new(limits),
            output: Output::new(),
            unread: Vec::new(),
            answer: Vec::new(),
            answered: 0,
            served: 0,
            state: State::Reading,
            is_last: false,
        }
    }

    /// Processes input. Call it only while the connection waits for a request; otherwise a client that doesn't read
    /// could grow the buffer.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        pages: &Pages<'_>,
        snapshot: &mut dyn FnMut() -> Snapshot,
    ) {
        self.unread.extend_from_slice(bytes);
        self.advance(pages, snapshot);
    }

    /// Removes `count` written bytes from the pending output.
    pub(crate) fn written(
        &mut self,
        count: usize,
        pages: &Pages<'_>,
        snapshot: &mut dyn FnMut() -> Snapshot,
    ) {
        self.output.consume(count);
        self.fill();
        if self.state == State::Reading && self.output.is_empty() && !self.unread.is_empty() {
            self.advance(pages, snapshot);
        }
    }

    fn advance(&mut self, pages: &Pages<'_>, snapshot: &mut dyn FnMut() -> Snapshot) {
        let input = std::mem::take(&mut self.unread);
        let mut at = 0;
        while self.state == State::Reading {
            let (used, meaning) = self.responder.receive(&input[at..]);
            at += used;
            match meaning {
                Input::More => break,
                // Answer only after the whole body: closing a socket with unread input resets the connection and loses
                // the answer.
                Input::Request | Input::Body(_) => {}
                Input::BodyEnd => {
                    let page = pages.answer(self.responder.params(), snapshot);
                    self.output.begin(self.responder.request_id());
                    // The buffer is almost empty: this short text fits.
                    self.output.stderr(&page.error);
                    self.answer = page.output;
                    self.answered = 0;
                    self.is_last = pages.refuses();
                    self.state = State::Answering;
                    self.fill();
                }
                Input::Abort => {
                    self.output.begin(self.responder.request_id());
                    self.end();
                }
                Input::Reply(reply) => {
                    if !self.output.reply(&reply) {
                        self.state = State::Closing;
                    }
                }
                Input::Broken(violation) => {
                    if let Some(reply) = violation.reply() {
                        self.output.reply(&reply);
                    }
                    self.state = State::Closing;
                }
            }
        }
        if self.state != State::Closing {
            self.unread = input[at..].to_vec();
        }
    }

    /// Fills the output buffer with the answer.
    fn fill(&mut self) {
        if self.state != State::Answering {
            return;
        }
        self.answered += self.output.stdout(&self.answer[self.answered..]);
        if self.answered == self.answer.len() {
            self.answer = Vec::new();
            self.answered = 0;
            self.end();
        }
    }

    fn end(&mut self) {
        self.output.end(0, ProtocolStatus::RequestComplete);
        self.state = if self.responder.keep() && !self.is_last {
            State::Reading
        } else {
            State::Closing
        };
        self.responder.finish();
        self.served += 1;
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;

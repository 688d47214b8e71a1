//! One client of the reporter: bytes in, bytes out.

use super::pages::Pages;
use crate::fastcgi::{Input, Limits, Output, ProtocolStatus, Responder};
use crate::status::Snapshot;

/// What a connection is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The next request, or nothing: no client waits if it is closed.
    Idle,
    /// The rest of a request.
    Request,
    /// Room to write what is pending.
    Room,
    /// Nothing: the answer is complete.
    Over,
}

/// A connection without its socket.
#[derive(Debug)]
pub struct Connection {
    responder: Responder,
    output: Output,
    /// Input that came while an answer was being written.
    unread: Vec<u8>,
    /// The part of the answer that did not fit into the output yet.
    answer: Vec<u8>,
    answered: usize,
    /// Requests whose answers have ended.
    served: u64,
    state: State,
    /// What is asked next is for others to answer.
    is_last: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    /// An answer is being written.
    Answering,
    /// What is pending is the last.
    Closing,
}

impl Connection {
    /// A connection without a byte so far.
    pub fn new(limits: Limits) -> Connection {
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

    /// What the connection waits for.
    pub fn wait(&self) -> Wait {
        match self.state {
            _ if !self.output.is_empty() => Wait::Room,
            State::Closing => Wait::Over,
            State::Answering => Wait::Room,
            State::Reading if self.responder.is_between_requests() => Wait::Idle,
            State::Reading => Wait::Request,
        }
    }

    /// How many requests have been answered.
    pub fn served(&self) -> u64 {
        self.served
    }

    /// Takes what came. To be called while the connection waits for a request only, so that a client that doesn't read
    /// can't make it grow.
    pub fn receive(&mut self, bytes: &[u8], pages: &Pages<'_>, snapshot: &mut dyn FnMut() -> Snapshot) {
        self.unread.extend_from_slice(bytes);
        self.advance(pages, snapshot);
    }

    /// The bytes that are to be written.
    pub fn pending(&mut self) -> &[u8] {
        self.output.pending()
    }

    /// The first `count` pending bytes were written.
    pub fn written(&mut self, count: usize, pages: &Pages<'_>, snapshot: &mut dyn FnMut() -> Snapshot) {
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
                // The answer waits for the end of the body: a connection that is closed with input unread is reset,
                // and the answer lost.
                Input::Request | Input::Body(_) => {}
                Input::BodyEnd => {
                    let page = pages.answer(self.responder.params(), snapshot);
                    self.output.begin(self.responder.request_id());
                    // The buffer is empty, or nearly so: the few bytes fit.
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

    /// Moves as much of the answer into the output as there is room for.
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

//! One client's connection, without its socket.

use super::answer::Answer;
use super::hosts::Hosts;
use super::request::{MOST_BYTES, Parsed, Request, parse};
use forkyard_host::event_loop::{self, Wait};
use std::rc::Rc;

#[derive(Debug)]
pub(crate) struct Connection {
    input: Vec<u8>,
    state: State,
    served: u64,
}

#[derive(Debug)]
enum State {
    Reading,
    /// The request waits for its answer.
    Asking(Request),
    Answering(Output),
    Ending,
}

#[derive(Debug)]
struct Output {
    header: Vec<u8>,
    body: Option<Rc<[u8]>>,
    sent: usize,
    keeps: bool,
}

impl Output {
    fn pending(&self) -> &[u8] {
        match self.header.get(self.sent..) {
            Some(rest) if !rest.is_empty() => rest,
            _ => {
                let body = self.body.as_deref().unwrap_or_default();
                body.get(self.sent - self.header.len()..).unwrap_or_default()
            }
        }
    }
}

impl event_loop::Connection for Connection {
    fn wait(&self) -> Wait {
        match &self.state {
            State::Reading if self.input.is_empty() => Wait::Idle,
            State::Reading => Wait::Request,
            State::Asking(_) => Wait::Answer,
            State::Answering(_) => Wait::Room,
            State::Ending => Wait::End,
        }
    }

    fn served(&self) -> u64 {
        self.served
    }

    /// No client can make it keep more than one head and a bit of the next.
    fn room(&self) -> usize {
        MOST_BYTES.saturating_sub(self.input.len()).max(1)
    }

    fn pending(&mut self) -> &[u8] {
        match &self.state {
            State::Answering(output) => output.pending(),
            State::Reading | State::Asking(_) | State::Ending => &[],
        }
    }
}

impl Connection {
    pub(crate) fn new() -> Connection {
        Connection {
            input: Vec::new(),
            state: State::Reading,
            served: 0,
        }
    }

    /// Processes input, while it waits for a request.
    pub(crate) fn receive(&mut self, bytes: &[u8], hosts: &Hosts, date: &str) {
        self.input.extend_from_slice(bytes);
        self.advance(hosts, date);
    }

    fn advance(&mut self, hosts: &Hosts, date: &str) {
        match parse(&self.input, hosts) {
            Parsed::More => {}
            Parsed::Request(request, used) => {
                self.input.drain(..used);
                self.state = State::Asking(request);
            }
            Parsed::Refused(refusal) => {
                self.input = Vec::new();
                let answer = Answer::refusal(refusal);
                self.state = State::Answering(Output {
                    header: answer.header(false, date),
                    body: Some(answer.body),
                    sent: 0,
                    keeps: false,
                });
            }
        }
    }

    /// Returns the request that waits for its answer.
    pub(crate) fn request(&self) -> Option<&Request> {
        match &self.state {
            State::Asking(request) => Some(request),
            State::Reading | State::Answering(_) | State::Ending => None,
        }
    }

    /// Answers the request. `is_last`: the connection is closed after it.
    pub(crate) fn answer(&mut self, answer: Answer, is_last: bool, date: &str) {
        if let State::Asking(request) = &self.state {
            let keeps = request.keeps && !is_last;
            self.state = State::Answering(Output {
                header: answer.header(keeps, date),
                body: (!request.is_head).then_some(answer.body),
                sent: 0,
                keeps,
            });
        }
    }

    /// Removes `count` written bytes.
    pub(crate) fn written(&mut self, count: usize, hosts: &Hosts, date: &str) {
        let State::Answering(output) = &mut self.state else {
            return;
        };
        output.sent += count;
        if !output.pending().is_empty() {
            return;
        }
        self.served += 1;
        if !output.keeps {
            self.state = State::Ending;
            return;
        }
        self.state = State::Reading;
        if !self.input.is_empty() {
            self.advance(hosts, date);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Status;
    use forkyard_host::event_loop::Connection as _;

    const DATE: &str = "Sat, 28 Nov 2026 17:00:00 GMT";

    /// Sends `input` in pieces of `step` bytes, and returns what the client gets.
    fn talk(input: &str, step: usize) -> (String, Wait) {
        let hosts = Hosts::new(Vec::new());
        let mut connection = Connection::new();
        let mut got = Vec::new();
        for piece in input.as_bytes().chunks(step) {
            if connection.wait() == Wait::End {
                break;
            }
            connection.receive(piece, &hosts, DATE);
            loop {
                if let Some(request) = connection.request() {
                    let text = request.path.clone();
                    connection.answer(Answer::text(Status::Ok, &text), false, DATE);
                }
                let count = connection.pending().len().min(7);
                if count == 0 {
                    break;
                }
                got.extend_from_slice(&connection.pending()[..count]);
                connection.written(count, &hosts, DATE);
            }
        }
        (String::from_utf8_lossy(&got).into_owned(), connection.wait())
    }

    #[test]
    fn requests_are_answered_in_order_whatever_the_pieces() {
        let one = |method: &str, path: &str| format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let input = [one("GET", "/a"), one("HEAD", "/b"), one("GET", "/c")].concat();
        let header = |length: usize| {
            format!(
                "HTTP/1.1 200 OK\r\nDate: {DATE}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
                 Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n"
            )
        };
        let expected = format!("{0}/a\n{0}{0}/c\n", header(3));
        for step in 1..input.len() {
            assert_eq!(talk(&input, step), (expected.clone(), Wait::Idle), "{step}");
        }
    }

    #[test]
    fn the_last_answer_says_so() {
        let (text, wait) = talk(
            "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\nGET",
            1000,
        );
        assert!(
            text.contains("\r\nConnection: close\r\n") && wait == Wait::End,
            "{text}"
        );
        let (text, wait) = talk("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000);
        assert!(text.starts_with("HTTP/1.1 405 ") && wait == Wait::End, "{text}");
        assert!(text.contains("\r\nAllow: GET, HEAD\r\n"), "{text}");
    }

    #[test]
    fn a_client_can_not_fill_the_memory() {
        let hosts = Hosts::new(Vec::new());
        let mut connection = Connection::new();
        while connection.wait() != Wait::Room {
            let bytes = vec![b'a'; connection.room()];
            connection.receive(&bytes, &hosts, DATE);
        }
        assert!(connection.pending().starts_with(b"HTTP/1.1 431 "));
    }
}

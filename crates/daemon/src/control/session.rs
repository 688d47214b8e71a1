//! The daemon's side of one connection, without blocking.

use forkyard_base::tick::Tick;
use forkyard_protocol::control::{Answer, LONGEST_REQUEST, Request};
use forkyard_sys::guarded::Guarded;
use forkyard_sys::other_end::{self, OtherSide};
use forkyard_sys::socket::{self, Progress};
use std::os::fd::{AsFd, OwnedFd};

/// The most connections. Above it, the longest idle one is closed.
pub const MOST_SESSIONS: usize = 16;

/// The result of [`Session::poll`].
#[derive(Debug, PartialEq, Eq)]
pub enum SessionInput {
    /// No complete request.
    Nothing,
    /// A request. The next one is read after its answer.
    Request(Request),
    /// The connection ended.
    End,
}

/// One control connection.
#[derive(Debug)]
pub struct Session {
    socket: Guarded,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    is_waiting: bool,
    ends_when_sent: bool,
    /// The time of the last request, or of the connection.
    pub since: Tick,
}

impl Session {
    /// Creates the session of a new connection.
    pub fn new(socket: OwnedFd, now: Tick) -> Session {
        Session {
            socket: Guarded::new(socket),
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            is_waiting: false,
            ends_when_sent: false,
            since: now,
        }
    }

    /// Returns the socket to poll for reading and writing.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether a request has no answer yet.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Whether the client has closed its end. One that only sends no more still reads the answer.
    pub fn has_left(&self) -> bool {
        other_end::look(self.socket.as_fd()) == OtherSide::Closed
    }

    /// Sends an error, reads nothing more and closes the connection.
    pub fn refuse(&mut self, message: &str) {
        self.ends_when_sent = true;
        self.answer(&Answer::Error {
            message: message.to_owned(),
            errors: Vec::new(),
        });
    }

    /// Queues the answer. [`Session::poll`] sends it.
    pub fn answer(&mut self, answer: &Answer) {
        self.is_waiting = false;
        // Serialising plain values to memory can't fail.
        let line = serde_json::to_vec(answer).unwrap_or_default();
        self.output.extend_from_slice(&line);
        self.output.push(b'\n');
    }

    /// Sends pending output and reads up to the next request.
    pub fn poll(&mut self, now: Tick) -> SessionInput {
        loop {
            match self.send() {
                Some(true) => {}
                Some(false) => return SessionInput::Nothing,
                None => return SessionInput::End,
            }
            if self.ends_when_sent {
                return SessionInput::End;
            }
            if self.is_waiting {
                return match self.has_left() {
                    true => SessionInput::End,
                    false => SessionInput::Nothing,
                };
            }
            if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                self.since = now;
                match serde_json::from_slice(&line) {
                    Ok(request) => {
                        self.is_waiting = true;
                        return SessionInput::Request(request);
                    }
                    Err(error) => {
                        let message = format!("this is no request: {error}");
                        self.answer(&Answer::Error {
                            message,
                            errors: Vec::new(),
                        });
                        continue;
                    }
                }
            }
            if self.input.len() > LONGEST_REQUEST {
                self.refuse(&format!("a request has at most {LONGEST_REQUEST} bytes"));
                continue;
            }
            let mut buffer = [0; 4096];
            match self.socket.receive(&mut buffer) {
                Ok(Progress::Done(count)) if count > 0 => self.input.extend_from_slice(&buffer[..count]),
                Ok(Progress::WouldBlock) => return SessionInput::Nothing,
                Ok(Progress::Done(_)) | Err(_) => return SessionInput::End,
            }
        }
    }

    /// Returns `true` if everything is sent; `None` if the client has disconnected.
    fn send(&mut self) -> Option<bool> {
        while self.sent < self.output.len() {
            match socket::send(self.socket.as_fd(), &self.output[self.sent..]) {
                Ok(Progress::Done(count)) => self.sent += count,
                Ok(Progress::WouldBlock) => return Some(false),
                Err(_) => return None,
            }
        }
        self.output = Vec::new();
        self.sent = 0;
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_protocol::control::DaemonMode;
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Session, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Session::new(ours.into(), Tick::from_nanos(0)), theirs)
    }

    fn now() -> Tick {
        Tick::from_nanos(1)
    }

    #[test]
    fn requests_are_taken_one_by_one() {
        let (mut session, mut client) = pair();
        assert_eq!(session.poll(now()), SessionInput::Nothing);
        client.write_all(b"{\"command\":\"pi").unwrap();
        assert_eq!(session.poll(now()), SessionInput::Nothing);
        client.write_all(b"ng\"}\n{\"command\":\"status\"}\n").unwrap();
        assert_eq!(session.poll(now()), SessionInput::Request(Request::Ping {}));
        assert_eq!(session.poll(now()), SessionInput::Nothing);
        let pong = Answer::Pong {
            program: None,
            pid: 1,
            version: "1".into(),
            mode: DaemonMode::Draining,
            last_reload: None,
        };
        session.answer(&pong);
        assert_eq!(
            session.poll(now()),
            SessionInput::Request(Request::Status { caches: false })
        );
        let expected = b"{\"result\":\"pong\",\"pid\":1,\"version\":\"1\",\"mode\":\"draining\"}\n";
        let mut line = vec![0; expected.len()];
        client.read_exact(&mut line).unwrap();
        assert_eq!(line, expected);
        drop(client);
        session.answer(&pong);
        assert_eq!(session.poll(now()), SessionInput::End);
    }

    #[test]
    fn a_client_that_leaves_before_its_answer_ends_the_session() {
        let (mut session, mut client) = pair();
        client.write_all(b"{\"command\":\"ping\"}\n").unwrap();
        assert_eq!(session.poll(now()), SessionInput::Request(Request::Ping {}));
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(session.poll(now()), SessionInput::Nothing);
        assert!(!session.has_left());
        drop(client);
        assert!(session.has_left());
        assert_eq!(session.poll(now()), SessionInput::End);
    }

    #[test]
    fn nonsense_is_answered_and_too_much_of_it_ends() {
        let (mut session, mut client) = pair();
        client.write_all(b"\xff\n").unwrap();
        assert_eq!(session.poll(now()), SessionInput::Nothing);
        let long = vec![b'x'; LONGEST_REQUEST + 5000];
        client.write_all(&long).unwrap();
        assert_eq!(session.poll(now()), SessionInput::End);
        drop(session);
        let mut text = String::new();
        // Unread input can cause a reset at the end.
        let _ = client.read_to_string(&mut text);
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}

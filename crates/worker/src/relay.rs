//! Passes a request's body to a program and the program's output back, concurrently.

use super::request::{ClientGone, Request};
use forkyard_sys::socket::PEER_CLOSED;
use forkyard_sys::timeout::wait_for_one;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use std::os::fd::{AsFd, OwnedFd};

const PIECE_BYTES: usize = 64 * 1024;

/// A program's descriptors, all non-blocking.
#[derive(Debug)]
pub struct Peer {
    /// Receives the body; closed after it.
    pub input: Option<OwnedFd>,
    /// The program's answer.
    pub output: OwnedFd,
    /// The program's standard error.
    pub errors: Option<OwnedFd>,
}

/// Receives a program's output.
pub trait Sink {
    /// Passes on part of the answer.
    ///
    /// # Errors
    /// Ends the relay.
    fn output(&mut self, request: &mut Request<'_>, bytes: &[u8]) -> Result<(), Stop>;

    /// Passes on part of the standard error.
    fn errors(&mut self, request: &mut Request<'_>, bytes: &[u8]);
}

/// Why a relay stopped before the end of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The client disconnected.
    ClientGone,
    /// The client sent nothing of its body for `client_timeout`.
    ClientSilent,
    /// The sink needs no more output.
    Enough,
    /// poll(2) failed.
    Failed(Errno),
}

impl From<ClientGone> for Stop {
    fn from(ClientGone: ClientGone) -> Stop {
        Stop::ClientGone
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Ready {
    client: bool,
    input: bool,
    output: bool,
    errors: bool,
}

/// Relays until the program's output ends. Notices a disconnected client even if nothing is written.
///
/// # Errors
/// Why it stopped early.
pub fn relay(request: &mut Request<'_>, mut peer: Peer, sink: &mut dyn Sink) -> Result<(), Stop> {
    let mut body = Body::default();
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        if peer.input.is_some() {
            body.fetch(request)?;
            if body.is_sent() {
                peer.input = None;
            }
        }
        let ready = wait(request, &peer, &body)?;
        if ready.input {
            if let Some(input) = &peer.input {
                if body.send(input).is_err() {
                    peer.input = None;
                }
            }
        }
        if ready.errors {
            if let Some(errors) = &peer.errors {
                match take(errors, &mut buffer) {
                    Some(0) => peer.errors = None,
                    Some(count) => sink.errors(request, &buffer[..count]),
                    None => {}
                }
            }
        }
        if ready.output {
            match take(&peer.output, &mut buffer) {
                Some(0) => break,
                Some(count) => {
                    sink.output(request, &buffer[..count])?;
                    if count < PIECE_BYTES {
                        request.flush()?;
                    }
                }
                None => {}
            }
        }
    }
    if let Some(errors) = &peer.errors {
        while let Some(count @ 1..) = take(errors, &mut buffer) {
            sink.errors(request, &buffer[..count]);
        }
    }
    Ok(())
}

fn wait(request: &Request<'_>, peer: &Peer, body: &Body) -> Result<Ready, Stop> {
    let wants_body = peer.input.is_some() && body.wants_more();
    let mut about = vec![PollFd::new(peer.output.as_fd(), PollFlags::POLLIN)];
    let mut push = |fd| {
        about.push(fd);
        about.len() - 1
    };
    let client = request.connection().map(|client| {
        let flags = if wants_body {
            PollFlags::POLLIN
        } else {
            PEER_CLOSED
        };
        push(PollFd::new(client, flags))
    });
    let input = peer.input.as_ref().filter(|_| body.has_more());
    let input = input.map(|fd| push(PollFd::new(fd.as_fd(), PollFlags::POLLOUT)));
    let errors = peer.errors.as_ref();
    let errors = errors.map(|fd| push(PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
    let limit = wants_body.then(|| request.client_timeout());
    let count = wait_for_one(&mut about, limit).map_err(Stop::Failed)?;
    if count == 0 {
        return Err(Stop::ClientSilent);
    }
    let is = |index: usize| about[index].any().unwrap_or(true);
    let ready = Ready {
        client: client.is_some_and(is),
        input: input.is_some_and(is),
        output: is(0),
        errors: errors.is_some_and(is),
    };
    if ready.client && !wants_body {
        return Err(Stop::ClientGone);
    }
    Ok(ready)
}

fn take(fd: &OwnedFd, buffer: &mut [u8]) -> Option<usize> {
    loop {
        match nix::unistd::read(fd, buffer) {
            Ok(count) => return Some(count),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return None,
            Err(_) => return Some(0),
        }
    }
}

#[derive(Default)]
struct Body {
    piece: Vec<u8>,
    sent: usize,
    ended: bool,
}

impl Body {
    fn has_more(&self) -> bool {
        self.sent < self.piece.len()
    }

    fn wants_more(&self) -> bool {
        !self.has_more() && !self.ended
    }

    fn is_sent(&self) -> bool {
        !self.has_more() && self.ended
    }

    fn fetch(&mut self, request: &mut Request<'_>) -> Result<(), Stop> {
        if !self.wants_more() {
            return Ok(());
        }
        self.piece.resize(PIECE_BYTES, 0);
        let fetched = request.body_now(&mut self.piece);
        self.sent = 0;
        self.piece.truncate(match fetched {
            Ok(Some(count)) => count,
            _ => 0,
        });
        self.ended = fetched? == Some(0);
        Ok(())
    }

    fn send(&mut self, input: &OwnedFd) -> Result<(), Errno> {
        match nix::unistd::write(input, &self.piece[self.sent..]) {
            Ok(count) => self.sent += count,
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }
}

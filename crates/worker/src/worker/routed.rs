//! A worker that a router gives its connections to, one at a time ([`forkyard_protocol::channel`]).
//!
//! It waits for its channel instead of listening socket and hand-off queue. Between two requests the router has the
//! connection; it has a descriptor of its own all the time: the worker tells it that the connection may go on and
//! closes its own, or shuts the connection down for both.
//!
//! ```text
//!            Serve                    the answer ends early
//!   Vacant ─────────▶ Serving ──────────────────────▶ Released
//!     ▲                 │ Kept, Closed                   │ Done
//!     └─────────────────┴────────────────────────────────┘
//! ```

use super::acceptor::{Acceptor, Roused, Work};
use super::connection::Connection;
use super::memory::Occasion;
use super::out_of_band::Want;
use super::service::Service;
use crate::sys::fd::{receive_with, send_gathered_with};
use crate::sys::origin::is_there;
use crate::sys::socket::{Readiness, shutdown_read, wait};
use crate::sys::{Error, clock};
use crate::tick::Tick;
use forkyard_protocol::channel::{HEAD_BYTES, MOST_BYTES, ToRouter, ToWorker, head, parse};
use nix::errno::Errno;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Bytes that the input has room for: what may come with a connection, and a read.
const INPUT_BYTES: usize = HEAD_BYTES + MOST_BYTES + 64 * 1024;
/// How long a router may leave its end of the channel full.
const ROUTER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the rest of a body may take that the application did not read, until the connection is closed instead of kept.
const REST_LIMIT: Duration = Duration::from_secs(1);

/// The worker's end of the channel.
#[derive(Debug)]
pub(super) struct Channel {
    fd: OwnedFd,
    /// The session's.
    session: u64,
    state: SessionState,
    /// The connection is to be closed after the answer.
    is_last: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionState {
    Vacant,
    Serving,
    Released,
}

impl Channel {
    fn tell(&self, kind: ToRouter, session: u64, bytes: &[u8]) {
        tell(self.fd.as_fd(), kind, session, bytes);
    }
}

/// Says something to the router by a channel. A router that is gone for good ends the worker by the end of its channel.
pub(super) fn tell(channel: BorrowedFd<'_>, kind: ToRouter, session: u64, bytes: &[u8]) {
    let head = head(kind, session);
    let pieces = [IoSlice::new(&head), IoSlice::new(bytes)];
    loop {
        match send_gathered_with(channel, &pieces, &[]) {
            Err(Error {
                errno: Errno::EAGAIN, ..
            }) if wait(channel, Readiness::Writable, ROUTER_TIMEOUT).is_ok_and(|ready| ready) => {}
            Err(Error {
                errno: Errno::EINTR, ..
            }) => {}
            Err(error) if error.errno != Errno::EPIPE => {
                return log::warn!("can't send to the router: {error}");
            }
            Ok(_) | Err(_) => return,
        }
    }
}

/// What came over the channel.
enum Came {
    Nothing,
    /// A connection: its first bytes are in the input.
    Connection(OwnedFd),
    /// Do the out-of-band work.
    Work,
    /// Something that has been seen to.
    Other,
    /// Nothing will any more.
    End,
}

impl Service {
    /// Takes connections from a router from now on.
    pub(super) fn route(&mut self, channel: OwnedFd) {
        self.input = vec![0; INPUT_BYTES].into_boxed_slice();
        self.channel = Some(Channel {
            fd: channel,
            session: 0,
            state: SessionState::Vacant,
            is_last: false,
        });
    }

    /// Takes one message out of the channel.
    fn hear_router(&mut self) -> Came {
        let Some(channel) = &mut self.channel else {
            return Came::End;
        };
        let received = match receive_with(channel.fd.as_fd(), &mut self.input, false) {
            Ok(received) => received,
            Err(error) if matches!(error.errno, Errno::EAGAIN | Errno::EINTR) => return Came::Nothing,
            Err(_) => return Came::End,
        };
        if received.bytes == 0 {
            return Came::End;
        }
        let Some((kind, session, bytes)) = parse::<ToWorker>(&self.input[..received.bytes]) else {
            log::warn!("invalid message from the router");
            return Came::Other;
        };
        match kind {
            ToWorker::Serve | ToWorker::ServeLast => match received.descriptors.into_iter().next() {
                Some(socket) => {
                    (self.start, self.end) = (HEAD_BYTES, HEAD_BYTES + bytes.len());
                    (channel.session, channel.state) = (session, SessionState::Serving);
                    channel.is_last = kind == ToWorker::ServeLast;
                    return Came::Connection(socket);
                }
                // The process has no descriptor left for it.
                None => channel.tell(ToRouter::NotBegun, session, &[]),
            },
            ToWorker::Where => {
                channel.tell(ToRouter::Here, session, &[]);
                // A router that asks this is a new one, and may not have heard it.
                if self.want == Want::Told {
                    channel.tell(ToRouter::WorkWanted, 0, &[]);
                }
            }
            ToWorker::Work => return Came::Work,
        }
        Came::Other
    }

    /// Makes what the router has sent the current connection.
    fn attach_routed(&mut self, mut connection: Box<Connection>) {
        let (start, end) = (self.start, self.end);
        connection.shared = true;
        connection.spoken = true;
        connection.last = self.channel.as_ref().is_some_and(|channel| channel.is_last);
        self.attach(connection);
        (self.start, self.end) = (start, end);
    }

    /// The answer's end is about to be sent. A connection may be closed after it although its client wants it kept.
    /// Then the client can't send anything more even before it sees the end: a web server that would send its next
    /// request there learns so at once, and takes another connection.
    pub(super) fn refuse_more(&self) {
        let is_wanted = |connection: &&Connection| connection.last && connection.responder.keep();
        let last = self.current().filter(is_wanted);
        if let Some(connection) = last.filter(|_| self.body_ended) {
            shutdown_read(connection.socket());
        }
    }

    /// Gives the connection back while the application is still busy with the request.
    pub(super) fn release(&mut self) {
        if self.can_go_on() {
            self.let_go(ToRouter::Released);
            if let Some(channel) = &mut self.channel {
                channel.state = SessionState::Released;
            }
        }
    }

    /// Whether something else has the application's path: no code is read from there any more.
    fn has_moved(&self) -> bool {
        let origin = self.settings.pool.origin.as_ref();
        origin.is_some_and(|origin| !is_there(origin))
    }

    /// Ends the session: gives the connection back if it is still there and may have another request.
    pub(super) fn give_back(&mut self, may_go_on: bool) {
        // Before the router may give the worker the next request.
        self.tell_memory();
        if self.current().is_some() {
            if may_go_on {
                self.skip_rest();
            }
            if may_go_on && self.can_go_on() {
                self.let_go(ToRouter::Kept);
            } else if let Some(connection) = self.detach() {
                self.close(connection);
                self.tell_router(ToRouter::Closed, &[]);
            }
        } else {
            let released = self.channel.as_ref().map(|channel| channel.state) == Some(SessionState::Released);
            let kind = if released {
                ToRouter::Done
            } else {
                ToRouter::Closed
            };
            self.tell_router(kind, &[]);
        }
        if let Some(channel) = &mut self.channel {
            channel.state = SessionState::Vacant;
        }
        self.tell_want();
    }

    /// Tells that the application has asked for out-of-band work; once until it is told to begin.
    fn tell_want(&mut self) {
        if self.want.due().is_some() {
            self.want = Want::Told;
            self.tell_router(ToRouter::WorkWanted, &[]);
        }
    }

    /// The work is over, well or not.
    pub(super) fn tell_worked(&mut self, is_well: bool) {
        self.tell_router(ToRouter::Worked, &[u8::from(is_well)]);
        // What was asked for meanwhile.
        self.tell_want();
    }

    /// Nothing of the current connection is known here only but whole bytes of a next request.
    fn can_go_on(&self) -> bool {
        self.current().is_some_and(Connection::is_portable) && self.end - self.start <= MOST_BYTES
    }

    fn let_go(&mut self, kind: ToRouter) {
        let Some(mut connection) = self.detach() else {
            return;
        };
        if let Some(channel) = &self.channel {
            channel.tell(kind, channel.session, &self.input[self.start..self.end]);
        }
        (self.start, self.end) = (0, 0);
        connection.shared = false;
        self.close(connection);
    }

    /// Reads and drops what is left of the body, for a bounded time.
    fn skip_rest(&mut self) {
        let end = clock::now() + REST_LIMIT;
        while self.current().is_some_and(|connection| !connection.is_portable()) {
            let left = end.since(clock::now());
            if self.has_input() {
                let before = self.start;
                self.skip_body();
                if self.start == before {
                    return;
                }
            } else if left.is_zero() || self.fill(left).is_err() {
                return;
            }
        }
    }

    fn tell_router(&self, kind: ToRouter, bytes: &[u8]) {
        if let Some(channel) = &self.channel {
            channel.tell(kind, channel.session, bytes);
        }
    }

    /// Tells how much memory the worker uses, with the program beside it, if its pool limits that and it is time.
    fn tell_memory(&mut self) {
        let scale = self.scale.as_mut();
        let bytes = scale.and_then(|scale| scale.news(self.program, Occasion::Request));
        if let Some(bytes) = bytes {
            self.tell_router(ToRouter::Memory, &bytes.to_le_bytes());
        }
    }

    /// For a worker that is about to leave: what is still in the channel goes back, and nothing more can be put in.
    pub(super) fn hand_back_all(&mut self) {
        if let Some(channel) = &self.channel {
            shutdown_read(channel.fd.as_fd());
        }
        loop {
            match self.hear_router() {
                Came::Connection(socket) => {
                    drop(socket);
                    self.tell_router(ToRouter::NotBegun, &[]);
                }
                Came::Work => self.tell_router(ToRouter::Worked, &[0]),
                Came::Other => {}
                Came::Nothing | Came::End => return,
            }
        }
    }
}

impl Acceptor {
    /// Waits for what the router sends, or until `backend` has to be looked after in any case.
    pub(super) fn next_routed(&mut self, service: &mut Service, backend: Option<Tick>) -> Work {
        self.tell_first();
        loop {
            match self.wait_for_router(service, backend) {
                Ok(Roused::Retire) => return Work::Retire,
                Ok(Roused::Backend) => return Work::Backend,
                Ok(Roused::Message) => {}
                Err(errno) => return Work::Failed(format!("epoll_wait: {errno}")),
            }
            match service.hear_router() {
                Came::Connection(socket) => {
                    if service.has_moved() {
                        drop(socket);
                        service.tell_router(ToRouter::Moved, &[]);
                        return Work::Retire;
                    }
                    let connection = service.connection(socket);
                    service.attach_routed(connection);
                    self.take_up(service);
                    return Work::Attached;
                }
                Came::Work => {
                    self.take_up(service);
                    service.begin_work();
                    return Work::OutOfBand;
                }
                Came::Other | Came::Nothing => {}
                Came::End => return Work::Retire,
            }
        }
    }
}

/// The channel, to be watched.
pub(super) fn watched(service: &Service) -> Option<BorrowedFd<'_>> {
    service.channel.as_ref().map(|channel| channel.fd.as_fd())
}

//! A worker that receives its connections from a router, one at a time ([`forkyard_protocol::channel`]).
//!
//! It waits for its channel instead of the listening socket and hand-off queue. The router keeps a descriptor of each
//! connection: the worker either reports that the connection can continue and closes its own, or shuts it down for
//! both.
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

const INPUT_BYTES: usize = HEAD_BYTES + MOST_BYTES + 64 * 1024;
const ROUTER_TIMEOUT: Duration = Duration::from_secs(30);
const REST_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Channel {
    fd: OwnedFd,
    session: u64,
    state: SessionState,
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

/// Sends a message. If the router is gone for good, the channel closes and the worker exits.
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

enum Came {
    Nothing,
    Connection(OwnedFd),
    Work,
    Other,
    End,
}

impl Service {
    pub(super) fn route(&mut self, channel: OwnedFd) {
        self.input = vec![0; INPUT_BYTES].into_boxed_slice();
        self.channel = Some(Channel {
            fd: channel,
            session: 0,
            state: SessionState::Vacant,
            is_last: false,
        });
    }

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
                None => channel.tell(ToRouter::NotBegun, session, &[]),
            },
            ToWorker::Where => {
                channel.tell(ToRouter::Here, session, &[]);
                if self.want == Want::Told {
                    channel.tell(ToRouter::WorkWanted, 0, &[]);
                }
            }
            ToWorker::Work => return Came::Work,
        }
        Came::Other
    }

    fn attach_routed(&mut self, mut connection: Box<Connection>) {
        let (start, end) = (self.start, self.end);
        connection.shared = true;
        connection.spoken = true;
        connection.last = self.channel.as_ref().is_some_and(|channel| channel.is_last);
        self.attach(connection);
        (self.start, self.end) = (start, end);
    }

    /// Called before the end of the answer is sent. If the connection closes although the client wants to keep it,
    /// shuts down its input first, so that a web server does not send its next request there.
    pub(super) fn refuse_more(&self) {
        let is_wanted = |connection: &&Connection| connection.last && connection.responder.keep();
        let last = self.current().filter(is_wanted);
        if let Some(connection) = last.filter(|_| self.body_ended) {
            shutdown_read(connection.socket());
        }
    }

    pub(super) fn release(&mut self) {
        if self.can_go_on() {
            self.let_go(ToRouter::Released);
            if let Some(channel) = &mut self.channel {
                channel.state = SessionState::Released;
            }
        }
    }

    /// Whether the application's path leads elsewhere, so that no more code may be loaded from it.
    fn has_moved(&self) -> bool {
        let origin = self.settings.pool.origin.as_ref();
        origin.is_some_and(|origin| !is_there(origin))
    }

    pub(super) fn give_back(&mut self, may_go_on: bool) {
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

    fn tell_want(&mut self) {
        if self.want.due().is_some() {
            self.want = Want::Told;
            self.tell_router(ToRouter::WorkWanted, &[]);
        }
    }

    pub(super) fn tell_worked(&mut self, is_well: bool) {
        self.tell_router(ToRouter::Worked, &[u8::from(is_well)]);
        self.tell_want();
    }

    /// Whether the worker keeps nothing of the connection except complete bytes of a next request.
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

    fn tell_memory(&mut self) {
        let scale = self.scale.as_mut();
        let bytes = scale.and_then(|scale| scale.news(self.program, Occasion::Request));
        if let Some(bytes) = bytes {
            self.tell_router(ToRouter::Memory, &bytes.to_le_bytes());
        }
    }

    /// Before the worker exits: returns connections that are still in the channel and closes it for more.
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

pub(super) fn watched(service: &Service) -> Option<BorrowedFd<'_>> {
    service.channel.as_ref().map(|channel| channel.fd.as_fd())
}

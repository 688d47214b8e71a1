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
use super::router_channel::{RouterChannel, RouterGone};
use super::service::Service;
use forkyard_base::tick::Tick;
use forkyard_protocol::channel::{FromWorker, HEAD_BYTES, MOST_BYTES, ToWorker};
use forkyard_sys::clock;
use forkyard_sys::socket::shutdown_read;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

const INPUT_BYTES: usize = HEAD_BYTES + MOST_BYTES + 64 * 1024;
const REST_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Channel {
    router: RouterChannel,
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

enum Came {
    Nothing,
    Connection(OwnedFd),
    Work,
    End,
}

impl Service {
    pub(super) fn route(&mut self, channel: OwnedFd) {
        self.input = vec![0; INPUT_BYTES].into_boxed_slice();
        self.channel = Some(Channel {
            router: RouterChannel::new(channel),
            session: 0,
            state: SessionState::Vacant,
            is_last: false,
        });
    }

    fn hear_router(&mut self) -> Came {
        let Some(channel) = &mut self.channel else {
            return Came::End;
        };
        let message = match channel.router.receive(&mut self.input) {
            Ok(Some(message)) => message,
            Ok(None) => return Came::Nothing,
            Err(RouterGone) => return Came::End,
        };
        match (message.kind, message.socket) {
            (kind @ (ToWorker::Serve | ToWorker::ServeLast), Some(socket)) => {
                (self.start, self.end) = (HEAD_BYTES, HEAD_BYTES + message.length);
                (channel.session, channel.state) = (message.session, SessionState::Serving);
                channel.is_last = kind == ToWorker::ServeLast;
                return Came::Connection(socket);
            }
            (ToWorker::Serve | ToWorker::ServeLast, None) => {
                channel.router.tell(FromWorker::NotBegun, message.session, &[]);
            }
            (ToWorker::Where, _) => channel.router.tell_here(message.session, self.want),
            (ToWorker::Work, _) => return Came::Work,
        }
        Came::Nothing
    }

    fn attach_routed(&mut self, mut connection: Box<Connection>) {
        let (start, end) = (self.start, self.end);
        connection.client.shared = true;
        connection.client.spoken = true;
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
            self.let_go(FromWorker::Released);
            if let Some(channel) = &mut self.channel {
                channel.state = SessionState::Released;
            }
        }
    }

    pub(super) fn give_back(&mut self, may_go_on: bool) {
        if let Some(channel) = &self.channel {
            let scale = self.scale.as_mut();
            channel.router.tell_memory(scale, self.program, Occasion::Request);
        }
        if self.current().is_some() {
            if may_go_on {
                self.skip_rest();
            }
            if may_go_on && self.can_go_on() {
                self.let_go(FromWorker::Kept);
            } else if let Some(connection) = self.detach() {
                self.close(connection);
                self.tell_router(FromWorker::Closed, &[]);
            }
        } else {
            let released = self.channel.as_ref().map(|channel| channel.state) == Some(SessionState::Released);
            let kind = if released {
                FromWorker::Done
            } else {
                FromWorker::Closed
            };
            self.tell_router(kind, &[]);
        }
        if let Some(channel) = &mut self.channel {
            channel.state = SessionState::Vacant;
        }
        self.tell_want();
    }

    fn tell_want(&mut self) {
        if let Some(channel) = &self.channel {
            channel.router.tell_want(&mut self.want);
        }
    }

    pub(super) fn tell_worked(&mut self, is_well: bool) {
        if let Some(channel) = &self.channel {
            channel.router.tell_worked(is_well);
        }
        self.tell_want();
    }

    /// Whether the worker keeps nothing of the connection except complete bytes of a next request.
    fn can_go_on(&self) -> bool {
        self.current().is_some_and(Connection::is_portable) && self.end - self.start <= MOST_BYTES
    }

    fn let_go(&mut self, kind: FromWorker) {
        let Some(mut connection) = self.detach() else {
            return;
        };
        if let Some(channel) = &self.channel {
            let bytes = &self.input[self.start..self.end];
            channel.router.tell(kind, channel.session, bytes);
        }
        (self.start, self.end) = (0, 0);
        connection.client.shared = false;
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

    fn tell_router(&self, kind: FromWorker, bytes: &[u8]) {
        if let Some(channel) = &self.channel {
            channel.router.tell(kind, channel.session, bytes);
        }
    }

    pub(super) fn hand_back_all(&mut self) {
        if let Some(channel) = &self.channel {
            channel.router.hand_back_all(&mut self.input, self.want);
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
                    if service.settings.has_moved() {
                        drop(socket);
                        service.tell_router(FromWorker::Moved, &[]);
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
                Came::Nothing => {}
                Came::End => return Work::Retire,
            }
        }
    }
}

pub(super) fn watched(service: &Service) -> Option<BorrowedFd<'_>> {
    service.channel.as_ref().map(|channel| channel.router.fd())
}

//! A worker that receives its connections from a router, one at a time ([`forkyard_protocol::channel`]).
//!
//! It waits for its channel instead of the listening socket and hand-off queue. The router keeps a descriptor of each
//! connection: the worker either reports that the connection can continue and closes its own, or shuts it down for
//! both.
//!
//! ```text
//!                  Serve                    the answer ends early
//!   no session ──────────▶ Session ──────────────────────▶ is_answered
//!     ▲                       │ Kept, Closed                    │ Done
//!     └───────────────────────┴─────────────────────────────────┘
//! ```

use super::acceptor::{Acceptor, Work};
use super::connection::Connection;
use super::memory::Occasion;
use super::router_channel::{Order, RouterGone, Serve};
use super::service::Service;
use forkyard_base::tick::Tick;
use forkyard_protocol::channel::{FromWorker, HEAD_BYTES, MOST_BYTES};
use forkyard_sys::clock;
use forkyard_sys::socket::shutdown_read;
use std::time::Duration;

pub(super) const INPUT_BYTES: usize = HEAD_BYTES + MOST_BYTES + 64 * 1024;
const REST_LIMIT: Duration = Duration::from_secs(1);

impl Service {
    fn attach_routed(&mut self, serve: Serve) {
        let mut connection = self.connection(serve.socket);
        connection.client.shared = true;
        connection.client.spoken = true;
        connection.last = serve.is_last;
        self.attach(connection);
        self.session = Some(serve.session);
        (self.start, self.end) = (HEAD_BYTES, HEAD_BYTES + serve.length);
        self.tally.received += serve.length as u64;
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
            if let Some(session) = &mut self.session {
                session.is_answered = true;
            }
        }
    }

    pub(super) fn give_back(&mut self, may_go_on: bool) {
        self.router.tell_memory(&mut self.wear, Occasion::Request);
        if may_go_on {
            self.skip_rest();
        }
        let was_released = self.session.as_ref().is_some_and(|session| session.is_answered);
        if may_go_on && self.can_go_on() {
            self.let_go(FromWorker::Kept);
        } else if let Some(connection) = self.detach() {
            self.close(connection);
            self.tell_router(FromWorker::Closed);
        } else if was_released {
            self.tell_router(FromWorker::Done);
        } else {
            self.tell_router(FromWorker::Closed);
        }
        if let Some(session) = self.session.take() {
            self.router.has_ended(&session);
        }
    }

    /// Whether the worker keeps nothing of the connection except complete bytes of a next request.
    fn can_go_on(&self) -> bool {
        self.current().is_some_and(Connection::is_portable) && self.end - self.start <= MOST_BYTES
    }

    fn let_go(&mut self, kind: FromWorker) {
        let Some(mut connection) = self.detach() else {
            return;
        };
        if let Some(session) = &self.session {
            let bytes = &self.input[self.start..self.end];
            self.router.tell_session(session, kind, bytes);
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

    fn tell_router(&self, kind: FromWorker) {
        if let Some(session) = &self.session {
            self.router.tell_session(session, kind, &[]);
        }
    }

    pub(super) fn hand_back_all(&mut self) {
        self.router.hand_back_all(&mut self.input);
    }
}

impl Acceptor {
    pub(super) fn next_routed(&mut self, service: &mut Service, backend: Option<Tick>) -> Work {
        self.notifier.tell_first();
        loop {
            if let Some(work) = self.wait_for_router(service, backend) {
                return work;
            }
            match service.router.receive(&mut service.input) {
                Ok(Some(Order::Serve(serve))) => {
                    if service.settings.has_moved() {
                        service.router.refuse(serve, FromWorker::Moved);
                        return Work::Retire;
                    }
                    service.attach_routed(serve);
                    self.take_up(service);
                    return Work::Attached;
                }
                Ok(Some(Order::Other)) if service.router.begins_work(false) => {
                    self.begin_work(service, clock::now());
                    return Work::OutOfBand;
                }
                Ok(Some(Order::Other) | None) => {}
                Err(RouterGone) => return Work::Retire,
            }
        }
    }
}

//! A worker of an application pool, which receives connections from its router ([`forkyard_protocol::channel`]).

use super::super::memory::Occasion;
use super::super::router_channel::{Order, RouterGone, Serve};
use super::state::{READ_BYTES, WorkerState};
use forkyard_base::tick::Tick;
use forkyard_protocol::channel::{FromWorker, HEAD_BYTES, MOST_BYTES};
use forkyard_sys::clock;

pub(super) const MESSAGE_BYTES: usize = HEAD_BYTES + MOST_BYTES;
const AT_ONCE: usize = 32;

impl WorkerState {
    pub(super) fn hear_router(&mut self, now: Tick) {
        for _ in 0..AT_ONCE {
            match self.router.receive(&mut self.scratch) {
                Ok(Some(Order::Serve(serve))) if self.is_leaving() => {
                    self.router.refuse(serve, FromWorker::NotBegun);
                }
                Ok(Some(Order::Serve(serve))) => self.serve(serve, now),
                Ok(Some(Order::Other)) => self.begin_ordered_work(now),
                Ok(None) => return,
                Err(RouterGone) => {
                    if let Some(channel) = self.router.fd() {
                        let _ = self.sources.epoll.delete(channel);
                    }
                    return self.leave(now);
                }
            }
        }
    }

    fn serve(&mut self, serve: Serve, now: Tick) {
        if self.settings.has_moved() {
            self.router.refuse(serve, FromWorker::Moved);
            return self.leave(now);
        }
        let index = self.take_in(serve.socket, now);
        let client = &mut self.clients[index];
        client.session = Some(serve.session);
        if let (Some(link), Some(connection)) = (&mut client.link, &mut client.connection) {
            (link.socket.shared, link.socket.spoken) = (true, true);
            connection.set_last(serve.is_last);
            let event = connection.receive(&self.scratch[HEAD_BYTES..HEAD_BYTES + serve.length], now);
            self.follow(index, event, now);
        }
        self.read(index, now);
    }

    pub(super) fn had_its_request(&self, index: usize) -> bool {
        let session = &self.clients[index].session;
        session.as_ref().is_some_and(|session| session.is_answered)
    }

    /// Gives a connection back to the router, between two requests.
    pub(super) fn give_back(&mut self, index: usize) {
        if !self.clients[index].is_portable() {
            return self.close(index);
        }
        if let Some(link) = &mut self.clients[index].link {
            link.socket.shared = false;
        }
        self.hang_up(index);
        self.end_session(index, FromWorker::Kept);
        self.clients.release(index);
    }

    pub(super) fn end_session(&mut self, index: usize, how: FromWorker) {
        let Some(session) = self.clients[index].session.take() else {
            return;
        };
        self.measure();
        self.router.tell_session(&session, how, &[]);
        self.router.has_ended(&session);
        self.begin_ordered_work(clock::now());
    }

    fn begin_ordered_work(&mut self, now: Tick) {
        if self.router.begins_work(self.is_leaving()) {
            self.router.want.begin(&self.page, &mut self.notifier, now);
            self.is_at_work();
        }
    }

    pub(super) fn measure(&mut self) {
        self.router.tell_memory(&mut self.wear, Occasion::Second);
    }
}

const _: () = assert!(READ_BYTES <= MESSAGE_BYTES);

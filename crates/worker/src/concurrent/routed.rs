//! A worker of an application pool, which receives connections from its router ([`forkyard_protocol::channel`]).

use super::super::memory::Occasion;
use super::super::router_channel::{RouterChannel, RouterGone};
use super::client::Session;
use super::state::{READ_BYTES, WorkerState};
use forkyard_base::tick::Tick;
use forkyard_protocol::channel::{FromWorker, HEAD_BYTES, MOST_BYTES, ToWorker};
use forkyard_sys::clock;
use std::os::fd::{BorrowedFd, OwnedFd};

pub(super) const MESSAGE_BYTES: usize = HEAD_BYTES + MOST_BYTES;
const AT_ONCE: usize = 32;

#[derive(Debug)]
pub(super) struct Router {
    channel: RouterChannel,
    sessions: usize,
    asked: Vec<u64>,
    works: bool,
}

impl Router {
    pub(super) fn new(channel: OwnedFd) -> Router {
        Router {
            channel: RouterChannel::new(channel),
            sessions: 0,
            asked: Vec::new(),
            works: false,
        }
    }

    pub(super) fn channel(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }
}

impl WorkerState {
    pub(super) fn hear_router(&mut self, now: Tick) {
        for _ in 0..AT_ONCE {
            let Some(router) = &self.router else { return };
            let message = match router.channel.receive(&mut self.scratch) {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(RouterGone) => {
                    let _ = self.sources.epoll.delete(router.channel());
                    return self.leave(now);
                }
            };
            let session = message.session;
            match message.kind {
                kind @ (ToWorker::Serve | ToWorker::ServeLast) => match message.socket {
                    Some(socket) if !self.is_leaving() => {
                        let is_last = kind == ToWorker::ServeLast;
                        self.serve(socket, session, message.length, is_last, now);
                    }
                    _ => self.tell_router(FromWorker::NotBegun, session, &[]),
                },
                ToWorker::Where => {
                    self.name_sessions();
                    if let Some(router) = &mut self.router {
                        router.asked.push(session);
                    }
                    self.answer_where();
                }
                ToWorker::Work => {
                    if let Some(router) = &mut self.router {
                        router.works = true;
                    }
                    self.begin_ordered_work(now);
                }
            }
        }
    }

    fn serve(&mut self, socket: OwnedFd, session: u64, length: usize, is_last: bool, now: Tick) {
        if self.settings.has_moved() {
            drop(socket);
            self.tell_router(FromWorker::Moved, session, &[]);
            return self.leave(now);
        }
        let index = self.take_in(socket, now);
        if let Some(router) = &mut self.router {
            router.sessions += 1;
        }
        let client = &mut self.clients[index];
        client.session = Some(Session {
            number: session,
            is_answered: false,
        });
        if let (Some(link), Some(connection)) = (&mut client.link, &mut client.connection) {
            (link.socket.shared, link.socket.spoken) = (true, true);
            connection.set_last(is_last);
            let event = connection.receive(&self.scratch[HEAD_BYTES..HEAD_BYTES + length], now);
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
        self.tell_router(how, session.number, &[]);
        if let Some(router) = &mut self.router {
            router.sessions = router.sessions.saturating_sub(1);
            router.channel.tell_want(&mut self.want);
        }
        self.begin_ordered_work(clock::now());
    }

    fn tell_router(&self, kind: FromWorker, session: u64, bytes: &[u8]) {
        if let Some(router) = &self.router {
            router.channel.tell(kind, session, bytes);
        }
    }

    fn name_sessions(&self) {
        for session in self.clients.iter().filter_map(|client| client.session.as_ref()) {
            self.tell_router(FromWorker::Has, session.number, &[]);
        }
    }

    pub(super) fn tell_held_up(&self) {
        self.tell_router(FromWorker::HeldUp, 0, &[u8::from(self.turns.is_held_up)]);
    }

    fn answer_where(&mut self) {
        let is_working = self.departure.life.is_working();
        let Some(router) = self.router.as_mut().filter(|router| !router.works && !is_working) else {
            return;
        };
        for session in std::mem::take(&mut router.asked) {
            router.channel.tell_here(session, self.want);
        }
    }

    fn begin_ordered_work(&mut self, now: Tick) {
        let is_free = self
            .router
            .as_ref()
            .is_some_and(|router| router.works && router.sessions == 0);
        if !is_free || self.departure.life.is_working() {
            return;
        }
        if let Some(router) = &mut self.router {
            router.works = false;
        }
        if self.is_leaving() {
            self.tell_router(FromWorker::Worked, 0, &[0]);
            return self.answer_where();
        }
        self.begin_work(now);
        self.tell(super::events::EventKind::Work, 0);
    }

    pub(super) fn tell_worked(&mut self, is_well: bool) {
        if let Some(router) = &self.router {
            router.channel.tell_worked(is_well);
        }
        self.answer_where();
        if let Some(router) = &self.router {
            router.channel.tell_want(&mut self.want);
        }
    }

    pub(super) fn measure(&mut self) {
        if let Some(router) = &self.router {
            let program = self.wear.program;
            router
                .channel
                .tell_memory(self.wear.scale(), program, Occasion::Second);
        }
    }

    pub(super) fn hand_back_all(&mut self) {
        if let Some(router) = &self.router {
            router.channel.hand_back_all(&mut self.scratch, self.want);
        }
    }
}

const _: () = assert!(READ_BYTES <= MESSAGE_BYTES);

//! A worker of an application pool, which receives connections from its router ([`forkyard_protocol::channel`]).

use super::super::memory::Occasion;
use super::super::routed::tell;
use super::client::ClientPhase;
use super::state::{READ_BYTES, WorkerState};
use crate::sys::clock;
use crate::sys::fd::receive_with;
use crate::sys::origin::is_there;
use crate::sys::socket::shutdown_read;
use crate::tick::Tick;
use crate::worker::out_of_band::Want;
use forkyard_protocol::channel::{HEAD_BYTES, MOST_BYTES, ToRouter, ToWorker, parse};
use nix::errno::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

pub(super) const MESSAGE_BYTES: usize = HEAD_BYTES + MOST_BYTES;
/// How long to go on reading a request body that the application ignored before closing the connection.
const REST_LIMIT: Duration = Duration::from_secs(1);
const AT_ONCE: usize = 32;

#[derive(Debug)]
pub(super) struct Router {
    channel: OwnedFd,
    sessions: usize,
    asked: Vec<u64>,
    works: bool,
}

impl Router {
    pub(super) fn new(channel: OwnedFd) -> Router {
        Router {
            channel,
            sessions: 0,
            asked: Vec::new(),
            works: false,
        }
    }

    pub(super) fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl WorkerState {
    pub(super) fn hear_router(&mut self, now: Tick) {
        for _ in 0..AT_ONCE {
            let Some(router) = &self.router else { return };
            let received = match receive_with(router.channel(), &mut self.scratch, false) {
                Ok(received) if received.bytes > 0 => received,
                Err(error) if matches!(error.errno, Errno::EAGAIN | Errno::EINTR) => return,
                Ok(_) | Err(_) => {
                    let _ = self.epoll.delete(router.channel());
                    return self.leave(now);
                }
            };
            let Some((kind, session, bytes)) = parse::<ToWorker>(&self.scratch[..received.bytes]) else {
                log::warn!("invalid message from the router");
                continue;
            };
            let length = bytes.len();
            match kind {
                ToWorker::Serve | ToWorker::ServeLast => match received.descriptors.into_iter().next() {
                    Some(socket) if !self.is_leaving() => {
                        self.serve(socket, session, length, kind == ToWorker::ServeLast, now);
                    }
                    _ => self.tell_router(ToRouter::NotBegun, session, &[]),
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
        let origin = self.settings.pool.origin.as_ref();
        if origin.is_some_and(|origin| !is_there(origin)) {
            drop(socket);
            self.tell_router(ToRouter::Moved, session, &[]);
            return self.leave(now);
        }
        let bytes = self.scratch[HEAD_BYTES..HEAD_BYTES + length].to_vec();
        let index = self.take_in(socket, now);
        if let Some(router) = &mut self.router {
            router.sessions += 1;
        }
        let client = &mut self.clients[index];
        client.session = Some(session);
        client.input = bytes;
        if let Some(connection) = &mut client.connection {
            (connection.shared, connection.spoken, connection.last) = (true, true, is_last);
        }
        self.reconsider(index, now);
        self.read(index, now);
    }

    pub(super) fn rest(&mut self, index: usize, now: Tick) {
        let client = &mut self.clients[index];
        if client.connection.as_ref().is_some_and(|it| it.is_portable()) {
            return self.give_back(index);
        }
        client.phase = ClientPhase::Rest;
        let limit = now + REST_LIMIT;
        client.deadline = Some(limit);
        self.alarm.set_by(limit);
        self.reconsider(index, now);
        if self.clients[index].phase == ClientPhase::Rest {
            self.read(index, now);
        }
    }

    pub(super) fn give_back(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let bytes = std::mem::take(&mut client.input);
        if bytes.len() > MOST_BYTES {
            return self.close(index);
        }
        if let Some(connection) = &mut client.connection {
            connection.shared = false;
        }
        self.hang_up(index);
        self.end_session(index, Some(&bytes));
        self.give_up(index);
    }

    pub(super) fn end_session(&mut self, index: usize, kept: Option<&[u8]>) {
        let Some(session) = self.clients[index].session.take() else {
            return;
        };
        self.measure();
        match kept {
            Some(bytes) => self.tell_router(ToRouter::Kept, session, bytes),
            None => self.tell_router(ToRouter::Closed, session, &[]),
        }
        if let Some(router) = &mut self.router {
            router.sessions = router.sessions.saturating_sub(1);
        }
        if self.want.due().is_some() {
            self.want = Want::Told;
            self.tell_router(ToRouter::WorkWanted, 0, &[]);
        }
        self.begin_ordered_work(clock::now());
    }

    fn tell_router(&self, kind: ToRouter, session: u64, bytes: &[u8]) {
        if let Some(router) = &self.router {
            tell(router.channel(), kind, session, bytes);
        }
    }

    fn name_sessions(&self) {
        for session in self.clients.iter().filter_map(|client| client.session) {
            self.tell_router(ToRouter::Has, session, &[]);
        }
    }

    pub(super) fn tell_held_up(&self) {
        self.tell_router(ToRouter::HeldUp, 0, &[u8::from(self.is_held_up)]);
    }

    fn answer_where(&mut self) {
        let is_working = self.is_working;
        let Some(router) = self.router.as_mut().filter(|router| !router.works && !is_working) else {
            return;
        };
        for session in std::mem::take(&mut router.asked) {
            self.tell_router(ToRouter::Here, session, &[]);
            if self.want == Want::Told {
                self.tell_router(ToRouter::WorkWanted, 0, &[]);
            }
        }
    }

    fn begin_ordered_work(&mut self, now: Tick) {
        let is_free = self
            .router
            .as_ref()
            .is_some_and(|router| router.works && router.sessions == 0);
        if !is_free || self.is_working {
            return;
        }
        if let Some(router) = &mut self.router {
            router.works = false;
        }
        if self.is_leaving() {
            self.tell_router(ToRouter::Worked, 0, &[0]);
            return self.answer_where();
        }
        self.begin_work(now);
        self.tell(super::events::EventKind::Work, 0);
    }

    pub(super) fn tell_worked(&mut self, is_well: bool) {
        self.tell_router(ToRouter::Worked, 0, &[u8::from(is_well)]);
        self.answer_where();
        if self.router.is_some() && self.want.due().is_some() {
            self.want = Want::Told;
            self.tell_router(ToRouter::WorkWanted, 0, &[]);
        }
    }

    pub(super) fn measure(&mut self) {
        let scale = self.scale.as_mut();
        let bytes = scale.and_then(|scale| scale.news(self.program, Occasion::Second));
        if let Some(bytes) = bytes {
            self.tell_router(ToRouter::Memory, 0, &bytes.to_le_bytes());
        }
    }

    /// Called before exit: shuts the channel down for reading and returns the connections left in it.
    pub(super) fn hand_back_all(&mut self) {
        let Some(router) = &self.router else { return };
        shutdown_read(router.channel());
        while let Ok(received) = receive_with(router.channel(), &mut self.scratch, false) {
            let Some((kind, session, _)) = parse::<ToWorker>(&self.scratch[..received.bytes]) else {
                break;
            };
            match kind {
                ToWorker::Serve | ToWorker::ServeLast => {
                    drop(received.descriptors);
                    self.tell_router(ToRouter::NotBegun, session, &[]);
                }
                ToWorker::Work => self.tell_router(ToRouter::Worked, 0, &[0]),
                ToWorker::Where => self.tell_router(ToRouter::Here, session, &[]),
            }
        }
    }
}

const _: () = assert!(READ_BYTES <= MESSAGE_BYTES);

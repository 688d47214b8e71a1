//! HTTP connections of the web server. Each carries one request to a process, unchanged, and becomes a tunnel after a
//! protocol switch.

use super::event_loop::{Gateway, PIECE_BYTES, TURNS};
use super::links::{Reuse, User};
use super::request::{Body, Read, read};
use super::stream::Stream;
use super::upstream::Upstream;
use super::{FRONT, MOST_SERIAL, VISIT};
use crate::sys::socket::{Progress, peek, shutdown_write};
use crate::sys::{Error, clock};
use crate::worker::timeout_response;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::os::fd::{AsFd, OwnedFd};

const AT_ONCE: usize = 32;
const MOST_HELD: usize = 64 * 1024;
const BAD_REQUEST: &str = "400 Bad Request";
const NO_CHUNK: &str = "its body is not in chunks";
const STATUS_BYTES: usize = 12;
const SWITCHING_PROTOCOLS: u16 = 101;

#[derive(Debug)]
pub(super) struct Visit {
    pub(super) client: Stream,
    client_ended: bool,
    pub(super) token: Option<u64>,
    pub(super) upstream: Upstream,
    pub(super) input: Vec<u8>,
    body: Body,
    is_upgrade: bool,
    is_tunnel: bool,
    out: Vec<u8>,
    sent: usize,
    pub(super) answer: Vec<u8>,
    pub(super) given: usize,
    first: Vec<u8>,
    pub(super) status: Option<u16>,
    pub(super) program_ended: bool,
    pub(super) is_cut: bool,
    /// Discarding up to this many bytes before closing, so that the client can read its answer.
    pub(super) lingers: Option<usize>,
}

impl Gateway {
    pub(super) fn update_listening(&mut self) {
        let is_open = self.worker.has_room();
        if is_open == self.is_open {
            return;
        }
        let epoll = &self.epoll;
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        let changed = self.worker.with_http(|http| match is_open {
            true => epoll.add(http, EpollEvent::new(flags, FRONT)),
            false => epoll.delete(http),
        });
        if let Some(Err(errno)) = changed {
            log::error!("the HTTP socket can't be watched: epoll_ctl: {errno}");
        }
        self.is_open = is_open;
    }

    pub(super) fn welcome(&mut self) {
        for _ in 0..AT_ONCE {
            if !self.worker.has_room() {
                return;
            }
            match self.worker.accept_http() {
                Some(client) => self.take_in(client),
                None => return,
            }
        }
    }

    fn take_in(&mut self, client: OwnedFd) {
        let entry = self.visits.vacant_entry();
        let index = entry.key();
        self.last_visit = self.last_visit.wrapping_add(1) & MOST_SERIAL;
        let number = VISIT | u64::from(self.last_visit) << 32 | index as u64;
        let mut client = match Stream::watch(client, number, true, &self.epoll) {
            Ok(client) => client,
            Err(error) => return log::error!("can't keep a connection: epoll_ctl: {}", error.errno),
        };
        client.readable = true;
        entry.insert(Visit {
            client,
            client_ended: false,
            token: None,
            upstream: Upstream::new(Reuse::No),
            input: Vec::new(),
            body: Body::Length(0),
            is_upgrade: false,
            is_tunnel: false,
            out: Vec::new(),
            sent: 0,
            answer: Vec::new(),
            given: 0,
            first: Vec::new(),
            status: None,
            program_ended: false,
            is_cut: false,
            lingers: None,
        });
        self.set_due(
            User::Visit(index),
            Some(clock::now() + self.worker.client_timeout()),
        );
        self.pump_visit(index);
    }

    pub(super) fn see_visit(&mut self, data: u64, flags: EpollFlags) {
        let index = (data & 0xffff_ffff) as usize;
        let visit = self.visits.get_mut(index);
        let Some(visit) = visit.filter(|visit| visit.client.number == data) else {
            return;
        };
        visit.client.see(flags);
        self.pump_visit(index);
    }

    pub(super) fn pass_visit(&mut self, index: usize) {
        match self.visits.get(index).and_then(|visit| visit.token) {
            Some(_) => self.pass_due(User::Visit(index)),
            None => self.end_visit(index),
        }
    }

    pub(super) fn expire_visit(&mut self, index: usize) {
        if let Some(visit) = self.visits.get_mut(index) {
            visit.token = None;
            if visit.status.is_none() {
                return self.refuse_visit(index, timeout_response::STATUS, timeout_response::BODY);
            }
        }
        self.end_visit(index);
    }

    pub(super) fn pump_visit(&mut self, index: usize) {
        for _ in 0..TURNS {
            let Some(visit) = self.visits.get(index) else {
                return;
            };
            let has_moved = match (visit.token, visit.upstream.link) {
                _ if visit.lingers.is_some() => self.drop_input(index),
                (None, _) if visit.given < visit.answer.len() || visit.program_ended => self.give_rest(index),
                (None, _) => self.read_head(index),
                (Some(_), None) => self.watch_client(index),
                (Some(_), Some(id)) => {
                    if self.is_connecting(User::Visit(index), id) {
                        return;
                    }
                    let has_sent = self.carry_in(index, id);
                    let has_given = self.carry_out(index, id);
                    has_sent || has_given
                }
            };
            if !has_moved {
                return;
            }
        }
        if self.visits.contains(index) {
            self.more.push(User::Visit(index));
        }
    }

    fn read_head(&mut self, index: usize) -> bool {
        let Some(visit) = self.visits.get_mut(index) else {
            return false;
        };
        while visit.client.readable {
            match visit.client.receive(&mut self.scratch) {
                Ok(Progress::WouldBlock) => {}
                Ok(Progress::Done(0)) | Err(_) => {
                    self.end_visit(index);
                    return false;
                }
                Ok(Progress::Done(count)) => {
                    visit.input.extend_from_slice(&self.scratch[..count]);
                    match read(&visit.input) {
                        Read::More => {}
                        Read::Bad(why) => {
                            log::warn!("a request was refused: {why}");
                            visit.is_cut = true;
                            self.refuse_visit(index, BAD_REQUEST, why);
                            return true;
                        }
                        Read::Head(head) => {
                            visit.input.drain(..head.used);
                            visit.out = head.bytes;
                            visit.body = head.body;
                            visit.is_upgrade = head.is_upgrade;
                            visit.token = Some(self.worker.begin_visit(head.params));
                            if let Some(token) = visit.token {
                                self.visits_by_token.insert(token, index);
                            }
                            self.set_due(User::Visit(index), None);
                            self.send_on(User::Visit(index));
                            return true;
                        }
                    }
                }
            }
        }
        false
    }

    fn watch_client(&mut self, index: usize) -> bool {
        let Some(visit) = self.visits.get_mut(index) else {
            return false;
        };
        if visit.client.readable && peek(visit.client.socket.as_fd(), &mut [0]) == Ok(Progress::Done(0)) {
            self.end_visit(index);
        }
        false
    }

    fn carry_in(&mut self, index: usize, id: usize) -> bool {
        let (Some(visit), Some(link)) = (self.visits.get_mut(index), self.links.get(id)) else {
            return false;
        };
        let sent = link.stream.send(&visit.out, &mut visit.sent, &self.epoll);
        let has_moved = sent.unwrap_or_else(|_| {
            visit.sent = visit.out.len();
            visit.body = Body::Length(0);
            visit.is_cut = true;
            link.stream.readable = true;
            false
        });
        if visit.sent < visit.out.len() {
            return has_moved;
        }
        visit.out.clear();
        visit.sent = 0;
        if visit.is_tunnel {
            visit.out.append(&mut visit.input);
        } else if !visit.input.is_empty() && !visit.body.has_ended() {
            match visit.body.take(&visit.input, &mut visit.out) {
                Some(used) => drop(visit.input.drain(..used)),
                None => {
                    log::warn!("a request was cut off: {NO_CHUNK}");
                    visit.is_cut = true;
                    match visit.status {
                        None => self.refuse_visit(index, BAD_REQUEST, NO_CHUNK),
                        Some(_) => self.close_visit(index),
                    }
                    return false;
                }
            }
        }
        let is_held = !visit.is_tunnel && visit.body.has_ended() && visit.input.len() >= MOST_HELD;
        if !visit.out.is_empty() || !visit.client.readable || visit.client_ended || is_held {
            return has_moved || !visit.out.is_empty();
        }
        match visit.client.receive(&mut self.scratch) {
            Ok(Progress::WouldBlock) => has_moved,
            Ok(Progress::Done(count @ 1..)) => {
                visit.input.extend_from_slice(&self.scratch[..count]);
                true
            }
            Ok(Progress::Done(_)) if visit.is_tunnel => {
                visit.client_ended = true;
                shutdown_write(link.stream.socket.as_fd());
                has_moved
            }
            Ok(Progress::Done(_)) | Err(_) => {
                self.end_visit(index);
                false
            }
        }
    }

    fn carry_out(&mut self, index: usize, id: usize) -> bool {
        let (Some(visit), Some(link)) = (self.visits.get_mut(index), self.links.get(id)) else {
            return false;
        };
        let Ok(has_moved) = visit.give(&self.epoll) else {
            self.end_visit(index);
            return false;
        };
        if visit.given < visit.answer.len() {
            return has_moved;
        }
        visit.answer.clear();
        visit.given = 0;
        if !link.stream.readable {
            return has_moved;
        }
        match link.stream.receive(&mut self.scratch) {
            Ok(Progress::WouldBlock) => has_moved,
            Ok(Progress::Done(count @ 1..)) => {
                visit.answer.extend_from_slice(&self.scratch[..count]);
                self.look_at_status(index);
                true
            }
            Ok(Progress::Done(_)) | Err(_) if visit.status.is_none() => {
                self.links.tell(visit.upstream.process(), false);
                self.refuse_unanswered(User::Visit(index), "it closed the connection without an answer");
                true
            }
            Ok(Progress::Done(_)) | Err(_) => {
                self.links.tell(visit.upstream.process(), true);
                self.close_visit(index);
                false
            }
        }
    }

    fn look_at_status(&mut self, index: usize) {
        let Some(visit) = self.visits.get_mut(index) else {
            return;
        };
        if visit.status.is_some() {
            return;
        }
        let missing = STATUS_BYTES - visit.first.len();
        visit.first.extend(visit.answer.iter().take(missing));
        if visit.first.len() < STATUS_BYTES {
            return;
        }
        let text = std::str::from_utf8(&visit.first).ok();
        let number = text.and_then(|text| text.strip_prefix("HTTP/1.")?.get(2..)?.parse().ok());
        visit.status = Some(number.unwrap_or(0));
        if visit.status == Some(SWITCHING_PROTOCOLS) && visit.is_upgrade {
            visit.is_tunnel = true;
            if let Some(token) = visit.token {
                self.worker.is_endless(token);
            }
        }
    }
}

impl Visit {
    pub(super) fn give(&mut self, epoll: &Epoll) -> Result<bool, Error> {
        self.client.send(&self.answer, &mut self.given, epoll)
    }

    pub(super) fn is_read(&self) -> bool {
        if self.is_tunnel {
            return self.client_ended;
        }
        self.body.has_ended() && !self.is_cut && self.input.is_empty()
    }
}

const _: () = assert!(PIECE_BYTES >= STATUS_BYTES);

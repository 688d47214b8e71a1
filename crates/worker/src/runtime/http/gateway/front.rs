//! HTTP connections of the web server. Each carries one request to a process, unchanged, and becomes a tunnel after a
//! protocol switch.

use super::super::table::ProcessEntry;
use super::links::{Attempt, Choice, Reuse, User, WATCHED, watch_room};
use super::request::{Body, Read, read};
use super::run::{BAD_GATEWAY, CONNECT_LIMIT, Gateway, PIECE_BYTES, TURNS, UNAVAILABLE, pause};
use super::{FRONT, MOST_SERIAL, VISIT};
use crate::sys::clock;
use crate::sys::socket::{self, Progress, receive, send, shutdown_write};
use crate::tick::Tick;
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
    pub(super) client: OwnedFd,
    number: u64,
    pub(super) readable: bool,
    writable: bool,
    watches_room: bool,
    /// The kernel reported the client's end-of-file, which is still unread.
    pub(super) hangs_up: bool,
    client_ended: bool,
    pub(super) token: Option<u64>,
    pub(super) chosen: Option<Option<ProcessEntry>>,
    pub(super) link: Option<usize>,
    pub(super) input: Vec<u8>,
    body: Body,
    is_upgrade: bool,
    is_tunnel: bool,
    out: Vec<u8>,
    sent: usize,
    has_gone: bool,
    pub(super) answer: Vec<u8>,
    pub(super) given: usize,
    first: Vec<u8>,
    pub(super) status: Option<u16>,
    pub(super) program_ended: bool,
    pub(super) is_cut: bool,
    /// Discarding up to this many bytes before closing, so that the client can read its answer.
    pub(super) lingers: Option<usize>,
    tried: Vec<ProcessEntry>,
    why: Option<String>,
    until: Option<Tick>,
    pauses: u32,
    pub(super) due: Option<Tick>,
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
        let index = self.free_visits.pop().unwrap_or_else(|| {
            self.visits.push(None);
            self.visits.len() - 1
        });
        self.last_visit = self.last_visit.wrapping_add(1) & MOST_SERIAL;
        let serial = self.last_visit;
        let number = VISIT | u64::from(serial) << 32 | index as u64;
        if let Err(errno) = self.epoll.add(&client, EpollEvent::new(WATCHED, number)) {
            self.free_visits.push(index);
            return log::error!("can't keep a connection: epoll_ctl: {errno}");
        }
        self.visits[index] = Some(Visit {
            client,
            number,
            readable: true,
            writable: true,
            watches_room: false,
            hangs_up: false,
            client_ended: false,
            token: None,
            chosen: None,
            link: None,
            input: Vec::new(),
            body: Body::Length(0),
            is_upgrade: false,
            is_tunnel: false,
            out: Vec::new(),
            sent: 0,
            has_gone: false,
            answer: Vec::new(),
            given: 0,
            first: Vec::new(),
            status: None,
            program_ended: false,
            is_cut: false,
            lingers: None,
            tried: Vec::new(),
            why: None,
            until: None,
            pauses: 0,
            due: None,
        });
        self.set_visit_due(index, Some(clock::now() + self.worker.client_timeout()));
        self.pump_visit(index);
    }

    pub(super) fn see_visit(&mut self, data: u64, flags: EpollFlags) {
        let index = (data & 0xffff_ffff) as usize;
        let Some(Some(visit)) = self
            .visits
            .get_mut(index)
            .filter(|visit| visit.as_ref().is_some_and(|visit| visit.number == data))
        else {
            return;
        };
        visit.writable |= flags.contains(EpollFlags::EPOLLOUT);
        let ends = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        visit.hangs_up |= flags.intersects(ends);
        visit.readable |= flags.intersects(EpollFlags::EPOLLIN | ends);
        self.pump_visit(index);
    }

    pub(super) fn set_visit_due(&mut self, index: usize, due: Option<Tick>) {
        let Some(visit) = &mut self.visits[index] else {
            return;
        };
        if let Some(before) = std::mem::replace(&mut visit.due, due) {
            self.due.remove(&(before, User::Visit(index)));
        }
        if let Some(due) = due {
            self.due.insert((due, User::Visit(index)));
        }
    }

    pub(super) fn pass_visit(&mut self, index: usize) {
        self.set_visit_due(index, None);
        let Some(visit) = &self.visits[index] else { return };
        match (visit.token, visit.link) {
            (None, _) => self.end_visit(index),
            (Some(_), None) => self.try_again(index),
            (Some(_), Some(_)) => self.visit_unreachable(index, "connect: it takes too long".to_owned()),
        }
    }

    pub(super) fn expire_visit(&mut self, index: usize) {
        if let Some(visit) = &mut self.visits[index] {
            visit.token = None;
            if visit.status.is_none() {
                return self.refuse_visit(index, timeout_response::STATUS, timeout_response::BODY);
            }
        }
        self.end_visit(index);
    }

    pub(super) fn pump_visit(&mut self, index: usize) {
        for _ in 0..TURNS {
            let Some(visit) = &self.visits[index] else { return };
            let has_moved = match (visit.token, visit.link) {
                _ if visit.lingers.is_some() => self.drop_input(index),
                (None, _) if visit.given < visit.answer.len() || visit.program_ended => self.give_rest(index),
                (None, _) => self.read_head(index),
                (Some(_), None) => self.watch_client(index),
                (Some(_), Some(id)) => {
                    if self.is_visit_connecting(index, id) {
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
        if self.visits[index].is_some() {
            self.more.push(User::Visit(index));
        }
    }

    fn read_head(&mut self, index: usize) -> bool {
        let Some(visit) = &mut self.visits[index] else {
            return false;
        };
        while visit.readable {
            match receive(visit.client.as_fd(), &mut self.scratch) {
                Ok(Progress::WouldBlock) => visit.readable = false,
                Ok(Progress::Done(0)) | Err(_) => {
                    self.end_visit(index);
                    return false;
                }
                Ok(Progress::Done(count)) => {
                    visit.readable = count == self.scratch.len() || visit.hangs_up;
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
                            self.set_visit_due(index, None);
                            self.send_visit_on(index);
                            return true;
                        }
                    }
                }
            }
        }
        false
    }

    fn send_visit_on(&mut self, index: usize) {
        loop {
            let Some(visit) = &mut self.visits[index] else {
                return;
            };
            let chosen = match self.links.choose(&visit.tried) {
                Choice::Process(chosen) => chosen,
                Choice::Failed(id) if visit.tried.is_empty() => {
                    let why = format!("the application can't be started (error {id:08x})");
                    return self.refuse_visit(index, UNAVAILABLE, &why);
                }
                Choice::Nobody | Choice::Failed(_) => return self.wait_visit(index),
            };
            visit.chosen = Some(chosen);
            visit.tried.extend(chosen);
            self.worker.set_program(self.links.pid(chosen));
            match self
                .links
                .connect(chosen, User::Visit(index), Reuse::No, &self.epoll)
            {
                Attempt::Link(id) => {
                    visit.link = Some(id);
                    let is_connecting = self.links.get(id).is_some_and(|link| link.is_connecting);
                    let due = is_connecting.then(|| clock::now() + CONNECT_LIMIT);
                    return self.set_visit_due(index, due);
                }
                Attempt::Busy => {
                    visit.tried.clear();
                    self.release_visit(index);
                    return self.wait_visit(index);
                }
                Attempt::Unreachable(why) => {
                    visit.why = Some(why.clone());
                    let is_alone = chosen.is_none();
                    self.release_visit(index);
                    if is_alone {
                        log::error!("the application can't be reached: {why}");
                        return self.refuse_visit(index, BAD_GATEWAY, "the application can't be reached");
                    }
                }
            }
        }
    }

    fn wait_visit(&mut self, index: usize) {
        let Some(visit) = &mut self.visits[index] else {
            return;
        };
        visit.tried.clear();
        let now = clock::now();
        let until = *visit.until.get_or_insert(now + self.connect_timeout);
        if until <= now {
            let why = visit.why.take().unwrap_or_else(|| "it is not up".to_owned());
            log::error!("the application can't be reached: {why}");
            return self.refuse_visit(index, UNAVAILABLE, "the application can't be reached");
        }
        visit.pauses += 1;
        let due = (now + pause(visit.pauses)).min(until);
        self.set_visit_due(index, Some(due));
    }

    fn watch_client(&mut self, index: usize) -> bool {
        let Some(visit) = &mut self.visits[index] else {
            return false;
        };
        if visit.readable && socket::peek(visit.client.as_fd(), &mut [0]) == Ok(Progress::Done(0)) {
            self.end_visit(index);
        }
        false
    }

    fn is_visit_connecting(&mut self, index: usize, id: usize) -> bool {
        let Some(link) = self.links.get(id) else {
            return true;
        };
        if !link.is_connecting {
            return false;
        }
        if !link.writable && !link.readable {
            return true;
        }
        if let Err(error) = self.links.complete(id) {
            self.visit_unreachable(index, error.to_string());
            return true;
        }
        self.set_visit_due(index, None);
        false
    }

    fn visit_unreachable(&mut self, index: usize, why: String) {
        let Some(visit) = &mut self.visits[index] else {
            return;
        };
        let is_alone = visit.chosen == Some(None);
        visit.why = Some(why.clone());
        self.release_visit(index);
        if is_alone {
            log::error!("the application can't be reached: {why}");
            return self.refuse_visit(index, BAD_GATEWAY, "the application can't be reached");
        }
        self.try_again(index);
    }

    /// Data for a connection that is established at once is sent at the next turn.
    fn try_again(&mut self, index: usize) {
        self.send_visit_on(index);
        self.more.push(User::Visit(index));
    }

    fn carry_in(&mut self, index: usize, id: usize) -> bool {
        let (Some(visit), Some(link)) = (&mut self.visits[index], self.links.get(id)) else {
            return false;
        };
        let mut has_moved = false;
        while link.writable && visit.sent < visit.out.len() {
            match send(link.socket.as_fd(), &visit.out[visit.sent..]) {
                Ok(Progress::Done(count)) => {
                    visit.sent += count;
                    visit.has_gone = true;
                    has_moved = true;
                }
                Ok(Progress::WouldBlock) => link.watch_room(&self.epoll),
                Err(_) => {
                    visit.sent = visit.out.len();
                    visit.body = Body::Length(0);
                    visit.is_cut = true;
                    link.readable = true;
                }
            }
        }
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
        if !visit.out.is_empty() || !visit.readable || visit.client_ended || is_held {
            return has_moved || !visit.out.is_empty();
        }
        match receive(visit.client.as_fd(), &mut self.scratch) {
            Ok(Progress::WouldBlock) => {
                visit.readable = false;
                has_moved
            }
            Ok(Progress::Done(count @ 1..)) => {
                visit.readable = count == self.scratch.len() || visit.hangs_up;
                visit.input.extend_from_slice(&self.scratch[..count]);
                true
            }
            Ok(Progress::Done(_)) if visit.is_tunnel => {
                visit.client_ended = true;
                shutdown_write(link.socket.as_fd());
                has_moved
            }
            Ok(Progress::Done(_)) | Err(_) => {
                self.end_visit(index);
                false
            }
        }
    }

    fn carry_out(&mut self, index: usize, id: usize) -> bool {
        let (Some(visit), Some(link)) = (&mut self.visits[index], self.links.get(id)) else {
            return false;
        };
        let has_moved = match give(visit, &self.epoll) {
            Some(has_moved) => has_moved,
            None => {
                self.end_visit(index);
                return false;
            }
        };
        if visit.given < visit.answer.len() {
            return has_moved;
        }
        visit.answer.clear();
        visit.given = 0;
        if !link.readable {
            return has_moved;
        }
        match receive(link.socket.as_fd(), &mut self.scratch) {
            Ok(Progress::WouldBlock) => {
                link.readable = false;
                has_moved
            }
            Ok(Progress::Done(count @ 1..)) => {
                link.readable = count == self.scratch.len() || link.has_ended;
                visit.answer.extend_from_slice(&self.scratch[..count]);
                self.look_at_status(index);
                true
            }
            Ok(Progress::Done(_)) | Err(_) if visit.status.is_none() => {
                self.links.tell(visit.chosen.flatten(), false);
                log::error!("the application gave no answer: it closed the connection without an answer");
                self.refuse_visit(index, BAD_GATEWAY, "the application gave no answer");
                true
            }
            Ok(Progress::Done(_)) | Err(_) => {
                self.links.tell(visit.chosen.flatten(), true);
                self.close_visit(index);
                false
            }
        }
    }

    fn look_at_status(&mut self, index: usize) {
        let Some(visit) = &mut self.visits[index] else {
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
    pub(super) fn is_read(&self) -> bool {
        if self.is_tunnel {
            return self.client_ended;
        }
        self.body.has_ended() && !self.is_cut && self.input.is_empty()
    }
}

pub(super) fn give(visit: &mut Visit, epoll: &Epoll) -> Option<bool> {
    let mut has_moved = false;
    while visit.writable && visit.given < visit.answer.len() {
        match send(visit.client.as_fd(), &visit.answer[visit.given..]) {
            Ok(Progress::Done(count)) => {
                visit.given += count;
                has_moved = true;
            }
            Ok(Progress::WouldBlock) => {
                visit.writable = false;
                watch_room(&visit.client, visit.number, &mut visit.watches_room, epoll);
            }
            Err(_) => return None,
        }
    }
    Some(has_moved)
}

const _: () = assert!(PIECE_BYTES >= STATUS_BYTES);

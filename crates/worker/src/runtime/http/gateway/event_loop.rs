//! The gateway's event loop.

use super::super::head::{self, Framing};
use super::exchange::{Exchange, Fed};
use super::front::Visit;
use super::links::{Links, User};
use super::{FRONT, KIND, LINK, VISIT};
use crate::runtime::is_idempotent;
use crate::sys::clock;
use crate::sys::socket::Progress;
use crate::tick::Tick;
use crate::worker::{Concurrent, EXIT_SOFTWARE, Event, Piece, Records, Sent, When, is_of_worker};
use fastcgi::Params;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollTimeout};
use slab::Slab;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

const EVENTS: usize = 256;
pub(super) const PIECE_BYTES: usize = 64 * 1024;
pub(super) const TURNS: u32 = 8;

pub(super) struct Gateway {
    pub(super) worker: Concurrent,
    pub(super) epoll: Arc<Epoll>,
    pub(super) links: Links,
    pub(super) visits: Slab<Visit>,
    pub(super) visits_by_token: HashMap<u64, usize>,
    pub(super) last_visit: u32,
    pub(super) is_open: bool,
    is_over: bool,
    pub(super) exchanges: Slab<Exchange>,
    by_token: HashMap<u64, usize>,
    pub(super) due: BTreeSet<(Tick, User)>,
    pub(super) more: Vec<User>,
    pub(super) connect_timeout: Duration,
    pub(super) scratch: Box<[u8]>,
    piece: Vec<u8>,
    told: Vec<u8>,
}

impl Gateway {
    pub(super) fn new(worker: Concurrent, links: Links, connect_timeout: Duration) -> Gateway {
        Gateway {
            epoll: worker.epoll(),
            worker,
            links,
            visits: Slab::new(),
            visits_by_token: HashMap::new(),
            last_visit: 0,
            is_open: false,
            is_over: false,
            exchanges: Slab::new(),
            by_token: HashMap::new(),
            due: BTreeSet::new(),
            more: Vec::new(),
            connect_timeout,
            scratch: vec![0; PIECE_BYTES].into_boxed_slice(),
            piece: Vec::new(),
            told: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> i32 {
        let mut has_more = true;
        let mut ready = vec![EpollEvent::empty(); EVENTS];
        let mut workers_own = Vec::new();
        loop {
            self.update_listening();
            let count = match self.epoll.wait(&mut ready, self.timeout(has_more)) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(errno) => {
                    log::error!("worker can't go on: epoll_wait: {errno}");
                    return EXIT_SOFTWARE;
                }
            };
            workers_own.clear();
            // Program connections first, so that no request is sent on one that was closed.
            for event in &ready[..count] {
                let data = event.data();
                if is_of_worker(data) {
                    workers_own.push(*event);
                    continue;
                }
                match data & KIND {
                    FRONT => self.welcome(),
                    LINK => {
                        let user = self.links.see(data, event.events());
                        self.pump_for(user);
                    }
                    VISIT => self.see_visit(data, event.events()),
                    _ => {}
                }
            }
            for user in std::mem::take(&mut self.more) {
                self.pump_for(user);
            }
            self.pass_time();
            if has_more || !workers_own.is_empty() || self.worker.has_more() {
                has_more = self.ask_worker(&workers_own);
            }
            if self.is_over && self.visits.is_empty() {
                return self.worker.exit_code();
            }
        }
    }

    fn pump_for(&mut self, user: User) {
        match user {
            User::Exchange(index) => self.pump(index),
            User::Visit(index) => self.pump_visit(index),
            User::Nobody => {}
        }
    }

    fn timeout(&self, has_more: bool) -> EpollTimeout {
        if has_more || !self.more.is_empty() {
            return EpollTimeout::ZERO;
        }
        let Some((due, _)) = self.due.first() else {
            return EpollTimeout::NONE;
        };
        let left = due.since(clock::now()) + Duration::from_millis(1);
        EpollTimeout::try_from(left).unwrap_or(EpollTimeout::MAX)
    }

    fn ask_worker(&mut self, ready: &[EpollEvent]) -> bool {
        let mut told = std::mem::take(&mut self.told);
        let more = self.worker.on_ready(ready, &mut told);
        for event in Records(&told) {
            match event {
                Event::Request(token, body, is_whole) => self.begin(token, body, is_whole),
                Event::Body(token) => {
                    if let Some(index) = self.by_token.get(&token).copied() {
                        if let Some(exchange) = self.exchanges.get_mut(index) {
                            exchange.waits_for_body = false;
                        }
                        self.pump(index);
                    }
                }
                Event::Gone(token) => {
                    if let Some(index) = self.by_token.get(&token).copied() {
                        self.forget(index);
                    }
                    self.worker.abandon(token);
                }
                Event::Writable(token) => {
                    if let Some(index) = self.by_token.get(&token).copied() {
                        self.on_writable(index);
                    }
                }
                Event::Expired(token) => {
                    if let Some(index) = self.visits_by_token.remove(&token) {
                        self.expire_visit(index);
                    } else if let Some(index) = self.by_token.get(&token).copied() {
                        self.forget(index);
                    }
                }
                Event::Work => self.worker.out_of_band_done(Ok(())),
                Event::End => {
                    self.is_over = true;
                    self.hurry_visits();
                }
            }
        }
        self.told = told;
        more
    }

    fn begin(&mut self, token: u64, body: &[u8], is_whole: bool) {
        let about = |params: &Params| {
            let method = params.get(b"REQUEST_METHOD").unwrap_or_default();
            let (head, framing) = head::write(params);
            (
                head,
                framing,
                method == b"HEAD",
                framing == Framing::Nothing && is_idempotent(method),
            )
        };
        let Some((head, framing, is_head, may_repeat)) = self.worker.with_params(token, about) else {
            return;
        };
        let mut exchange = Exchange::new(token, head, framing, is_head, may_repeat);
        exchange.body(body, is_whole);
        let index = self.exchanges.insert(exchange);
        self.by_token.insert(token, index);
        self.send_on(User::Exchange(index));
        self.pump(index);
    }

    fn pass_time(&mut self) {
        while let Some((due, user)) = self.due.first().copied() {
            if due > clock::now() {
                return;
            }
            match user {
                User::Visit(index) => self.pass_visit(index),
                User::Exchange(_) | User::Nobody => self.pass_due(user),
            }
        }
    }

    pub(super) fn forget(&mut self, index: usize) {
        self.release(User::Exchange(index), false);
        if let Some(exchange) = self.exchanges.try_remove(index) {
            self.by_token.remove(&exchange.token);
        }
    }

    fn pump(&mut self, index: usize) {
        for _ in 0..TURNS {
            let link = self
                .exchanges
                .get(index)
                .and_then(|exchange| exchange.upstream.link);
            let Some(id) = link else { return };
            if self.is_connecting(User::Exchange(index), id) {
                return;
            }
            let has_sent = self.push(index, id);
            let has_read = self.pull(index, id);
            if !has_sent && !has_read {
                return;
            }
        }
        self.more.push(User::Exchange(index));
    }

    fn push(&mut self, index: usize, id: usize) -> bool {
        let (Some(exchange), Some(link)) = (self.exchanges.get_mut(index), self.links.get(id)) else {
            return false;
        };
        let sent = link.stream.send(&exchange.out, &mut exchange.sent, &self.epoll);
        let mut has_moved = sent.unwrap_or_else(|_| {
            exchange.drop_input();
            link.stream.readable = true;
            false
        });
        if exchange.sent == exchange.out.len() && !exchange.body_ended && !exchange.waits_for_body {
            match self.worker.read(exchange.token) {
                (Piece::More, bytes) => exchange.body(bytes, false),
                (Piece::Last, bytes) => exchange.body(bytes, true),
                (Piece::NotYet, _) => exchange.waits_for_body = true,
                (Piece::Gone, _) => exchange.waits_for_body = true,
            }
            has_moved |= exchange.sent < exchange.out.len();
        }
        has_moved
    }

    fn pull(&mut self, index: usize, id: usize) -> bool {
        let (Some(exchange), Some(link)) = (self.exchanges.get_mut(index), self.links.get(id)) else {
            return false;
        };
        if !link.stream.readable || exchange.is_full {
            return false;
        }
        match link.stream.receive(&mut self.scratch) {
            Ok(Progress::WouldBlock) => false,
            Ok(Progress::Done(0)) | Err(_) => {
                self.ended(index);
                false
            }
            Ok(Progress::Done(count)) => {
                self.piece.clear();
                let had_switched = exchange.has_switched();
                let fed = exchange.feed(&self.scratch[..count], &mut self.piece);
                if exchange.has_switched() && !had_switched {
                    self.worker.is_endless(exchange.token);
                }
                match fed {
                    Fed::More => {
                        let piece = std::mem::take(&mut self.piece);
                        self.answer(index, &piece, false);
                        self.piece = piece;
                        true
                    }
                    Fed::End { keeps } => {
                        let is_sent = exchange.is_sent();
                        self.links.tell(exchange.upstream.process(), true);
                        self.release(User::Exchange(index), keeps && is_sent);
                        let piece = std::mem::take(&mut self.piece);
                        self.answer(index, &piece, true);
                        self.piece = piece;
                        false
                    }
                    Fed::Malformed(malformed) => {
                        self.malformed(index, &malformed);
                        false
                    }
                }
            }
        }
    }

    pub(super) fn answer(&mut self, index: usize, piece: &[u8], is_last: bool) {
        let Some(exchange) = self.exchanges.get_mut(index) else {
            return;
        };
        exchange.is_done = is_last;
        if piece.is_empty() && !is_last {
            return;
        }
        let when = if is_last { When::Last } else { When::Now };
        match self.worker.send(exchange.token, piece, when) {
            Sent::Taken { count, is_full } if is_full => {
                exchange.is_full = true;
                exchange.stuck.extend_from_slice(&piece[count..]);
            }
            Sent::Taken { .. } => {
                if is_last {
                    self.forget(index);
                }
            }
            Sent::Gone => {
                let token = exchange.token;
                self.forget(index);
                self.worker.abandon(token);
            }
        }
    }

    fn on_writable(&mut self, index: usize) {
        let Some(exchange) = self.exchanges.get_mut(index) else {
            return;
        };
        exchange.is_full = false;
        let (stuck, is_done) = (std::mem::take(&mut exchange.stuck), exchange.is_done);
        if !stuck.is_empty() || is_done {
            self.answer(index, &stuck, is_done);
        }
        self.pump(index);
    }
}

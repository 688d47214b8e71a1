//! The gateway's event loop.

use super::super::head::{self, Framing};
use super::super::table::ProcessEntry;
use super::exchange::{Exchange, Fed};
use super::front::Visit;
use super::links::{Attempt, Choice, Links, Reuse, User};
use super::{EXIT_SOFTWARE, FRONT, KIND, LINK, VISIT};
use crate::master::pool_restart::RestartReason;
use crate::sys::clock;
use crate::sys::socket::{Progress, receive, send};
use crate::tick::Tick;
use crate::worker::{Concurrent, Event, Piece, Records, Sent, When, is_of_worker};
use fastcgi::Params;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollTimeout};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

const EVENTS: usize = 256;
pub(super) const PIECE_BYTES: usize = 64 * 1024;
pub(super) const TURNS: u32 = 8;
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(100);
/// Pauses (half a second in all) before asking a process again that closed a new connection without an answer: a killed
/// process accepts connections until the kernel closes its socket.
const PAUSES_FOR_END: u32 = 9;
pub(super) const BAD_GATEWAY: &str = "502 Bad Gateway";
pub(super) const UNAVAILABLE: &str = "503 Service Unavailable\r\nRetry-After: 5";

pub(super) struct Gateway {
    pub(super) worker: Concurrent,
    pub(super) epoll: Arc<Epoll>,
    pub(super) links: Links,
    pub(super) visits: Vec<Option<Visit>>,
    pub(super) free_visits: Vec<usize>,
    pub(super) visits_by_token: HashMap<u64, usize>,
    pub(super) last_visit: u32,
    pub(super) is_open: bool,
    is_over: bool,
    pub(super) exchanges: Vec<Option<Exchange>>,
    free: Vec<usize>,
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
            visits: Vec::new(),
            free_visits: Vec::new(),
            visits_by_token: HashMap::new(),
            last_visit: 0,
            is_open: false,
            is_over: false,
            exchanges: Vec::new(),
            free: Vec::new(),
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
            if self.is_over && self.visits.iter().all(Option::is_none) {
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
                        if let Some(exchange) = &mut self.exchanges[index] {
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
        let index = self.free.pop().unwrap_or_else(|| {
            self.exchanges.push(None);
            self.exchanges.len() - 1
        });
        self.exchanges[index] = Some(exchange);
        self.by_token.insert(token, index);
        self.send_on(index);
    }

    pub(super) fn send_on(&mut self, index: usize) {
        loop {
            let Some(exchange) = &mut self.exchanges[index] else {
                return;
            };
            let chosen = match self.links.choose(&exchange.tried) {
                Choice::Process(chosen) => chosen,
                Choice::Failed(id) if exchange.tried.is_empty() => {
                    let why = format!("the application can't be started (error {id:08x})");
                    return self.refuse(index, UNAVAILABLE, &why);
                }
                Choice::Nobody | Choice::Failed(_) => return self.wait(index),
            };
            exchange.chosen = Some(chosen);
            exchange.tried.extend(chosen);
            self.worker.set_program(self.links.pid(chosen));
            let reuse = match exchange.may_repeat {
                true => Reuse::Any,
                false => Reuse::Quiet,
            };
            match self
                .links
                .connect(chosen, User::Exchange(index), reuse, &self.epoll)
            {
                Attempt::Link(id) => {
                    exchange.link = Some(id);
                    let is_connecting = self.links.get(id).is_some_and(|link| link.is_connecting);
                    if is_connecting {
                        self.set_due(index, clock::now() + CONNECT_LIMIT);
                    }
                    return self.pump(index);
                }
                Attempt::Busy => {
                    // Try the process again later; it has not seen the request.
                    exchange.tried.clear();
                    self.release(index, false);
                    return self.wait(index);
                }
                Attempt::Unreachable(why) => {
                    exchange.why = Some(why.clone());
                    let is_alone = chosen.is_none();
                    self.release(index, false);
                    if is_alone {
                        log::error!("the application can't be reached: {why}");
                        return self.refuse(index, BAD_GATEWAY, "the application can't be reached");
                    }
                }
            }
        }
    }

    fn wait(&mut self, index: usize) {
        let Some(exchange) = &mut self.exchanges[index] else {
            return;
        };
        exchange.tried.clear();
        let now = clock::now();
        let until = *exchange.until.get_or_insert(now + self.connect_timeout);
        if until <= now {
            let why = exchange.why.take().unwrap_or_else(|| "it is not up".to_owned());
            log::error!("the application can't be reached: {why}");
            return self.refuse(index, UNAVAILABLE, "the application can't be reached");
        }
        exchange.pauses += 1;
        if exchange.pauses < PAUSES_FOR_END {
            exchange.tried.extend(exchange.failed);
        }
        let due = (now + pause(exchange.pauses)).min(until);
        self.set_due(index, due);
    }

    fn set_due(&mut self, index: usize, due: Tick) {
        self.clear_due(index);
        if let Some(exchange) = &mut self.exchanges[index] {
            exchange.due = Some(due);
            self.due.insert((due, User::Exchange(index)));
        }
    }

    fn clear_due(&mut self, index: usize) {
        let due = self.exchanges[index]
            .as_mut()
            .and_then(|exchange| exchange.due.take());
        if let Some(due) = due {
            self.due.remove(&(due, User::Exchange(index)));
        }
    }

    fn pass_time(&mut self) {
        while let Some((due, user)) = self.due.first().copied() {
            if due > clock::now() {
                return;
            }
            let index = match user {
                User::Exchange(index) => index,
                User::Visit(index) => {
                    self.pass_visit(index);
                    continue;
                }
                User::Nobody => return,
            };
            self.clear_due(index);
            let link = self.exchanges[index].as_ref().and_then(|exchange| exchange.link);
            match link {
                None => self.send_on(index),
                Some(_) => self.unreachable(index, "connect: it takes too long".to_owned()),
            }
        }
    }

    fn unreachable(&mut self, index: usize, why: String) {
        let Some(exchange) = &mut self.exchanges[index] else {
            return;
        };
        let is_alone = exchange.chosen == Some(None);
        exchange.why = Some(why.clone());
        self.release(index, false);
        if is_alone {
            log::error!("the application can't be reached: {why}");
            return self.refuse(index, BAD_GATEWAY, "the application can't be reached");
        }
        self.send_on(index);
    }

    pub(super) fn release(&mut self, index: usize, keeps: bool) {
        self.clear_due(index);
        let Some(exchange) = &mut self.exchanges[index] else {
            return;
        };
        match exchange.link.take() {
            Some(id) if keeps => self.links.keep(id),
            Some(id) => self.links.close(id),
            None => {}
        }
        if let Some(chosen) = exchange.chosen.take() {
            self.give(chosen);
        }
    }

    pub(super) fn give(&mut self, chosen: Option<ProcessEntry>) {
        if self.links.give(chosen) {
            self.worker.ask_restart(RestartReason::MaxRequests);
        }
    }

    pub(super) fn forget(&mut self, index: usize) {
        self.release(index, false);
        if let Some(exchange) = self.exchanges[index].take() {
            self.by_token.remove(&exchange.token);
            self.free.push(index);
        }
    }

    fn pump(&mut self, index: usize) {
        for _ in 0..TURNS {
            let Some(exchange) = &self.exchanges[index] else {
                return;
            };
            let Some(id) = exchange.link else { return };
            if self.is_connecting(index, id) {
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

    fn is_connecting(&mut self, index: usize, id: usize) -> bool {
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
            self.unreachable(index, error.to_string());
            return true;
        }
        self.clear_due(index);
        false
    }

    fn push(&mut self, index: usize, id: usize) -> bool {
        let (Some(exchange), Some(link)) = (&mut self.exchanges[index], self.links.get(id)) else {
            return false;
        };
        let mut has_moved = false;
        while link.writable && exchange.sent < exchange.out.len() {
            match send(link.socket.as_fd(), &exchange.out[exchange.sent..]) {
                Ok(Progress::Done(count)) => {
                    exchange.sent += count;
                    exchange.has_gone = true;
                    has_moved = true;
                }
                Ok(Progress::WouldBlock) => link.watch_room(&self.epoll),
                Err(_) => {
                    exchange.drop_input();
                    link.readable = true;
                }
            }
        }
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
        let (Some(exchange), Some(link)) = (&mut self.exchanges[index], self.links.get(id)) else {
            return false;
        };
        if !link.readable || exchange.is_full {
            return false;
        }
        match receive(link.socket.as_fd(), &mut self.scratch) {
            Ok(Progress::WouldBlock) => {
                link.readable = false;
                false
            }
            Ok(Progress::Done(0)) | Err(_) => {
                self.ended(index);
                false
            }
            Ok(Progress::Done(count)) => {
                link.readable = count == self.scratch.len() || link.has_ended;
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
                        self.links.tell(exchange.chosen.flatten(), true);
                        self.release(index, keeps && is_sent);
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
        let Some(exchange) = &mut self.exchanges[index] else {
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
        let Some(exchange) = &mut self.exchanges[index] else {
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

pub(super) fn pause(pauses: u32) -> Duration {
    (FIRST_PAUSE * (1 << pauses.saturating_sub(1).min(5))).min(LAST_PAUSE)
}

/// Whether the method is idempotent (RFC 9110 section 9.2.2).
fn is_idempotent(method: &[u8]) -> bool {
    matches!(
        method,
        b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE"
    )
}

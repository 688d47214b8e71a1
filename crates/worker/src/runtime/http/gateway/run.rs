//! The event loop.

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

/// Events taken at once.
const EVENTS: usize = 256;
/// Bytes read at once.
pub(super) const PIECE_BYTES: usize = 64 * 1024;
/// Pieces moved for one request before others have their turn.
pub(super) const TURNS: u32 = 8;
/// How long a connection to the program may take.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The first pause between two looks for a process; each further one is twice as long, up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(100);
/// Pauses, half a second in all, in which a process that has closed a new connection without an answer is not asked again: one
/// that was killed takes connections until the kernel has closed its socket.
const PAUSES_FOR_END: u32 = 9;
pub(super) const BAD_GATEWAY: &str = "502 Bad Gateway";
pub(super) const UNAVAILABLE: &str = "503 Service Unavailable\r\nRetry-After: 5";

/// The loop and all that it knows.
pub(super) struct Gateway {
    pub(super) worker: Concurrent,
    /// The worker's, in which everything is watched.
    pub(super) epoll: Arc<Epoll>,
    pub(super) links: Links,
    /// What came by HTTP.
    pub(super) visits: Vec<Option<Visit>>,
    pub(super) free_visits: Vec<usize>,
    pub(super) visits_by_token: HashMap<u64, usize>,
    pub(super) last_visit: u32,
    /// Connections are taken there.
    pub(super) is_open: bool,
    /// No request is left and none will come, but for those of connections that are there.
    is_over: bool,
    pub(super) exchanges: Vec<Option<Exchange>>,
    free: Vec<usize>,
    by_token: HashMap<u64, usize>,
    /// When requests have to be looked after.
    pub(super) due: BTreeSet<(Tick, User)>,
    /// Requests that had their turn and have more to do.
    pub(super) more: Vec<User>,
    pub(super) connect_timeout: Duration,
    pub(super) scratch: Box<[u8]>,
    piece: Vec<u8>,
    /// What the worker has said last.
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

    /// Serves until there is no request and none will come; says the exit code.
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
            // Those of the program first: what has closed a connection is known before a request is given one.
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
        // A part of a millisecond more, so that it is due then.
        let left = due.since(clock::now()) + Duration::from_millis(1);
        EpollTimeout::try_from(left).unwrap_or(EpollTimeout::MAX)
    }

    /// Has the worker look at what is ready, and takes what it has to say: whether there is more.
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

    /// A request has come.
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

    /// Gives a request to a process, or has it wait for one.
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
                    // Another look at it after a moment; it has not seen the request.
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

    /// No process is up: another look after a pause.
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

    /// Looks after requests whose time has come.
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

    /// A connection did not come about: the process has seen nothing of the request.
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

    /// Gives the connection and the process back. `keeps`: the connection can serve another request.
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

    /// Gives a process back, and asks for another if it has had its last request.
    pub(super) fn give(&mut self, chosen: Option<ProcessEntry>) {
        if self.links.give(chosen) {
            self.worker.ask_restart(RestartReason::MaxRequests);
        }
    }

    /// The request is over, whatever became of it.
    pub(super) fn forget(&mut self, index: usize) {
        self.release(index, false);
        if let Some(exchange) = self.exchanges[index].take() {
            self.by_token.remove(&exchange.token);
            self.free.push(index);
        }
    }

    /// Moves what can be moved.
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

    /// Whether the connection is not there yet; one that failed is dealt with.
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

    /// Sends what there is of the request. True: something moved.
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
                // The program does not want the rest; it may have answered all the same.
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
                // It will be told.
                (Piece::Gone, _) => exchange.waits_for_body = true,
            }
            has_moved |= exchange.sent < exchange.out.len();
        }
        has_moved
    }

    /// Reads what there is of the answer. True: something moved.
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
                // After a read that was not full, the kernel reports anew what comes.
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

    /// Gives the client a piece of its answer.
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

    /// The client takes more.
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

/// How long a request waits before the next look for a process.
pub(super) fn pause(pauses: u32) -> Duration {
    (FIRST_PAUSE * (1 << pauses.saturating_sub(1).min(5))).min(LAST_PAUSE)
}

/// Whether asking twice does what asking once does (RFC 9110 section 9.2.2).
fn is_idempotent(method: &[u8]) -> bool {
    matches!(
        method,
        b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE"
    )
}

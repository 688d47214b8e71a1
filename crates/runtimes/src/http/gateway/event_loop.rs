//! The gateway's event loop.

use super::super::head;
use super::links::Links;
use super::passage::{Limits, Passage, Ready, Step};
use super::stream::Stream;
use super::{FRONT, KIND, LINK, VISIT};
use fastcgi::Params;
use forkyard_base::tick::Tick;
use forkyard_protocol::accept_notify::RestartReason;
use forkyard_sys::clock;
use forkyard_sys::socket::{Progress, peek, shutdown_write};
use forkyard_sys::timeout::epoll_timeout;
use forkyard_worker::{Concurrent, EXIT_SOFTWARE, Event, Piece, Records, Sent, When, is_of_worker};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollTimeout};
use slab::Slab;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

const EVENTS: usize = 256;
const PIECE_BYTES: usize = 64 * 1024;
/// Steps of a passage before the others get their turn.
const STEPS: u32 = 32;

pub(super) struct Gateway {
    pub(super) worker: Concurrent,
    pub(super) epoll: Arc<Epoll>,
    links: Links,
    pub(super) passages: Slab<Carried>,
    by_token: HashMap<u64, usize>,
    due: BTreeSet<(Tick, usize)>,
    more: Vec<usize>,
    pub(super) limits: Limits,
    pub(super) last_serial: u32,
    /// Whether HTTP connections are accepted.
    pub(super) is_open: bool,
    /// Whether the worker has ended.
    is_over: bool,
    scratch: Box<[u8]>,
    told: Vec<u8>,
}

/// A passage with its client.
#[derive(Debug)]
pub(super) struct Carried {
    passage: Passage,
    pub(super) client: Client,
    /// The worker's name for the request.
    token: Option<u64>,
    /// Its entry in [`Gateway::due`].
    due: Option<Tick>,
}

#[derive(Debug)]
pub(super) enum Client {
    Socket(Stream),
    Worker { readable: bool, writable: bool },
}

impl Client {
    /// Whether it can be read and written without blocking.
    fn ready(&mut self) -> (&mut bool, &mut bool) {
        match self {
            Client::Socket(stream) => (&mut stream.readable, &mut stream.writable),
            Client::Worker { readable, writable } => (readable, writable),
        }
    }
}

impl Gateway {
    pub(super) fn new(worker: Concurrent, links: Links, connect: Duration) -> Gateway {
        let client = worker.client_timeout();
        Gateway {
            epoll: worker.epoll(),
            worker,
            links,
            passages: Slab::new(),
            by_token: HashMap::new(),
            due: BTreeSet::new(),
            more: Vec::new(),
            limits: Limits { connect, client },
            last_serial: 0,
            is_open: false,
            is_over: false,
            scratch: vec![0; PIECE_BYTES].into_boxed_slice(),
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
                    FRONT => self.accept(),
                    LINK => {
                        if let Some(user) = self.links.see(data, event.events()) {
                            self.pump(user);
                        }
                    }
                    VISIT => self.see_client(data, event.events()),
                    _ => {}
                }
            }
            for index in std::mem::take(&mut self.more) {
                self.pump(index);
            }
            self.pass_time();
            if has_more || !workers_own.is_empty() || self.worker.has_more() {
                has_more = self.ask_worker(&workers_own);
            }
            if self.is_over && self.passages.is_empty() {
                return self.worker.exit_code();
            }
        }
    }

    fn timeout(&self, has_more: bool) -> EpollTimeout {
        if has_more || !self.more.is_empty() {
            return EpollTimeout::ZERO;
        }
        epoll_timeout(self.due.first().map(|(due, _)| *due))
    }

    fn ask_worker(&mut self, ready: &[EpollEvent]) -> bool {
        let mut told = std::mem::take(&mut self.told);
        let more = self.worker.on_ready(ready, &mut told);
        for event in Records(&told) {
            match event {
                Event::Request(token, body, is_whole) => self.request(token, body, is_whole),
                Event::Body(token) => self.on_client(token, |carried| *carried.client.ready().0 = true),
                Event::Writable(token) => self.on_client(token, |carried| *carried.client.ready().1 = true),
                Event::Gone(token) => {
                    self.on_client(token, |carried| carried.passage.end());
                    self.worker.abandon(token);
                }
                Event::Expired(token) => {
                    self.on_client(token, |carried| {
                        carried.token = None;
                        carried.passage.expire(clock::now());
                    });
                    self.by_token.remove(&token);
                }
                Event::Work => self.worker.out_of_band_done(Ok(())),
                Event::End => {
                    self.is_over = true;
                    let now = clock::now();
                    for (index, carried) in &mut self.passages {
                        carried.passage.hurry(now);
                        carried.schedule(index, &mut self.due);
                    }
                }
            }
        }
        self.told = told;
        more
    }

    fn request(&mut self, token: u64, body: &[u8], is_whole: bool) {
        let limits = self.limits;
        let passage = self.worker.with_params(token, |params: &Params| {
            let method = params.get(b"REQUEST_METHOD").unwrap_or_default();
            let (head, framing) = head::write(params);
            Passage::fastcgi(head, framing, method, limits)
        });
        let Some(mut passage) = passage else { return };
        passage.client_sent(body, is_whole, clock::now());
        let client = Client::Worker {
            readable: true,
            writable: true,
        };
        self.begin(passage, client, Some(token));
    }

    pub(super) fn begin(&mut self, passage: Passage, client: Client, token: Option<u64>) {
        let index = self.passages.insert(Carried {
            passage,
            client,
            token,
            due: None,
        });
        self.by_token.extend(token.map(|token| (token, index)));
        self.pump(index);
    }

    fn on_client(&mut self, token: u64, note: impl FnOnce(&mut Carried)) {
        let index = self.by_token.get(&token).copied();
        if let Some((index, carried)) = index.and_then(|index| Some((index, self.passages.get_mut(index)?))) {
            note(carried);
            self.pump(index);
        }
    }

    fn pass_time(&mut self) {
        while let Some((due, index)) = self.due.first().copied() {
            let now = clock::now();
            if due > now {
                return;
            }
            self.due.pop_first();
            if let Some(carried) = self.passages.get_mut(index) {
                carried.due = None;
                carried.passage.pass_due(now);
                self.pump(index);
            }
        }
    }

    /// Does the steps of a passage until it waits.
    pub(super) fn pump(&mut self, index: usize) {
        let now = clock::now();
        let mut moves = true;
        for _ in 0..STEPS {
            let Some(carried) = self.passages.get_mut(index) else {
                return;
            };
            let link = carried.passage.link().and_then(|id| self.links.get(id));
            let (from_client, to_client) = carried.client.ready();
            let ready = Ready {
                from_client: *from_client,
                to_client: *to_client,
                from_process: link.as_ref().is_some_and(|link| link.stream.readable),
                to_process: link.is_some_and(|link| link.stream.writable),
            };
            let step = carried.passage.next(ready);
            moves = self.perform(index, step, now);
            if !moves {
                break;
            }
        }
        if moves {
            self.more.push(index);
        }
        if let Some(carried) = self.passages.get_mut(index) {
            carried.schedule(index, &mut self.due);
        }
    }

    /// Returns whether there may be another step.
    fn perform(&mut self, index: usize, step: Step, now: Tick) -> bool {
        let Some(carried) = self.passages.get_mut(index) else {
            return false;
        };
        let passage = &mut carried.passage;
        let link = passage.link().and_then(|id| self.links.get(id));
        match step {
            Step::Wait => return false,
            Step::Connect => {
                let (tried, reuse) = passage.wanted();
                match self.links.connect(tried, index, reuse, &self.epoll) {
                    Ok((process, attempt)) => {
                        self.worker.set_program(self.links.pid(process));
                        passage.attempted(process, attempt, now);
                    }
                    Err(failure) => passage.not_chosen(failure, now),
                }
            }
            Step::Complete => {
                if let Some(id) = passage.link() {
                    passage.completed(self.links.complete(id), now);
                }
            }
            Step::FromClient => self.receive(index, now),
            Step::ToClient => self.deliver(index, now),
            Step::FromProcess => {
                let Some(link) = link else { return false };
                match link.stream.receive(&mut self.scratch) {
                    Ok(Progress::WouldBlock) => {}
                    Ok(Progress::Done(0)) | Err(_) => passage.process_ended(now),
                    Ok(Progress::Done(count)) => passage.process_sent(&self.scratch[..count], now),
                }
            }
            Step::ToProcess => {
                let Some(link) = link else { return false };
                if link.stream.send(passage.for_process(), &self.epoll).is_err() {
                    passage.process_is_deaf();
                    // It may have answered.
                    link.stream.readable = true;
                }
            }
            Step::LookAtClient => {
                let Client::Socket(client) = &carried.client else {
                    return false;
                };
                if peek(client.socket.as_fd(), &mut [0]) != Ok(Progress::Done(0)) {
                    return false;
                }
                passage.end();
            }
            Step::ShutClient => {
                if let Client::Socket(client) = &carried.client {
                    shutdown_write(client.socket.as_fd());
                }
            }
            Step::ShutProcess => {
                if let Some(link) = link {
                    shutdown_write(link.stream.socket.as_fd());
                }
            }
            Step::Begin(params) => {
                let token = self.worker.begin_visit(*params);
                carried.token = Some(token);
                self.by_token.insert(token, index);
            }
            Step::Endless => carried
                .token
                .into_iter()
                .for_each(|token| self.worker.is_endless(token)),
            Step::Release { taken, served, keeps } => {
                if self.links.release(taken, served, keeps) {
                    self.worker.ask_restart(RestartReason::MaxRequests);
                }
            }
            Step::Explain(why) => {
                if let Some(token) = carried.token {
                    self.worker.send_error(token, why.as_bytes());
                }
            }
            Step::Finish(status) => self.finish(index, status),
            Step::Over => {
                let carried = self.passages.remove(index);
                carried.due.into_iter().for_each(|due| {
                    self.due.remove(&(due, index));
                });
                return false;
            }
        }
        true
    }

    fn receive(&mut self, index: usize, now: Tick) {
        let Some(carried) = self.passages.get_mut(index) else {
            return;
        };
        let passage = &mut carried.passage;
        match &mut carried.client {
            Client::Socket(client) => match client.receive(&mut self.scratch) {
                Ok(Progress::WouldBlock) => {}
                Ok(Progress::Done(0)) => passage.client_ended(),
                Ok(Progress::Done(count)) => passage.client_sent(&self.scratch[..count], false, now),
                Err(_) => passage.end(),
            },
            Client::Worker { readable, .. } => {
                let (piece, bytes) = match carried.token {
                    Some(token) => self.worker.read(token),
                    None => (Piece::Gone, &[][..]),
                };
                match piece {
                    Piece::More | Piece::Last => passage.client_sent(bytes, piece == Piece::Last, now),
                    Piece::NotYet | Piece::Gone => *readable = false,
                }
            }
        }
    }

    fn deliver(&mut self, index: usize, now: Tick) {
        let Some(carried) = self.passages.get_mut(index) else {
            return;
        };
        let (answer, is_last) = carried.passage.for_client();
        let is_there = match (&mut carried.client, carried.token) {
            (Client::Socket(client), _) => client.send(answer, &self.epoll).is_ok(),
            (Client::Worker { writable, .. }, Some(token)) => {
                let when = if is_last { When::Last } else { When::Now };
                match self.worker.send(token, answer.rest(), when) {
                    Sent::Taken { count, is_full } => {
                        answer.advance(count);
                        *writable = !is_full;
                        if is_last && !is_full {
                            carried.token = None;
                            self.by_token.remove(&token);
                        }
                        true
                    }
                    Sent::Gone => false,
                }
            }
            (Client::Worker { .. }, None) => false,
        };
        match is_there {
            true => carried.passage.delivered(now),
            false => carried.passage.end(),
        }
    }

    fn finish(&mut self, index: usize, status: Option<u16>) {
        let Some(carried) = self.passages.get_mut(index) else {
            return;
        };
        let Some(token) = carried.token.take() else { return };
        self.by_token.remove(&token);
        match status {
            Some(status) => {
                let head = format!("Status: {status}\r\n\r\n");
                self.worker.send(token, head.as_bytes(), When::Last);
            }
            None => self.worker.abandon(token),
        }
    }
}

impl Carried {
    fn schedule(&mut self, index: usize, all: &mut BTreeSet<(Tick, usize)>) {
        let due = self.passage.due();
        if due == self.due {
            return;
        }
        if let Some(before) = std::mem::replace(&mut self.due, due) {
            all.remove(&(before, index));
        }
        all.extend(due.map(|due| (due, index)));
    }
}

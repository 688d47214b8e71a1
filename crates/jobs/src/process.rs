//! The loop: clients, pools, the master and the store to events; decisions to requests and answers.

use crate::call::{Call, CallProgress};
use crate::client::{Client, ClientInput, Origin, Rights};
use crate::commands;
use crate::core::schedule::Schedules;
use crate::core::{Action, Event, Moment, Scheduler};
use crate::failures::Failures;
use crate::figures::Figures;
use crate::foreign::Foreign;
use crate::lease::RunningHere;
use crate::listener::Listener;
use crate::master::configured;
use crate::requests::Requests;
use crate::store::{Opener, Operation, StoreThread};
use crate::tcp::Tcp;
use forkyard_config::{Durability, Jobs, JobsStore};
use forkyard_host::listen::AcceptPause;
use forkyard_protocol::jobs::{JobsAnswer, RequestLine};
use forkyard_sys::{Error, clock, identity, socket};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

const CHANNEL: Token = Token(0);
pub(crate) const LISTENER: Token = Token(1);
const STORE: Token = Token(2);
pub(crate) const TCP: Token = Token(3);
const FIRST_PEER: usize = 16;
const EVENTS: usize = 256;
/// The most clients with limited rights, in all and of one user.
const MOST_CLIENTS: usize = 1_024;
const MOST_OF_USER: usize = 256;
const MOST_BUFFERED: usize = 64 << 20;
const SMALL_BUFFER: usize = 64 << 10;
const CLEAN_MS: u64 = 60_000;

#[derive(Debug)]
pub(crate) enum Peer {
    Client(Client),
    Call(Box<Call>),
}

pub(crate) struct Process {
    pub(crate) poll: Poll,
    pub(crate) jobs: Jobs,
    pub(crate) scheduler: Scheduler,
    pub(crate) schedules: Schedules,
    /// This machine's clock minus the store's, which schedules use.
    pub(crate) ahead_ms: i64,
    pub(crate) store: StoreThread,
    pub(crate) channel: Option<OwnedFd>,
    pub(crate) listener: Listener,
    pub(crate) pause: AcceptPause,
    pub(crate) tcp: Tcp,
    pub(crate) peers: HashMap<usize, Peer>,
    pub(crate) next_peer: usize,
    /// Connections with more to read.
    pub(crate) again: Vec<usize>,
    pub(crate) running: RunningHere,
    pub(crate) requests: Requests,
    pub(crate) foreign: Foreign,
    pub(crate) is_foreign_asked: bool,
    pub(crate) foreign_due_ms: Option<u64>,
    pub(crate) foreign_asked_ms: u64,
    pub(crate) heard_ms: u64,
    /// The store was silent for so long that other machines may start jobs that run here: they are aborted.
    pub(crate) is_cut_off: bool,
    pub(crate) clean_due_ms: u64,
    pub(crate) is_loaded: bool,
    pub(crate) begun_ms: u64,
    pub(crate) store_up: bool,
    pub(crate) store_error: Option<String>,
    pub(crate) is_stopping: bool,
    pub(crate) is_draining: bool,
    pub(crate) figures: Figures,
    pub(crate) failures: Failures,
    pub(crate) events: VecDeque<Event>,
}

impl Process {
    pub(crate) fn begin(
        jobs: Jobs,
        open: Opener,
        channel: OwnedFd,
        listener: OwnedFd,
    ) -> Result<Process, Box<dyn std::error::Error>> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), STORE)?);
        let raw = channel.as_raw_fd();
        (poll.registry()).register(&mut SourceFd(&raw), CHANNEL, Interest::READABLE)?;
        let listener = Listener::watch(listener, poll.registry(), LISTENER)?;
        let begun_ms = clock::now().as_nanos() / 1_000_000;
        let is_shared = matches!(jobs.store, JobsStore::Postgresql(_));
        let store = StoreThread::start(open, is_shared, jobs.durability == Durability::Full, waker)?;
        let mut events = VecDeque::new();
        events.push_back(configured(&jobs));
        // No job starts before the paused queues are known.
        events.push_front(Event::StoreFailed);
        Ok(Process {
            poll,
            jobs,
            scheduler: Scheduler::default(),
            schedules: Schedules::default(),
            ahead_ms: 0,
            store,
            channel: Some(channel),
            listener,
            pause: AcceptPause::default(),
            tcp: Tcp::default(),
            peers: HashMap::new(),
            next_peer: FIRST_PEER,
            again: Vec::new(),
            running: RunningHere::default(),
            requests: Requests::default(),
            foreign: Foreign::default(),
            is_foreign_asked: false,
            foreign_due_ms: Some(0),
            foreign_asked_ms: begun_ms,
            heard_ms: begun_ms,
            is_cut_off: false,
            clean_due_ms: 0,
            is_loaded: false,
            begun_ms,
            store_up: true,
            store_error: None,
            is_stopping: false,
            is_draining: false,
            figures: Figures::default(),
            failures: Failures::default(),
            events,
        })
    }

    pub(crate) fn now(&self) -> Moment {
        Moment {
            wall_ms: i64::try_from(clock::epoch_micros() / 1_000).unwrap_or(i64::MAX),
            mono_ms: clock::now().as_nanos() / 1_000_000,
        }
    }

    pub(crate) fn serve(mut self) -> Result<(), Error> {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            self.decide();
            if self.is_over() {
                self.failures.end();
                self.store.close();
                return Ok(());
            }
            let timeout = self.timeout();
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::from_io("epoll_wait", "", &error)),
            }
            let mut ready = std::mem::take(&mut self.again);
            for event in &events {
                match event.token() {
                    CHANNEL => self.hear_master(),
                    LISTENER => self.accept(),
                    TCP => self.accept_tcp(),
                    STORE => {}
                    Token(peer) => ready.push(peer),
                }
            }
            let is_pause_over = self.pause.end(clock::now());
            if is_pause_over || self.listener.is_more_waiting {
                self.accept();
            }
            if is_pause_over || self.tcp.is_more_waiting() {
                self.accept_tcp();
            }
            ready.sort_unstable();
            ready.dedup();
            for token in ready {
                self.on_ready(token);
            }
            self.hear_store();
            self.poll();
        }
    }

    /// Passes events to the scheduler and performs its actions until none follows.
    fn decide(&mut self) {
        let mut actions: Vec<Action> = Vec::new();
        let now = self.now();
        self.events.push_back(Event::Time);
        while let Some(event) = self.events.pop_front() {
            log::trace!("{event:?}");
            self.scheduler.handle(event, now, &mut actions);
            for action in actions.drain(..) {
                log::trace!("{action:?}");
                self.perform(action);
            }
        }
    }

    fn is_over(&self) -> bool {
        let is_leaving = self.is_draining || self.is_stopping;
        let has_client = || {
            self.peers
                .values()
                .any(|peer| matches!(peer, Peer::Client(client) if !client.is_idle() && client.rights != Rights::Stranger))
        };
        is_leaving
            && self.scheduler.is_idle()
            && self.running.leases.is_empty()
            && !self.store.is_busy()
            && !has_client()
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.again.is_empty() || self.listener.is_more_waiting || self.tcp.is_more_waiting() {
            return Some(Duration::ZERO);
        }
        let now = self.now();
        let (due, mono) = self.scheduler.next_deadline();
        let is_on = !self.is_draining && !self.is_stopping && self.is_loaded && self.store_up;
        let schedule = self.schedules.next_deadline().filter(|_| is_on);
        let schedule = schedule.map(|due| due.saturating_add(self.ahead_ms));
        let wall = due.into_iter().chain(schedule).min();
        let wall = wall.map(|due| due.saturating_sub(now.wall_ms).max(0).unsigned_abs());
        let calls = self.peers.values().filter_map(|peer| match peer {
            Peer::Call(call) => call.deadline(),
            Peer::Client(_) => None,
        });
        let doubts = self.running.doubts.iter().map(|doubt| doubt.until_ms);
        let pause = self
            .pause
            .deadline()
            .map(|until| until.as_nanos().div_ceil(1_000_000));
        let foreign = self.foreign_due_ms.filter(|_| self.may_ask_foreign());
        let cut_off = self.cut_off_at().filter(|_| !self.is_cut_off);
        let clean = is_on.then_some(self.clean_due_ms);
        let opening = self.opening_limit_ms().filter(|due| *due > now.mono_ms);
        let pushes = self.requests.push_limits.first().map(|(due, _)| *due);
        let waits = self.requests.wait_limits.values().map(|(due, _)| *due).min();
        let (failures, strangers) = (self.failures.deadline(), self.tcp.deadline());
        let others = [
            pause, mono, foreign, cut_off, clean, opening, pushes, waits, failures, strangers,
        ];
        let mono = calls.chain(doubts).chain(others.into_iter().flatten()).min();
        let mono = mono.map(|due| due.saturating_sub(now.mono_ms));
        // Rounded up, so that the deadline has passed on return. The wall clock may be set in between.
        let left = wall.into_iter().chain(mono).min()?;
        Some(Duration::from_millis(left.saturating_add(1).min(60_000)))
    }

    /// Whether other processes' jobs may be looked up. With several machines this is also the heartbeat, which is
    /// needed while jobs run here.
    fn may_ask_foreign(&self) -> bool {
        let is_leaving = self.is_draining || self.is_stopping;
        // The next process can cancel a job of a process that ends.
        let is_needed = !is_leaving || self.store.is_shared() || !self.running.leases.is_empty();
        self.is_loaded && self.store_up && is_needed && !self.is_foreign_asked
    }

    fn cut_off_at(&self) -> Option<u64> {
        let lease_ms = u64::try_from(self.jobs.machine_timeout.as_millis()).unwrap_or(u64::MAX);
        let is_concerned = self.store.is_shared() && !self.running.leases.is_empty();
        is_concerned.then_some(self.heard_ms.saturating_add(lease_ms / 4 * 3))
    }

    fn poll(&mut self) {
        let now = self.now();
        self.store.push();
        self.failures.poll(now.mono_ms);
        self.poll_calls(now.mono_ms);
        self.poll_strangers(now.mono_ms);
        self.poll_limits(now.mono_ms);
        if self.may_ask_foreign() && self.foreign_due_ms.is_some_and(|due| due <= now.mono_ms) {
            self.is_foreign_asked = true;
            self.foreign_asked_ms = now.mono_ms;
            self.store.ask(Operation::Foreign);
        }
        if !self.is_cut_off && self.cut_off_at().is_some_and(|at| at <= now.mono_ms) {
            self.is_cut_off = true;
            self.end_all_calls(now.mono_ms);
        }
        if self.is_draining || self.is_stopping || !self.is_loaded || !self.store_up {
            return;
        }
        let wall_ms = now.wall_ms.saturating_sub(self.ahead_ms);
        for fire in self.schedules.take_due(wall_ms, clock::boot_millis()) {
            self.fire(&fire);
        }
        if self.clean_due_ms <= now.mono_ms {
            self.clean_due_ms = now.mono_ms + CLEAN_MS;
            let before = |keep: Duration| {
                let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
                now.wall_ms.saturating_sub(keep)
            };
            self.store.ask(Operation::Clean {
                before_ms: before(self.jobs.keep_done),
                failed_before_ms: before(self.jobs.keep_failed),
            });
        }
    }

    pub(crate) fn add(&mut self, peer: Peer) -> Result<usize, Error> {
        let token = self.next_peer;
        self.next_peer += 1;
        let both = Interest::READABLE | Interest::WRITABLE;
        let (raw, interest) = match &peer {
            Peer::Client(client) => (client.socket().as_raw_fd(), both),
            Peer::Call(call) if call.is_connecting() => (call.socket().as_raw_fd(), both),
            Peer::Call(call) => (call.socket().as_raw_fd(), Interest::READABLE),
        };
        (self.poll.registry())
            .register(&mut SourceFd(&raw), Token(token), interest)
            .map_err(|error| Error::from_io("epoll_ctl", "", &error))?;
        self.peers.insert(token, peer);
        Ok(token)
    }

    pub(crate) fn begin_call(&mut self, token: usize) {
        let Some(Peer::Call(call)) = self.peers.get_mut(&token) else {
            return;
        };
        if call.is_connecting() || call.begin() {
            return;
        }
        let raw = call.socket().as_raw_fd();
        let both = Interest::READABLE | Interest::WRITABLE;
        let watched = (self.poll.registry()).reregister(&mut SourceFd(&raw), Token(token), both);
        if let Err(error) = watched {
            log::error!("jobs: epoll_ctl: {error}");
        }
        self.again.push(token);
    }

    pub(crate) fn remove(&mut self, token: usize) -> Option<Peer> {
        self.requests.wait_limits.remove(&token);
        self.peers.remove(&token)
    }

    fn accept(&mut self) {
        for _ in 0..MOST_CLIENTS {
            let Some(accepted) = self.listener.accept(&mut self.pause) else {
                return;
            };
            let (rights, origin) = match socket::peer_process(accepted.as_fd()) {
                Ok((uid, pid)) if uid == 0 || uid == identity::own_user() => {
                    (Rights::All, Origin::Unix { uid, pid })
                }
                Ok((uid, pid)) => (Rights::Own(uid), Origin::Unix { uid, pid }),
                Err(error) => {
                    log::error!("jobs: {error}");
                    continue;
                }
            };
            if !self.has_place(rights) {
                // The client sees the end of the connection and can come again.
                continue;
            }
            let mut client = Client::new(accepted, rights, origin, self.now().mono_ms);
            client.is_last = self.is_draining;
            match self.add(Peer::Client(client)) {
                Ok(token) => self.again.push(token),
                Err(error) => log::error!("jobs: {error}"),
            }
        }
    }

    fn clients(&self) -> impl Iterator<Item = &Client> {
        self.peers.values().filter_map(|peer| match peer {
            Peer::Client(client) => Some(client),
            Peer::Call(_) => None,
        })
    }

    fn has_place(&self, rights: Rights) -> bool {
        let (mut all, mut own) = (0, 0);
        for client in self
            .clients()
            .filter(|client| matches!(client.rights, Rights::Own(_)))
        {
            all += 1;
            own += usize::from(client.rights == rights);
        }
        rights == Rights::All || (all < MOST_CLIENTS && own < MOST_OF_USER)
    }

    fn is_too_much(&self, client: &Client) -> bool {
        client.rights != Rights::All
            && client.buffered() > SMALL_BUFFER
            && self
                .clients()
                .filter(|client| client.rights != Rights::All)
                .map(Client::buffered)
                .sum::<usize>()
                > MOST_BUFFERED
    }

    pub(crate) fn on_ready(&mut self, token: usize) {
        let refusal = match self.is_loaded {
            true => None,
            false => self.refusal(),
        };
        match self.peers.get_mut(&token) {
            Some(Peer::Call(call)) => match call.poll() {
                CallProgress::Waits => {}
                CallProgress::More => self.again.push(token),
                CallProgress::Over(over) => {
                    if let Some(Peer::Call(call)) = self.remove(token) {
                        self.call_over(token, &call, over.0, over.1);
                    }
                }
                CallProgress::Broken(output) => {
                    if let Some(Peer::Call(call)) = self.remove(token) {
                        self.call_broken(token, &call, output);
                    }
                }
            },
            // The state of the store is not known yet.
            Some(Peer::Client(_)) if !self.is_loaded && refusal.is_none() => {}
            Some(Peer::Client(client)) => match client.poll() {
                ClientInput::Nothing => {
                    if matches!(self.peers.get(&token), Some(Peer::Client(client)) if self.is_too_much(client))
                    {
                        self.refuse_rest(token);
                    }
                }
                ClientInput::Gone => _ = self.remove(token),
                ClientInput::Line(line) if client.rights == Rights::Stranger => {
                    self.hear_stranger(token, &line)
                }
                ClientInput::Line(line) => {
                    let rights = client.rights;
                    let wanted = RequestLine::read(&line).and_then(|line| {
                        client.note(line.command(), clock::now().as_nanos() / 1_000_000);
                        commands::wanted(line.request()?, rights, &self.jobs)
                    });
                    match wanted {
                        Ok(wanted) => self.want(token, wanted),
                        Err(message) => self.answer(token, &JobsAnswer::error(message)),
                    }
                }
            },
            None => {}
        }
    }

    fn refuse_rest(&mut self, token: usize) {
        if let Some(Peer::Client(client)) = self.peers.get_mut(&token) {
            client.give_up();
        }
        let refusal =
            JobsAnswer::not_now("too much is pushed at once; try again, with fewer jobs in a request");
        self.answer(token, &refusal);
    }
}

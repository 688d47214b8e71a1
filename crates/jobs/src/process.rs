//! The loop: clients, pools, the master and the store to events; decisions to requests and answers.

use crate::call::{Call, CallProgress};
use crate::client::{Client, ClientInput, Origin, Rights};
use crate::commands;
use crate::connections::{Connections, MOST_CLIENTS};
use crate::core::schedule::Schedules;
use crate::core::{Action, Event, Moment, Scheduler};
use crate::failures::Failures;
use crate::figures::Figures;
use crate::foreign::Foreign;
use crate::heartbeat::Heartbeat;
use crate::lease::RunningHere;
use crate::listener::Listener;
use crate::master::{Master, configured};
use crate::requests::Requests;
use crate::store::{Opener, Operation, StoreThread};
use crate::store_state::StoreState;
use crate::tcp::Tcp;
use forkyard_config::{Durability, Jobs, JobsStore};
use forkyard_host::listen::AcceptPause;
use forkyard_protocol::jobs::JobsAnswer;
use forkyard_sys::{Error, clock, identity, socket};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

const CHANNEL: Token = Token(0);
pub(crate) const LISTENER: Token = Token(1);
const STORE: Token = Token(2);
pub(crate) const TCP: Token = Token(3);
const EVENTS: usize = 256;
const CLEAN_MS: u64 = 60_000;

pub(crate) struct Process {
    pub(crate) connections: Connections,
    pub(crate) jobs: Jobs,
    pub(crate) scheduler: Scheduler,
    pub(crate) schedules: Schedules,
    pub(crate) store: StoreThread,
    pub(crate) store_state: StoreState,
    pub(crate) master: Master,
    pub(crate) listener: Listener,
    pub(crate) pause: AcceptPause,
    pub(crate) tcp: Tcp,
    pub(crate) running: RunningHere,
    pub(crate) requests: Requests,
    pub(crate) foreign: Foreign,
    pub(crate) heartbeat: Heartbeat,
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
            connections: Connections::new(poll),
            jobs,
            scheduler: Scheduler::default(),
            schedules: Schedules::default(),
            store,
            store_state: StoreState::new(begun_ms),
            master: Master::new(channel),
            listener,
            pause: AcceptPause::default(),
            tcp: Tcp::default(),
            running: RunningHere::default(),
            requests: Requests::default(),
            foreign: Foreign::default(),
            heartbeat: Heartbeat::new(begun_ms),
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
            self.connections.wait(&mut events, timeout)?;
            let mut ready = std::mem::take(&mut self.connections.again);
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
        let is_busy = |client: &Client| !client.is_idle() && client.rights != Rights::Stranger;
        self.master.is_leaving()
            && self.scheduler.is_idle()
            && !self.running.is_any()
            && !self.store.is_busy()
            && !self.connections.clients.values().any(is_busy)
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.connections.again.is_empty() || self.listener.is_more_waiting || self.tcp.is_more_waiting() {
            return Some(Duration::ZERO);
        }
        let now = self.now();
        let (due, mono) = self.scheduler.next_deadline();
        let is_on = self.is_on();
        let schedule = self.schedules.next_deadline().filter(|_| is_on);
        let schedule = schedule.map(|due| due.saturating_add(self.store_state.ahead_ms));
        let wall = due.into_iter().chain(schedule).min();
        let wall = wall.map(|due| due.saturating_sub(now.wall_ms).max(0).unsigned_abs());
        let pause = self
            .pause
            .deadline()
            .map(|until| until.as_nanos().div_ceil(1_000_000));
        let deadlines = [
            pause,
            mono,
            self.lookup_at(),
            self.cut_off_at(),
            is_on.then_some(self.store_state.clean_due_ms),
            self.opening_limit_ms().filter(|due| *due > now.mono_ms),
            self.requests.deadline(),
            self.failures.deadline(),
            self.tcp.deadline(),
            self.connections.calls.values().filter_map(Call::deadline).min(),
            self.running.deadline(),
        ];
        let mono = deadlines.into_iter().flatten().min();
        let mono = mono.map(|due| due.saturating_sub(now.mono_ms));
        // Rounded up, so that the deadline has passed on return. The wall clock may be set in between.
        let left = wall.into_iter().chain(mono).min()?;
        Some(Duration::from_millis(left.saturating_add(1).min(60_000)))
    }

    fn is_on(&self) -> bool {
        !self.master.is_leaving() && self.store_state.is_open()
    }

    /// Returns the time of the next look at other processes' jobs. With several machines this is also the heartbeat, which is
    /// needed while jobs run here.
    fn lookup_at(&self) -> Option<u64> {
        // The next process can cancel a job of a process that ends.
        let is_needed = !self.master.is_leaving() || self.store.is_shared() || self.running.is_any();
        let is_possible = self.store_state.is_open() && is_needed;
        self.heartbeat.deadline().filter(|_| is_possible)
    }

    fn cut_off_at(&self) -> Option<u64> {
        let at = self.heartbeat.cut_off_at(self.jobs.machine_timeout);
        at.filter(|_| self.store.is_shared() && self.running.is_any())
    }

    fn poll(&mut self) {
        let now = self.now();
        self.store.push();
        self.failures.poll(now.mono_ms);
        self.poll_calls(now.mono_ms);
        self.poll_strangers(now.mono_ms);
        self.poll_limits(now.mono_ms);
        if self.lookup_at().is_some_and(|due| due <= now.mono_ms) {
            self.heartbeat.sent(now.mono_ms);
            self.store.ask(Operation::Foreign);
        }
        if self.cut_off_at().is_some_and(|at| at <= now.mono_ms) {
            self.heartbeat.cut_off();
            self.end_all_calls(now.mono_ms);
        }
        if !self.is_on() {
            return;
        }
        let wall_ms = now.wall_ms.saturating_sub(self.store_state.ahead_ms);
        for fire in self.schedules.take_due(wall_ms, clock::boot_millis()) {
            self.fire(&fire);
        }
        if self.store_state.clean_due_ms <= now.mono_ms {
            self.store_state.clean_due_ms = now.mono_ms + CLEAN_MS;
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

    pub(crate) fn remove(&mut self, token: usize) {
        self.requests.forget_client(token);
        self.connections.clients.remove(&token);
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
            if !self.connections.has_place(rights) {
                // The client sees the end of the connection and can come again.
                continue;
            }
            let mut client = Client::new(accepted, rights, origin, self.now().mono_ms);
            client.is_last = self.master.is_gone();
            match self.connections.add_client(client) {
                Ok(token) => self.connections.again.push(token),
                Err(error) => log::error!("jobs: {error}"),
            }
        }
    }

    pub(crate) fn on_ready(&mut self, token: usize) {
        // The state of the store is not known yet.
        let is_early = !self.store_state.is_loaded() && self.refusal().is_none();
        if let Some(call) = self.connections.calls.get_mut(&token) {
            let progress = call.poll();
            return self.on_progress(token, progress);
        }
        let Some(client) = self.connections.clients.get_mut(&token) else {
            return;
        };
        if !is_early {
            match client.poll() {
                ClientInput::Nothing => {
                    if self.connections.is_too_much(token) {
                        let refusal = "too much is pushed at once; try again, with fewer jobs in a request";
                        self.connections.dismiss(token, &JobsAnswer::not_now(refusal));
                    }
                }
                ClientInput::Gone => self.remove(token),
                ClientInput::Line(line) if client.rights == Rights::Stranger => {
                    self.hear_stranger(token, &line)
                }
                ClientInput::Line(line) => {
                    let rights = client.rights;
                    let wanted = commands::read_line(&line).and_then(|line| {
                        client.note(line.command(), clock::now().as_nanos() / 1_000_000);
                        commands::plan(line, rights, &self.jobs)
                    });
                    match wanted {
                        Ok(wanted) => self.want(token, wanted),
                        Err(why) => {
                            let answer = JobsAnswer::error(why.to_string());
                            self.connections.answer(token, &answer);
                        }
                    }
                }
            }
        }
    }

    fn on_progress(&mut self, token: usize, progress: CallProgress) {
        let (over, output) = match progress {
            CallProgress::Waits => return,
            CallProgress::More => return self.connections.again.push(token),
            CallProgress::Over(over) => (Some(over.0), over.1),
            CallProgress::Broken(output) => (None, output),
        };
        let Some(call) = self.connections.calls.remove(&token) else {
            return;
        };
        match over {
            Some(answer) => self.call_over(token, &call, answer, output),
            None => self.call_broken(token, &call, output),
        }
    }
}

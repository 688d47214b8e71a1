//! An event loop around the kit, for `forkyard spawn`, for tests and as an example.

use super::action::{Action, SpawnOutcome};
use super::effects::{Context, Effects, PORTS, Process, Sink};
use super::event::{Event, JourneyEvent, JourneyId, Token};
use super::machine::Machine;
use super::plan::Plan;
use forkyard_base::tick::Tick;
use forkyard_sys::clock;
use mio::{Events, Poll};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const SETTLING: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Driver {
    poll: Poll,
    machine: Machine,
    effects: Effects,
    delivered: VecDeque<(Token, SpawnOutcome)>,
    said: Vec<String>,
    next: u64,
}

/// The context of this process: its work directory, program and environment.
pub fn context(program: PathBuf) -> Context {
    let foreign = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];
    let is_ours = |name: &OsString| {
        let mut others = foreign.iter().chain(&forkyard_sys::inherited::VARIABLES);
        others.any(|other| name == *other)
    };
    Context {
        spawn_dir: std::env::temp_dir(),
        has_base: false,
        program,
        environment: std::env::vars_os().filter(|(name, _)| !is_ours(name)).collect(),
        descriptor_limit: None,
        ports: PORTS,
        first_token: 0,
    }
}

impl Driver {
    /// Creates an idle kit. `sink` receives the output of processes.
    ///
    /// Orphans are adopted, so a failed start can be cleaned up, only if this process is a subreaper
    /// ([`become_subreaper`](forkyard_sys::process::become_subreaper)).
    ///
    /// # Errors
    /// Creating mio's poll failed.
    pub fn new(context: Context, sink: Sink) -> io::Result<Driver> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let seed = clock::now().as_nanos() ^ u64::from(std::process::id());
        Ok(Driver {
            poll,
            machine: Machine::new(seed),
            effects: Effects::new(context, registry, sink),
            delivered: VecDeque::new(),
            said: Vec::new(),
            next: 0,
        })
    }

    /// Requests a process and returns the token of the outcome.
    pub fn spawn(&mut self, plan: Plan) -> Token {
        self.next += 1;
        let token = Token(self.next);
        let plan = Arc::new(plan);
        self.tell(Event::Spawn { token, plan });
        token
    }

    /// Passes an event to the machine and performs its actions.
    pub fn tell(&mut self, event: Event) {
        self.step(|machine, now, out| machine.handle(event, now, out));
        self.drain();
    }

    /// Waits for the next outcome.
    ///
    /// # Errors
    /// mio's poll failed.
    pub fn wait(&mut self) -> io::Result<(Token, SpawnOutcome)> {
        loop {
            if let Some(answer) = self.delivered.pop_front() {
                return Ok(answer);
            }
            self.turn(None)?;
        }
    }

    /// Waits until nothing is in progress. Send [`Event::Shutdown`] first.
    ///
    /// # Errors
    /// mio's poll failed.
    pub fn finish(&mut self) -> io::Result<()> {
        while !self.machine.is_idle() {
            self.turn(None)?;
        }
        Ok(())
    }

    /// Waits up to `most` for events and handles them.
    ///
    /// # Errors
    /// mio's poll failed.
    pub fn turn(&mut self, most: Option<Duration>) -> io::Result<()> {
        let now = clock::now();
        let next = [self.machine.next_deadline(), self.effects.next_deadline()];
        let until = next.into_iter().flatten().min().map(|next| next.since(now));
        let timeout = [until, most].into_iter().flatten().min();
        let mut events = Events::with_capacity(256);
        match self.poll.poll(&mut events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => result?,
        }
        for event in &events {
            self.effects.ready(event.token());
            self.drain();
        }
        let now = clock::now();
        self.effects.pass(now);
        self.drain();
        if self.machine.next_deadline().is_some_and(|next| next <= now) {
            self.step(|machine, now, out| machine.pass(now, out));
            self.drain();
        }
        Ok(())
    }

    /// Reports a child reaped by the caller. Returns whether it belongs to the kit.
    pub fn reaped(&mut self, pid: i32, ended: forkyard_sys::process::Ended) -> bool {
        let known = self.effects.reaped(pid, ended);
        self.drain();
        known
    }

    pub fn take(&mut self, id: JourneyId) -> Option<Process> {
        self.effects.take(id)
    }

    /// Returns new log messages.
    pub fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    fn drain(&mut self) {
        while let Some((id, event)) = self.effects.next_event() {
            self.happened(id, event);
        }
        self.effects.clear_up();
        self.effects.settle(SETTLING);
    }

    fn happened(&mut self, id: JourneyId, event: JourneyEvent) {
        let event = Event::Journey(id, event);
        self.step(|machine, now, out| machine.handle(event, now, out));
    }

    fn step(&mut self, decide: impl FnOnce(&mut Machine, Tick, &mut Vec<Action>)) {
        let mut actions = Vec::new();
        decide(&mut self.machine, clock::now(), &mut actions);
        for action in actions {
            match action {
                Action::Do(id, action) => self.effects.perform(id, action),
                Action::Deliver(token, outcome) => self.delivered.push_back((token, outcome)),
                Action::Report(report) => self.said.push(report.line()),
            }
        }
    }
}

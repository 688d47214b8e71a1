//! A loop around the kit: for the command `forkyard spawn`, for tests, and as the example of how a daemon drives it.

use super::action::{Action, SpawnOutcome};
use super::effects::{Context, Effects, PORTS, Process, Sink};
use super::event::{Event, JourneyEvent, JourneyId, Token};
use super::machine::Machine;
use super::plan::Plan;
use crate::sys::clock;
use crate::tick::Tick;
use mio::{Events, Poll};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long what was removed is waited for.
const SETTLING: Duration = Duration::from_secs(5);

/// A kit with its loop.
#[derive(Debug)]
pub struct Driver {
    poll: Poll,
    machine: Machine,
    effects: Effects,
    delivered: VecDeque<(Token, SpawnOutcome)>,
    said: Vec<String>,
    next: u64,
}

/// Where work directories are made, which program has the env setupper, what is inherited: of this process.
pub fn context(program: PathBuf) -> Context {
    let foreign = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];
    let is_ours = |name: &OsString| {
        let mut others = foreign.iter().chain(&crate::sys::inherited::VARIABLES);
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
    /// A kit that does nothing yet. `sink` is given what processes write.
    ///
    /// This process should be a subreaper ([`become_subreaper`](crate::sys::process::become_subreaper)): only then are
    /// processes whose parents die its own, and can be found and ended when a start fails.
    ///
    /// # Errors
    /// What mio's poll says.
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

    /// Wants a process; the answer comes under this token.
    pub fn spawn(&mut self, plan: Plan) -> Token {
        self.next += 1;
        let token = Token(self.next);
        let plan = Arc::new(plan);
        self.tell(Event::Spawn { token, plan });
        token
    }

    /// Tells the machine something, and does what follows.
    pub fn tell(&mut self, event: Event) {
        self.step(|machine, now, out| machine.handle(event, now, out));
        self.drain();
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// What mio's poll says.
    pub fn wait(&mut self) -> io::Result<(Token, SpawnOutcome)> {
        loop {
            if let Some(answer) = self.delivered.pop_front() {
                return Ok(answer);
            }
            self.turn(None)?;
        }
    }

    /// Waits until nothing is under way. To be told [`Event::Shutdown`] before.
    ///
    /// # Errors
    /// What mio's poll says.
    pub fn finish(&mut self) -> io::Result<()> {
        while !self.machine.is_idle() {
            self.turn(None)?;
        }
        Ok(())
    }

    /// Waits for something to happen, for so long at most, and does what follows.
    ///
    /// # Errors
    /// What mio's poll says.
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

    /// The caller reaped a child. False: it is none of the kit's.
    pub fn reaped(&mut self, pid: i32, ended: crate::sys::process::Ended) -> bool {
        let known = self.effects.reaped(pid, ended);
        self.drain();
        known
    }

    /// Takes a process that is up.
    pub fn take(&mut self, id: JourneyId) -> Option<Process> {
        self.effects.take(id)
    }

    /// What is to be logged since it was last asked for.
    pub fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }

    /// What the machine thinks.
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

//! The spawning kit in the master's loop: starting processes, their messages and results. The kit decides
//! ([`forkyard_spawn::machine`]); its actions run between two events of the loop.

use super::sources::FIRST_OF_SPAWNER;
use crate::context::lines::{LINE_BYTES, Splitter};
use forkyard_base::tick::Tick;
use forkyard_core::master::event::GenerationId;
use forkyard_spawn::action::{Action, JourneyAction, SpawnOutcome, Up};
use forkyard_spawn::effects::{Context, Effects, PORTS, Process, SocketFile};
use forkyard_spawn::error::Ended;
use forkyard_spawn::event::{Event, JourneyId, Token};
use forkyard_spawn::machine::Machine;
use forkyard_spawn::plan::Plan;
use forkyard_spawn::report::Report;
use forkyard_spawn::under_way::UnderWay;
use forkyard_spawn::work_directories;
use forkyard_sys::clock;
use mio::Registry;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The time limit of the last removals. The next daemon finds the rest.
const LAST_REMOVALS: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Preloader(GenerationId),
    Zygote,
    Program(GenerationId, usize),
}

#[derive(Debug)]
pub(crate) enum Tidings {
    Line(OutputLine),
    /// A start failed. Comes before the answer to its request.
    Report(Arc<Report>),
    Up(Token, Purpose, Box<Started>),
    Failed(Token, Purpose, Arc<Report>),
}

#[derive(Debug)]
pub(crate) struct OutputLine {
    /// The request for the process; `None`: the kit's own.
    pub(crate) token: Option<Token>,
    pub(crate) group: String,
    pub(crate) pid: i32,
    pub(crate) line: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) up: Up,
    /// The receiver reaps it.
    pub(crate) process: Process,
    pub(crate) splitter: Splitter,
}

#[derive(Debug)]
pub(crate) struct Spawner {
    machine: Machine,
    effects: Effects,
    wishes: BTreeMap<Token, Purpose>,
    journeys: BTreeMap<JourneyId, Traveller>,
    heard: OutputQueue,
    tidings: VecDeque<Tidings>,
    next: u64,
}

type Owner = (Token, Vec<(OwnedFd, RawFd)>);
type OutputQueue = Rc<RefCell<Vec<(JourneyId, Vec<u8>)>>>;

#[derive(Debug)]
struct Traveller {
    token: Option<Token>,
    group: String,
    pid: i32,
    splitter: Splitter,
}

impl Spawner {
    pub(crate) fn new(registry: Registry, program: PathBuf, descriptor_limit: Option<(u64, u64)>) -> Spawner {
        let heard = OutputQueue::default();
        let ear = Rc::clone(&heard);
        let context = Context {
            spawn_dir: work_directories(),
            has_base: true,
            program,
            // A pool's processes get their environment from the plan.
            environment: Vec::new(),
            descriptor_limit,
            ports: PORTS,
            first_token: FIRST_OF_SPAWNER,
        };
        let sink = move |id, bytes: &[u8]| ear.borrow_mut().push((id, bytes.to_vec()));
        let seed = clock::now().as_nanos() ^ u64::from(std::process::id());
        Spawner {
            machine: Machine::new(seed),
            effects: Effects::new(context, registry, Box::new(sink)),
            wishes: BTreeMap::new(),
            journeys: BTreeMap::new(),
            heard,
            tidings: VecDeque::new(),
            next: 0,
        }
    }

    /// Starts a process with these descriptors by their numbers. `Up` or `Failed` follows with the returned token.
    pub(crate) fn spawn(
        &mut self,
        plan: Plan,
        descriptors: Vec<(OwnedFd, RawFd)>,
        purpose: Purpose,
    ) -> Token {
        self.next += 1;
        let token = Token(self.next);
        self.wishes.insert(token, purpose);
        let plan = Arc::new(plan);
        let mut actions = Vec::new();
        self.machine
            .handle(Event::Spawn { token, plan }, clock::now(), &mut actions);
        // The requested journey begins first.
        self.perform_all(actions, Some((token, descriptors)));
        self.drain();
        token
    }

    /// Ends an unwanted start; `Failed` follows.
    pub(crate) fn cancel(&mut self, token: Token) {
        self.tell(Event::Cancel(token));
    }

    /// Ends a start that took too long; `Failed` follows.
    pub(crate) fn expire(&mut self, token: Token) {
        self.tell(Event::Expire(token));
    }

    pub(crate) fn is_up(&mut self, token: Token) {
        if let Some(id) = self.journey(token) {
            self.effects.is_up(id);
            self.drain();
        }
    }

    pub(crate) fn complain(&mut self, token: Token, summary: &str) {
        if let Some(id) = self.journey(token) {
            self.effects.failed(id, summary);
            self.drain();
        }
    }

    /// The progress of a generation's start, the earliest if there are several. `has_told`: also reads the process's
    /// own step reports.
    pub(crate) fn progress(&self, id: GenerationId, has_told: bool) -> Option<(UnderWay, Option<i32>)> {
        let is_own = |purpose: &Purpose| match purpose {
            Purpose::Preloader(of) | Purpose::Program(of, _) => *of == id,
            Purpose::Zygote => false,
        };
        let (token, _) = self.wishes.iter().find(|(_, purpose)| is_own(purpose))?;
        let told = |journey| match has_told {
            true => self.effects.steps_so_far(journey),
            false => Vec::new(),
        };
        let under_way = self.machine.progress(*token, told)?;
        Some((under_way, self.pid(*token)))
    }

    /// The starting process; `None` if there is none or it was answered.
    pub(crate) fn pid(&self, token: Token) -> Option<i32> {
        self.effects.pid(self.journey(token)?)
    }

    pub(crate) fn knows(&self, pid: i32) -> bool {
        self.effects.knows(pid)
    }

    /// A child was reaped. Returns false if it is not a starting process.
    pub(crate) fn reaped(&mut self, pid: i32, ended: Ended) -> bool {
        let known = self.effects.reaped(pid, ended);
        self.drain();
        known
    }

    pub(crate) fn ready(&mut self, token: mio::Token) {
        self.effects.ready(token);
        self.drain();
    }

    pub(crate) fn next_deadline(&self) -> Option<Tick> {
        let held = self.journeys.values().filter_map(|it| it.splitter.due());
        held.chain(self.machine.next_deadline())
            .chain(self.effects.next_deadline())
            .min()
    }

    pub(crate) fn pass(&mut self, now: Tick) {
        self.effects.clear_up();
        self.effects.pass(now);
        self.drain();
        for traveller in self.journeys.values_mut() {
            if traveller.splitter.due().is_some_and(|due| due <= now) {
                traveller.tell(&mut self.tidings, Splitter::end_entry);
            }
        }
        if self.machine.next_deadline().is_none_or(|next| next > now) {
            return;
        }
        let mut actions = Vec::new();
        self.machine.pass(now, &mut actions);
        self.perform_all(actions, None);
        self.drain();
    }

    pub(crate) fn next(&mut self) -> Option<Tidings> {
        self.tidings.pop_front()
    }

    /// Before an exec: kills the starting processes and leaves nothing on disk.
    pub(crate) fn abandon(&mut self) {
        self.effects.abandon();
        self.effects.remove_base();
    }

    pub(crate) fn remove_sockets(&mut self, sockets: Vec<SocketFile>) {
        self.effects.remove_sockets(sockets);
    }

    pub(crate) fn end(&mut self) {
        self.effects.remove_base();
        self.effects.settle(LAST_REMOVALS);
    }

    fn journey(&self, token: Token) -> Option<JourneyId> {
        let mut journeys = self.journeys.iter();
        let found = journeys.find(|(_, traveller)| traveller.token == Some(token));
        found.map(|(id, _)| *id)
    }

    fn tell(&mut self, event: Event) {
        self.handle(event);
        self.drain();
    }

    fn drain(&mut self) {
        self.listen();
        while let Some((id, event)) = self.effects.next_event() {
            self.handle(Event::Journey(id, event));
        }
    }

    fn handle(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.machine.handle(event, clock::now(), &mut actions);
        self.perform_all(actions, None);
    }

    /// `owner`: the owner and descriptors of the next journey.
    fn perform_all(&mut self, actions: Vec<Action>, mut owner: Option<Owner>) {
        for action in actions {
            self.perform(action, &mut owner);
        }
    }

    fn perform(&mut self, action: Action, owner: &mut Option<Owner>) {
        match action {
            Action::Do(id, action) => self.carry_out(id, action, owner),
            Action::Report(report) => self.tidings.push_back(Tidings::Report(report)),
            Action::Deliver(token, outcome) => {
                let Some(purpose) = self.wishes.remove(&token) else {
                    return;
                };
                let tidings = match outcome {
                    SpawnOutcome::Failed(report) => Tidings::Failed(token, purpose, report),
                    SpawnOutcome::Up(up) => {
                        let traveller = self.journeys.remove(&up.id);
                        // It came up a moment ago, so the kit has it.
                        let Some(process) = self.effects.take(up.id) else {
                            return;
                        };
                        let splitter = traveller.map(|mut traveller| {
                            traveller.tell(&mut self.tidings, Splitter::end_entry);
                            traveller.splitter
                        });
                        let started = Started {
                            up: *up,
                            process,
                            splitter: splitter.unwrap_or_default(),
                        };
                        Tidings::Up(token, purpose, Box::new(started))
                    }
                };
                self.tidings.push_back(tidings);
            }
        }
    }

    fn carry_out(&mut self, id: JourneyId, action: JourneyAction, owner: &mut Option<Owner>) {
        let is_over = matches!(action, JourneyAction::Discard { .. });
        let begins = match &action {
            JourneyAction::Prepare { plan, .. } => Some(plan.group.clone()),
            _ => None,
        };
        self.effects.perform(id, action);
        if let Some(group) = begins {
            let (token, descriptors) = owner.take().unzip();
            self.effects.give(id, descriptors.unwrap_or_default());
            let traveller = Traveller {
                token,
                group,
                pid: 0,
                splitter: Splitter::of_entries(),
            };
            self.journeys.insert(id, traveller);
        }
        // Output up to here came from the present process.
        self.listen();
        if let (Some(traveller), Some(pid)) = (self.journeys.get_mut(&id), self.effects.pid(id)) {
            traveller.pid = pid;
        }
        let over = is_over.then(|| self.journeys.remove(&id));
        if let Some(mut traveller) = over.flatten() {
            traveller.tell(&mut self.tidings, Splitter::end_line);
        }
    }

    fn listen(&mut self) {
        for (id, bytes) in self.heard.take() {
            let Some(traveller) = self.journeys.get_mut(&id) else {
                continue;
            };
            if let Some(pid) = self.effects.pid(id) {
                traveller.pid = pid;
            }
            traveller.tell(&mut self.tidings, |splitter, line| {
                splitter.push(&bytes, LINE_BYTES, line);
            });
        }
    }
}

impl Traveller {
    /// Passes on the lines of `step`.
    fn tell(
        &mut self,
        tidings: &mut VecDeque<Tidings>,
        step: impl FnOnce(&mut Splitter, &mut dyn FnMut(&[u8])),
    ) {
        step(&mut self.splitter, &mut |line| {
            tidings.push_back(Tidings::Line(OutputLine {
                token: self.token,
                group: self.group.clone(),
                pid: self.pid,
                line: line.to_vec(),
            }));
        });
    }
}

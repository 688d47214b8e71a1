//! A pool of workers with several requests, its clients and the kernel. Times are in microseconds.

use crate::random::Random;
use crate::sim::agenda::{Agenda, tick};
use forkyard_base::tick::Tick;
use forkyard_scoreboard::load::Load;
use forkyard_worker::accepting::{Accepting, Choice, LET_DOWN, OwnLoad, Schedule, YIELD, YIELD_TO_IDLE};
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    TakesAtOnce,
    LeavesForGood,
    PausesForGood,
    StaysFull,
    IsNeverLetDown,
    ForgetsDeadlines,
}

impl Mutant {
    pub(crate) const ALL: [Mutant; 6] = [
        Mutant::TakesAtOnce,
        Mutant::LeavesForGood,
        Mutant::PausesForGood,
        Mutant::StaysFull,
        Mutant::IsNeverLetDown,
        Mutant::ForgetsDeadlines,
    ];
}

const WAKE: u64 = 10;
const OVERHEAD: u64 = 5;
/// All happens in its first quarter.
const END: u64 = 400_000;
/// After this time a blocked event loop is noticed.
const NOTICED: u64 = 10_000;
/// The allowed excess, for wake-ups and simultaneous events.
const SLACK: u64 = 2_000;
const PAUSE: u64 = 200_000;
/// Fewer than a worker takes, so that siblings run in between.
const AT_ONCE: usize = 2;

#[derive(Debug)]
struct Worker {
    accepting: Accepting,
    in_flight: usize,
    connections: usize,
    limit: usize,
    blocked: (u64, u64),
    /// When each idle connection is closed.
    deadlines: Vec<u64>,
    schedule: Schedule,
    timer: Option<u64>,
    rings: bool,
    /// The kernel has told it of a connection.
    is_told: bool,
    /// A turn is planned.
    is_awake: bool,
    /// Until then it takes connections that others would take.
    let_down_until: u64,
    /// Since when it could take a connection.
    free_since: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Come(usize),
    Turn(usize),
    Ring(usize),
    Answered(usize),
    Block(usize, u64),
    Unblock(usize),
    ShortageBegins,
    ShortageEnds,
}

#[derive(Debug)]
pub(crate) struct Pool {
    random: Random,
    mutant: Option<Mutant>,
    agenda: Agenda<Event>,
    workers: Vec<Worker>,
    backlog: VecDeque<u64>,
    /// Connections are concentrated on this many workers.
    enough: Option<usize>,
    is_short: bool,
    /// Until then a worker may pause.
    pauses_until: u64,
    slow: u32,
    kept: u64,
    pub(crate) taken: usize,
    last_taken: u64,
}

impl Pool {
    pub(crate) fn new(mut random: Random, mutant: Option<Mutant>) -> Pool {
        let count = random.pick(&[1, 2, 2, 4, 8]);
        let enough = random.one_in(3).then(|| random.pick(&[1, 1, 2, 4]));
        let limit = match enough {
            Some(_) => usize::MAX,
            None => random.pick(&[1, 2, 8, 100]),
        };
        let worker = || Worker {
            accepting: Accepting::begin(enough, false),
            in_flight: 0,
            connections: 0,
            limit,
            blocked: (0, 0),
            deadlines: Vec::new(),
            schedule: Schedule::default(),
            timer: None,
            rings: false,
            is_told: false,
            is_awake: false,
            let_down_until: 0,
            free_since: Some(0),
        };
        let mut pool = Pool {
            mutant,
            agenda: Agenda::new(),
            workers: (0..count).map(|_| worker()).collect(),
            backlog: VecDeque::new(),
            enough,
            is_short: false,
            pauses_until: 0,
            slow: random.pick(&[100, 1_000, 10_000, 50_000]),
            kept: random.pick(&[0, 0, 5_000]),
            taken: 0,
            last_taken: 0,
            random,
        };
        pool.plan_happenings();
        pool
    }

    fn plan_happenings(&mut self) {
        for _ in 0..self.random.pick(&[5, 20, 100, 300]) {
            let at = self.random.below(END as usize / 4) as u64;
            let burst = self.random.pick(&[1, 1, 1, 2, 10]);
            self.agenda.plan(at, Event::Come(burst));
        }
        if self.enough.is_none() && self.random.one_in(2) {
            for _ in 0..self.random.pick(&[1, 5, 20]) {
                let at = self.random.below(END as usize / 4) as u64;
                let worker = self.random.below(self.workers.len());
                let time = self.random.between(100, 60_000);
                self.agenda.plan(at, Event::Block(worker, time.into()));
            }
        }
        if self.random.one_in(4) {
            let at = self.random.below(END as usize / 8) as u64;
            self.agenda.plan(at, Event::ShortageBegins);
            self.agenda.plan(at + 10_000, Event::ShortageEnds);
        }
    }

    pub(crate) fn scenario(&self) -> String {
        let worker = &self.workers[0];
        format!(
            "{} workers of {} requests; enough: {:?}; {} taken, {} wait",
            self.workers.len(),
            worker.limit,
            self.enough,
            self.taken,
            self.backlog.len()
        )
    }

    pub(crate) fn all_are_taken(&self) -> bool {
        self.backlog.is_empty()
    }

    pub(crate) fn run(&mut self) {
        while let Some((at, event)) = self.agenda.next() {
            self.check_neglect(at);
            self.check_deadlines(at);
            self.agenda.now = at;
            match event {
                Event::Come(count) => {
                    for _ in 0..count {
                        self.backlog.push_back(at);
                        self.tell();
                    }
                }
                Event::Turn(index) => self.turn(index),
                Event::Ring(index) if self.workers[index].timer == Some(at) => {
                    self.workers[index].timer = None;
                    self.workers[index].rings = true;
                    self.wake(index, 0);
                }
                Event::Ring(_) => {}
                Event::Answered(index) => self.answered(index),
                Event::Block(index, time) => {
                    let worker = &mut self.workers[index];
                    if worker.blocked.1 <= at {
                        worker.blocked = (at, at + time);
                        self.agenda.plan(time, Event::Unblock(index));
                    }
                }
                Event::Unblock(index) => self.wake(index, 0),
                Event::ShortageBegins => self.is_short = true,
                Event::ShortageEnds => {
                    self.is_short = false;
                    self.pauses_until = at + PAUSE + SLACK;
                }
            }
            self.note_free();
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn is_blocked(&self, index: usize) -> bool {
        self.workers[index].blocked.1 > self.agenda.now
    }

    fn wake(&mut self, index: usize, after: u64) {
        if !std::mem::replace(&mut self.workers[index].is_awake, true) {
            self.agenda.plan(after, Event::Turn(index));
        }
    }

    /// Wakes all workers; where connections are concentrated, one epoll after the other until a worker was asleep.
    fn tell(&mut self) {
        for index in 0..self.workers.len() {
            self.workers[index].is_told = true;
            let was_asleep = !self.workers[index].is_awake && !self.is_blocked(index);
            self.wake(index, WAKE);
            if was_asleep && self.enough.is_some() {
                return;
            }
        }
    }

    fn turn(&mut self, index: usize) {
        self.workers[index].is_awake = false;
        if self.is_blocked(index) {
            return;
        }
        let now = self.agenda.tick();
        let worker = &mut self.workers[index];
        worker.accepting.is_ready |= std::mem::take(&mut worker.is_told);
        if std::mem::take(&mut worker.rings) {
            self.ring(index);
        }
        for _ in 0..AT_ONCE {
            if self.workers[index].in_flight >= self.workers[index].limit || !self.take(index) {
                break;
            }
        }
        let worker = &self.workers[index];
        if worker.in_flight < worker.limit && worker.accepting.could_take(worker.in_flight, || now) {
            self.wake(index, OVERHEAD);
        }
    }

    /// As the worker's `ring`.
    fn ring(&mut self, index: usize) {
        let now = self.agenda.tick();
        let worker = &mut self.workers[index];
        worker.schedule.ring();
        worker.accepting.ring(now);
        let before = worker.deadlines.len();
        worker.deadlines.retain(|due| *due > self.agenda.now);
        worker.connections -= before - worker.deadlines.len();
        let is_deaf = matches!(self.mutant, Some(Mutant::LeavesForGood | Mutant::PausesForGood));
        let accepting = worker.accepting.due(now).filter(|_| !is_deaf);
        let deadlines = worker.deadlines.iter().map(|due| tick(*due));
        if let Some(due) = deadlines.chain(accepting).min() {
            self.set_alarm(index, due);
        }
    }

    fn set_alarm(&mut self, index: usize, due: Tick) {
        if self.workers[index].schedule.set_by(due) {
            let due = due.as_nanos().div_ceil(1_000).max(self.agenda.now);
            self.workers[index].timer = Some(due);
            self.agenda.plan(due - self.agenda.now, Event::Ring(index));
        }
    }

    fn answered(&mut self, index: usize) {
        let kept = if self.random.one_in(8) {
            20 * self.kept
        } else {
            self.kept
        };
        let due = self.agenda.now + kept;
        let worker = &mut self.workers[index];
        worker.in_flight -= 1;
        if kept == 0 {
            worker.connections -= 1;
        } else {
            worker.deadlines.push(due);
            if !self.is(Mutant::ForgetsDeadlines) || self.workers[index].timer.is_none() {
                self.set_alarm(index, tick(due));
            }
        }
        if !self.is(Mutant::StaysFull) {
            self.wake(index, 0);
        }
    }

    fn load(&self, index: usize) -> Load {
        let worker = &self.workers[index];
        let is_noticed = self.is_blocked(index) && self.agenda.now >= worker.blocked.0 + NOTICED;
        Load {
            in_flight: worker.in_flight as u32,
            quiet: 0,
            has_room: worker.in_flight < worker.limit && !is_noticed,
            is_told: true,
        }
    }

    fn take(&mut self, index: usize) -> bool {
        let now = self.agenda.tick();
        let siblings = (0..self.workers.len()).filter(|other| *other != index);
        let loads: Vec<Load> = siblings.clone().map(|other| self.load(other)).collect();
        let connected = siblings
            .filter(|other| self.workers[*other].connections > 0)
            .count();
        let worker = &mut self.workers[index];
        let own = OwnLoad {
            in_flight: worker.in_flight,
            connections: worker.connections,
        };
        let choice = worker
            .accepting
            .choose(own, loads.iter().copied(), || connected, now);
        let insists = match choice {
            Choice::Nothing => return false,
            Choice::Leave(_) if self.is(Mutant::TakesAtOnce) => false,
            Choice::Leave(due) => {
                if let Some(due) = due.filter(|_| !self.is(Mutant::LeavesForGood)) {
                    self.set_alarm(index, due);
                }
                return false;
            }
            Choice::Accept(insists) => insists,
        };
        let accepting = &mut self.workers[index].accepting;
        if self.is_short && !self.backlog.is_empty() {
            accepting.pause.begin(now);
            let due = accepting.pause.deadline();
            if let Some(due) = due.filter(|_| !self.is(Mutant::PausesForGood)) {
                self.set_alarm(index, due);
            }
            return false;
        }
        if self.backlog.pop_front().is_none() {
            accepting.is_ready = false;
            return false;
        }
        let worker = &mut self.workers[index];
        if insists {
            if self.mutant != Some(Mutant::IsNeverLetDown) {
                worker.accepting.was_let_down(now);
            }
            let again = self.enough.is_some() && worker.let_down_until > self.agenda.now;
            worker.let_down_until = self.agenda.now + LET_DOWN.as_micros() as u64;
            assert!(!again, "it leaves connections in vain: {}", self.scenario());
        }
        if !insists {
            self.check_choice(index, &loads, connected);
        }
        self.serve(index);
        true
    }

    fn serve(&mut self, index: usize) {
        self.taken += 1;
        self.last_taken = self.agenda.now;
        self.workers[index].in_flight += 1;
        self.workers[index].connections += 1;
        let takes = u64::from(self.random.between(self.slow / 2, self.slow));
        self.agenda.plan(takes, Event::Answered(index));
    }

    fn note_free(&mut self) {
        for index in 0..self.workers.len() {
            let is_blocked = self.is_blocked(index);
            let worker = &mut self.workers[index];
            worker.free_since = match worker.in_flight < worker.limit && !is_blocked {
                true => Some(worker.free_since.unwrap_or(self.agenda.now)),
                false => None,
            };
        }
    }

    /// The connections that wait until `then`, when something happens next.
    fn check_neglect(&self, then: u64) {
        let Some(came) = self.backlog.front().copied() else {
            return;
        };
        // A worker leaves each of several connections to a blocked sibling until that is noticed.
        let (came, noticed, longest) = match self.enough {
            Some(_) => (came, 0, YIELD),
            None => (came.max(self.last_taken), NOTICED, YIELD_TO_IDLE),
        };
        let most = noticed + longest.as_micros() as u64 + SLACK;
        let free = self.workers.iter().filter_map(|worker| worker.free_since);
        let Some(free) = free.min().filter(|_| !self.is_short && then > self.pauses_until) else {
            return;
        };
        let since = came.max(free).max(self.pauses_until);
        assert!(
            then <= since + most,
            "a connection waits since {came}, a worker is free since {free}, and nothing happens before {then}: {}",
            self.scenario()
        );
    }

    /// The connections that are idle until `then`.
    fn check_deadlines(&self, then: u64) {
        for worker in &self.workers {
            let due = worker
                .deadlines
                .iter()
                .min()
                .map(|due| *due.max(&worker.blocked.1));
            let is_closed = due.is_none_or(|due| then <= due + SLACK);
            assert!(is_closed, "a connection outlives {due:?}: {}", self.scenario());
        }
    }

    fn check_choice(&self, index: usize, loads: &[Load], connected: usize) {
        let worker = &self.workers[index];
        match self.enough {
            None => {
                let enough = worker.in_flight - worker.in_flight / 8;
                let is_better = |load: &Load| load.has_room && (load.in_flight as usize) < enough;
                let is_idle = |load: &Load| worker.in_flight > 0 && load.has_room && load.in_flight == 0;
                let better = loads.iter().find(|load| is_better(load) || is_idle(load));
                assert!(better.is_none(), "{better:?} is better: {}", self.scenario());
            }
            Some(enough) => {
                let is_let_down = worker.let_down_until > self.agenda.now;
                let is_wrong = worker.connections == 0 && connected >= enough && !is_let_down;
                assert!(!is_wrong, "{connected} have connections: {}", self.scenario());
            }
        }
    }
}

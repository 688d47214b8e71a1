//! The machine in a simulated world; the seed is printed.

use super::action::{Action, JourneyAction, SpawnOutcome};
use super::error::{Category, Ended, Fault};
use super::event::{Event, JourneyEvent, JourneyId, Token};
use super::handshake::response::{Complaint, Properties, Response, StepFiles};
use super::machine::Machine;
use super::plan::{Internal, Kind, Plan, sample};
use super::step::{Route, Step};
use forkyard_base::tick::Tick;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Comes,
    Exits,
    Aborts,
    Hangs,
    WritesGarbage,
    HasNoSocket,
    PortIsTaken,
}

#[derive(Debug)]
struct Thing {
    plan: Arc<Plan>,
    route: Route,
    behaviour: Behaviour,
    has_directory: bool,
    lives: bool,
    stray: bool,
    /// A sweep is running.
    is_looked_for: bool,
    settled: bool,
}

struct World {
    dice: Dice,
    faults: u64,
    now: Tick,
    machine: Machine,
    things: BTreeMap<JourneyId, Thing>,
    /// The agenda, by time and order of planning.
    agenda: BTreeMap<(Tick, u64), (JourneyId, JourneyEvent)>,
    planned: u64,
    wanted: BTreeMap<Token, Tick>,
    answered: BTreeMap<Token, SpawnOutcome>,
    cancelled: BTreeSet<Token>,
}

const MOST: Duration = Duration::from_secs(5);

fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn fault(errno: i32) -> Fault {
    Fault {
        text: "made up".to_owned(),
        errno,
    }
}

impl World {
    fn new(seed: u64, faults: u64) -> World {
        World {
            dice: Dice(seed),
            faults,
            now: Tick::from_nanos(1_000_000_000),
            machine: Machine::new(seed),
            things: BTreeMap::new(),
            agenda: BTreeMap::new(),
            planned: 0,
            wanted: BTreeMap::new(),
            answered: BTreeMap::new(),
            cancelled: BTreeSet::new(),
        }
    }

    fn spawn(&mut self, token: Token, plan: Plan) {
        self.wanted.insert(token, self.now);
        let plan = Arc::new(plan);
        self.tell(Event::Spawn { token, plan });
    }

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.machine.handle(event, self.now, &mut actions);
        self.perform(actions);
    }

    fn step(&mut self) -> bool {
        let planned = self.agenda.keys().next().copied();
        let deadline = self.machine.next_deadline();
        let first_is_due = match (planned, deadline) {
            (None, None) => return false,
            (Some((at, _)), Some(deadline)) => at <= deadline,
            (Some(_), None) => true,
            (None, Some(_)) => false,
        };
        if let (true, Some(key)) = (first_is_due, planned) {
            self.now = self.now.max(key.0);
            if let Some((id, event)) = self.agenda.remove(&key) {
                self.tell(Event::Journey(id, event));
            }
        } else if let Some(deadline) = deadline {
            self.now = self.now.max(deadline);
            let mut actions = Vec::new();
            self.machine.pass(self.now, &mut actions);
            self.perform(actions);
            let next = self.machine.next_deadline();
            assert!(next.is_none_or(|next| next > self.now), "the machine spins");
        }
        true
    }

    fn later(&mut self, id: JourneyId, after: Duration, event: JourneyEvent) {
        self.planned += 1;
        self.agenda.insert((self.now + after, self.planned), (id, event));
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Do(id, action) => self.obey(id, action),
                Action::Report(report) => assert!(report.journey.first_failed().is_some(), "no step failed"),
                Action::Deliver(token, outcome) => self.delivered(token, outcome),
            }
        }
    }

    fn delivered(&mut self, token: Token, outcome: SpawnOutcome) {
        assert!(self.wanted.contains_key(&token), "{token:?} was never asked for");
        match &outcome {
            SpawnOutcome::Up(up) => {
                let thing = &self.things[&up.id];
                assert!(thing.settled && !thing.has_directory);
                assert_eq!(up.sockets.is_empty(), thing.route == Route::StartPreloader);
            }
            SpawnOutcome::Failed(report) => {
                assert!(report.journey.first_failed().is_some(), "no step failed");
                let until = report.ended.since(report.started);
                assert!(
                    until <= report.plan.start_timeout * 3 + Duration::from_secs(10),
                    "it took {until:?}"
                );
                assert!(!report.line().contains('\n'));
                assert!(report.text().contains(&report.id.to_string()));
            }
        }
        let before = self.answered.insert(token, outcome);
        assert!(before.is_none(), "{token:?} was answered twice");
    }

    fn die(&mut self, id: JourneyId, after: Duration, ended: Ended) {
        if let Some(thing) = self.things.get_mut(&id) {
            if thing.lives {
                thing.lives = false;
                self.later(id, after, JourneyEvent::Exited(ended));
                self.later(id, after + millis(1), JourneyEvent::OutputEnded);
            }
        }
    }

    fn obey(&mut self, id: JourneyId, action: JourneyAction) {
        match action {
            JourneyAction::Prepare { plan, route } => {
                let behaviour = self.behaviour(&plan);
                let thing = Thing {
                    plan,
                    route,
                    behaviour,
                    has_directory: false,
                    lives: false,
                    stray: false,
                    is_looked_for: false,
                    settled: false,
                };
                assert!(self.things.insert(id, thing).is_none(), "a journey began twice");
                self.prepare(id);
            }
            JourneyAction::PrepareAgain => {
                let thing = self.things.get_mut(&id).expect("a journey");
                assert!(!thing.lives && !thing.stray);
                thing.behaviour = Behaviour::Comes;
                self.prepare(id);
            }
            JourneyAction::Fork => self.fork(id),
            JourneyAction::Ping => self.ping(id),
            JourneyAction::Load => {
                let response = self.response(id);
                self.later(id, millis(0), JourneyEvent::Loaded(Box::new(response)));
            }
            JourneyAction::Kill => {
                let killed = Ended::killed(9);
                self.die(id, millis(1), killed);
            }
            JourneyAction::Sweep => {
                let thing = self.things.get_mut(&id).expect("a journey");
                // The second part of a sweep finds it.
                let is_whole = std::mem::replace(&mut thing.is_looked_for, false);
                let left = usize::from(is_whole && std::mem::take(&mut thing.stray));
                thing.is_looked_for = !is_whole;
                self.later(id, millis(0), JourneyEvent::Swept { left, is_whole });
            }
            JourneyAction::EndHandshake => {
                let thing = self.things.get_mut(&id).expect("a journey");
                assert!(thing.has_directory);
                (thing.settled, thing.has_directory) = (true, false);
                thing.stray = false;
            }
            JourneyAction::Discard { .. } => {
                let thing = self.things.remove(&id).expect("discarded once");
                assert!(!thing.lives && !thing.stray, "{thing:?} is left behind");
            }
        }
    }

    fn behaviour(&mut self, plan: &Plan) -> Behaviour {
        if plan.group.starts_with("hang") {
            return Behaviour::Hangs;
        }
        if !self.dice.chance(self.faults * 3) {
            return Behaviour::Comes;
        }
        match self.dice.roll(6) {
            0 => Behaviour::Exits,
            1 => Behaviour::Aborts,
            2 => Behaviour::Hangs,
            3 => Behaviour::WritesGarbage,
            4 => Behaviour::HasNoSocket,
            _ => Behaviour::PortIsTaken,
        }
    }

    fn prepare(&mut self, id: JourneyId) {
        if self.dice.chance(self.faults) {
            self.later(id, millis(0), JourneyEvent::NotPrepared(fault(28)));
            return;
        }
        self.things.get_mut(&id).expect("a journey").has_directory = true;
        self.later(id, millis(0), JourneyEvent::Prepared);
    }

    fn fork(&mut self, id: JourneyId) {
        if self.dice.chance(self.faults) {
            self.later(id, millis(0), JourneyEvent::NotForked(fault(11)));
            return;
        }
        let stray = self.dice.chance(self.faults);
        let thing = self.things.get_mut(&id).expect("a journey");
        (thing.lives, thing.stray) = (true, stray);
        let pid = 1000 + id.0 as i32;
        self.later(id, millis(0), JourneyEvent::Forked { pid });
        self.live(id);
    }

    fn live(&mut self, id: JourneyId) {
        let after = millis(1 + self.dice.roll(2000));
        let thing = &self.things[&id];
        let talks = thing.plan.kind != Kind::Generic;
        match thing.behaviour {
            Behaviour::Exits => self.die(id, after, Ended::Code(1)),
            Behaviour::PortIsTaken if thing.plan.wants_port(thing.route) => {
                self.die(id, after + millis(100), Ended::Code(98));
            }
            Behaviour::Aborts => self.later(id, after, JourneyEvent::Finish(Some(b'0'))),
            Behaviour::Hangs => {}
            Behaviour::Comes | Behaviour::WritesGarbage | Behaviour::HasNoSocket | Behaviour::PortIsTaken => {
                if talks {
                    self.later(id, after, JourneyEvent::Finish(Some(b'1')));
                }
                if self.dice.chance(self.faults) {
                    self.later(id, after + millis(1), JourneyEvent::OutputEnded);
                }
            }
        }
    }

    fn ping(&mut self, id: JourneyId) {
        let answer = match self.things[&id].behaviour {
            Behaviour::PortIsTaken => JourneyEvent::Taken,
            Behaviour::Hangs | Behaviour::Exits | Behaviour::Aborts => JourneyEvent::Silent,
            Behaviour::Comes | Behaviour::WritesGarbage | Behaviour::HasNoSocket => {
                if self.dice.chance(20) {
                    JourneyEvent::Pinged
                } else {
                    JourneyEvent::Silent
                }
            }
        };
        self.later(id, millis(1), answer);
    }

    fn response(&mut self, id: JourneyId) -> Response {
        let thing = &self.things[&id];
        let document = r#"{"sockets":[{"address":"tcp://127.0.0.1:1","protocol":"http","concurrency":1,
            "accept_http_requests":true}]}"#;
        let garbage = thing.behaviour == Behaviour::WritesGarbage;
        let mut response = Response {
            port: thing.plan.wants_port(thing.route).then_some(5000),
            ..Response::default()
        };
        if thing.plan.kind != Kind::Generic && thing.behaviour != Behaviour::HasNoSocket {
            response.properties = Properties::Bytes(document.as_bytes().to_vec());
        }
        if garbage {
            let noise: Vec<u8> = (0..self.dice.roll(40))
                .map(|_| self.dice.roll(256) as u8)
                .collect();
            match self.dice.roll(3) {
                0 => response.properties = Properties::Bytes(noise),
                1 => {
                    response.complaint = Complaint {
                        category: Some(noise.clone()),
                        summary: Some(noise),
                        ..Complaint::default()
                    }
                }
                _ => {
                    let files = StepFiles {
                        state: Some(noise.clone()),
                        begin: Some(noise),
                        ..StepFiles::default()
                    };
                    response.steps = vec![(Step::SubprocessListen, files)];
                }
            }
        }
        response
    }

    fn end(&mut self) {
        self.tell(Event::Shutdown);
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 100_000, "it does not come to an end");
        }
        assert!(self.machine.is_idle());
        for token in self.wanted.keys() {
            assert!(self.answered.contains_key(token), "{token:?} was never answered");
        }
        let up: BTreeSet<JourneyId> = self
            .answered
            .values()
            .filter_map(|outcome| match outcome {
                SpawnOutcome::Up(up) => Some(up.id),
                SpawnOutcome::Failed(_) => None,
            })
            .collect();
        for (id, thing) in &self.things {
            assert!(up.contains(id), "{thing:?} is left behind");
        }
    }
}

fn plan(dice: &mut Dice) -> Plan {
    let mut plan = sample();
    plan.start_timeout = MOST;
    plan.group = format!("app-{}", dice.roll(4));
    plan.kind = if dice.chance(50) {
        Kind::Generic
    } else {
        Kind::Native
    };
    plan.app_type = "made-up".to_owned();
    if plan.kind == Kind::Native {
        plan.find_free_port = dice.chance(20);
        if dice.chance(60) {
            plan.internal = Some(Internal {
                program: "/usr/bin/forkyard-php".into(),
                arguments: Vec::new(),
            });
            plan.find_free_port = false;
        }
    }
    plan
}

#[test]
fn every_wish_is_answered_once_and_nothing_is_left_behind() {
    let (mut came, mut failed) = (0, 0);
    for seed in 0..600 {
        eprintln!("seed {seed}");
        let mut choices = Dice(seed ^ 0xABCD);
        let mut world = World::new(seed, choices.roll(12));
        let wishes = 1 + choices.roll(30);
        for number in 0..wishes {
            let token = Token(number);
            world.spawn(token, plan(&mut choices));
            for _ in 0..choices.roll(20) {
                world.step();
            }
            if choices.chance(5) {
                world.cancelled.insert(token);
                world.tell(Event::Cancel(token));
            }
        }
        if choices.chance(70) {
            let mut steps = 0;
            while world.answered.len() < world.wanted.len() {
                assert!(world.step(), "somebody waits for nothing");
                steps += 1;
                assert!(steps < 100_000, "somebody is never answered");
            }
        }
        world.end();
        for outcome in world.answered.values() {
            match outcome {
                SpawnOutcome::Up(_) => came += 1,
                SpawnOutcome::Failed(_) => failed += 1,
            }
        }
    }
    assert!(came > 1000 && failed > 1000, "{came} came, {failed} failed");
}

#[test]
fn without_faults_nothing_fails() {
    for seed in 0..50 {
        eprintln!("seed {seed}");
        let mut choices = Dice(seed);
        let mut world = World::new(seed, 0);
        for number in 0..100 {
            let mut plan = plan(&mut choices);
            plan.start_timeout = Duration::from_secs(60);
            world.spawn(Token(number), plan);
        }
        while world.answered.len() < 100 {
            assert!(world.step());
        }
        let up = world
            .answered
            .values()
            .filter(|outcome| matches!(outcome, SpawnOutcome::Up(_)));
        assert_eq!(up.count(), 100);
        world.end();
    }
}

#[test]
fn one_that_hangs_delays_no_one() {
    let mut world = World::new(1, 0);
    let mut hanging = sample();
    hanging.group = "hang".to_owned();
    hanging.start_timeout = Duration::from_secs(90);
    let began = world.now;
    world.spawn(Token(0), hanging);
    for number in 1..100 {
        let mut plan = sample();
        plan.group = format!("quick-{number}");
        world.spawn(Token(number), plan);
    }
    while world.answered.len() < 99 {
        assert!(world.step());
    }
    assert!(world.now.since(began) < Duration::from_secs(10));
    assert!(!world.answered.contains_key(&Token(0)));
    while world.answered.len() < 100 {
        assert!(world.step());
    }
    let took = world.now.since(began);
    assert!(
        took >= Duration::from_secs(90) && took < Duration::from_secs(91),
        "{took:?}"
    );
    let SpawnOutcome::Failed(report) = &world.answered[&Token(0)] else {
        panic!("it came");
    };
    assert_eq!(report.failure.category, Category::Timeout);
    world.end();
}

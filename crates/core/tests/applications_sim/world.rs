//! The simulated world: events and the effects of actions.

use super::scenario::{Mutant, Scenario};
use super::shadow::{Shadow, name};
use crate::random::Random;
use forkyard_base::tick::Tick;
use forkyard_core::applications::action::{Action, Force};
use forkyard_core::applications::event::{
    Adopted, ErrorId, Event, Get, InstanceId, Return, SessionId, Target, Wait,
};
use forkyard_core::applications::{ApplicationPool, FileState, Options, RestartFiles, RestartMethod};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// The time without faults at the end, longer than every delay and limit.
const AFTERMATH: Duration = Duration::from_secs(600);

const MOST_STEPS: u32 = 200_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Up,
    Fail,
    Exit,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    steps: u64,
    checked_out: u64,
    refused: u64,
    lost: u64,
    spawned: u64,
    stopped: u64,
    works: u64,
    adopted: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.steps += other.steps;
        self.checked_out += other.checked_out;
        self.refused += other.refused;
        self.lost += other.lost;
        self.spawned += other.spawned;
        self.stopped += other.stopped;
        self.works += other.works;
        self.adopted += other.adopted;
    }

    pub(crate) fn everything_happened(&self) -> bool {
        let each = [
            self.checked_out,
            self.refused,
            self.lost,
            self.spawned,
            self.stopped,
            self.works,
            self.adopted,
        ];
        each.iter().all(|count| *count > 0)
    }
}

pub(crate) struct World {
    pub scenario: Scenario,
    pub journal: Option<Vec<String>>,
    pub tally: Tally,
    random: Random,
    pool: ApplicationPool,
    shadow: Shadow,
    now: Tick,
    /// When and how each process continues; none if it hangs or serves.
    fates: BTreeMap<InstanceId, (Tick, Fate)>,
    ends: BTreeMap<SessionId, Tick>,
    deaf: Vec<InstanceId>,
    works: Vec<InstanceId>,
    next_session: u64,
    stamp: i128,
    calm: bool,
}

impl World {
    pub(crate) fn new(random: Random, scenario: Scenario, verbose: bool) -> World {
        let max = scenario.max + u32::from(scenario.mutant == Some(Mutant::RaisesMax));
        let reserve = match scenario.mutant {
            Some(Mutant::IgnoresReserve) => 0,
            _ => scenario.reserve,
        };
        let positive = |number| NonZeroU32::new(number).expect("not zero");
        let shadow = Shadow {
            apps: scenario.apps.clone(),
            max: scenario.max,
            reserve: scenario.reserve,
            ..Shadow::default()
        };
        World {
            pool: ApplicationPool::new(positive(max), positive(scenario.most_spawning)).with_reserve(reserve),
            scenario,
            journal: verbose.then(Vec::new),
            tally: Tally::default(),
            random,
            shadow,
            now: Tick::from_nanos(1),
            fates: BTreeMap::new(),
            ends: BTreeMap::new(),
            deaf: Vec::new(),
            works: Vec::new(),
            next_session: 0,
            stamp: 0,
            calm: false,
        }
    }

    pub(crate) fn run(&mut self) -> Result<(), String> {
        self.adopt()?;
        for app in 0..self.scenario.added {
            let (name, options) = (name(app), self.told(app));
            let group = Arc::from("group");
            self.tell(Event::Join { name, group, options })?;
        }
        for _ in 0..self.scenario.steps {
            self.step()?;
        }
        self.aftermath()
    }

    fn adopt(&mut self) -> Result<(), String> {
        if self.scenario.adopted == 0 {
            return Ok(());
        }
        let mut adopted = Vec::new();
        for number in 0..self.scenario.adopted {
            self.next_session += 1;
            let app = self.app();
            let session = SessionId(self.next_session);
            let busy = self.random.millis(0, 500);
            self.ends.insert(session, self.now + busy);
            adopted.push(Adopted {
                id: InstanceId(u64::from(number) * 3 + 1),
                application: name(app),
                options: self.told(app),
                session,
            });
        }
        self.tally.adopted += u64::from(self.scenario.adopted);
        let next = InstanceId(u64::from(self.scenario.adopted) * 3 + 1);
        self.tell(Event::Adopt(adopted, next))
    }

    fn told(&self, app: usize) -> Options {
        let mut options = self.scenario.apps[app];
        let more = |number: NonZeroU32| number.saturating_add(1);
        match self.scenario.mutant {
            Some(Mutant::LowersMinimum) => options.min_instances = options.min_instances.saturating_sub(1),
            Some(Mutant::ServesMore) => options.max_requests = options.max_requests.map(more),
            Some(Mutant::LengthensQueue) => {
                options.max_request_queue_size = options.max_request_queue_size.map(more);
            }
            _ => {}
        }
        options
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(journal) = &mut self.journal {
            journal.push(format!("{:>12} {}", now.as_nanos() / 1_000, line()));
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let due = self.next_due();
        if due.is_some_and(|due| due <= self.now) || self.random.percent(40) {
            return self.pass(due);
        }
        if self.random.percent(self.scenario.orders) {
            return self.order();
        }
        if self.random.percent(70) {
            self.ask()
        } else {
            self.end_one()
        }
    }

    fn next_due(&self) -> Option<Tick> {
        let fates = self.fates.values().map(|fate| fate.0);
        let late = self.scenario.mutant == Some(Mutant::LateDeadlines);
        let slack = Duration::from_millis(if late { 50 } else { 0 });
        let pool = self.pool.next_deadline().map(|due| due + slack);
        fates.chain(self.ends.values().copied()).chain(pool).min()
    }

    fn pass(&mut self, due: Option<Tick>) -> Result<(), String> {
        let Some(due) = due else {
            return Ok(());
        };
        self.now = self.now.max(due);
        let now = self.now;
        if let Some((session, _)) = self.ends.iter().find(|(_, end)| **end <= now) {
            let session = *session;
            return self.close(session);
        }
        if let Some((id, fate)) = self.fates.iter().find(|(_, fate)| fate.0 <= now) {
            let (id, fate) = (*id, fate.1);
            self.fates.remove(&id);
            return match fate {
                Fate::Up => self.tell(Event::Spawned(id)),
                Fate::Fail => {
                    let error = ErrorId(self.next_session);
                    self.tell(Event::SpawnFailed(id, error))
                }
                Fate::Exit => self.tell(Event::Exited(id)),
            };
        }
        self.tell(Event::Deadline)
    }

    fn app(&mut self) -> usize {
        if self.random.percent(self.scenario.flood) {
            return 0;
        }
        self.random.below(self.scenario.apps.len())
    }

    fn ask(&mut self) -> Result<(), String> {
        self.next_session += 1;
        let app = self.app();
        let wait = self.random.millis(1, 3_000);
        let target = match self.random.below(10) {
            0 => {
                let group = self.random.pick(&["group", "another"]);
                Target::Group(Arc::from(group), self.random.next())
            }
            1 => Target::Known(name(app)),
            _ => Target::Application(name(app), self.told(app)),
        };
        let get = Get {
            session: SessionId(self.next_session),
            target,
            wait: [
                Wait::None,
                Wait::Until(self.now + wait),
                Wait::Endless,
                Wait::Endless,
            ][self.random.below(4)],
            restart_files: self.random.percent(20).then(|| self.restart_files()),
            alone: self.random.percent(10),
        };
        self.tell(Event::Get(get))
    }

    fn restart_files(&mut self) -> RestartFiles {
        if self.random.percent(20) {
            self.stamp += 1;
        }
        let restart = self.random.percent(80).then_some(FileState {
            modified_ns: self.stamp,
            inode: 1,
        });
        let always = self.random.percent(5);
        RestartFiles { restart, always }
    }

    fn end_one(&mut self) -> Result<(), String> {
        let checked_out: Vec<SessionId> = self.shadow.checked_out.keys().copied().collect();
        let waiting: Vec<SessionId> = self.shadow.waiters.keys().copied().collect();
        if !checked_out.is_empty() && self.random.percent(80) {
            let session = self.random.pick(&checked_out);
            return self.close(session);
        }
        match waiting.is_empty() {
            true => Ok(()),
            false => {
                let session = self.random.pick(&waiting);
                self.tell(Event::Cancel(session))
            }
        }
    }

    fn close(&mut self, session: SessionId) -> Result<(), String> {
        self.ends.remove(&session);
        if self.scenario.mutant == Some(Mutant::LosesCloses) && self.random.percent(20) {
            self.shadow.before(&Event::Close(session, Return::Ok));
            return Ok(());
        }
        let fails = !self.calm && self.random.percent(self.scenario.faults.fails);
        let back = if fails { Return::Failed } else { Return::Ok };
        self.tell(Event::Close(session, back))
    }

    fn instance(&mut self) -> Option<InstanceId> {
        let all: Vec<InstanceId> = self.shadow.processes.keys().copied().collect();
        (!all.is_empty()).then(|| self.random.pick(&all))
    }

    fn order(&mut self) -> Result<(), String> {
        let app = self.app();
        let method = self
            .random
            .pick(&[RestartMethod::Blocking, RestartMethod::Rolling]);
        let method = if self.scenario.apps[app].restart_method == RestartMethod::Blocking {
            RestartMethod::Blocking
        } else {
            method
        };
        let Some(id) = self.instance() else {
            return Ok(());
        };
        let event = match self.random.below(15) {
            0 => Event::Restart(name(app), method),
            1 => Event::Seen(name(app), self.restart_files()),
            2 => Event::SetMax(self.another_max()),
            3 => Event::WorkWanted(id),
            4 => Event::Measured(id, u64::from(self.random.between(50, 150))),
            5 => Event::Disable(id),
            6 | 7 => Event::Enable(id),
            8 => Event::Detach(id),
            9 if self.random.percent(70) => return Ok(()),
            9 => Event::Remove(name(app)),
            10 => match self.works.pop() {
                Some(id) => Event::Worked(id),
                None => return Ok(()),
            },
            11 => {
                let groups = ["group", "another"];
                Event::Join {
                    name: name(app),
                    group: Arc::from(self.random.pick(&groups)),
                    options: self.told(app),
                }
            }
            12 => Event::Leave(name(app)),
            13 => Event::HeldUp(id, self.random.percent(50)),
            _ => {
                self.fates.insert(id, (self.now, Fate::Exit));
                return Ok(());
            }
        };
        self.tell(event)
    }

    fn another_max(&mut self) -> NonZeroU32 {
        let max = self.random.between(1, 6);
        NonZeroU32::new(max).expect("not zero")
    }

    fn tell(&mut self, event: Event) -> Result<(), String> {
        self.tally.steps += 1;
        self.note(|| format!("{event:?}"));
        self.shadow.before(&event);
        self.ends
            .retain(|session, _| self.shadow.checked_out.contains_key(session));
        if let Event::Exited(id) | Event::SpawnFailed(id, _) = event {
            self.fates.remove(&id);
            self.works.retain(|other| *other != id);
        }
        let mut actions = Vec::new();
        let told = match (&event, self.scenario.mutant) {
            (Event::SetMax(max), Some(Mutant::RaisesMax)) => Event::SetMax(max.saturating_add(1)),
            _ => event.clone(),
        };
        self.pool.handle(told, self.now, &mut actions);
        if self.pool.next_deadline().is_some_and(|due| due <= self.now) && event == Event::Deadline {
            return Err(format!("the next deadline is not later than {:?}", self.now));
        }
        let actions = self.falsify(actions);
        for action in &actions {
            self.note(|| format!("    {action:?}"));
            self.shadow.check(&event, action, self.now)?;
            self.perform(action);
        }
        if let Event::Exited(id) | Event::SpawnFailed(id, _) = event {
            let process = self.shadow.processes.remove(&id);
            if process.is_some_and(|process| !process.sessions.is_empty()) {
                return Err(format!("{id:?} is gone and has sessions"));
            }
        }
        self.shadow.rest(self.now)
    }

    fn falsify(&mut self, mut actions: Vec<Action>) -> Vec<Action> {
        let Some(mutant) = self.scenario.mutant else {
            return actions;
        };
        if !self.random.percent(20) {
            return actions;
        }
        match mutant {
            Mutant::LendsAnother => {
                let other = self.instance();
                for action in &mut actions {
                    if let (Action::CheckOut(_, id), Some(other)) = (action, other) {
                        *id = other;
                    }
                }
            }
            Mutant::AnswersTwice => {
                if let Some(at) = actions.iter().position(|one| matches!(one, Action::Refuse(..))) {
                    let twice = actions[at].clone();
                    actions.push(twice);
                }
            }
            Mutant::LosesLends => actions.retain(|action| !matches!(action, Action::CheckOut(..))),
            Mutant::SwapsLends => {
                let last = self.shadow.waiters.keys().next_back().copied();
                for action in &mut actions {
                    if let (Action::CheckOut(session, _), Some(last)) = (action, last) {
                        *session = last;
                    }
                }
            }
            _ => {}
        }
        actions
    }

    fn perform(&mut self, action: &Action) {
        let faults = self.scenario.faults;
        let mut happens = |percent| !self.calm && self.random.percent(percent);
        match action {
            Action::Spawn(id, ..) => {
                self.tally.spawned += 1;
                let (fails, hangs, deaf) = (
                    happens(faults.spawn_fails),
                    happens(faults.spawn_hangs),
                    happens(faults.ignores_stop),
                );
                let takes = self.random.millis(0, 300);
                if deaf {
                    self.deaf.push(*id);
                }
                if !hangs {
                    let fate = if fails { Fate::Fail } else { Fate::Up };
                    self.fates.insert(*id, (self.now + takes, fate));
                }
            }
            Action::Stop(id, force) => {
                self.tally.stopped += 1;
                let lost = self.scenario.mutant == Some(Mutant::LosesStops);
                if !lost && (*force == Force::Kill || !self.deaf.contains(id)) {
                    let takes = self.random.millis(0, 20);
                    self.fates.insert(*id, (self.now + takes, Fate::Exit));
                }
            }
            Action::CheckOut(session, id) => {
                self.tally.checked_out += 1;
                let hangs = happens(faults.hangs);
                if happens(faults.crashes) {
                    self.fates.insert(*id, (self.now, Fate::Exit));
                }
                let takes = self.random.millis(0, 400);
                if !hangs {
                    self.ends.insert(*session, self.now + takes);
                }
            }
            Action::Lost { session, .. } => {
                self.tally.lost += 1;
                self.ends.remove(session);
            }
            Action::Work(id) => {
                self.tally.works += 1;
                self.works.push(*id);
            }
            Action::Refuse(..) => self.tally.refused += 1,
            Action::Disabled(..) | Action::Say(_) => {}
        }
    }

    /// Without faults all waiting requests are served, as far as the minima of others allow.
    fn aftermath(&mut self) -> Result<(), String> {
        self.calm = true;
        self.deaf.clear();
        let ids: Vec<InstanceId> = self.shadow.processes.keys().copied().collect();
        for id in ids {
            self.tell(Event::Enable(id))?;
        }
        for session in self.shadow.checked_out.keys().copied().collect::<Vec<_>>() {
            self.close(session)?;
        }
        let kept = |(app, options): (usize, &Options)| {
            let resists = self.shadow.ever_resisted.contains(&app);
            options.min_instances.max(u32::from(resists))
        };
        let minima: u32 = self.scenario.apps.iter().enumerate().map(kept).sum();
        let until = self.now + AFTERMATH;
        let mut steps = 0;
        while let Some(due) = self.next_due().filter(|due| *due <= until) {
            self.pass(Some(due))?;
            steps += 1;
            if steps > MOST_STEPS {
                return Err("it never comes to rest".to_string());
            }
        }
        if minima < self.shadow.max && !self.shadow.waiters.is_empty() {
            return Err(format!("{:?} wait for ever", self.shadow.waiters));
        }
        self.now = until;
        for app in 0..self.scenario.apps.len() {
            self.tell(Event::Remove(name(app)))?;
        }
        while let Some(due) = self.next_due() {
            self.pass(Some(due))?;
            steps += 1;
            if steps > 2 * MOST_STEPS {
                return Err("it never ends".to_string());
            }
        }
        if self.pool.count() > 0 || !self.shadow.processes.is_empty() || !self.shadow.waiters.is_empty() {
            return Err("something is left in the end".to_string());
        }
        Ok(())
    }
}

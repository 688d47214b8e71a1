//! The simulated world. The seed chooses which process advances next.

use super::scenario::Scenario;
use crate::random::Random;
use forkyard_base::tick::Tick;
use forkyard_core::config::{EmergencyRestart, ProcessManager};
use forkyard_core::master::Manager;
use forkyard_core::master::action::{Action, WakeOnAccept};
use forkyard_core::master::event::{Ended, Event, GenerationId, Policy, PoolId, Row, SlotIndex, WorkerId};
use forkyard_scoreboard::stage::RequestStage;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The most steps until only time can bring anything.
const STEPS_TO_REST: u32 = 20_000;

/// In a permanently broken world a deadline may always follow.
const DEADLINES_TO_SETTLE: u32 = 100;

/// The most deadlines of a world without load.
const DEADLINES_TO_REST: u32 = 4_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// A new connection or a request on a kept one; how long it takes.
    Request(Duration),
    /// A kept connection without a request, handed over by a sibling.
    Kept,
}

/// A worker's position in its loop. Others may advance between positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    Boot,
    Offer,
    Try,
    Wait,
    StoreAccepted(Work),
    LoadWakeOnAccept(Work),
    Count(Work, u32, u32, u32),
    Write(Work),
    WriteEmpty,
    Start(Work),
    Run(Tick),
    Finish,
    Promote,
}

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) generation: GenerationId,
    pub(crate) pool: PoolId,
    pub(crate) slot: SlotIndex,
    pub(crate) at: At,
    pub(crate) first: bool,
    pub(crate) told_forked: bool,
    pub(crate) told_up: bool,
    pub(crate) retire: bool,
    pub(crate) woken: bool,
    pub(crate) kept: u32,
    pub(crate) kept_request: bool,
    pub(crate) served: u32,
    pub(crate) had_work: bool,
    pub(crate) ignores_term: bool,
    pub(crate) hostile: bool,
    pub(crate) frozen: bool,
    pub(crate) gone: Option<Ended>,
    pub(crate) last_row: Option<Row>,
    pub(crate) was_retired: bool,
    pub(crate) was_termed: bool,
    /// The line of the preloader that forked it.
    pub(crate) line: u64,
    pub(crate) promote: bool,
    /// It reported that it is a mold candidate.
    pub(crate) told_mold_candidate: bool,
    pub(crate) retired_at: Tick,
    pub(crate) traced: Option<Tick>,
    pub(crate) traced_at: Tick,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) worker: WorkerId,
    pub(crate) stage: RequestStage,
    pub(crate) since: Tick,
    pub(crate) up: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loader {
    Absent,
    Loading(Option<Tick>),
    Ready,
    Mute,
}

#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) pool: PoolId,
    pub(crate) policy: Policy,
    pub(crate) notify: WakeOnAccept,
    /// Its part of the pool's requests, in percent, if another generation gets the others.
    pub(crate) turn: Option<u8>,
    pub(crate) slots: BTreeMap<SlotIndex, Slot>,
    pub(crate) pipe: bool,
    pub(crate) loader: Loader,
    pub(crate) stubborn: bool,
    pub(crate) stopped: bool,
    /// The next mold; after the swap, the former preloader.
    pub(crate) next_mold: Loader,
    pub(crate) next_mold_stubborn: bool,
    pub(crate) next_mold_ready: Tick,
    pub(crate) promoting: Option<WorkerId>,
    pub(crate) line: u64,
    pub(crate) mold_candidate: VecDeque<WorkerId>,
    pub(crate) requests: VecDeque<(WorkerId, SlotIndex)>,
    pub(crate) forks: u32,
    pub(crate) initial: u32,
    /// Slots that the previous master may have assigned.
    pub(crate) lost: BTreeSet<SlotIndex>,
}

#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(crate) queue: VecDeque<Work>,
    pub(crate) watched: bool,
    pub(crate) told: bool,
    pub(crate) closed: bool,
    pub(crate) unavailable_responder: bool,
    pub(crate) served: Option<GenerationId>,
    pub(crate) unwanted: bool,
    pub(crate) wanted: Option<GenerationId>,
    /// Since when work waits that a worker could take.
    pub(crate) neglected: Option<Tick>,
    pub(crate) arrived: u32,
}

#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) generation: GenerationId,
    pub(crate) todo: Vec<SlotIndex>,
    pub(crate) rows: Vec<Row>,
    pub(crate) queued: Option<u32>,
}

/// Real events, to compare with the master's wake-ups.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) happenings: u64,
    pub(crate) events: u64,
    pub(crate) deadlines: u64,
    pub(crate) steps: u64,
    pub(crate) exits: u32,
    pub(crate) faults: u32,
    pub(crate) refused: u32,
    pub(crate) last_fault: Tick,
    pub(crate) last_deadline: Tick,
    /// When time passed although a process could advance.
    pub(crate) last_stall: Tick,
}

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) scenario: Scenario,
    pub(crate) now: Tick,
    pub(crate) manager: Manager,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) reading: Option<Reading>,
    pub(crate) answers: VecDeque<Event>,
    pub(crate) pools: BTreeMap<PoolId, Pool>,
    pub(crate) generations: BTreeMap<GenerationId, Generation>,
    pub(crate) workers: BTreeMap<WorkerId, Worker>,
    pub(crate) reaped: BTreeSet<WorkerId>,
    pub(crate) next_generation: u32,
    pub(crate) next_pool: u32,
    pub(crate) emergency: Option<EmergencyRestart>,
    pub(crate) crashes: Vec<Tick>,
    pub(crate) stopping: bool,
    pub(crate) terminated: bool,
    pub(crate) exited: bool,
    pub(crate) fired: Option<Tick>,
    pub(crate) last_snapshot: Option<(GenerationId, u32, Option<u32>)>,
    pub(crate) tally: Tally,
    pub(crate) crashed_at_work: Vec<Tick>,
    pub(crate) replaced_at_once: u32,
    pub(crate) successions: u32,
    pub(crate) reforks: u32,
    pub(crate) shares: u32,
    pub(crate) may_share: bool,
    pub(crate) journal: Option<Vec<String>>,
    pub(crate) failure: Option<String>,
}

impl World {
    pub(crate) fn new(mut random: Random, scenario: Scenario, verbose: bool) -> World {
        let start = Tick::ZERO + random.millis(1_000, 100_000);
        let may_share = scenario.shares;
        World {
            random,
            scenario,
            now: start,
            manager: Manager::default(),
            actions: VecDeque::new(),
            reading: None,
            answers: VecDeque::new(),
            pools: BTreeMap::new(),
            generations: BTreeMap::new(),
            workers: BTreeMap::new(),
            reaped: BTreeSet::new(),
            next_generation: 0,
            next_pool: 0,
            emergency: None,
            crashes: Vec::new(),
            stopping: false,
            terminated: false,
            exited: false,
            fired: None,
            last_snapshot: None,
            tally: Tally::default(),
            crashed_at_work: Vec::new(),
            replaced_at_once: 0,
            successions: 0,
            reforks: 0,
            shares: 0,
            may_share,
            journal: verbose.then(Vec::new),
            failure: None,
        }
    }

    pub(crate) fn run(&mut self) -> Result<(), String> {
        let count = self.scenario.pools;
        let pools: Vec<PoolId> = (0..count).map(PoolId).collect();
        self.next_pool = count;
        self.apply(&pools);
        for _ in 0..self.scenario.happenings {
            self.happen();
            let steps = self.random.pick(&[0, 1, 3, 10, 40, 200]);
            for _ in 0..steps {
                self.step()?;
                if self.exited {
                    return self.check_end();
                }
            }
            if self.random.percent(50) {
                self.rest()?;
                if self.exited {
                    return self.check_end();
                }
                if self.random.percent(60) {
                    self.pass_time();
                }
            }
        }
        if std::mem::take(&mut self.scenario.shares) {
            let pools: Vec<PoolId> = self.pools.keys().copied().collect();
            let whole = pools.into_iter().map(|pool| Event::Share { pool, percent: 100 });
            self.answers.extend(whole);
        }
        self.come_to_rest()?;
        if self.exited {
            return self.check_end();
        }
        self.end()
    }

    fn come_to_rest(&mut self) -> Result<(), String> {
        let deadlines = if self.scenario.faults.none() {
            DEADLINES_TO_REST
        } else {
            DEADLINES_TO_SETTLE
        };
        for _ in 0..deadlines {
            self.rest()?;
            self.workers.values_mut().for_each(|worker| worker.kept = 0);
            if self.exited || !self.pass_time() {
                return self.check_at_rest();
            }
        }
        if self.scenario.faults.none() {
            return Err("something is always due".into());
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let finish = self.random.percent(50);
        self.stopping = true;
        self.terminated = !finish;
        if finish && self.random.percent(50) {
            // As with routers, but without ordered workers.
            self.answers.push_back(Event::Drain);
            for _ in 0..self.random.below(30) {
                self.step()?;
            }
        }
        self.answers
            .push_back(if finish { Event::Finish } else { Event::Terminate });
        let terminates = finish && self.random.percent(30);
        let mut deadlines_left = DEADLINES_TO_REST;
        while !self.exited && deadlines_left > 0 {
            for _ in 0..self.random.below(30) {
                self.step()?;
            }
            if terminates && self.random.percent(5) && !self.terminated {
                self.terminated = true;
                self.answers.push_back(Event::Terminate);
            }
            self.rest()?;
            if !self.exited {
                self.pass_time();
            }
            deadlines_left -= 1;
        }
        self.check_end()
    }

    pub(crate) fn step(&mut self) -> Result<bool, String> {
        self.now = self.now + Duration::from_nanos(self.random.next() % 20_000);
        self.tally.steps += 1;
        let mut actors: Vec<Actor> = Vec::new();
        if !self.exited && self.master_can_go() {
            // The master has its own processor: as often as all workers together.
            actors.push(Actor::Master);
        }
        for (id, generation) in &self.generations {
            if generation.can_go(self.now) {
                actors.push(Actor::Loader(*id));
            }
            if generation.next_mold_can_go(self.now) {
                actors.push(Actor::Second(*id));
            }
        }
        for (id, pool) in &self.pools {
            if pool.unavailable_responder && !pool.queue.is_empty() {
                actors.push(Actor::UnavailableResponder(*id));
            }
        }
        let running: Vec<WorkerId> = self.runnable();
        if !running.is_empty() {
            let worker = self.random.pick(&running);
            actors.push(Actor::Worker(worker));
        }
        if actors.is_empty() {
            return Ok(false);
        }
        match self.random.pick(&actors) {
            Actor::Master => self.step_master(),
            Actor::UnavailableResponder(pool) => self.step_unavailable_responder(pool),
            Actor::Loader(generation) => self.step_loader(generation),
            Actor::Second(generation) => self.step_next_mold(generation),
            Actor::Worker(worker) => self.step_worker(worker),
        }
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(true),
        }
    }

    fn rest(&mut self) -> Result<(), String> {
        for _ in 0..STEPS_TO_REST {
            if self.exited {
                return Ok(());
            }
            if !self.step()? {
                return self.check_rest();
            }
        }
        Err("the world does not come to rest".into())
    }

    fn pass_time(&mut self) -> bool {
        let runs = self
            .workers
            .values()
            .filter(|worker| worker.gone.is_none() && !worker.frozen);
        let ends = runs.filter_map(|worker| {
            if let At::Run(until) = worker.at {
                Some(until)
            } else {
                None
            }
        });
        let loads = self
            .generations
            .values()
            .flat_map(|generation| [generation.loader, generation.next_mold])
            .filter_map(|loader| match loader {
                Loader::Loading(until) => until,
                Loader::Absent | Loader::Ready | Loader::Mute => None,
            });
        let Some(next) = ends.chain(loads).chain(self.manager.next_deadline()).min() else {
            return false;
        };
        self.now = self.now.max(next);
        if self.random.percent(10) {
            // While the machine sleeps no process can take waiting work.
            let asleep = self.random.millis(1, 40_000);
            self.now = self.now + asleep;
            let neglected = self.pools.values_mut().filter_map(|pool| pool.neglected.as_mut());
            neglected.for_each(|since| *since = *since + asleep);
        }
        true
    }

    fn happen(&mut self) {
        if self.scenario.masters_die && self.random.percent(8) {
            self.successions += 1;
            return self.switch_mold();
        }
        if self.scenario.reloads && self.random.percent(12) {
            return self.reload();
        }
        if self.scenario.shares && self.random.percent(15) {
            let pools: Vec<PoolId> = self.pools.keys().copied().collect();
            let (pool, percent) = (self.random.pick(&pools), self.random.pick(&[0, 1, 10, 50, 100]));
            self.tally.happenings += 1;
            return self.answers.push_back(Event::Share { pool, percent });
        }
        if self.random.percent(30) {
            let holders: Vec<WorkerId> = self
                .workers
                .iter()
                .filter(|(_, worker)| worker.kept > 0 && worker.at == At::Wait && worker.gone.is_none())
                .map(|(id, _)| *id)
                .collect();
            if !holders.is_empty() {
                let id = self.random.pick(&holders);
                self.note(|| format!("a request on a connection kept by {id:?}"));
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.kept_request = true;
                    worker.woken = true;
                }
                self.tally.happenings += 1;
                return;
            }
        }
        if self.random.percent(10) {
            self.pass_time();
            self.tally.last_stall = self.now;
            return;
        }
        let open: Vec<PoolId> = self
            .pools
            .iter()
            .filter(|(_, pool)| !pool.closed)
            .map(|(id, _)| *id)
            .collect();
        if open.is_empty() {
            return;
        }
        let pool = self.random.pick(&open);
        for _ in 0..self.random.between(1, self.scenario.burst) {
            let takes = self.random.millis(0, self.scenario.slow_millis);
            self.arrive(pool, Work::Request(takes));
        }
    }

    fn reload(&mut self) {
        let mut pools: Vec<PoolId> = self
            .pools
            .iter()
            .filter(|(_, pool)| !pool.unwanted)
            .map(|(id, _)| *id)
            .collect();
        if self.random.percent(15) && pools.len() > 1 {
            let gone = pools.remove(self.random.below(pools.len()));
            if let Some(pool) = self.pools.get_mut(&gone) {
                pool.unwanted = true;
            }
        }
        if self.random.percent(15) && pools.len() < 4 {
            pools.push(PoolId(self.next_pool));
            self.next_pool += 1;
        }
        self.apply(&pools);
    }

    pub(crate) fn renew(&mut self) {
        let pools: Vec<PoolId> = self
            .pools
            .iter()
            .filter(|(_, pool)| !pool.unwanted)
            .map(|(id, _)| *id)
            .collect();
        self.apply_anew(&pools, true);
    }

    pub(crate) fn apply(&mut self, pools: &[PoolId]) {
        self.apply_anew(pools, false);
    }

    fn apply_anew(&mut self, pools: &[PoolId], is_anew: bool) {
        let mut pairs = Vec::new();
        // The executor knows which generation serves.
        let is_quiet = self.answers.is_empty() && self.actions.is_empty() && self.reading.is_none();
        let mut goes_back = false;
        for pool in pools {
            let known = self.pools.get(pool).and_then(|pool| pool.wanted);
            let serving = self
                .manager
                .serving(*pool)
                .filter(|_| self.scenario.shares && is_quiet);
            let generation = match known {
                // Back to the old one.
                Some(_) if serving.is_some() && !is_anew && self.random.percent(20) => {
                    goes_back = true;
                    serving.unwrap_or_default()
                }
                Some(generation) if !is_anew && self.random.percent(30) => generation,
                Some(_) | None => {
                    self.next_generation += 1;
                    GenerationId(self.next_generation)
                }
            };
            pairs.push((*pool, generation));
        }
        let wanted = self.scenario.wanted(&mut self.random, &pairs);
        for pool in &wanted.pools {
            let known = self.pools.entry(pool.pool).or_default();
            known.wanted = Some(pool.generation);
            known.served.get_or_insert(pool.generation);
            self.generations
                .entry(pool.generation)
                .or_insert_with(|| Generation {
                    pool: pool.pool,
                    policy: pool.policy,
                    notify: WakeOnAccept::default(),
                    turn: None,
                    slots: BTreeMap::new(),
                    pipe: false,
                    loader: Loader::Absent,
                    stubborn: false,
                    stopped: false,
                    next_mold: Loader::Absent,
                    next_mold_stubborn: false,
                    next_mold_ready: Tick::ZERO,
                    promoting: None,
                    line: 0,
                    mold_candidate: VecDeque::new(),
                    requests: VecDeque::new(),
                    forks: 0,
                    initial: start(pool.policy.pm),
                    lost: BTreeSet::new(),
                });
        }
        self.tally.happenings += 10;
        match goes_back {
            true => self.tell(Event::Apply(wanted)),
            false => self.answers.push_back(Event::Apply(wanted)),
        }
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(journal) = &mut self.journal {
            journal.push(format!("{:>16} {}", now.as_nanos() / 1_000, line()));
        }
    }

    pub(crate) fn fail(&mut self, why: impl Into<String>) {
        self.failure.get_or_insert(why.into());
    }

    pub(crate) fn fault(&mut self) {
        self.tally.faults += 1;
        self.tally.happenings += 1;
        self.tally.last_fault = self.now;
    }
}

#[derive(Clone, Copy)]
enum Actor {
    Master,
    Loader(GenerationId),
    UnavailableResponder(PoolId),
    Second(GenerationId),
    Worker(WorkerId),
}

fn start(pm: ProcessManager) -> u32 {
    match pm {
        ProcessManager::Static { max_children } => max_children,
        ProcessManager::Dynamic {
            max_spare_servers, ..
        } => max_spare_servers,
        ProcessManager::Ondemand { .. } | ProcessManager::Ordered { .. } => 0,
    }
}

//! Workers that are ordered: applications begin, restart, crash and end at random, orders are canceled, preloaders hang
//! and die, and in the end nothing is left.
//!
//! What is checked: every order is filled or fails, once; a worker that nobody dismissed stays, whatever becomes of its
//! application's newer code; workers and preloaders are made of the newest generation alone; a pool is closed when
//! nothing of it is wanted, and not before; `process.max` and slots hold.

use crate::random::Random;
use forkyard::config::ProcessManager;
use forkyard::master::Manager;
use forkyard::master::action::{Action, Force, Notice};
use forkyard::master::event::{
    Event, Exit, GenerationId, OrderId, Ordered, Policy, PoolId, PreloaderPolicy, SlotIndex, Wanted, WorkerId,
};
use forkyard::tick::Tick;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const APPLICATIONS: usize = 4;
const STEPS: usize = 400;
const MAX: u32 = 5;
/// What holds workers back is over after this long.
const PATIENCE: Duration = Duration::from_secs(40);

/// What an edge that is built wrong loses now and then, to see whether that is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loses {
    ForkFailed,
    Exit,
    PreloaderGone,
    Cancel,
    Fail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loader {
    Absent,
    Starting,
    Ready,
    Ending,
}

#[derive(Debug)]
struct Generation {
    application: usize,
    pool: PoolId,
    has_loader: bool,
    loader: Loader,
}

#[derive(Debug)]
struct Worker {
    generation: GenerationId,
    slot: SlotIndex,
    order: OrderId,
    exists: bool,
    was_dismissed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Waits,
    Filled(WorkerId),
    Over,
}

struct World {
    random: Random,
    manager: Manager,
    now: Tick,
    mutant: Option<Loses>,
    process_max: Option<u32>,
    orders: BTreeMap<OrderId, (usize, Fate)>,
    canceled: BTreeSet<OrderId>,
    applications: Vec<Option<(PoolId, GenerationId)>>,
    generations: BTreeMap<GenerationId, Generation>,
    pools: BTreeSet<PoolId>,
    workers: BTreeMap<WorkerId, Worker>,
    next: u32,
    is_calm: bool,
    has_exited: bool,
    broken: Option<String>,
}

impl World {
    fn new(seed: u64, mutant: Option<Loses>) -> World {
        let mut random = Random::new(seed);
        let process_max = random.percent(40).then(|| random.between(2, 6));
        let mut world = World {
            random,
            manager: Manager::new(),
            now: Tick::ZERO,
            mutant,
            process_max,
            orders: BTreeMap::new(),
            canceled: BTreeSet::new(),
            applications: vec![None; APPLICATIONS],
            generations: BTreeMap::new(),
            pools: BTreeSet::new(),
            workers: BTreeMap::new(),
            next: 0,
            is_calm: false,
            has_exited: false,
            broken: None,
        };
        let wanted = Wanted {
            process_max,
            control_timeout: Duration::from_secs(5),
            emergency: None,
            pools: Vec::new(),
        };
        world.tell(Event::Apply(wanted));
        world
    }

    fn fail(&mut self, text: String) {
        self.broken.get_or_insert(text);
    }

    fn tell(&mut self, event: Event) {
        let lost = match (&event, self.mutant) {
            (Event::ForkFailed(_), Some(Loses::ForkFailed))
            | (Event::WorkerExited(..), Some(Loses::Exit))
            | (Event::PreloaderGone(..), Some(Loses::PreloaderGone))
            | (Event::Cancel(..), Some(Loses::Cancel)) => self.random.percent(20),
            _ => false,
        };
        if lost {
            return;
        }
        let mut actions = Vec::new();
        self.manager.handle(event, self.now, &mut actions);
        for action in actions {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Fill(order, worker) => self.fill(order, worker),
            Action::Fork(worker, id, slot) => self.fork(worker, id, slot),
            Action::Fail(order) => {
                if self.mutant == Some(Loses::Fail) && self.random.percent(20) {
                    return;
                }
                self.end(order, "fails");
            }
            Action::StartPreloader(id) => {
                if !self.is_newest(id) {
                    self.fail(format!("a preloader of {id:?}, which is not the newest"));
                }
                if let Some(generation) = self.generations.get_mut(&id) {
                    generation.loader = Loader::Starting;
                }
            }
            Action::StopPreloader(id, force) => {
                if let Some(generation) = self.generations.get_mut(&id) {
                    generation.loader = Loader::Ending;
                }
                if force == Force::Kill {
                    self.loader_ends(id);
                }
            }
            Action::Retire(id) => self.dismissed(id, "retired"),
            Action::Kill(id, force) => {
                self.dismissed(id, "killed");
                if force == Force::Kill {
                    self.worker_ends(id, 9);
                }
            }
            Action::DropGeneration(id) => {
                let gone = self.generations.remove(&id);
                let is_used = self.workers.values().any(|worker| worker.generation == id);
                if is_used || gone.is_none_or(|gone| gone.loader != Loader::Absent) {
                    self.fail(format!("{id:?} is dropped and not empty"));
                }
            }
            Action::ClosePool(id) => {
                self.pools.remove(&id);
                for application in &mut self.applications {
                    *application = application.filter(|(pool, _)| *pool != id);
                }
                let waits = |(order, (_, fate)): (&OrderId, &(usize, Fate))| match fate {
                    Fate::Filled(worker) => {
                        let worker = self.workers.get(worker);
                        worker.is_some_and(|it| !it.was_dismissed && self.pool_of(it.generation) == Some(id))
                            && !self.canceled.contains(order)
                    }
                    Fate::Waits | Fate::Over => false,
                };
                if self.orders.iter().any(waits) && !self.has_exited {
                    self.fail(format!("{id:?} is closed and used"));
                }
            }
            Action::Exit(_) => self.has_exited = true,
            Action::Say(Notice::NoWorkerPossible(..)) => self.fail("nobody waits in a socket".to_owned()),
            Action::Watch(_)
            | Action::Unwatch(_)
            | Action::TimeUp(_)
            | Action::Trace(_)
            | Action::StandIn(..)
            | Action::StandDown(_)
            | Action::Promote(..)
            | Action::Succeed(_)
            | Action::StopSecond(..) => {
                self.fail(format!("there is no reason for {action:?}"));
            }
            Action::TakeCensus(id) => {
                // The slots say nothing.
                self.tell(Event::Census(id, Vec::new(), None));
            }
            Action::SetNotify(..)
            | Action::Nudge(_)
            | Action::Publish(..)
            | Action::Say(_)
            | Action::Renew => {}
        }
    }

    fn pool_of(&self, id: GenerationId) -> Option<PoolId> {
        self.generations.get(&id).map(|generation| generation.pool)
    }

    fn is_newest(&self, id: GenerationId) -> bool {
        self.applications
            .iter()
            .flatten()
            .any(|(_, newest)| *newest == id)
    }

    fn fill(&mut self, order: OrderId, worker: WorkerId) {
        match self.orders.get_mut(&order) {
            Some((_, fate @ Fate::Waits)) => *fate = Fate::Filled(worker),
            other => {
                let text = format!("{order:?} is filled and was {other:?}");
                self.fail(text);
            }
        }
    }

    fn fork(&mut self, id: WorkerId, generation: GenerationId, slot: SlotIndex) {
        let of_worker = |(_, (_, fate)): &(&OrderId, &(usize, Fate))| *fate == Fate::Filled(id);
        let Some(order) = self.orders.iter().find(of_worker).map(|(order, _)| *order) else {
            return self.fail(format!("{id:?} is for no order"));
        };
        let is_taken = self
            .workers
            .values()
            .any(|it| it.generation == generation && it.slot == slot);
        if is_taken || slot.0 > MAX {
            self.fail(format!("{slot:?} of {generation:?} is not free"));
        }
        if !self.is_newest(generation) {
            self.fail(format!("a worker of {generation:?}, which is not the newest"));
        }
        if self
            .process_max
            .is_some_and(|max| self.workers.len() >= max as usize)
        {
            self.fail("more workers than process.max".to_owned());
        }
        let worker = Worker {
            generation,
            slot,
            order,
            exists: false,
            was_dismissed: false,
        };
        self.workers.insert(id, worker);
    }

    fn dismissed(&mut self, id: WorkerId, how: &str) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return self.fail(format!("{id:?} is {how} and was never made"));
        };
        worker.was_dismissed = true;
        let order = worker.order;
        if !self.canceled.contains(&order) && !self.has_exited && !self.is_ending() {
            self.fail(format!("{id:?} is {how} and nobody dismissed it"));
        }
    }

    fn is_ending(&self) -> bool {
        self.canceled.contains(&OrderId(u64::MAX))
    }

    fn end(&mut self, order: OrderId, how: &str) {
        match self.orders.get_mut(&order) {
            Some((_, fate)) if *fate != Fate::Over => *fate = Fate::Over,
            _ => self.fail(format!("{order:?} {how} and was over")),
        }
    }

    fn loader_ends(&mut self, id: GenerationId) {
        let lost: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.generation == id && !worker.exists)
            .map(|(id, _)| *id)
            .collect();
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.loader = Loader::Absent;
        }
        for worker in lost {
            self.not_made(worker);
        }
        let exit = Exit::Signal {
            signal: 9,
            core: false,
        };
        self.tell(Event::PreloaderGone(id, exit));
    }

    fn not_made(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.remove(&id) else {
            return;
        };
        if let Some((_, fate)) = self.orders.get_mut(&worker.order) {
            *fate = Fate::Waits;
        }
        self.tell(Event::ForkFailed(id));
    }

    fn worker_ends(&mut self, id: WorkerId, signal: i32) {
        let Some(worker) = self.workers.get(&id).filter(|worker| worker.exists) else {
            return;
        };
        let order = worker.order;
        self.workers.remove(&id);
        self.end(order, "ends");
        let exit = match signal {
            0 => Exit::Code(0),
            signal => Exit::Signal { signal, core: false },
        };
        self.tell(Event::WorkerExited(id, exit));
    }

    /// One thing happens.
    fn step(&mut self) {
        let faults = if self.is_calm { 0 } else { 6 };
        match self.random.below(20) {
            0..=4 if !self.is_calm => self.order(),
            5 if !self.is_calm => self.cancel(),
            6..=8 => self.loaders(faults),
            9..=14 => self.births(faults),
            15..=17 => self.departures(faults),
            _ => {
                let by = self.random.millis(0, 800);
                self.advance(by);
            }
        }
    }

    fn order(&mut self) {
        let application = self.random.below(APPLICATIONS);
        self.next += 1;
        let order = OrderId(u64::from(self.next));
        let restarts = self.random.percent(15);
        let has_loader = application % 2 == 0;
        let known = self.applications[application];
        let pool = match known {
            Some((pool, _)) => pool,
            None => PoolId(self.next),
        };
        let generation = match known {
            Some((_, generation)) if !restarts => generation,
            _ => GenerationId(self.next),
        };
        self.pools.insert(pool);
        self.applications[application] = Some((pool, generation));
        self.generations.entry(generation).or_insert(Generation {
            application,
            pool,
            has_loader,
            loader: Loader::Absent,
        });
        self.orders.insert(order, (application, Fate::Waits));
        let policy = Policy {
            pm: ProcessManager::Ordered {
                max_children: MAX + 1,
            },
            terminate_timeout: None,
            slow_timeout: None,
            preloader: has_loader.then_some(PreloaderPolicy {
                start_timeout: Duration::from_secs(3),
                idle_timeout: Duration::from_secs(2),
                reforks: true,
                is_needed_by_workers: generation.0 % 3 == 0,
            }),
        };
        // A router does not have more than its pool's total.
        let open = self
            .orders
            .values()
            .filter(|(of, fate)| *of == application && *fate != Fate::Over);
        if open.count() > MAX as usize {
            self.orders.remove(&order);
            return self.undo(generation, pool, application, known);
        }
        self.tell(Event::Order(Ordered {
            order,
            pool,
            generation,
            policy,
        }));
    }

    fn undo(&mut self, id: GenerationId, pool: PoolId, at: usize, known: Option<(PoolId, GenerationId)>) {
        if known.is_none_or(|(_, generation)| generation != id) {
            self.generations.remove(&id);
        }
        if known.is_none() {
            self.pools.remove(&pool);
        }
        self.applications[at] = known;
    }

    fn open_orders(&self) -> Vec<OrderId> {
        let open = self.orders.iter().filter(|(_, (_, fate))| *fate != Fate::Over);
        open.map(|(order, _)| *order).collect()
    }

    fn cancel(&mut self) {
        let open = self.open_orders();
        if let Some(order) = (!open.is_empty()).then(|| self.random.pick(&open)) {
            self.canceled.insert(order);
            let kill = self.random.percent(30);
            self.tell(Event::Cancel(order, kill));
        }
    }

    fn loaders(&mut self, faults: u32) {
        let ids: Vec<GenerationId> = self.generations.keys().copied().collect();
        for id in ids {
            let Some(generation) = self.generations.get(&id) else {
                continue;
            };
            match generation.loader {
                Loader::Starting if self.random.percent(faults * 5) => self.loader_ends(id),
                Loader::Starting if self.random.percent(60) => {
                    if let Some(generation) = self.generations.get_mut(&id) {
                        generation.loader = Loader::Ready;
                    }
                    self.tell(Event::PreloaderReady(id));
                }
                Loader::Ready if self.random.percent(faults) => self.loader_ends(id),
                Loader::Ending if self.random.percent(50) => self.loader_ends(id),
                Loader::Absent | Loader::Starting | Loader::Ready | Loader::Ending => {}
            }
        }
    }

    fn births(&mut self, faults: u32) {
        let unborn: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, worker)| !worker.exists)
            .map(|(id, _)| *id)
            .collect();
        for id in unborn {
            let generation = self
                .workers
                .get(&id)
                .and_then(|worker| self.generations.get(&worker.generation));
            let can = generation.is_some_and(|it| !it.has_loader || it.loader != Loader::Absent);
            if self.random.percent(faults * 2) {
                self.not_made(id);
            } else if can && self.random.percent(70) {
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.exists = true;
                }
                self.tell(Event::Forked(id));
                if self.random.percent(faults) {
                    self.worker_ends(id, 11);
                } else if self.workers.contains_key(&id) {
                    self.tell(Event::WorkerUp(id));
                }
            }
        }
    }

    fn departures(&mut self, faults: u32) {
        let ids: Vec<WorkerId> = self.workers.keys().copied().collect();
        for id in ids {
            let Some(worker) = self.workers.get(&id) else {
                continue;
            };
            if worker.was_dismissed && self.random.percent(70) {
                self.worker_ends(id, 0);
            } else if self.random.percent(faults / 3) {
                self.worker_ends(id, 11);
            }
        }
    }

    fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some(due) = self.manager.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.tell(Event::Deadline);
            if self.manager.next_deadline().is_some_and(|next| next <= due) {
                return self.fail("the deadline after one that fired is not later".to_owned());
            }
        }
        self.now = end;
    }

    /// Without faults everything that was ordered comes to be, or was told to have failed.
    fn calm_down(&mut self) {
        self.is_calm = true;
        let until = self.now + PATIENCE;
        while self.now < until && self.broken.is_none() {
            self.step();
        }
        let capacity = self.process_max.is_none();
        let waits = self.orders.values().any(|(_, fate)| *fate == Fate::Waits);
        let unborn = self.workers.values().any(|worker| !worker.exists);
        if capacity && (waits || unborn) {
            self.fail("orders are neither filled nor failed".to_owned());
        }
        for (id, generation) in &self.generations {
            let is_used = self.workers.values().any(|worker| worker.generation == *id);
            let has_others = self.workers.values().any(|worker| {
                self.generations
                    .get(&worker.generation)
                    .is_some_and(|it| it.pool == generation.pool)
            });
            if !is_used && !has_others && capacity {
                let text = format!(
                    "{id:?} of application {} is there for nothing",
                    generation.application
                );
                return self.fail(text);
            }
        }
    }

    fn finish(&mut self) {
        if self.random.percent(50) {
            // Everybody is sent home first.
            for order in self.open_orders() {
                self.canceled.insert(order);
                self.tell(Event::Cancel(order, false));
            }
            let until = self.now + PATIENCE;
            while self.now < until && self.broken.is_none() {
                self.step();
            }
            if !self.generations.is_empty()
                || !self.pools.is_empty()
                || self.manager.next_deadline().is_some()
            {
                let text = format!(
                    "left: {:?} {:?} {:?} {:?}",
                    self.generations,
                    self.pools,
                    self.workers,
                    self.open_orders()
                );
                self.fail(text);
            }
        }
        self.canceled.insert(OrderId(u64::MAX));
        self.tell(Event::Finish);
        let until = self.now + PATIENCE;
        while self.now < until && self.broken.is_none() && !self.has_exited {
            self.step();
        }
        let left = self.open_orders().len() + self.workers.len() + self.generations.len() + self.pools.len();
        if !self.has_exited || left > 0 {
            self.fail(format!("{left} things are left after the end"));
        }
    }
}

/// What is wrong in the world of this seed.
fn run(seed: u64, mutant: Option<Loses>) -> Option<String> {
    let result = std::panic::catch_unwind(|| {
        let mut world = World::new(seed, mutant);
        for _ in 0..STEPS {
            if world.broken.is_none() {
                world.step();
            }
        }
        if world.broken.is_none() {
            world.calm_down();
        }
        if world.broken.is_none() {
            world.finish();
        }
        world.broken
    });
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Some(text.unwrap_or_else(|| "it panics".to_owned()))
    })
}

fn seeds() -> u64 {
    let number = std::env::var("FORKYARD_SIM_SEEDS").ok();
    number.and_then(|number| number.parse().ok()).unwrap_or(1_000)
}

#[test]
fn what_is_ordered_comes_to_be_and_stays_until_it_is_dismissed() {
    let only = std::env::var("FORKYARD_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let (first, last) = only.map_or((0, seeds()), |seed| (seed, seed + 1));
    for seed in first..last {
        if let Some(broken) = run(seed, None) {
            panic!("FORKYARD_SEED={seed}: {broken}");
        }
    }
}

#[test]
fn an_edge_that_loses_something_is_noticed() {
    for mutant in [
        Loses::ForkFailed,
        Loses::Exit,
        Loses::PreloaderGone,
        Loses::Cancel,
        Loses::Fail,
    ] {
        let noticed = (0..300).find(|seed| run(*seed, Some(mutant)).is_some());
        assert!(noticed.is_some(), "{mutant:?} is not noticed");
    }
}

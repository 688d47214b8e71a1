//! Ordered workers: applications start, restart, crash and exit at random. Checks: every spawn request ends once; a
//! worker stays until dismissed; only the newest generation forks; a pool closes exactly when nothing in it is needed;
//! `process.max` and slots hold.

mod executor;
mod happenings;

use crate::random::{Random, all_are_noticed, outcome, seeds};
use forkyard_base::tick::Tick;
use forkyard_core::master::Manager;
use forkyard_core::master::event::{
    CoreConfig, Event, GenerationId, PoolId, SlotIndex, SpawnRequestId, WorkerId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const APPLICATIONS: usize = 4;
const STEPS: usize = 400;
const SEEDS: u64 = 1_000;
const SEEDS_FOR_MUTANTS: u64 = 300;
const MAX: u32 = 5;
const TIMEOUT: Duration = Duration::from_secs(40);

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
    order: SpawnRequestId,
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
    orders: BTreeMap<SpawnRequestId, (usize, Fate)>,
    canceled: BTreeSet<SpawnRequestId>,
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
            manager: Manager::default(),
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
        let wanted = CoreConfig {
            process_max,
            control_timeout: Duration::from_secs(5),
            emergency: None,
            gives_up: false,
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
}

fn run(seed: u64, mutant: Option<Loses>) -> Result<(), String> {
    outcome(|| {
        let mut world = World::new(seed, mutant);
        for _ in 0..STEPS {
            if world.broken.is_none() {
                world.step();
            }
        }
        if world.broken.is_none() {
            world.calm_down();
        }
        if world.broken.is_none() && seed % 2 == 0 {
            world.drain();
        }
        if world.broken.is_none() {
            world.finish();
        }
        world.broken.map_or(Ok(()), Err)
    })
}

#[test]
fn what_is_ordered_comes_to_be_and_stays_until_it_is_dismissed() {
    for seed in seeds(SEEDS) {
        if let Err(broken) = run(seed, None) {
            panic!("FORKYARD_SEED={seed}: {broken}");
        }
    }
}

#[test]
fn an_executor_that_loses_something_is_noticed() {
    let mutants = [
        Loses::ForkFailed,
        Loses::Exit,
        Loses::PreloaderGone,
        Loses::Cancel,
        Loses::Fail,
    ];
    all_are_noticed(mutants, SEEDS_FOR_MUTANTS, |mutant, seed| run(seed, Some(mutant)));
}

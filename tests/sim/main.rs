//! The master's core in a simulated world.

mod checks;
mod edge;
mod kernel;
mod random;
mod scenario;
mod world;

use random::Random;
use scenario::{MUTANTS, Mutant, Scenario};
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// Seeds in a normal run.
const SEEDS: u64 = 2_000;

/// Seeds within which a world that is built wrong must be noticed.
const SEEDS_FOR_MUTANTS: u64 = 400;

/// How much of the journal is printed.
const JOURNAL_LINES: usize = 150;

fn simulate(seed: u64, mutant: Option<Mutant>, verbose: bool) -> (Result<(), String>, World) {
    let mut random = Random::new(seed);
    let scenario = Scenario::new(&mut random, mutant);
    let mut world = World::new(random, scenario, verbose);
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    let result = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text
            .or(panic.downcast_ref::<&str>().map(|text| text.to_string()))
            .unwrap_or_default())
    });
    (result, world)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn report(seed: u64) -> ! {
    let (result, world) = simulate(seed, None, true);
    let journal = world.journal.unwrap_or_default();
    for line in &journal[journal.len().saturating_sub(JOURNAL_LINES)..] {
        eprintln!("{line}");
    }
    panic!(
        "{:?}\n{:?}\nFORKYARD_SEED={seed}: {}",
        world.scenario,
        world.tally,
        result.err().unwrap_or_default()
    );
}

#[test]
fn every_schedule_keeps_the_promises() {
    if let Some(seed) = number("FORKYARD_SEED") {
        let (result, world) = simulate(seed, None, false);
        eprintln!("{:?}", world.tally);
        if result.is_err() {
            report(seed);
        }
        return;
    }
    let mut steps = 0;
    for seed in 0..number("FORKYARD_SIM_SEEDS").unwrap_or(SEEDS) {
        let (result, world) = simulate(seed, None, false);
        steps += world.tally.steps;
        if result.is_err() {
            report(seed);
        }
    }
    eprintln!("{steps} steps");
}

#[test]
fn a_world_that_is_built_wrong_is_noticed() {
    std::panic::set_hook(Box::new(|_| {}));
    let noticed = MUTANTS.map(|mutant| {
        (
            mutant,
            (0..SEEDS_FOR_MUTANTS).find(|seed| simulate(*seed, Some(mutant), false).0.is_err()),
        )
    });
    let _ = std::panic::take_hook();
    for (mutant, seed) in noticed {
        eprintln!("{mutant:?}: seed {seed:?}");
        assert!(
            seed.is_some(),
            "{mutant:?} is not noticed within {SEEDS_FOR_MUTANTS} seeds"
        );
    }
}

//! The application pool in a simulated world. A seed chooses applications, settings, requests, faults and operator
//! commands. After every event the pool's `invariants` and the independent `shadow` check the actions. In the end,
//! without faults, no request may wait.
//!
//! `FORKYARD_SIM_SEEDS=N` runs more seeds; `FORKYARD_SEED=N` replays one and prints its end.
//! `a_book_that_is_kept_wrong_is_noticed` falsifies messages and expects a failure.

mod fairness;
mod scenario;
mod shadow;
mod world;

use crate::random::{Random, all_are_noticed, number, outcome, print_end, seeds};
use scenario::{MUTANTS, Mutant, Scenario};
use world::World;

const SEEDS: u64 = 1_000;

/// Seeds within which a mutant must be noticed.
const SEEDS_FOR_MUTANTS: u64 = 500;

fn simulate(seed: u64, mutant: Option<Mutant>, verbose: bool) -> (Result<(), String>, World) {
    let mut random = Random::new(seed);
    let scenario = Scenario::new(&mut random, mutant);
    let mut world = World::new(random, scenario, verbose);
    (outcome(|| world.run()), world)
}

fn report(seed: u64) -> ! {
    let (result, world) = simulate(seed, None, true);
    print_end(&world.journal.unwrap_or_default());
    panic!(
        "{:?}\nFORKYARD_SEED={seed}: {}",
        world.scenario,
        result.err().unwrap_or_default()
    );
}

#[test]
fn every_schedule_keeps_the_promises() {
    let mut tally = world::Tally::default();
    for seed in seeds(SEEDS) {
        let (result, world) = simulate(seed, None, false);
        tally.add(world.tally);
        if result.is_err() {
            report(seed);
        }
    }
    eprintln!("{tally:?}");
    let is_replay = number("FORKYARD_SEED").is_some();
    assert!(is_replay || tally.everything_happened(), "{tally:?}");
}

#[test]
fn a_book_that_is_kept_wrong_is_noticed() {
    all_are_noticed(MUTANTS, SEEDS_FOR_MUTANTS, |mutant, seed| {
        simulate(seed, Some(mutant), false).0
    });
}

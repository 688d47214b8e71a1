//! The application pool's book in a simulated world.
//!
//! A seed chooses the applications, their settings, and what happens: requests come and end, wait, give up; instances come
//! up late, fail, never come up, crash, don't stop; applications are restarted, added, removed; the total changes; requests
//! last too long; instances ask for out-of-band work, use too much memory, are disabled and detached. After every event the
//! book's own `invariants` are checked, and `shadow` follows from outside what it was told and what it asked for: it keeps
//! plain lists, looks at all of them each time, and knows which answer was right. In the end the world is well for a long
//! time, and nobody may wait.
//!
//! `FORKYARD_SIM_SEEDS=N` runs more seeds, `FORKYARD_SEED=N` replays one and prints its end.
//!
//! Does it bite? `a_book_that_is_kept_wrong_is_noticed` falsifies what passes between book and world in several ways and
//! expects each to be noticed.

#[path = "../random/mod.rs"]
mod random;
mod scenario;
mod shadow;
mod world;

use random::Random;
use scenario::{MUTANTS, Mutant, Scenario};
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// Seeds in a normal run.
const SEEDS: u64 = 1_000;

/// Seeds within which a falsified world must be noticed.
const SEEDS_FOR_MUTANTS: u64 = 500;

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
        "{:?}\nFORKYARD_SEED={seed}: {}",
        world.scenario,
        result.err().unwrap_or_default()
    );
}

#[test]
fn every_schedule_keeps_the_promises() {
    if let Some(seed) = number("FORKYARD_SEED") {
        if simulate(seed, None, false).0.is_err() {
            report(seed);
        }
        return;
    }
    let mut tally = world::Tally::default();
    for seed in 0..number("FORKYARD_SIM_SEEDS").unwrap_or(SEEDS) {
        let (result, world) = simulate(seed, None, false);
        tally.add(world.tally);
        if result.is_err() {
            report(seed);
        }
    }
    eprintln!("{tally:?}");
    assert!(tally.everything_happened(), "{tally:?}");
}

#[test]
fn a_book_that_is_kept_wrong_is_noticed() {
    std::panic::set_hook(Box::new(|_| {}));
    let noticed = MUTANTS.map(|mutant| {
        let seed = (0..SEEDS_FOR_MUTANTS).find(|seed| simulate(*seed, Some(mutant), false).0.is_err());
        (mutant, seed)
    });
    let _ = std::panic::take_hook();
    for (mutant, seed) in noticed {
        eprintln!("{mutant:?}: seed {seed:?}");
        assert!(seed.is_some(), "{mutant:?} is not noticed");
    }
}

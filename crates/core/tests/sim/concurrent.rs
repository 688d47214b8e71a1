//! `worker::accepting` in a simulated pool of workers with several requests. Connections come singly and in bursts;
//! event loops are blocked, and descriptors run out. The kernel wakes all workers, or the first that sleeps where
//! connections are concentrated.
//!
//! Checks: no connection waits for long while a worker could take it; a worker takes none that a less busy sibling
//! would take, unless it was left to siblings before; where connections are concentrated, a worker without one takes
//! none that enough others would; idle connections end at their deadlines.

mod pool;

use crate::random::{Random, all_are_noticed, outcome, seeds};
use pool::{Mutant, Pool};

const SEEDS: u64 = 400;
const SEEDS_FOR_MUTANTS: u64 = 200;

fn simulate(seed: u64, mutant: Option<Mutant>) -> Result<usize, String> {
    let mut taken = 0;
    outcome(|| {
        let mut pool = Pool::new(Random::new(seed), mutant);
        pool.run();
        assert!(pool.all_are_taken(), "connections are left: {}", pool.scenario());
        taken = pool.taken;
        Ok(())
    })?;
    Ok(taken)
}

#[test]
fn a_worker_that_can_take_a_connection_does_and_the_least_busy_first() {
    let mut taken = 0;
    for seed in seeds(SEEDS) {
        match simulate(seed, None) {
            Ok(count) => taken += count,
            Err(problem) => panic!("FORKYARD_SEED={seed}: {problem}"),
        }
    }
    eprintln!("{taken} connections");
}

#[test]
fn a_worker_that_accepts_otherwise_is_noticed() {
    all_are_noticed(Mutant::ALL, SEEDS_FOR_MUTANTS, |mutant, seed| {
        simulate(seed, Some(mutant)).map(drop)
    });
}

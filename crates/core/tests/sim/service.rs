//! `worker::order` in a simulated pool. Clients with kept and new connections send requests of different lengths; the
//! kernel wakes workers as epoll(7) does with EPOLLEXCLUSIVE, in order of registration.
//!
//! Checks: at most `max_children` requests that came over a millisecond later overtake a request; no worker sleeps for
//! over a millisecond while work waits that it can take; each request is served once. Known gap: a worker that keeps
//! its connections between short requests, which the idle watch hides.

mod pool;

use crate::random::{Random, all_are_noticed, outcome, seeds};
use pool::{Mutant, Pool, Served};

const SEEDS: u64 = 300;
const SEEDS_FOR_MUTANTS: u64 = 300;
/// Microseconds.
const TOLERANCE: u64 = 1_000;

/// The most requests that overtook one and came later by more than [`TOLERANCE`].
fn most_overtaken(served: &mut [Served]) -> usize {
    served.sort_by_key(|request| request.came);
    let overtakes = |(index, request): (usize, &Served)| {
        let later = served[index + 1..].iter();
        let others = later.take_while(|other| other.came < request.begun);
        let is_unfair =
            |other: &&Served| other.came > request.came + TOLERANCE && other.begun < request.begun;
        others.filter(is_unfair).count()
    };
    served.iter().enumerate().map(overtakes).max().unwrap_or(0)
}

fn simulate(seed: u64, mutant: Option<Mutant>) -> Result<(usize, usize), String> {
    let mut result = (0, 0);
    outcome(|| {
        let mut pool = Pool::new(Random::new(seed), mutant);
        pool.run();
        let most = most_overtaken(&mut pool.served);
        let (count, workers) = (pool.served.len(), pool.workers());
        assert!(
            most <= workers,
            "{most} overtook one of {count}: {}",
            pool.scenario()
        );
        result = (count, most);
        Ok(())
    })?;
    Ok(result)
}

#[test]
fn requests_are_served_in_the_order_in_which_they_came() {
    let (mut count, mut most) = (0, 0);
    for seed in seeds(SEEDS) {
        match simulate(seed, None) {
            Ok((served, overtaken)) => {
                count += served;
                most = most.max(overtaken);
            }
            Err(problem) => panic!("FORKYARD_SEED={seed}: {problem}"),
        }
    }
    eprintln!("{count} requests; at most {most} overtook one");
}

#[test]
fn a_worker_that_serves_otherwise_is_noticed() {
    all_are_noticed(Mutant::ALL, SEEDS_FOR_MUTANTS, |mutant, seed| {
        simulate(seed, Some(mutant)).map(drop)
    });
}

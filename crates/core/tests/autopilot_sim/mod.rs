//! Simulates the autopilot over many kinds of work and sizes of machines.
//!
//! The long form prints a table, for each seed in `FORKYARD_SEED` or the first `FORKYARD_SIM_SEEDS`:
//! `cargo test --release -p forkyard-core --test simulations -- autopilot_sim::table --ignored --nocapture`.
//! `FORKYARD_HOT=1`: overloaded from the first second on.

mod chance;
mod properties;
mod station;
mod table;
mod workload;
mod world;

use crate::random::{number, seeds};
use table::{Shares, best, score};
use workload::{CONTAINERS, workloads};
use world::{Rule, run};

/// Percent of all pairs, and of the pairs with 512 MiB or more.
const ALL: u32 = 86;
const LARGE: u32 = 91;

#[test]
#[ignore = "computes for minutes; the quick form is below"]
fn table_of_all_workloads_and_containers() {
    let hot = number("FORKYARD_HOT").is_some();
    let workloads = workloads(hot);
    let rules = [Rule::Today, Rule::Auto];
    let (mut all, mut large) = ([Shares::default(); 2], [Shares::default(); 2]);
    let chosen = |variable: &str, index: usize| number(variable).is_none_or(|number| number == index as u64);
    for seed in seeds(3) {
        println!("seed {seed}: best, and number, work, p99, killed of today's rule and of the autopilot");
        for (index, workload) in workloads
            .iter()
            .enumerate()
            .filter(|(index, _)| chosen("FORKYARD_WORKLOAD", *index))
        {
            for (at, container) in CONTAINERS
                .iter()
                .enumerate()
                .filter(|(at, _)| chosen("FORKYARD_CONTAINER", *at))
            {
                let title = format!(
                    "{index:>2} {:24} {at} {:>4} × {:>5}",
                    workload.name, container.cores, container.memory
                );
                let Some(best) = best(workload, *container, seed) else {
                    println!("{title}: every fixed number has somebody killed");
                    continue;
                };
                let scores = rules.map(|rule| score(workload, *container, rule, seed, &best));
                for (place, score) in scores.iter().enumerate() {
                    all[place].add(score);
                    if container.memory >= 512.0 {
                        large[place].add(score);
                    }
                }
                let [today, auto] = &scores;
                let misses = if auto.is_enough() { ' ' } else { '!' };
                let settled = match workload.name {
                    "tenfold step" => format!(", settled after {:?} s", auto.settled),
                    _ => String::new(),
                };
                println!(
                    "{title}:{misses}{:>5} | {today} | {auto} {}{settled}",
                    best.number, auto.reason
                );
            }
        }
    }
    for (place, rule) in rules.iter().enumerate() {
        println!(
            "{rule:?}: {}\n{rule:?} from 512 MiB: {}",
            all[place], large[place]
        );
    }
    println!("wanted: {ALL} % of all, {LARGE} % from 512 MiB");
    let is_part = ["FORKYARD_WORKLOAD", "FORKYARD_CONTAINER", "FORKYARD_HOT"]
        .into_iter()
        .any(|name| number(name).is_some());
    let [_, auto] = all.map(|shares| shares.percent_of_all());
    let [_, auto_large] = large.map(|shares| shares.percent_of_all());
    assert!(
        is_part || (auto >= ALL && auto_large >= LARGE),
        "{auto} % of all, {auto_large} % from 512 MiB"
    );
}

/// A few pairs that each rule of the algorithm is there for.
#[test]
fn the_autopilot_is_nearly_as_good_as_the_best_number() {
    let workloads = workloads(false);
    let rows = [
        ("computing", 2),
        ("mixed", 3),
        ("leaking", 2),
        ("database", 3),
        ("waiting", 2),
    ];
    for (name, container) in rows {
        let workload = workloads
            .iter()
            .find(|workload| workload.name == name)
            .expect("a workload");
        let best = best(workload, CONTAINERS[container], 7).expect("a number");
        let auto = score(workload, CONTAINERS[container], Rule::Auto, 7, &best);
        assert!(
            auto.is_enough(),
            "{name}: best {}, {auto} {}",
            best.number,
            auto.reason
        );
    }
}

#[test]
fn a_tenfold_step_settles_within_ten_seconds() {
    let workloads = workloads(false);
    let workload = workloads
        .iter()
        .find(|workload| workload.name == "tenfold step")
        .expect("a workload");
    for container in &CONTAINERS[..5] {
        for seed in 0..2 {
            let outcome = run(workload, *container, Rule::Auto, seed);
            let settled = table::settled(&outcome);
            assert!(
                settled.is_some_and(|seconds| seconds <= 10),
                "{container:?}: {settled:?}"
            );
            assert_eq!(outcome.killed, 0, "{container:?}");
        }
    }
}

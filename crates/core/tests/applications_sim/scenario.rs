//! A seed's scenario.

use crate::random::Random;
use forkyard_core::applications::{Options, RestartMethod};
use std::num::NonZeroU32;

/// Ways to falsify messages between pool and world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    LendsAnother,
    LosesCloses,
    /// Reports a refusal that did not happen.
    AnswersTwice,
    LosesLends,
    LosesStops,
    RaisesMax,
    LowersMinimum,
    ServesMore,
    SwapsLends,
    LateDeadlines,
    LengthensQueue,
    IgnoresReserve,
}

pub(crate) const MUTANTS: [Mutant; 12] = [
    Mutant::LendsAnother,
    Mutant::LosesCloses,
    Mutant::AnswersTwice,
    Mutant::LosesLends,
    Mutant::LosesStops,
    Mutant::RaisesMax,
    Mutant::LowersMinimum,
    Mutant::ServesMore,
    Mutant::SwapsLends,
    Mutant::LateDeadlines,
    Mutant::LengthensQueue,
    Mutant::IgnoresReserve,
];

/// Percentages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faults {
    pub spawn_fails: u32,
    pub spawn_hangs: u32,
    pub crashes: u32,
    pub ignores_stop: u32,
    pub fails: u32,
    pub hangs: u32,
}

#[derive(Debug)]
pub(crate) struct Scenario {
    pub mutant: Option<Mutant>,
    pub max: u32,
    pub most_spawning: u32,
    pub reserve: u32,
    /// Options of each application; the first `added` are added at the start, in one group.
    pub apps: Vec<Options>,
    pub added: usize,
    /// Instances of an earlier pool.
    pub adopted: u32,
    pub faults: Faults,
    pub steps: u32,
    /// Percentage of operator commands among the steps.
    pub orders: u32,
    /// Percentage of requests for the first application.
    pub flood: u32,
}

fn some(random: &mut Random, low: u32, high: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(random.between(low, high)).filter(|_| random.percent(50))
}

pub(crate) fn options(random: &mut Random) -> Options {
    Options {
        max_per_app: some(random, 1, 4),
        min_instances: if random.percent(30) {
            random.between(1, 3)
        } else {
            0
        },
        max_requests: some(random, 1, 6),
        max_requests_jitter: random.between(0, 2),
        max_idle_time: random.percent(60).then(|| random.millis(10, 3_000)),
        concurrency: [NonZeroU32::new(1), NonZeroU32::new(1), NonZeroU32::new(3), None][random.below(4)],
        spread: some(random, 1, 4),
        use_global_queue: random.percent(60),
        max_request_queue_size: some(random, 1, 10),
        start_timeout: random.millis(50, 2_000),
        drain_timeout: random.percent(50).then(|| random.millis(1, 1_000)),
        stop_timeout: random.millis(1, 500),
        max_request_time: random.percent(30).then(|| random.millis(100, 2_000)),
        memory_limit: random.percent(30).then_some(100),
        work_timeout: random.millis(10, 500),
        restart_method: random.pick(&[
            RestartMethod::Blocking,
            RestartMethod::Rolling,
            RestartMethod::Fitting,
        ]),
        shares_program: random.percent(25),
        user: random.pick(&[0, 1, 1, 1, 2]),
    }
}

impl Scenario {
    pub(crate) fn new(random: &mut Random, mutant: Option<Mutant>) -> Scenario {
        let apps: Vec<Options> = (0..random.between(1, 6)).map(|_| options(random)).collect();
        let mut fault = |percents: &[u32]| {
            if random.percent(35) {
                random.pick(percents)
            } else {
                0
            }
        };
        let faults = Faults {
            spawn_fails: fault(&[5, 30, 100]),
            spawn_hangs: fault(&[5, 30]),
            crashes: fault(&[2, 10]),
            ignores_stop: fault(&[10, 100]),
            fails: fault(&[5, 30]),
            hangs: fault(&[1, 5]),
        };
        Scenario {
            mutant,
            max: random.between(1, 6),
            most_spawning: random.pick(&[1, 2, 32]),
            reserve: random.pick(&[0, 0, 1, 1, 2, 5]),
            added: random.below(apps.len() + 1),
            adopted: if random.percent(30) {
                random.between(1, 8)
            } else {
                0
            },
            apps,
            faults,
            steps: random.between(50, 400),
            orders: random.pick(&[0, 5, 20]),
            flood: random.pick(&[0, 50, 90]),
        }
    }
}

//! A seed's scenario: configurations, load and faults.

use crate::random::Random;
use forkyard_core::config::{EmergencyRestart, ProcessManager};
use forkyard_core::master::event::{CoreConfig, GenerationId, Policy, PoolId, PreloaderPolicy, WantedPool};
use std::time::Duration;

/// Percentages of faults.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) fork_fails: u32,
    pub(crate) dies_before_up: u32,
    pub(crate) dies_accepting: u32,
    pub(crate) dies_before_telling: u32,
    pub(crate) dies_executing: u32,
    pub(crate) ignores_term: u32,
    pub(crate) freezes: u32,
    pub(crate) preloader_hangs: u32,
    pub(crate) preloader_dies: u32,
    pub(crate) preloader_is_mute: u32,
    pub(crate) hostile: u32,
}

impl Faults {
    pub(crate) fn none(self) -> bool {
        let Faults {
            fork_fails,
            dies_before_up,
            dies_accepting,
            dies_before_telling,
            dies_executing,
            ..
        } = self;
        let Faults {
            ignores_term,
            freezes,
            preloader_hangs,
            preloader_dies,
            preloader_is_mute,
            hostile,
            ..
        } = self;
        fork_fails + dies_before_up + dies_accepting + dies_before_telling + dies_executing == 0
            && ignores_term + freezes + preloader_hangs + preloader_dies + preloader_is_mute + hostile == 0
    }
}

/// Errors built into the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    SnapshotBeforeWakeOnAccept,
    LoadBeforeStore,
    SilentFirstAccept,
    WakeOnAcceptLost,
    WatchLost,
    EdgeTriggered,
    LeavesWhenWoken,
    ExitLost,
    NextMoldLost,
    MoldNotSwitched,
    NextMoldStays,
    TwoNextMolds,
    ShareStays,
}

pub(crate) const SHARE_MUTANTS: [Mutant; 1] = [Mutant::ShareStays];

pub(crate) const REFORK_MUTANTS: [Mutant; 4] = [
    Mutant::NextMoldLost,
    Mutant::MoldNotSwitched,
    Mutant::NextMoldStays,
    Mutant::TwoNextMolds,
];

pub(crate) const MUTANTS: [Mutant; 8] = [
    Mutant::SnapshotBeforeWakeOnAccept,
    Mutant::LoadBeforeStore,
    Mutant::SilentFirstAccept,
    Mutant::WakeOnAcceptLost,
    Mutant::WatchLost,
    Mutant::EdgeTriggered,
    Mutant::LeavesWhenWoken,
    Mutant::ExitLost,
];

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) faults: Faults,
    /// Whether the queue's length can be measured.
    pub(crate) measures: bool,
    pub(crate) reloads: bool,
    pub(crate) keeps: bool,
    /// Requests after which workers exit by themselves.
    pub(crate) max_requests: Option<u32>,
    pub(crate) happenings: u32,
    pub(crate) burst: u32,
    pub(crate) slow_millis: u32,
    pub(crate) pools: u32,
    pub(crate) process_max: Option<u32>,
    pub(crate) preloaders: bool,
    pub(crate) timeouts: bool,
    pub(crate) slow_logs: bool,
    pub(crate) emergencies: bool,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) masters_die: bool,
    /// Requests before a refork; 0: never.
    pub(crate) refork_after: u32,
    /// Whether new generations begin with a part of the requests.
    pub(crate) shares: bool,
}

impl Scenario {
    pub(crate) fn new(random: &mut Random, mutant: Option<Mutant>) -> Scenario {
        let faulty = mutant.is_none() && random.percent(60);
        let pools = random.between(1, 3);
        let capped = random.percent(35);
        Scenario {
            faults: if faulty { faults(random) } else { Faults::default() },
            measures: random.percent(60),
            reloads: random.percent(40),
            keeps: random.percent(40),
            max_requests: random.percent(30).then(|| random.between(1, 6)),
            happenings: random.between(10, 60),
            burst: random.pick(&[1, 2, 5, 12]),
            slow_millis: random.pick(&[1, 20, 400, 4_000]),
            pools,
            process_max: capped.then(|| random.between(1, 3 * pools + 2)),
            preloaders: random.percent(40),
            timeouts: random.percent(40),
            slow_logs: mutant.is_none() && random.percent(40),
            emergencies: mutant.is_none() && random.percent(30),
            mutant,
            masters_die: false,
            refork_after: 0,
            shares: false,
        }
    }

    pub(crate) fn wanted(&self, random: &mut Random, pools: &[(PoolId, GenerationId)]) -> CoreConfig {
        CoreConfig {
            process_max: self.process_max,
            control_timeout: Duration::from_millis(random.pick(&[0_u64, 500, 5_000])),
            emergency: (self.emergencies && random.percent(80)).then(|| EmergencyRestart {
                threshold: random.between(1, 4),
                interval: random.millis(500, 20_000),
            }),
            gives_up: random.percent(50),
            pools: pools
                .iter()
                .map(|(pool, generation)| WantedPool {
                    pool: *pool,
                    generation: *generation,
                    policy: self.policy(random),
                    // Derived without a random number.
                    trial: generation.0 % 3 == 0,
                    share: (self.shares && random.percent(70)).then(|| random.pick(&[0, 1, 10, 50, 100])),
                })
                .collect(),
        }
    }

    fn policy(&self, random: &mut Random) -> Policy {
        let pm = process_manager(random);
        let terminate_timeout = (self.timeouts && random.percent(60)).then(|| random.millis(200, 6_000));
        let stop_timeout = random.millis(200, 12_000);
        Policy {
            pm,
            choice: None,
            terminate_timeout,
            concurrency: 1,
            // Derived without a random number.
            drain_timeout: terminate_timeout
                .filter(|limit| limit.as_millis() % 3 == 0)
                .map(|limit| limit * 2),
            stop_timeout,
            // Derived without a random number.
            starts_from_disk: !self.preloaders && self.refork_after == 0 && stop_timeout.as_millis() % 2 == 0,
            slow_timeout: (self.slow_logs && random.percent(60)).then(|| random.millis(50, 3_000)),
            preloader: (self.preloaders && random.percent(60) || self.refork_after > 0).then(|| {
                PreloaderPolicy {
                    start_timeout: random.millis(500, 5_000),
                    idle_timeout: random.millis(1, 20_000),
                    reforks: self.refork_after > 0,
                    is_needed_by_workers: self.refork_after == 0 && random.percent(30),
                }
            }),
        }
    }
}

fn faults(random: &mut Random) -> Faults {
    let mut some = |percents: &[u32]| {
        if random.percent(35) {
            random.pick(percents)
        } else {
            0
        }
    };
    Faults {
        fork_fails: some(&[5, 30, 90]),
        dies_before_up: some(&[5, 30, 90]),
        dies_accepting: some(&[1, 5]),
        dies_before_telling: some(&[3, 20]),
        dies_executing: some(&[3, 20]),
        ignores_term: some(&[30, 100]),
        freezes: some(&[1]),
        preloader_hangs: some(&[20, 100]),
        preloader_dies: some(&[5, 50]),
        preloader_is_mute: some(&[10]),
        hostile: some(&[10, 60]),
    }
}

fn process_manager(random: &mut Random) -> ProcessManager {
    let max_children = random.between(1, 6);
    let process_idle_timeout = random.millis(100, 12_000);
    match random.below(4) {
        0 => ProcessManager::Static { max_children },
        1 => {
            let min_spare_servers = random.between(1, max_children);
            let max_spare_servers = random.between(min_spare_servers, max_children);
            ProcessManager::Dynamic {
                max_children,
                start_servers: random.between(min_spare_servers, max_spare_servers),
                min_spare_servers,
                max_spare_servers,
                max_spawn_rate: random.between(1, 4),
                process_idle_timeout,
            }
        }
        _ => ProcessManager::Ondemand {
            max_children,
            process_idle_timeout,
        },
    }
}

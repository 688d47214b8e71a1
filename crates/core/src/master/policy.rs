//! How many workers static, dynamic and ondemand pools need: numbers in, numbers out.

use super::event::WorkerId;
use super::snapshot::Idle;
use crate::config::ProcessManager;
use forkyard_base::tick::Tick;
use std::time::Duration;

/// The most workers of an ondemand generation that start at a time, as `pm.max_spawn_rate` by default.
pub(super) const STARTING_AT_MOST: u32 = 32;

/// How long a worker stays idle while another generation shares the requests.
const IDLE_IN_SHARE: Duration = Duration::from_secs(1);

/// The least time until a busy worker is checked again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The figures for `growth`, from a snapshot (`snapshot::View`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Load {
    /// Workers not told to exit.
    pub kept: u32,
    /// Idle workers and workers with room, without the ones that let work wait.
    pub idle: u32,
    /// Workers that are not up. Each will take work or report that there is none.
    pub starting: u32,
    /// Waiting connections, if known.
    pub waiting: Option<u32>,
    /// Workers to fork even if enough are idle: replacements, and those missing from `start_servers`.
    pub to_replace: u32,
}

pub(super) fn at_start(pm: ProcessManager) -> u32 {
    match pm {
        ProcessManager::Static { max_children } => max_children,
        ProcessManager::Dynamic {
            start_servers,
            max_children,
            ..
        } => start_servers.min(max_children),
        ProcessManager::Ondemand { .. } | ProcessManager::Ordered { .. } => 0,
    }
}

/// How many workers must be up to replace a generation with `running` workers, of which `busy` are at work.
pub(super) fn warm(pm: ProcessManager, running: u32, busy: u32) -> u32 {
    let like_before = match pm {
        ProcessManager::Static { .. } | ProcessManager::Dynamic { .. } => running,
        // At least one, as proof that the new generation can have workers.
        ProcessManager::Ondemand { .. } => busy.max(1),
        ProcessManager::Ordered { .. } => 0,
    };
    at_start(pm).max(like_before).min(pm.max_children())
}

/// How many workers to fork now, maybe more than free slots. Called by `fill`, `fork_spare` and `source_counted`.
pub(super) fn growth(pm: ProcessManager, load: Load) -> u32 {
    let ready = load.idle.saturating_add(load.starting);
    match pm {
        ProcessManager::Static { max_children } => max_children.saturating_sub(load.kept),
        ProcessManager::Dynamic {
            min_spare_servers,
            max_spare_servers,
            max_spawn_rate,
            ..
        } => {
            let missing = if load.idle < min_spare_servers {
                min_spare_servers
                    .saturating_add(load.waiting.unwrap_or(0))
                    .saturating_sub(ready)
            } else {
                0
            };
            // A worker may have died with the kernel's wake-up; only a new worker looks without one.
            let unnoticed = load.waiting.unwrap_or(u32::MAX);
            let to_replace = load
                .to_replace
                .min(max_spare_servers.saturating_sub(ready).max(unnoticed));
            missing
                .max(to_replace)
                .min(max_spawn_rate.saturating_sub(load.starting))
        }
        ProcessManager::Ondemand { .. } => load
            .waiting
            .unwrap_or(0)
            .saturating_sub(ready)
            .min(STARTING_AT_MOST.saturating_sub(load.starting)),
        // Spawn requests are counted elsewhere.
        ProcessManager::Ordered { .. } => 0,
    }
}

/// The manager of a generation that gives requests up to another one: it keeps few idle workers, and not for long, because
/// both are in memory.
pub(super) fn sharing(pm: ProcessManager) -> ProcessManager {
    let mut pm = pm;
    match &mut pm {
        ProcessManager::Static { .. } | ProcessManager::Ordered { .. } => {}
        ProcessManager::Dynamic {
            min_spare_servers,
            max_spare_servers,
            process_idle_timeout,
            ..
        } => {
            *max_spare_servers = *min_spare_servers;
            *process_idle_timeout = IDLE_IN_SHARE.min(*process_idle_timeout);
        }
        ProcessManager::Ondemand {
            process_idle_timeout, ..
        } => *process_idle_timeout = IDLE_IN_SHARE.min(*process_idle_timeout),
    }
    pm
}

/// When to check for workers that were idle too long, if any of the `kept` can be surplus.
pub(super) fn shrinks(pm: ProcessManager, kept: u32) -> Option<Duration> {
    match pm {
        ProcessManager::Static { .. } | ProcessManager::Ordered { .. } => None,
        ProcessManager::Dynamic {
            max_spare_servers,
            process_idle_timeout,
            ..
        } => (kept > max_spare_servers).then_some(process_idle_timeout.max(LOOK_AGAIN)),
        ProcessManager::Ondemand {
            process_idle_timeout, ..
        } => (kept > 0).then_some(process_idle_timeout.max(LOOK_AGAIN)),
    }
}

#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Surplus {
    /// Surplus workers, longest idle first.
    pub retire: Vec<WorkerId>,
    /// The time until another may be surplus; `None`: when busy workers are checked.
    pub look_after: Option<Duration>,
}

/// Selects idle workers beyond the limit that have been idle long enough. `last`: the pool has only one worker.
pub(super) fn surplus(pm: ProcessManager, mut idle: Vec<Idle>, last: bool, now: Tick) -> Surplus {
    let (most, timeout) = match pm {
        ProcessManager::Static { .. } | ProcessManager::Ordered { .. } => {
            return Surplus::default();
        }
        ProcessManager::Dynamic {
            max_spare_servers,
            process_idle_timeout,
            ..
        } => (max_spare_servers, process_idle_timeout),
        ProcessManager::Ondemand {
            process_idle_timeout, ..
        } => (0, process_idle_timeout),
    };
    idle.sort_by_key(|idle| (idle.since, idle.worker));
    // The last worker has no sibling to hand kept connections to.
    idle.retain(|idle| !(last && idle.keeps));
    let too_many = idle.len().saturating_sub(most as usize);
    let (due, later): (Vec<Idle>, Vec<Idle>) = idle
        .into_iter()
        .take(too_many)
        .partition(|idle| now.since(idle.since) >= timeout);
    Surplus {
        retire: due.into_iter().map(|idle| idle.worker).collect(),
        look_after: later
            .first()
            .map(|idle| timeout.saturating_sub(now.since(idle.since))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn dynamic() -> ProcessManager {
        ProcessManager::Dynamic {
            max_children: 20,
            start_servers: 3,
            min_spare_servers: 2,
            max_spare_servers: 4,
            max_spawn_rate: 8,
            process_idle_timeout: TIMEOUT,
        }
    }

    fn ondemand() -> ProcessManager {
        ProcessManager::Ondemand {
            max_children: 5,
            process_idle_timeout: TIMEOUT,
        }
    }

    fn idle(worker: u64, since: u64, keeps: bool) -> Idle {
        let since = Tick::ZERO + Duration::from_secs(since);
        Idle {
            worker: WorkerId(worker),
            since,
            keeps,
            stalled: false,
        }
    }

    #[test]
    fn ondemand_makes_one_worker_for_each_that_waits_and_has_none() {
        let load = |waiting, idle, starting| Load {
            waiting: Some(waiting),
            idle,
            starting,
            ..Load::default()
        };
        assert_eq!(growth(ondemand(), load(1, 0, 0)), 1);
        assert_eq!(growth(ondemand(), load(4, 1, 1)), 2);
        assert_eq!(growth(ondemand(), load(1, 1, 0)), 0);
        assert_eq!(
            growth(ondemand(), load(1_000, 0, 30)),
            2,
            "never more than {STARTING_AT_MOST} at once"
        );
    }

    #[test]
    fn dynamic_fills_up_its_spare_workers_and_serves_the_queue() {
        let load = |waiting, idle, starting| Load {
            waiting: Some(waiting),
            idle,
            starting,
            ..Load::default()
        };
        assert_eq!(growth(dynamic(), load(0, 2, 0)), 0);
        assert_eq!(growth(dynamic(), load(0, 1, 0)), 1);
        assert_eq!(growth(dynamic(), load(0, 0, 2)), 0);
        assert_eq!(growth(dynamic(), load(3, 0, 1)), 4);
        assert_eq!(growth(dynamic(), load(99, 0, 3)), 5, "bounded by max_spawn_rate");
        assert_eq!(
            growth(dynamic(), load(9, 2, 0)),
            0,
            "the idle ones are about to take it"
        );
    }

    #[test]
    fn dynamic_replaces_what_ended_but_not_beyond_its_spare_workers() {
        let load = |to_replace, idle| Load {
            to_replace,
            idle,
            waiting: Some(0),
            ..Load::default()
        };
        assert_eq!(growth(dynamic(), load(1, 3)), 1);
        assert_eq!(growth(dynamic(), load(3, 3)), 1);
        assert_eq!(growth(dynamic(), load(3, 4)), 0);
        assert_eq!(
            growth(
                dynamic(),
                Load {
                    waiting: Some(1),
                    ..load(3, 4)
                }
            ),
            1
        );
        assert_eq!(
            growth(
                dynamic(),
                Load {
                    waiting: None,
                    ..load(3, 4)
                }
            ),
            3
        );
    }

    #[test]
    fn a_new_generation_is_as_large_as_the_old_one() {
        assert_eq!(warm(dynamic(), 9, 4), 9);
        assert_eq!(warm(dynamic(), 1, 0), 3);
        assert_eq!(warm(dynamic(), 99, 0), 20);
        assert_eq!(warm(ondemand(), 9, 4), 4);
        assert_eq!(warm(ondemand(), 9, 0), 1);
        assert_eq!(warm(ProcessManager::Static { max_children: 6 }, 2, 2), 6);
    }

    #[test]
    fn dynamic_retires_the_longest_idle_of_its_surplus_when_they_are_due() {
        let now = Tick::ZERO + Duration::from_secs(20);
        let workers = (0..6).map(|n| idle(n, 6 + 2 * n, false)).collect();
        let surplus = surplus(dynamic(), workers, false, now);
        assert_eq!(surplus.retire, [WorkerId(0), WorkerId(1)]);
        assert_eq!(surplus.look_after, None);
    }

    #[test]
    fn ondemand_retires_all_that_are_due_and_names_the_next() {
        let now = Tick::ZERO + Duration::from_secs(20);
        let surplus = surplus(ondemand(), vec![idle(1, 14, false), idle(2, 9, true)], false, now);
        assert_eq!(surplus.retire, [WorkerId(2)]);
        assert_eq!(surplus.look_after, Some(Duration::from_secs(4)));
    }

    #[test]
    fn the_last_worker_stays_while_it_keeps_connections() {
        let now = Tick::ZERO + Duration::from_secs(20);
        assert_eq!(surplus(ondemand(), vec![idle(1, 0, true)], true, now).retire, []);
        assert_eq!(
            surplus(ondemand(), vec![idle(1, 0, false)], true, now).retire,
            [WorkerId(1)]
        );
    }

    #[test]
    fn a_generation_that_gives_requests_up_keeps_few_idle_workers() {
        let now = Tick::ZERO + Duration::from_secs(20);
        let retired = |pm| {
            let workers = (0..6).map(|n| idle(n, 14 + n, false)).collect();
            surplus(sharing(pm), workers, false, now).retire.len()
        };
        assert_eq!(retired(dynamic()), 4);
        assert_eq!(retired(ondemand()), 6);
        assert_eq!(retired(ProcessManager::Static { max_children: 6 }), 0);
    }

    #[test]
    fn nothing_ticks_where_there_can_be_no_surplus() {
        assert_eq!(shrinks(dynamic(), 4), None);
        assert_eq!(shrinks(dynamic(), 5), Some(TIMEOUT));
        assert_eq!(shrinks(ondemand(), 0), None);
        assert_eq!(shrinks(ProcessManager::Static { max_children: 9 }, 9), None);
    }
}

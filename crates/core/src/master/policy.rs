//! How many workers static, dynamic and ondemand want: numbers in, numbers out.

use super::event::WorkerId;
use super::snapshot::Idle;
use crate::config::ProcessManager;
use crate::tick::Tick;
use std::time::Duration;

/// The most workers of an ondemand generation that are being made at the same time: the default of `pm.max_spawn_rate`, which ondemand
/// pools do not have.
pub(super) const STARTING_AT_MOST: u32 = 32;

/// The soonest that a busy worker is looked at again, if `process_idle_timeout` is shorter.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The numbers of a generation that `growth` decides by, from a snapshot (`snapshot::View`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Load {
    /// Workers that were not told to go.
    pub kept: u32,
    /// Those that are idle, or have room for another request. Not counted: those that said they were idle at the last snapshot,
    /// and have left work waiting since.
    pub idle: u32,
    /// Those that are not up yet. Each will take work, or say that there is none.
    pub starting: u32,
    /// Connections that wait, if that is known.
    pub waiting: Option<u32>,
    /// Workers to be made even if enough are idle: in place of those that ended by themselves, and those of `start_servers` that
    /// could not be made yet.
    pub to_replace: u32,
}

/// How many workers a generation that serves has from the start.
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

/// How many workers a generation has up before it replaces one (`take_over_if_warm` in `reload.rs`) that has `running` workers,
/// `busy` of them with work.
pub(super) fn warm(pm: ProcessManager, running: u32, busy: u32) -> u32 {
    let like_before = match pm {
        ProcessManager::Static { .. } | ProcessManager::Dynamic { .. } => running,
        // At least one, which shows that the new generation can have workers.
        ProcessManager::Ondemand { .. } => busy.max(1),
        ProcessManager::Ordered { .. } => 0,
    };
    at_start(pm).max(like_before).min(pm.max_children())
}

/// How many workers to make now. May be more than there are slots: `fork_workers` in `fork.rs` finds out and says so.
///
/// Asked for a static pool when a worker is gone (`fill` in `fork.rs`); for a dynamic one when workers have told that too few are
/// idle, or one is gone (`fork_spare` in `dynamic.rs`); for an ondemand one when a connection waits (`source_counted` in
/// `ondemand.rs`).
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
            // A worker may have died with the wake-up for a connection. The idle ones then do not know of the
            // connection: only a new worker looks without having been woken.
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
        // Orders are counted where they are kept.
        ProcessManager::Ordered { .. } => 0,
    }
}

/// When to look for workers that have been idle for too long, if there can be any: `kept` of them.
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

/// What to do about idle workers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Surplus {
    /// These have been idle for too long, the longest first.
    pub retire: Vec<WorkerId>,
    /// After this time another may have been; `None`: whenever busy ones are looked at.
    pub look_after: Option<Duration>,
}

/// Which idle workers are too many and have been idle for long enough. `last`: the pool has one worker only.
pub(super) fn surplus(pm: ProcessManager, mut idle: Vec<Idle>, last: bool, now: Tick) -> Surplus {
    let (most, timeout) = match pm {
        ProcessManager::Static { .. } | ProcessManager::Ordered { .. } => {
            return Surplus {
                retire: Vec::new(),
                look_after: None,
            };
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
    // The last worker has no sibling to which it could hand what it keeps.
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
    fn nothing_ticks_where_there_can_be_no_surplus() {
        assert_eq!(shrinks(dynamic(), 4), None);
        assert_eq!(shrinks(dynamic(), 5), Some(TIMEOUT));
        assert_eq!(shrinks(ondemand(), 0), None);
        assert_eq!(shrinks(ProcessManager::Static { max_children: 9 }, 9), None);
    }
}

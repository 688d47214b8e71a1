//! Estimates how many descriptors the master needs and stores with its keeper or service manager, to warn in advance.

use super::model::{Config, Pool, ProcessManager};

/// Standard streams, log, control socket and its connections, epoll, signals and zygotes.
const OWN: u64 = 64;
const UNUSED: u64 = 1;
/// A used pool: scoreboard, OPcache memory, and both ends of hand-off queue, accept-notify pipe and messages.
const USED: u64 = 8;
/// OPcache memory is not stored: it fits only one zygote.
const USED_AND_LEFT: u64 = USED - 1;
const LEFT: u64 = 4;
/// The ends of the lanes' queues.
const LANES: u64 = 4;
/// Both ends of the access log socket.
const ACCESS: u64 = 2;
const APP_LOG: u64 = 1;
const WORKER: u64 = 1;
const OUTPUT: u64 = 2;
/// The assumed number of workers if the autopilot chooses it for a static pool. Few machines have room for more.
const CHOSEN: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// Needed with only permanent workers.
    pub least: u64,
    /// Needed with at least one worker per pool.
    pub used: u64,
    /// Descriptors of `used` that are stored for the next master.
    pub left: u64,
}

pub fn descriptors(config: &Config) -> Descriptors {
    let mut all = Descriptors {
        least: OWN,
        used: OWN,
        left: LEFT,
    };
    all.left += u64::from(config.jobs.as_ref().is_some_and(|jobs| jobs.tcp.is_some()));
    for pool in &config.pools {
        let (unused, used) = (unused(pool), used(pool));
        all.least += if workers_at_rest(pool) > 0 { used } else { unused };
        all.used += used;
        all.left += left(pool);
    }
    all
}

fn listening(pool: &Pool) -> u64 {
    UNUSED + u64::from(pool.pages.status_listen.is_some()) + u64::from(pool.http_listen.is_some())
}

fn unused(pool: &Pool) -> u64 {
    let logs = &pool.logs;
    let open = [
        logs.access.is_some(),
        logs.slow_log.is_some(),
        logs.app_log.is_some(),
    ];
    listening(pool) + open.into_iter().map(u64::from).sum::<u64>()
}

fn used(pool: &Pool) -> u64 {
    let app_log = if pool.logs.app_log.is_some() { APP_LOG } else { 0 };
    unused(pool) + USED + app_log + with_workers(pool)
}

fn left(pool: &Pool) -> u64 {
    listening(pool) + USED_AND_LEFT + with_workers(pool)
}

fn with_workers(pool: &Pool) -> u64 {
    let access = if pool.logs.access.is_some() { ACCESS } else { 0 };
    let worker = WORKER + if pool.logs.catch_workers_output { OUTPUT } else { 0 };
    let lanes = if pool.load.lanes.is_some() { LANES } else { 0 };
    access + lanes + worker * u64::from(workers_at_rest(pool).max(1))
}

fn workers_at_rest(pool: &Pool) -> u32 {
    match pool.pm {
        ProcessManager::Static { max_children } if pool.load.has_autopilot => max_children.min(CHOSEN),
        ProcessManager::Static { max_children } => max_children,
        ProcessManager::Dynamic {
            min_spare_servers, ..
        } => min_spare_servers,
        ProcessManager::Ondemand { .. } | ProcessManager::Ordered { .. } => 0,
    }
}

//! How many descriptors the master needs for the pools of a configuration, and how many it leaves with a keeper or a service
//! manager, so that a shortage is said before it is there.

use super::model::{Config, Pool, ProcessManager};

/// What the master has for itself: streams, log, control socket, epoll, signals, zygotes, connections to the control socket.
const OWN: u64 = 64;
/// A listening socket.
const UNUSED: u64 = 1;
/// Of a pool with processes: scoreboard, OPcache's memory, and two ends of the hand-off queue, the accept-notify pipe and the
/// messages.
const USED: u64 = 8;
/// Of these OPcache's memory alone is not left for a next master: what is in it fits one zygote.
const USED_AND_LEFT: u64 = USED - 1;
/// The two copies of the document, and the configuration.
const LEFT: u64 = 3;
/// Two ends of the socket in which the access log lies.
const ACCESS: u64 = 2;
/// What goes into the application's log is sent over.
const APP_LOG: u64 = 1;
/// A worker's stop pipe.
const WORKER: u64 = 1;
/// Its output.
const OUTPUT: u64 = 2;

/// What pools need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// When no pool is used, and those have their workers that always have some.
    pub least: u64,
    /// When every pool has one worker, or as many as it always has.
    pub used: u64,
    /// How many of the latter are left for a next master.
    pub left: u64,
}

/// What the pools of a configuration need.
pub fn descriptors(config: &Config) -> Descriptors {
    let mut all = Descriptors {
        least: OWN,
        used: OWN,
        left: LEFT,
    };
    all.left += u64::from(config.jobs.as_ref().is_some_and(|jobs| jobs.tcp.is_some()));
    for pool in &config.pools {
        let (unused, used) = (unused(pool), used(pool));
        all.least += if workers_at_rest(pool.pm) > 0 {
            used
        } else {
            unused
        };
        all.used += used;
        all.left += left(pool);
    }
    all
}

fn listening(pool: &Pool) -> u64 {
    UNUSED + u64::from(pool.status_listen.is_some()) + u64::from(pool.http_listen.is_some())
}

fn unused(pool: &Pool) -> u64 {
    let logs = [
        pool.access.is_some(),
        pool.slow_log.is_some(),
        pool.app_log.is_some(),
    ];
    listening(pool) + logs.into_iter().map(u64::from).sum::<u64>()
}

fn used(pool: &Pool) -> u64 {
    let app_log = if pool.app_log.is_some() { APP_LOG } else { 0 };
    unused(pool) + USED + app_log + with_workers(pool)
}

fn left(pool: &Pool) -> u64 {
    listening(pool) + USED_AND_LEFT + with_workers(pool)
}

fn with_workers(pool: &Pool) -> u64 {
    let access = if pool.access.is_some() { ACCESS } else { 0 };
    let worker = WORKER + if pool.catch_workers_output { OUTPUT } else { 0 };
    access + worker * u64::from(workers_at_rest(pool.pm).max(1))
}

/// How many workers a pool has without any request.
fn workers_at_rest(pm: ProcessManager) -> u32 {
    match pm {
        ProcessManager::Static { max_children } => max_children,
        ProcessManager::Dynamic {
            min_spare_servers, ..
        } => min_spare_servers,
        ProcessManager::Ondemand { .. } | ProcessManager::Ordered { .. } => 0,
    }
}

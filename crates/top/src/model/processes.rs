//! The processes of a status that answer requests: workers, programs, and instances of applications.

use forkyard_protocol::control::{PoolStatus, Status};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A process that answers requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Process<'s> {
    pub(crate) pool: &'s str,
    /// The pool's address.
    pub(crate) listen: &'s str,
    pub(crate) pid: Option<i32>,
    pub(crate) kind: Kind,
    pub(crate) state: &'s str,
    pub(crate) is_busy: bool,
    /// Seconds in this state.
    pub(crate) age: Option<f64>,
    /// Finished requests.
    pub(crate) requests: u64,
    /// Requests at the same time.
    pub(crate) sessions: u64,
    /// Processor time, in milliseconds.
    pub(crate) cpu_ms: Option<u64>,
    /// The request's method, path and query.
    pub(crate) request: String,
    pub(crate) script: &'s str,
    pub(crate) application: Option<&'s str>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    #[default]
    Worker,
    /// A program's process, which gets its requests from workers.
    Program,
    /// An instance of an application pool.
    Instance,
}

/// Stages of a worker without a request.
const IDLE: [&str; 2] = ["Idle", "Creating"];

pub(crate) fn all(status: &Status) -> Vec<Process<'_>> {
    status.pools.iter().flat_map(of_pool).collect()
}

pub(crate) fn of_pool(pool: &PoolStatus) -> Vec<Process<'_>> {
    let mut found = of_generations(pool);
    let known: BTreeSet<i32> = found.iter().filter_map(|process| process.pid).collect();
    for application in applications(pool) {
        let name = application["name"].as_str();
        for instance in list(application, "instances") {
            let pid = pid(instance);
            // The worker's status has more, if the caller may read it.
            match pid.filter(|pid| known.contains(pid)) {
                Some(pid) => {
                    let of_worker = found.iter_mut().filter(|process| process.pid == Some(pid));
                    of_worker
                        .for_each(|process| (process.application, process.kind) = (name, Kind::Instance));
                }
                None => found.push(instance_of(pool, name, pid, instance)),
            }
        }
    }
    found
}

fn of_generations(pool: &PoolStatus) -> Vec<Process<'_>> {
    let mut found = Vec::new();
    for generation in &pool.generations {
        let workers = generation.workers.iter().map(|worker| {
            let mark = if worker.query.is_empty() { "" } else { "?" };
            Process {
                pool: &pool.name,
                listen: &pool.listen,
                pid: worker.pid,
                kind: Kind::Worker,
                state: &worker.stage,
                is_busy: !IDLE.contains(&worker.stage.as_str()),
                age: Some(worker.for_ms as f64 / 1000.0),
                requests: worker.requests,
                sessions: worker.in_flight.map_or(0, u64::from),
                cpu_ms: Some(worker.cpu_ms),
                request: match worker.method.as_str() {
                    "" => String::new(),
                    method => format!("{method} {}{mark}{}", worker.uri, worker.query),
                },
                script: &worker.script,
                application: None,
            }
        });
        found.extend(workers);
        let programs = generation.programs.iter().map(|program| Process {
            pool: &pool.name,
            listen: &pool.listen,
            pid: program.pid,
            kind: Kind::Program,
            state: &program.state,
            is_busy: program.sessions > 0,
            age: program.uptime_ms.map(|millis| millis as f64 / 1000.0),
            requests: program.requests,
            sessions: program.sessions,
            ..Process::default()
        });
        found.extend(programs);
    }
    found
}

fn instance_of<'s>(
    pool: &'s PoolStatus,
    application: Option<&'s str>,
    pid: Option<i32>,
    instance: &'s Value,
) -> Process<'s> {
    let sessions = instance["sessions"].as_u64().unwrap_or(0);
    Process {
        pool: &pool.name,
        listen: &pool.listen,
        pid,
        kind: Kind::Instance,
        state: instance["state"].as_str().unwrap_or("?"),
        is_busy: sessions > 0,
        // The status has no time since an instance became busy.
        age: None,
        requests: instance["processed"].as_u64().unwrap_or(0),
        sessions,
        application,
        ..Process::default()
    }
}

/// Returns the applications of an application pool from its router's report.
pub(crate) fn applications(pool: &PoolStatus) -> impl Iterator<Item = &Value> {
    let view = pool.applications.as_ref().and_then(|it| it.view.as_ref());
    view.into_iter().flat_map(|view| list(view, "applications"))
}

pub(crate) fn list<'v>(of: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> + use<'v> {
    of[key].as_array().into_iter().flatten()
}

fn pid(instance: &Value) -> Option<i32> {
    instance["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok())
}

/// Whether the status is an owner's: it lacks the pool's own numbers.
pub(super) fn is_owners(pool: &PoolStatus) -> bool {
    pool.applications.is_some() && pool.counts.starts == 0
}

/// Returns the number of busy workers.
pub(super) fn busy(pool: &PoolStatus) -> u32 {
    let busy = of_pool(pool).iter().filter(|process| process.is_busy).count();
    match is_owners(pool) {
        true => u32::try_from(busy).unwrap_or(u32::MAX),
        false => pool.busy,
    }
}

/// Returns all processes of the pools, and the pools of each shared preloader.
pub(crate) fn preloaders(status: &Status) -> BTreeMap<i32, u64> {
    let mut pools: BTreeMap<i32, u64> = BTreeMap::new();
    for pool in &status.pools {
        let own: BTreeSet<i32> = of_preloaders(pool).collect();
        for pid in own {
            *pools.entry(pid).or_default() += 1;
        }
    }
    pools
}

pub(crate) fn of_preloaders(pool: &PoolStatus) -> impl Iterator<Item = i32> {
    pool.generations.iter().filter_map(|it| it.preloader)
}

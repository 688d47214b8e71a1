//! The view of pools.

use super::processes::{self, is_owners};
use super::why::{Times, Why};
use super::{Span, Totals};
use crate::histogram::{Buckets, added};
use crate::readings::{Readings, Schedule};
use forkyard_protocol::control::PoolStatus;
use forkyard_protocol::numbers::{PoolNumbers, quantile};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct PoolRow {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) manager: String,
    pub(crate) listen: String,
    pub(crate) busy: u32,
    pub(crate) idle: u32,
    pub(crate) starting: u32,
    pub(crate) max: u32,
    /// The part of the workers that was busy, in the last frames.
    pub(crate) history: Vec<f64>,
    /// Waiting connections and requests.
    pub(crate) waiting: Option<u64>,
    pub(crate) waiting_limit: Option<u32>,
    pub(crate) requests: u64,
    pub(crate) requests_per_second: Option<f64>,
    /// Times of requests that ended in the interval, in seconds.
    pub(crate) p50: Option<f64>,
    pub(crate) p95: Option<f64>,
    pub(crate) p99: Option<f64>,
    /// How long a request of the interval waited for a worker, in seconds.
    pub(crate) wait_p95: Option<f64>,
    /// The part of the interval's requests that failed with 5xx or without an answer.
    pub(crate) errors: Option<f64>,
    /// The part of the interval with all workers busy.
    pub(crate) saturated: Option<f64>,
    /// The part of the interval with waiting connections.
    pub(crate) queued: Option<f64>,
    /// Bytes of requests and of answers, in a second.
    pub(crate) received: Option<f64>,
    pub(crate) sent: Option<f64>,
    /// Requests of the interval that lost their client, and requests that took too long.
    pub(crate) aborted: Option<u64>,
    pub(crate) timed_out: Option<u64>,
    /// Slow requests of the interval.
    pub(crate) slow: Option<u64>,
    /// Used processors.
    pub(crate) cpu: Option<f64>,
    /// In bytes.
    pub(crate) memory: Option<u64>,
    pub(crate) why: Why,
    /// The autopilot's number of workers, and why.
    pub(crate) advice: Option<String>,
    pub(crate) problem: Option<String>,
    pub(crate) error: Option<ErrorRow>,
}

/// The last failed start.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ErrorRow {
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) time: u64,
    pub(crate) summary: String,
    pub(crate) is_over: bool,
}

pub(super) fn rows(span: Span<'_>) -> Vec<PoolRow> {
    let preloaders = processes::preloaders(&span.now.status);
    let pools = span.now.status.pools.iter();
    let mut rows: Vec<PoolRow> = pools.map(|pool| row(span, pool, &preloaders)).collect();
    for skipped in &span.now.status.skipped {
        let reason = skipped.reasons.first().cloned().unwrap_or_default();
        match rows.iter_mut().find(|row| skipped.is_of(&row.name)) {
            Some(row) => row.problem = Some(reason),
            None => rows.push(PoolRow {
                name: skipped.name(),
                state: "down".to_owned(),
                manager: "-".to_owned(),
                problem: Some(reason),
                ..PoolRow::default()
            }),
        }
    }
    rows
}

pub(super) fn totals(rows: &[PoolRow]) -> Totals {
    let sum = |of: fn(&PoolRow) -> u32| rows.iter().map(of).fold(0, u32::saturating_add);
    let known = |of: fn(&PoolRow) -> Option<f64>| rows.iter().filter_map(of).reduce(|one, other| one + other);
    let memory = rows.iter().filter_map(|row| row.memory);
    let waiting = rows.iter().filter_map(|row| row.waiting);
    Totals {
        pools: rows.len(),
        busy: sum(|row| row.busy),
        workers: sum(|row| row.busy.saturating_add(row.idle)),
        waiting: waiting.fold(0, u64::saturating_add),
        requests_per_second: known(|row| row.requests_per_second),
        cpu: known(|row| row.cpu),
        memory: memory.reduce(u64::saturating_add),
    }
}

fn row(span: Span<'_>, pool: &PoolStatus, preloaders: &BTreeMap<i32, u64>) -> PoolRow {
    let status = pool;
    let before = span.before.and_then(|before| {
        let mut pools = before.status.pools.iter();
        pools.find(|other| other.name == status.name)
    });
    let changes = Changes::of(pool, before);
    let share = |seconds: Option<f64>| Some((seconds? / span.seconds?).clamp(0.0, 1.0));
    let requests = requests(pool);
    let busy = processes::busy(pool);
    let cpu = cpu_seconds(span, pool, before);
    PoolRow {
        name: status.name.clone(),
        state: status.state().to_owned(),
        manager: status.manager().to_owned(),
        listen: status.listen.clone(),
        busy,
        idle: idle(pool, busy),
        starting: status.starting,
        max: status.limits.max_children,
        history: span.history.busy(&status.name),
        waiting: status.waiting(),
        waiting_limit: status.queue_limit,
        requests,
        requests_per_second: span.rate(requests, before.map(self::requests)),
        p50: changes.run(0.5),
        p95: changes.run(0.95),
        p99: changes.run(0.99),
        wait_p95: changes.wait.as_ref().and_then(|it| seconds(it, 0.95)),
        errors: changes.errors,
        saturated: share(changes.saturated_seconds),
        queued: share(changes.queue_seconds),
        received: changes
            .bytes_in
            .zip(span.seconds)
            .map(|(bytes, seconds)| bytes as f64 / seconds),
        sent: changes
            .bytes_out
            .zip(span.seconds)
            .map(|(bytes, seconds)| bytes as f64 / seconds),
        aborted: changes.aborted,
        timed_out: changes.timed_out,
        slow: before.and_then(|before| status.counts.slow.checked_sub(before.counts.slow)),
        cpu: cpu.zip(span.seconds).map(|(cpu, seconds)| cpu / seconds),
        memory: memory(span.now, pool, preloaders),
        why: why(span, pool, before, &changes, cpu).unwrap_or_default(),
        advice: status.advice.as_ref().map(ToString::to_string),
        problem: status.problem.clone(),
        error: status.last_error.as_ref().map(|error| ErrorRow {
            id: error.id.clone(),
            time: error.time,
            summary: error.summary.clone(),
            is_over: error.is_over,
        }),
    }
}

/// The growth of a pool's numbers.
#[derive(Debug, Default)]
struct Changes {
    busy_seconds: Option<f64>,
    saturated_seconds: Option<f64>,
    queue_seconds: Option<f64>,
    bytes_in: Option<u64>,
    bytes_out: Option<u64>,
    aborted: Option<u64>,
    timed_out: Option<u64>,
    errors: Option<f64>,
    run: Option<Buckets>,
    wait: Option<Buckets>,
}

impl Changes {
    fn of(now: &PoolStatus, before: Option<&PoolStatus>) -> Changes {
        let before = before.and_then(|before| before.numbers.as_deref());
        let Some((now, before)) = now.numbers.as_deref().zip(before) else {
            return Changes::default();
        };
        let grown = |of: fn(&PoolNumbers) -> f64| Some(of(now) - of(before)).filter(|grown| *grown >= 0.0);
        let counted = |of: fn(&PoolNumbers) -> u64| of(now).checked_sub(of(before));
        let requests = |of: &PoolNumbers| of.requests.counts().into_iter().fold(0, u64::saturating_add);
        let failed = |of: &PoolNumbers| of.requests.server_error.saturating_add(of.requests.none);
        let all = requests(now)
            .checked_sub(requests(before))
            .filter(|count| *count > 0);
        let errors = failed(now).checked_sub(failed(before));
        Changes {
            busy_seconds: grown(|it| it.busy_seconds),
            saturated_seconds: grown(|it| it.saturated_seconds),
            queue_seconds: grown(|it| it.queue_seconds),
            bytes_in: counted(|it| it.bytes_in),
            bytes_out: counted(|it| it.bytes_out),
            aborted: counted(|it| it.aborted),
            timed_out: counted(|it| it.timed_out),
            errors: errors.zip(all).map(|(errors, all)| errors as f64 / all as f64),
            run: added(&now.run.buckets, &before.run.buckets),
            wait: added(&now.wait.buckets, &before.wait.buckets),
        }
    }

    fn run(&self, part: f64) -> Option<f64> {
        self.run.as_ref().and_then(|run| seconds(run, part))
    }
}

/// Returns a quantile of microseconds in seconds.
fn seconds(buckets: &Buckets, part: f64) -> Option<f64> {
    quantile(buckets, part).map(|micros| micros / 1e6)
}

fn requests(pool: &PoolStatus) -> u64 {
    let accepted =
        |application: &serde_json::Value| application["counters"]["accepted"].as_u64().unwrap_or(0);
    match is_owners(pool) {
        true => processes::applications(pool)
            .map(accepted)
            .fold(0, u64::saturating_add),
        false => pool.counts.requests,
    }
}

fn idle(pool: &PoolStatus, busy: u32) -> u32 {
    let all = u32::try_from(processes::of_pool(pool).len()).unwrap_or(u32::MAX);
    match is_owners(pool) {
        true => all.saturating_sub(busy),
        false => pool.idle,
    }
}

/// Returns the processor time of a pool in the interval, in seconds.
fn cpu_seconds(span: Span<'_>, pool: &PoolStatus, before: Option<&PoolStatus>) -> Option<f64> {
    if is_owners(pool) {
        return schedule(span, pool).map(|grown| grown.run_ns as f64 / 1e9);
    }
    let grown = pool.cpu_ms.checked_sub(before?.cpu_ms)?;
    Some(grown as f64 / 1e3)
}

/// Returns how much the times of a pool's processes have grown; `None` if they can't be read.
fn schedule(span: Span<'_>, pool: &PoolStatus) -> Option<Schedule> {
    let grown = processes::of_pool(pool)
        .into_iter()
        .filter_map(|process| grown(span, process.pid?));
    grown.reduce(|sum, one| Schedule {
        run_ns: sum.run_ns.saturating_add(one.run_ns),
        queue_ns: sum.queue_ns.saturating_add(one.queue_ns),
    })
}

/// Returns how much the times of a process have grown.
pub(super) fn grown(span: Span<'_>, pid: i32) -> Option<Schedule> {
    let of = |readings: &Readings| readings.processes.get(&pid)?.schedule;
    let (now, before) = (of(span.now)?, of(span.before?)?);
    Some(Schedule {
        run_ns: now.run_ns.checked_sub(before.run_ns)?,
        queue_ns: now.queue_ns.checked_sub(before.queue_ns)?,
    })
}

/// Divides the busy time of the interval.
fn why(
    span: Span<'_>,
    pool: &PoolStatus,
    before: Option<&PoolStatus>,
    changes: &Changes,
    cpu: Option<f64>,
) -> Option<Why> {
    let (name, seconds) = (&pool.name, span.seconds?);
    // Workers that were busy at both ends, with requests that have not ended, or for a daemon that does not count.
    let at_ends = f64::from(processes::busy(pool)) + f64::from(before.map_or(0, processes::busy));
    // A request that ended may have begun long before the interval.
    let most = seconds * processes::of_pool(pool).len() as f64;
    let times = Times {
        busy: changes
            .busy_seconds
            .unwrap_or(0.0)
            .max(at_ends / 2.0 * seconds)
            .min(most),
        cpu: cpu?,
        queue: schedule(span, pool).map(|grown| grown.queue_ns as f64 / 1e9),
    };
    Some(Why::of(
        times,
        &span.history.sights(name),
        span.history.is_denied(),
    ))
}

/// Returns the memory of a pool's processes, and its part of preloaders that serve several pools.
fn memory(now: &Readings, pool: &PoolStatus, preloaders: &BTreeMap<i32, u64>) -> Option<u64> {
    let of = |pid: i32| now.processes.get(&pid)?.memory;
    let workers = processes::of_pool(pool)
        .into_iter()
        .filter_map(|process| of(process.pid?));
    let shares = processes::of_preloaders(pool)
        .filter_map(|pid| Some(of(pid)? / preloaders.get(&pid).copied().unwrap_or(1).max(1)));
    workers.chain(shares).reduce(u64::saturating_add)
}

//! The views of workers and of requests in flight.

use super::Span;
use super::pools::grown;
use super::processes::{self, Kind, Process};
use super::why::{Times, Why};
use crate::readings::Readings;
use crate::why::{Cause, Finding};
use serde::Serialize;

/// A worker, a program's process or an instance.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct WorkerRow {
    pub(crate) pool: String,
    pub(crate) application: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) pid: Option<i32>,
    pub(crate) state: String,
    pub(crate) is_busy: bool,
    /// Seconds in this state.
    pub(crate) age: Option<f64>,
    pub(crate) requests: u64,
    pub(crate) requests_per_second: Option<f64>,
    /// Current requests, of a process that may have several.
    pub(crate) sessions: u64,
    /// Used processors.
    pub(crate) cpu: Option<f64>,
    /// In bytes.
    pub(crate) memory: Option<u64>,
    pub(crate) request: String,
    pub(crate) script: String,
    /// Known for a process that was busy all the time.
    pub(crate) why: Why,
    /// The last look at the process during this request.
    pub(crate) last_seen: Option<Finding>,
}

pub(super) fn rows(span: Span<'_>) -> Vec<WorkerRow> {
    let before = span.before.map(|before| processes::all(&before.status));
    let before = before.unwrap_or_default();
    let all = processes::all(&span.now.status).into_iter();
    all.map(|process| {
        let same = before
            .iter()
            .find(|other| other.pid == process.pid && process.pid.is_some());
        row(span, &process, same)
    })
    .collect()
}

fn row(span: Span<'_>, process: &Process<'_>, before: Option<&Process<'_>>) -> WorkerRow {
    let grown = process.pid.and_then(|pid| grown(span, pid));
    let by_daemon = before.and_then(|before| process.cpu_ms?.checked_sub(before.cpu_ms?));
    let seconds = grown.map(|it| it.run_ns as f64 / 1e9);
    let seconds = seconds.or(by_daemon.map(|millis| millis as f64 / 1e3));
    let last_seen = process.pid.and_then(|pid| span.history.last(pid)).cloned();
    let was_busy = |before: &&Process<'_>| before.is_busy && before.requests == process.requests;
    let is_whole = process.is_busy && before.filter(was_busy).is_some();
    let times = seconds.zip(span.seconds).filter(|_| is_whole);
    let why = times.map(|(cpu, busy)| {
        let queue = grown.map(|it| it.queue_ns as f64 / 1e9);
        let waits = last_seen.iter().filter(|it| it.cause != Cause::Computing);
        let sights = waits.map(|it| (it.cause, 1)).collect();
        Why::of(Times { busy, cpu, queue }, &sights, span.history.is_denied())
    });
    WorkerRow {
        pool: process.pool.to_owned(),
        application: process.application.map(str::to_owned),
        kind: process.kind,
        pid: process.pid,
        state: process.state.to_owned(),
        is_busy: process.is_busy,
        age: process.age,
        requests: process.requests,
        requests_per_second: span.rate(process.requests, before.map(|before| before.requests)),
        sessions: process.sessions,
        cpu: seconds.zip(span.seconds).map(|(cpu, seconds)| cpu / seconds),
        memory: process.pid.and_then(|pid| memory(span.now, pid)),
        request: process.request.clone(),
        script: process.script.to_owned(),
        why: why.unwrap_or_default(),
        last_seen,
    }
}

fn memory(now: &Readings, pid: i32) -> Option<u64> {
    now.processes.get(&pid)?.memory
}

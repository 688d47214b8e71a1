//! The values of a frame: from two readings and their time.

mod applications;
mod failures;
mod history;
mod jobs;
mod pools;
pub(crate) mod processes;
mod routes;
mod why;
mod workers;

pub(crate) use applications::ApplicationRow;
pub(crate) use failures::FailureRow;
pub(crate) use jobs::QueueRow;
pub(crate) use pools::PoolRow;
pub(crate) use routes::RouteRow;
pub(crate) use workers::WorkerRow;

use crate::readings::{Part, Readings};
use history::History;
use serde::Serialize;

/// The values of one moment.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Frame {
    /// Seconds since 1970.
    pub(crate) time: u64,
    /// The time since the frame before, which rates and percentiles are of.
    pub(crate) interval_seconds: Option<f64>,
    pub(crate) pid: u32,
    pub(crate) version: String,
    pub(crate) totals: Totals,
    pub(crate) pools: Vec<PoolRow>,
    pub(crate) workers: Vec<WorkerRow>,
    pub(crate) routes: Vec<RouteRow>,
    pub(crate) failures: Vec<FailureRow>,
    pub(crate) applications: Vec<ApplicationRow>,
    pub(crate) jobs: Vec<QueueRow>,
    /// Parts that this daemon does not report.
    pub(crate) unknown: Vec<Part>,
    /// This user may not look at the processes.
    pub(crate) is_denied: bool,
    /// The daemon has background jobs.
    pub(crate) has_jobs: bool,
}

/// Sums over all pools.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Totals {
    pub(crate) pools: usize,
    pub(crate) busy: u32,
    pub(crate) workers: u32,
    pub(crate) waiting: u64,
    pub(crate) requests_per_second: Option<f64>,
    /// Used processors.
    pub(crate) cpu: Option<f64>,
    /// In bytes.
    pub(crate) memory: Option<u64>,
}

/// The readings so far.
#[derive(Debug, Default)]
pub(crate) struct Model {
    before: Option<Readings>,
    history: History,
}

/// Two readings, and earlier ones.
#[derive(Debug, Clone, Copy)]
struct Span<'r> {
    now: &'r Readings,
    before: Option<&'r Readings>,
    /// Seconds between both.
    seconds: Option<f64>,
    history: &'r History,
}

impl Model {
    /// Adds readings, and returns the frame that they make with the ones before.
    pub(crate) fn push(&mut self, now: Readings) -> Frame {
        // A restart of the daemon sets counters to zero.
        let before = self.before.take().filter(|it| it.status.pid == now.status.pid);
        self.history.push(&now);
        let span = Span {
            now: &now,
            before: before.as_ref(),
            seconds: before.as_ref().map(|it| now.at - it.at).filter(|it| *it > 0.0),
            history: &self.history,
        };
        let frame = span.frame();
        self.before = Some(now);
        frame
    }
}

impl Span<'_> {
    fn frame(self) -> Frame {
        let now = self.now;
        let pools = pools::rows(self);
        Frame {
            time: now.time,
            interval_seconds: self.seconds,
            pid: now.status.pid,
            version: now.status.version.clone(),
            totals: pools::totals(&pools),
            workers: workers::rows(self),
            routes: routes::rows(self),
            failures: failures::rows(self),
            applications: applications::rows(self),
            jobs: jobs::rows(self),
            unknown: now.unknown.clone(),
            is_denied: self.history.is_denied(),
            has_jobs: now.status.jobs.is_some(),
            pools,
        }
    }

    /// Returns how much a counter grew in a second; `None` if it fell, because counting began again.
    fn rate(self, now: u64, before: Option<u64>) -> Option<f64> {
        let grown = now.checked_sub(before?)?;
        Some(grown as f64 / self.seconds?)
    }
}

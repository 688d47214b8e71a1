//! Background jobs in numbers.

use super::{Buckets, Counter, Family, Gauge, Labels, Row, Times, families};
use crate::control::protocol::Status;
use crate::jobs::{BUCKETS_MS, Histogram, QueueView, Stats};

const ALL: &[Row<Stats>] = &[(
    "store_up",
    Gauge,
    "Whether the store of background jobs can be written to.",
    |it| Some(f64::from(u8::from(it.store_up))),
)];

const QUEUE: &[Row<QueueView>] = &[
    ("waiting", Gauge, "Jobs that can start.", |it| {
        Some(it.waiting as f64)
    }),
    (
        "oldest_waiting_seconds",
        Gauge,
        "How long the oldest job that can start has waited.",
        |it| Some(it.oldest_waiting_ms.unwrap_or(0) as f64 / 1_000.0),
    ),
    ("running", Gauge, "Jobs that are under way.", |it| {
        Some(it.running as f64)
    }),
    ("scheduled", Gauge, "Jobs that wait for their time.", |it| {
        Some(it.scheduled as f64)
    }),
    (
        "blocked",
        Gauge,
        "Jobs that wait for another with their serial key.",
        |it| Some(it.blocked as f64),
    ),
    ("failed", Gauge, "Jobs that have failed and are kept.", |it| {
        Some(it.failed as f64)
    }),
    (
        "quarantined",
        Gauge,
        "Jobs that are kept because workers died under them.",
        |it| Some(it.quarantined as f64),
    ),
    (
        "paused",
        Gauge,
        "Whether no further job of the queue starts.",
        |it| Some(f64::from(u8::from(it.paused))),
    ),
];

/// Starts that ended in a way.
const ENDED: &[Row<u64>] = &[(
    "ended",
    Counter,
    "Starts of jobs that have ended, by outcome.",
    |it| Some(*it as f64),
)];

pub(super) fn families_of(status: &Status) -> Vec<Family> {
    let Some(stats) = status.jobs.as_ref().and_then(|jobs| jobs.stats.as_ref()) else {
        return Vec::new();
    };
    let of = |queue: &QueueView| -> Labels { vec![("queue", queue.name.clone())] };
    let queues: Vec<(Labels, &QueueView)> = stats.queues.iter().map(|queue| (of(queue), queue)).collect();
    let ended = stats.queues.iter().flat_map(|queue| {
        let outcomes = queue.ended.iter();
        outcomes.map(move |(outcome, count)| {
            let labels = vec![("queue", queue.name.clone()), ("outcome", outcome.clone())];
            (labels, *count)
        })
    });
    let ended: Vec<(Labels, u64)> = ended.collect();
    let mut all: Vec<Family> = families("jobs", ALL, &[(Labels::new(), stats)]);
    all.extend(families("jobs", QUEUE, &queues));
    all.extend(families("jobs", ENDED, &ended));
    all
}

/// How long jobs waited and took.
pub(super) fn times_of(status: &Status) -> Vec<Times> {
    let Some(stats) = status.jobs.as_ref().and_then(|jobs| jobs.stats.as_ref()) else {
        return Vec::new();
    };
    let of = |times: fn(&QueueView) -> &Histogram| -> Vec<(Labels, Buckets)> {
        let queues = stats.queues.iter();
        queues
            .map(|queue| (vec![("queue", queue.name.clone())], buckets(times(queue))))
            .collect()
    };
    vec![
        Times {
            name: "jobs_wait_seconds",
            help: "How long jobs waited for their start.",
            of: of(|queue| &queue.wait),
        },
        Times {
            name: "jobs_run_seconds",
            help: "How long jobs took.",
            of: of(|queue| &queue.run),
        },
    ]
}

fn buckets(times: &Histogram) -> Buckets {
    let ends = BUCKETS_MS.iter().map(|millis| *millis as f64 / 1_000.0);
    // The last has no end.
    let ends = ends.chain([f64::INFINITY]);
    Buckets {
        sum: times.sum_ms as f64 / 1_000.0,
        counts: ends.zip(times.buckets).collect(),
    }
}

//! Background jobs in numbers.

use super::{Counter, Family, Gauge, Labels, Row, families};
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
    (
        "wait_seconds_sum",
        Gauge,
        "How long jobs waited for their start, in all.",
        |it| Some(it.wait.sum_ms as f64 / 1_000.0),
    ),
    ("run_seconds_sum", Gauge, "How long jobs took, in all.", |it| {
        Some(it.run.sum_ms as f64 / 1_000.0)
    }),
];

/// Starts that ended in a way.
const ENDED: &[Row<u64>] = &[(
    "ended",
    Counter,
    "Starts of jobs that have ended, by outcome.",
    |it| Some(*it as f64),
)];

const WAIT: &[Row<u64>] = &[(
    "wait_within",
    Counter,
    "Jobs that waited for their start at most so many seconds.",
    |it| Some(*it as f64),
)];

const RUN: &[Row<u64>] = &[(
    "run_within",
    Counter,
    "Jobs that took at most so many seconds.",
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
    let within = |times: fn(&QueueView) -> &Histogram| -> Vec<(Labels, u64)> {
        let queues = stats.queues.iter();
        queues
            .flat_map(|queue| cumulated(&queue.name, times(queue)))
            .collect()
    };
    let mut all: Vec<Family> = families("jobs", ALL, &[(Labels::new(), stats)]);
    all.extend(families("jobs", QUEUE, &queues));
    all.extend(families("jobs", ENDED, &ended));
    all.extend(families("jobs", WAIT, &within(|queue| &queue.wait)));
    all.extend(families("jobs", RUN, &within(|queue| &queue.run)));
    all
}

/// A histogram as Prometheus counts: each bucket has what is in those before it.
fn cumulated(queue: &str, times: &Histogram) -> Vec<(Labels, u64)> {
    let ends = BUCKETS_MS
        .iter()
        .map(|millis| (*millis as f64 / 1_000.0).to_string());
    let ends = ends.chain(["+Inf".to_owned()]);
    let mut sum = 0;
    ends.zip(times.buckets)
        .map(|(end, count)| {
            sum += count;
            (vec![("queue", queue.to_owned()), ("le", end)], sum)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_what_is_in_those_before_them() {
        let mut times = Histogram::default();
        [3, 20, 20, 9_000_000]
            .into_iter()
            .for_each(|millis| times.add(millis));
        let counts: Vec<u64> = cumulated("q", &times)
            .into_iter()
            .map(|(_, count)| count)
            .collect();
        assert_eq!(counts, [1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4]);
    }
}

//! Background jobs in numbers.

use super::{Counter, Gauge, Kind, Labels, Metrics, OpenMetrics, Row, with};
use forkyard_protocol::control::Status;
use forkyard_protocol::jobs::{BUCKETS_MS, Histogram, QueueView, Stats};

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

pub(super) fn write(metrics: &mut Metrics, status: &Status) {
    let Some(stats) = status.jobs.as_ref().and_then(|jobs| jobs.stats.as_ref()) else {
        return;
    };
    let of = |queue: &QueueView| -> Labels { vec![("queue", queue.name.clone())] };
    let queues: Vec<(Labels, &QueueView)> = stats.queues.iter().map(|queue| (of(queue), queue)).collect();
    let ended = queues.iter().flat_map(|(labels, queue)| {
        let outcomes = queue.ended.iter();
        outcomes.map(|(outcome, count)| (with(labels, "outcome", outcome), *count))
    });
    metrics.families("jobs", ALL, &[(Labels::new(), stats)]);
    metrics.families("jobs", QUEUE, &queues);
    metrics.families("jobs", ENDED, &ended.collect::<Vec<_>>());
    for (name, help, times) in TIMES {
        metrics.text.family(name, Kind::Histogram, help);
        for (labels, queue) in &queues {
            histogram(&mut metrics.text, name, labels, times(queue));
        }
    }
}

/// A histogram's name and help, and the function that reads it.
type Times = (&'static str, &'static str, fn(&QueueView) -> &Histogram);

const TIMES: [Times; 2] = [
    (
        "forkyard_jobs_wait_seconds",
        "How long jobs waited for their start.",
        |queue| &queue.wait,
    ),
    ("forkyard_jobs_run_seconds", "How long jobs took.", |queue| {
        &queue.run
    }),
];

fn histogram(text: &mut OpenMetrics, name: &str, labels: &Labels, times: &Histogram) {
    let seconds = |millis: u64| format!("{:?}", millis as f64 / 1_000.0);
    text.sample(&format!("{name}_sum"), labels, seconds(times.sum_ms));
    text.sample(&format!("{name}_count"), labels, times.count());
    // The last has no end.
    let ends = BUCKETS_MS
        .iter()
        .map(|millis| seconds(*millis))
        .chain(["+Inf".to_owned()]);
    let mut so_far = 0;
    for (end, count) in ends.zip(times.buckets) {
        so_far += count;
        let mut all = vec![("le", end)];
        all.extend(labels.iter().cloned());
        text.sample(&format!("{name}_bucket"), &all, so_far);
    }
}

//! Background jobs in numbers.

use super::{Labels, Metrics, OpenMetrics, seconds, with};
use forkyard_protocol::control::Status;
use forkyard_protocol::jobs::{BUCKETS_MS, Histogram, QueueView};

type Times = fn(&QueueView) -> &Histogram;

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
    metrics
        .of("jobs", &[(Labels::new(), stats)])
        .add("store_up", |it| it.store_up);
    metrics
        .of("jobs", &queues)
        .add("waiting", |it| it.waiting)
        .add("oldest_waiting_seconds", |it| {
            seconds(it.oldest_waiting_ms.unwrap_or(0))
        })
        .add("running", |it| it.running)
        .add("scheduled", |it| it.scheduled)
        .add("blocked", |it| it.blocked)
        .add("failed", |it| it.failed)
        .add("quarantined", |it| it.quarantined)
        .add("paused", |it| it.paused);
    metrics
        .of("jobs", &ended.collect::<Vec<_>>())
        .add("ended", |it| *it);
    let times: [(&str, Times); 2] = [
        ("jobs_wait_seconds", |queue| &queue.wait),
        ("jobs_run_seconds", |queue| &queue.run),
    ];
    for (name, times) in times {
        let name = metrics.begin(name);
        for (labels, queue) in &queues {
            histogram(&mut metrics.text, &name, labels, times(queue));
        }
    }
}

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

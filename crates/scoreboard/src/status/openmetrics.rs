//! OpenMetrics with php-fpm's names, including counters without `_total`, which existing scrapers expect.

use super::escape;
use super::fields::since;
use super::snapshot::Snapshot;

pub(super) fn render(snapshot: &Snapshot) -> String {
    let pool = escape::metric(&snapshot.pool);
    let up = format!(
        "Could pool {pool} using a {} PM on PHP-FPM be reached?",
        snapshot.process_manager
    );
    let queue = &snapshot.listen_queue;
    let metrics: [(&str, &str, &str, u64); 12] = [
        ("up", "gauge", &up, 1),
        (
            "start_since",
            "counter",
            "The number of seconds since FPM has started.",
            since(snapshot, snapshot.start),
        ),
        (
            "accepted_connections",
            "counter",
            "The number of requests accepted by the pool.",
            snapshot.accepted,
        ),
        (
            "listen_queue",
            "gauge",
            "The number of requests in the queue of pending connections.",
            queue.current.into(),
        ),
        (
            "max_listen_queue",
            "counter",
            "The maximum number of requests in the queue of pending connections since FPM has started.",
            queue.max.into(),
        ),
        (
            "listen_queue_length",
            "gauge",
            "The size of the socket queue of pending connections.",
            queue.len.into(),
        ),
        (
            "idle_processes",
            "gauge",
            "The number of idle processes.",
            snapshot.idle.into(),
        ),
        (
            "active_processes",
            "gauge",
            "The number of active processes.",
            snapshot.active.into(),
        ),
        (
            "total_processes",
            "gauge",
            "The number of idle + active processes.",
            snapshot.total.into(),
        ),
        (
            "max_active_processes",
            "counter",
            "The maximum number of active processes since FPM has started.",
            snapshot.max_active.into(),
        ),
        (
            "max_children_reached",
            "counter",
            "The number of times, the process limit has been reached, when pm tries to start more children \
             (works only for pm 'dynamic' and 'ondemand').",
            snapshot.max_children_reached,
        ),
        (
            "slow_requests",
            "counter",
            "The number of requests that exceeded your 'request_slowlog_timeout' value.",
            snapshot.slow,
        ),
    ];
    let peak = snapshot.memory_peak.map(|peak| {
        let help = "The memory usage peak since FPM has started.";
        ("memory_peak", "gauge", help, peak)
    });
    let in_flight = snapshot.in_flight.map(|count| {
        let help = "The number of requests that the workers serve now.";
        ("requests_in_flight", "gauge", help, u64::from(count))
    });
    let quiet = snapshot.in_flight.map(|_| {
        let help = "The number of these requests with an answer that has begun and sends nothing.";
        ("idle_streams", "gauge", help, u64::from(snapshot.quiet))
    });
    let mut text = String::new();
    for (name, kind, help, value) in metrics.into_iter().chain(peak).chain(in_flight).chain(quiet) {
        let help = format!("# HELP phpfpm_{name} {help}\n");
        let kind = format!("# TYPE phpfpm_{name} {kind}\n");
        // php-fpm swaps the comments of this metric.
        let comments = if name == "listen_queue_length" {
            kind + &help
        } else {
            help + &kind
        };
        text.push_str(&format!("{comments}phpfpm_{name} {value}\n"));
    }
    text.push_str("# EOF\n");
    text
}

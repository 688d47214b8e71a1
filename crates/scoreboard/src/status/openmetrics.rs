//! OpenMetrics with php-fpm's names, including counters without `_total`, which existing scrapers expect.

use super::fields::since;
use super::snapshot::Snapshot;
use forkyard_base::openmetrics::Kind::{Counter, Gauge};
use forkyard_base::openmetrics::{Kind, OpenMetrics, escape};
use std::fmt::Display;

/// php-fpm swaps the comments of this one.
const SWAPPED: &str = "phpfpm_listen_queue_length";

pub(super) fn render(snapshot: &Snapshot) -> String {
    let up = format!(
        "Could pool {} using a {} PM on PHP-FPM be reached?",
        escape(&snapshot.pool),
        snapshot.process_manager
    );
    let start_since = since(snapshot, snapshot.start);
    let queue = &snapshot.listen_queue;
    let mut rows: Vec<(&str, Kind, &str, &dyn Display)> = vec![
        ("phpfpm_up", Gauge, &up, &1),
        (
            "phpfpm_start_since",
            Counter,
            "The number of seconds since FPM has started.",
            &start_since,
        ),
        (
            "phpfpm_accepted_connections",
            Counter,
            "The number of requests accepted by the pool.",
            &snapshot.accepted,
        ),
        (
            "phpfpm_listen_queue",
            Gauge,
            "The number of requests in the queue of pending connections.",
            &queue.current,
        ),
        (
            "phpfpm_max_listen_queue",
            Counter,
            "The maximum number of requests in the queue of pending connections since FPM has started.",
            &queue.max,
        ),
        (
            SWAPPED,
            Gauge,
            "The size of the socket queue of pending connections.",
            &queue.len,
        ),
        (
            "phpfpm_idle_processes",
            Gauge,
            "The number of idle processes.",
            &snapshot.idle,
        ),
        (
            "phpfpm_active_processes",
            Gauge,
            "The number of active processes.",
            &snapshot.active,
        ),
        (
            "phpfpm_total_processes",
            Gauge,
            "The number of idle + active processes.",
            &snapshot.total,
        ),
        (
            "phpfpm_max_active_processes",
            Counter,
            "The maximum number of active processes since FPM has started.",
            &snapshot.max_active,
        ),
        (
            "phpfpm_max_children_reached",
            Counter,
            "The number of times, the process limit has been reached, when pm tries to start more children (works only \
             for pm 'dynamic' and 'ondemand').",
            &snapshot.max_children_reached,
        ),
        (
            "phpfpm_slow_requests",
            Counter,
            "The number of requests that exceeded your 'request_slowlog_timeout' value.",
            &snapshot.slow,
        ),
    ];
    if let Some(peak) = &snapshot.memory_peak {
        let help = "The memory usage peak since FPM has started.";
        rows.push(("phpfpm_memory_peak", Gauge, help, peak));
    }
    if let Some(in_flight) = &snapshot.in_flight {
        let help = "The number of requests that the workers serve now.";
        rows.push(("phpfpm_requests_in_flight", Gauge, help, in_flight));
        let help = "The number of these requests with an answer that has begun and sends nothing.";
        rows.push(("phpfpm_idle_streams", Gauge, help, &snapshot.quiet));
    }
    let mut page = OpenMetrics::default();
    for (name, kind, help, number) in rows {
        match name {
            SWAPPED => {
                page.kind(name, kind);
                page.help(name, help);
            }
            _ => page.family(name, kind, help),
        }
        page.number(name, number);
    }
    page.end()
}

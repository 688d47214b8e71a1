//! OpenMetrics with php-fpm's names, including counters without `_total`, which existing scrapers expect.

use super::escape;
use super::fields::since;
use super::snapshot::{ListenQueue, Snapshot};

/// php-fpm swaps the comments of `listen_queue_length`.
pub(super) fn render(snapshot: &Snapshot) -> String {
    let Snapshot {
        process_manager,
        listen_queue: ListenQueue { current, max, len },
        accepted,
        idle,
        active,
        total,
        max_active,
        max_children_reached,
        slow,
        quiet,
        ..
    } = snapshot;
    let pool = escape::metric(&snapshot.pool);
    let start_since = since(snapshot, snapshot.start);
    let mut text = format!(
        "\
# HELP phpfpm_up Could pool {pool} using a {process_manager} PM on PHP-FPM be reached?
# TYPE phpfpm_up gauge
phpfpm_up 1
# HELP phpfpm_start_since The number of seconds since FPM has started.
# TYPE phpfpm_start_since counter
phpfpm_start_since {start_since}
# HELP phpfpm_accepted_connections The number of requests accepted by the pool.
# TYPE phpfpm_accepted_connections counter
phpfpm_accepted_connections {accepted}
# HELP phpfpm_listen_queue The number of requests in the queue of pending connections.
# TYPE phpfpm_listen_queue gauge
phpfpm_listen_queue {current}
# HELP phpfpm_max_listen_queue The maximum number of requests in the queue of pending connections since FPM has started.
# TYPE phpfpm_max_listen_queue counter
phpfpm_max_listen_queue {max}
# TYPE phpfpm_listen_queue_length gauge
# HELP phpfpm_listen_queue_length The size of the socket queue of pending connections.
phpfpm_listen_queue_length {len}
# HELP phpfpm_idle_processes The number of idle processes.
# TYPE phpfpm_idle_processes gauge
phpfpm_idle_processes {idle}
# HELP phpfpm_active_processes The number of active processes.
# TYPE phpfpm_active_processes gauge
phpfpm_active_processes {active}
# HELP phpfpm_total_processes The number of idle + active processes.
# TYPE phpfpm_total_processes gauge
phpfpm_total_processes {total}
# HELP phpfpm_max_active_processes The maximum number of active processes since FPM has started.
# TYPE phpfpm_max_active_processes counter
phpfpm_max_active_processes {max_active}
# HELP phpfpm_max_children_reached The number of times, the process limit has been reached, when pm tries to start more \
children (works only for pm 'dynamic' and 'ondemand').
# TYPE phpfpm_max_children_reached counter
phpfpm_max_children_reached {max_children_reached}
# HELP phpfpm_slow_requests The number of requests that exceeded your 'request_slowlog_timeout' value.
# TYPE phpfpm_slow_requests counter
phpfpm_slow_requests {slow}
"
    );
    if let Some(peak) = snapshot.memory_peak {
        text += &format!(
            "\
# HELP phpfpm_memory_peak The memory usage peak since FPM has started.
# TYPE phpfpm_memory_peak gauge
phpfpm_memory_peak {peak}
"
        );
    }
    if let Some(in_flight) = snapshot.in_flight {
        text += &format!(
            "\
# HELP phpfpm_requests_in_flight The number of requests that the workers serve now.
# TYPE phpfpm_requests_in_flight gauge
phpfpm_requests_in_flight {in_flight}
# HELP phpfpm_idle_streams The number of these requests with an answer that has begun and sends nothing.
# TYPE phpfpm_idle_streams gauge
phpfpm_idle_streams {quiet}
"
        );
    }
    text + "# EOF\n"
}

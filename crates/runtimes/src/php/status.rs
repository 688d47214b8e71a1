//! The value of PHP's function `fpm_get_status()`.

use forkyard_scoreboard::status::{Snapshot, WorkerRow};
use serde_json::{Value, json};

/// The pool's status as JSON, with the names and order of `fpm_get_status()`.
pub fn fpm_get_status(pool: &Snapshot) -> String {
    let workers: Vec<String> = pool
        .workers
        .iter()
        .map(|worker| object(&worker_fields(worker, pool.now)))
        .collect();
    let mut text = object(&pool_fields(pool));
    text.pop();
    text.push_str(&format!(",\"procs\":[{}]}}", workers.join(",")));
    text
}

fn object(fields: &[(&str, Value)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn pool_fields(pool: &Snapshot) -> Vec<(&'static str, Value)> {
    let mut fields = vec![
        ("pool", json!(pool.pool)),
        ("process-manager", json!(pool.process_manager)),
        ("start-time", json!(pool.start)),
        ("start-since", json!(pool.now - pool.start)),
        ("accepted-conn", json!(pool.accepted)),
        ("listen-queue", json!(pool.listen_queue.current)),
        ("max-listen-queue", json!(pool.listen_queue.max)),
        ("listen-queue-len", json!(pool.listen_queue.len)),
        ("idle-processes", json!(pool.idle)),
        ("active-processes", json!(pool.active)),
        ("total-processes", json!(pool.total)),
        ("max-active-processes", json!(pool.max_active)),
        ("max-children-reached", json!(pool.max_children_reached)),
        ("slow-requests", json!(pool.slow)),
    ];
    fields.extend(pool.memory_peak.map(|peak| ("memory-peak", json!(peak))));
    fields
}

fn worker_fields(worker: &WorkerRow, now: i64) -> Vec<(&'static str, Value)> {
    let text = |bytes: &[u8]| json!(String::from_utf8_lossy(bytes));
    let shown = |bytes: &[u8]| if bytes.is_empty() { json!("-") } else { text(bytes) };
    vec![
        ("pid", json!(worker.pid)),
        ("state", json!(worker.state)),
        ("start-time", json!(worker.start)),
        ("start-since", json!(now - worker.start)),
        ("requests", json!(worker.requests)),
        ("request-duration", json!(worker.duration_us)),
        ("request-method", shown(&worker.method)),
        ("request-uri", shown(&worker.uri)),
        ("query-string", text(&worker.query)),
        ("request-length", json!(worker.content_length)),
        ("user", shown(&worker.user)),
        ("script", shown(&worker.script)),
        ("last-request-cpu", json!(worker.last_cpu)),
        ("last-request-memory", json!(worker.last_memory)),
    ]
}

#[cfg(test)]
mod tests {
    use super::object;
    use serde_json::json;

    #[test]
    fn fields_keep_their_order_and_are_escaped() {
        assert_eq!(
            object(&[("b", json!("\"x\"")), ("a", json!(0.0))]),
            r#"{"b":"\"x\"","a":0.0}"#
        );
    }
}

//! Fields of the status page, in order.

use super::snapshot::{Snapshot, WorkerRow};
use std::fmt::Display;

pub(super) enum Value {
    /// Possibly untrusted; always escaped.
    Text(String),
    Time(i64),
    Number(String),
}

fn number(number: impl Display) -> Value {
    Value::Number(number.to_string())
}

pub(super) type Field = (&'static str, Value);

pub(super) fn pool(snapshot: &Snapshot) -> Vec<Field> {
    let queue = &snapshot.listen_queue;
    let mut fields = vec![
        ("pool", Value::Text(snapshot.pool.clone())),
        (
            "process manager",
            Value::Text(snapshot.process_manager.to_owned()),
        ),
        ("start time", Value::Time(snapshot.start)),
        ("start since", number(since(snapshot, snapshot.start))),
        ("accepted conn", number(snapshot.accepted)),
        ("listen queue", number(queue.current)),
        ("max listen queue", number(queue.max)),
        ("listen queue len", number(queue.len)),
        ("idle processes", number(snapshot.idle)),
        ("active processes", number(snapshot.active)),
        ("total processes", number(snapshot.total)),
        ("max active processes", number(snapshot.max_active)),
        ("max children reached", number(snapshot.max_children_reached)),
        ("slow requests", number(snapshot.slow)),
    ];
    let peak = snapshot.memory_peak.map(number);
    fields.extend(peak.map(|peak| ("memory peak", peak)));
    let in_flight = snapshot.in_flight.map(number);
    if let Some(count) = in_flight {
        fields.push((IN_FLIGHT, count));
        fields.push((QUIET, number(snapshot.quiet)));
    }
    fields
}

const IN_FLIGHT: &str = "requests in flight";
const QUIET: &str = "idle streams";

pub(super) fn worker_names(snapshot: &Snapshot) -> Vec<&'static str> {
    let mut names = vec![
        "pid",
        "state",
        "start time",
        "start since",
        "requests",
        "request duration",
        "request method",
        "request uri",
        "content length",
        "user",
        "script",
        "last request cpu",
        "last request memory",
    ];
    if snapshot.in_flight.is_some() {
        names.extend([IN_FLIGHT, QUIET]);
    }
    names
}

pub(super) fn worker(snapshot: &Snapshot, row: &WorkerRow) -> Vec<Field> {
    let values = [
        number(row.pid),
        Value::Text(row.state.to_owned()),
        Value::Time(row.start),
        number(since(snapshot, row.start)),
        number(row.requests),
        number(row.duration_us),
        Value::Text(or_dash(&row.method)),
        Value::Text(uri(row)),
        number(row.content_length),
        Value::Text(or_dash(&row.user)),
        Value::Text(or_dash(&row.script)),
        number(share(row.last_cpu)),
        number(row.last_memory),
        number(row.in_flight.unwrap_or(0)),
        number(row.quiet),
    ];
    worker_names(snapshot).into_iter().zip(values).collect()
}

/// 0 if the clock was set back.
pub(super) fn since(snapshot: &Snapshot, start: i64) -> u64 {
    u64::try_from(snapshot.now.saturating_sub(start)).unwrap_or(0)
}

/// Handles NaN.
fn share(share: f64) -> String {
    if share.is_finite() {
        format!("{share:.2}")
    } else {
        "0.00".to_owned()
    }
}

fn uri(row: &WorkerRow) -> String {
    let mut uri = or_dash(&row.uri);
    if !row.query.is_empty() {
        uri.push('?');
        uri.push_str(&String::from_utf8_lossy(&row.query));
    }
    uri
}

/// U+FFFD for invalid UTF-8; a dash if empty.
fn or_dash(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        "-".to_owned()
    } else {
        String::from_utf8_lossy(bytes).into_owned()
    }
}

//! Fields of the status page, in order.

use super::snapshot::{Snapshot, WorkerRow};

pub(super) enum Value {
    /// Possibly untrusted; always escaped.
    Text(String),
    Time(i64),
    Number(u64),
    Signed(i64),
    Share(f64),
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
        ("start since", Value::Number(since(snapshot, snapshot.start))),
        ("accepted conn", Value::Number(snapshot.accepted)),
        ("listen queue", Value::Number(queue.current.into())),
        ("max listen queue", Value::Number(queue.max.into())),
        ("listen queue len", Value::Number(queue.len.into())),
        ("idle processes", Value::Number(snapshot.idle.into())),
        ("active processes", Value::Number(snapshot.active.into())),
        ("total processes", Value::Number(snapshot.total.into())),
        ("max active processes", Value::Number(snapshot.max_active.into())),
        (
            "max children reached",
            Value::Number(snapshot.max_children_reached),
        ),
        ("slow requests", Value::Number(snapshot.slow)),
    ];
    let peak = snapshot.memory_peak.map(Value::Number);
    fields.extend(peak.map(|peak| ("memory peak", peak)));
    let in_flight = snapshot.in_flight.map(|count| Value::Number(count.into()));
    if let Some(count) = in_flight {
        fields.push((IN_FLIGHT, count));
        fields.push((QUIET, Value::Number(snapshot.quiet.into())));
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
        Value::Signed(row.pid.into()),
        Value::Text(row.state.to_owned()),
        Value::Time(row.start),
        Value::Number(since(snapshot, row.start)),
        Value::Number(row.requests),
        Value::Number(row.duration_us),
        Value::Text(or_dash(&row.method)),
        Value::Text(uri(row)),
        Value::Number(row.content_length),
        Value::Text(or_dash(&row.user)),
        Value::Text(or_dash(&row.script)),
        Value::Share(row.last_cpu),
        Value::Number(row.last_memory),
        Value::Number(row.in_flight.unwrap_or(0).into()),
        Value::Number(row.quiet.into()),
    ];
    worker_names(snapshot).into_iter().zip(values).collect()
}

/// 0 if the clock was set back.
pub(super) fn since(snapshot: &Snapshot, start: i64) -> u64 {
    u64::try_from(snapshot.now.saturating_sub(start)).unwrap_or(0)
}

/// Handles NaN.
pub(super) fn share(share: f64) -> String {
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

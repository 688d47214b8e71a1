//! A measurement as JSON.

use crate::arguments::Arguments;
use crate::clients::Measured;
use crate::tally::{RequestFailure, Tally};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write as _;

#[derive(Debug, Serialize)]
struct Report {
    clients: u32,
    keep: bool,
    /// Answers with status 200.
    requests: u64,
    /// Answers after the end; they count for latency, not for the rate.
    late: u64,
    seconds: f64,
    requests_per_second: f64,
    errors: u64,
    errors_by_kind: BTreeMap<RequestFailure, u64>,
    examples: BTreeMap<RequestFailure, String>,
    statuses: BTreeMap<u16, u64>,
    reconnects: u64,
    received_bytes: u64,
    latency_us: Latency,
}

#[derive(Debug, Serialize)]
struct Latency {
    mean: f64,
    p50: f64,
    p90: f64,
    p95: f64,
    p99: f64,
    p99_9: f64,
    max: f64,
}

/// Prints to standard output; a closed output does not fail the measurement.
pub(crate) fn print(arguments: &Arguments, measured: &Measured) {
    let report = Report::new(arguments, measured);
    let text = serde_json::to_string(&report).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
    let _ = writeln!(std::io::stdout(), "{text}");
}

impl Report {
    fn new(arguments: &Arguments, Measured { tally, elapsed }: &Measured) -> Report {
        let seconds = elapsed.as_secs_f64();
        Report {
            clients: arguments.clients,
            keep: arguments.keep,
            requests: tally.completed,
            late: tally.late,
            seconds,
            requests_per_second: ((tally.completed - tally.late) as f64 / seconds * 10.0).round() / 10.0,
            errors: tally.all_errors(),
            errors_by_kind: tally.errors.clone(),
            examples: tally.examples.clone(),
            statuses: tally.statuses.clone(),
            reconnects: tally.reconnects,
            received_bytes: tally.received_bytes,
            latency_us: Latency::new(tally),
        }
    }
}

impl Latency {
    fn new(tally: &Tally) -> Latency {
        let latency = &tally.latency;
        let quantile = |share| latency.value_at_quantile(share) as f64 / 1000.0;
        Latency {
            mean: latency.mean() / 1000.0,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            max: latency.max() as f64 / 1000.0,
        }
    }
}

//! Formats a measurement as text or as JSON.

use crate::arguments::Arguments;
use crate::clients::Measured;
use crate::tally::{RequestFailure, Tally};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

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
    errors_by_kind: BTreeMap<&'static str, u64>,
    examples: BTreeMap<&'static str, String>,
    statuses: BTreeMap<u16, u64>,
    reconnects: u64,
    received_bytes: u64,
    latency_us: Latency,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    timeline: Vec<Interval>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    slowest: Vec<Slow>,
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

#[derive(Debug, Serialize)]
struct Interval {
    /// The interval's start.
    at_ms: u64,
    requests: u64,
    errors: u64,
    max_us: f64,
}

#[derive(Debug, Serialize)]
struct Slow {
    latency_us: f64,
    started_ms: f64,
}

/// Prints to standard output; a closed output does not fail the measurement.
pub(crate) fn print(arguments: &Arguments, measured: &Measured) {
    let report = Report::new(arguments, measured);
    let text = if arguments.json {
        serde_json::to_string(&report).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    } else {
        report.text()
    };
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
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
            errors_by_kind: RequestFailure::ALL
                .map(|failure| (failure.name(), tally.errors.get(&failure).copied().unwrap_or(0)))
                .into(),
            examples: tally
                .examples
                .iter()
                .map(|(failure, text)| (failure.name(), text.clone()))
                .collect(),
            statuses: tally.statuses.clone(),
            reconnects: tally.reconnects,
            received_bytes: tally.received_bytes,
            latency_us: Latency::new(tally),
            timeline: timeline(tally, arguments.timeline.unwrap_or_default()),
            slowest: tally
                .slowest
                .iter()
                .map(|slow| Slow {
                    latency_us: microseconds(slow.latency),
                    started_ms: microseconds(slow.started) / 1000.0,
                })
                .collect(),
        }
    }

    fn text(&self) -> String {
        self.write().unwrap_or_default()
    }

    fn write(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        let out = &mut text;
        writeln!(
            out,
            "requests    {} with status 200 ({} after the end)",
            self.requests, self.late
        )?;
        writeln!(
            out,
            "rate        {:.1} requests/s over {:.3} s",
            self.requests_per_second, self.seconds
        )?;
        let Latency {
            mean,
            p50,
            p90,
            p95,
            p99,
            p99_9,
            max,
        } = self.latency_us;
        writeln!(
            out,
            "latency µs  mean {mean:.0}, p50 {p50:.0}, p90 {p90:.0}, p95 {p95:.0}, p99 {p99:.0}, p99.9 {p99_9:.0}, max {max:.0}"
        )?;
        writeln!(out, "received    {} bytes", self.received_bytes)?;
        if self.reconnects > 0 {
            writeln!(out, "reconnects  {}", self.reconnects)?;
        }
        writeln!(out, "errors      {}", self.errors)?;
        for (kind, count) in self.errors_by_kind.iter().filter(|(_, count)| **count > 0) {
            let example = self.examples.get(kind).map_or("", String::as_str);
            writeln!(out, "  {kind:<9} {count} ({example})")?;
        }
        for (status, count) in self.statuses.iter().filter(|(status, _)| **status != 200) {
            writeln!(out, "  status {status}: {count}")?;
        }
        if !self.timeline.is_empty() {
            writeln!(
                out,
                "{:>10} {:>10} {:>8} {:>10}",
                "from ms", "requests", "errors", "max µs"
            )?;
        }
        for Interval {
            at_ms,
            requests,
            errors,
            max_us,
        } in &self.timeline
        {
            writeln!(out, "{at_ms:>10} {requests:>10} {errors:>8} {max_us:>10.0}")?;
        }
        if !self.slowest.is_empty() {
            writeln!(out, "{:>10} {:>12}", "slowest µs", "started ms")?;
        }
        for Slow {
            latency_us,
            started_ms,
        } in &self.slowest
        {
            writeln!(out, "{latency_us:>10.0} {started_ms:>12.1}")?;
        }
        Ok(text)
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

fn timeline(tally: &Tally, interval: Duration) -> Vec<Interval> {
    let starts = (0..).map(|index: u64| index * interval.as_millis() as u64);
    let of_tally = tally.timeline.iter().zip(starts);
    of_tally
        .map(|(counted, at_ms)| Interval {
            at_ms,
            requests: counted.completed,
            errors: counted.errors,
            max_us: microseconds(counted.max),
        })
        .collect()
}

/// Rounds to a tenth.
fn microseconds(duration: Duration) -> f64 {
    (duration.as_nanos() as f64 / 100.0).round() / 10.0
}

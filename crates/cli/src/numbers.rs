//! A pool's numbers as text: busy time, percentiles, classes.

use forkyard_protocol::control::PoolStatus;
use forkyard_protocol::dead_work::{DeadCount, NotBegun};
use forkyard_protocol::history::{LastHour, Period};
use forkyard_protocol::lanes::Lanes;
use forkyard_protocol::numbers::{Distribution, PoolNumbers, StatusClass};
use std::fmt::Write as _;

/// Returns the lines of `forkyard status POOL`; none before the first request.
pub(super) fn lines(pool: &PoolStatus) -> String {
    let Some(numbers) = pool.numbers.as_deref().filter(|it| it.busy_seconds > 0.0) else {
        return String::new();
    };
    let mut text = String::new();
    let _ = writeln!(
        text,
        "  busy {:.1} s, saturated {:.1} s ({} workers), queue not empty {:.1} s",
        numbers.busy_seconds, numbers.saturated_seconds, pool.limits.max_children, numbers.queue_seconds
    );
    let _ = writeln!(
        text,
        "  run {}; wait {}",
        percentiles(&numbers.run, &[50, 95, 99]),
        percentiles(&numbers.wait, &[95])
    );
    let _ = writeln!(
        text,
        "  answers {}; received {}, sent {}; aborted {}, timed out {}",
        classes(numbers),
        bytes(numbers.bytes_in),
        bytes(numbers.bytes_out),
        numbers.aborted,
        numbers.timed_out
    );
    let dead = counts(DeadCount::NAMES, numbers.dead_work.counts());
    if !dead.is_empty() {
        let _ = writeln!(text, "  dead work: {dead}");
    }
    if let Some(lanes) = &pool.lanes {
        text.push_str(&lane_lines(lanes));
    }
    if let Some(hour) = &numbers.last_hour {
        let _ = writeln!(text, "  {}", last_hour(hour));
    }
    for (name, period) in [("a day", &numbers.day_ago), ("a week", &numbers.week_ago)] {
        if let Some(period) = period {
            let _ = writeln!(text, "  same hour {name} ago: {}", of_period(period));
        }
    }
    text
}

fn lane_lines(lanes: &Lanes) -> String {
    let workers = if lanes.reserve == 1 { "worker" } else { "workers" };
    let mut text = format!("  lanes leave {} {workers} idle for people", lanes.reserve);
    if !lanes.has_priority {
        text.push_str("; without priority on the processors");
    }
    text.push('\n');
    for (lane, numbers) in lanes
        .each()
        .into_iter()
        .filter(|(_, it)| it.requests + it.refused > 0)
    {
        let _ = writeln!(
            text,
            "    {}: {} requests, busy {:.1} s, {} wait, {} refused",
            lane.name(),
            numbers.requests,
            numbers.busy_ms as f64 / 1e3,
            numbers.parked,
            numbers.refused
        );
    }
    text
}

fn wait(bound: Option<u64>) -> String {
    match bound {
        Some(bound) => format!("at most {}", duration(bound as f64 * 1e3)),
        None => "more than 5 s".to_owned(),
    }
}

fn of_period(period: &Period) -> String {
    format!(
        "{} requests, {} errors, {:.2} busy workers; 95 % waited {}{}",
        period.requests,
        period.errors,
        period.busy_workers,
        wait(period.wait_p95_at_most_ms),
        dead(&period.dead_work)
    )
}

fn last_hour(hour: &LastHour) -> String {
    format!(
        "last hour: {} requests, {} errors, {:.2} busy workers; 95 % waited {}; worst minute {} min ago: {}{}",
        hour.requests,
        hour.errors,
        hour.busy_workers,
        wait(hour.wait_p95_at_most_ms),
        hour.worst_minutes_ago,
        wait(hour.worst_wait_p95_at_most_ms),
        dead(&hour.dead_work)
    )
}

fn dead(of: &NotBegun) -> String {
    let all = counts(DeadCount::REASON_NAMES, of.counts());
    match all.is_empty() {
        true => all,
        false => format!("; dead work: {all}"),
    }
}

fn percentiles(of: &Distribution, parts: &[u32]) -> String {
    let all = parts.iter().map(|part| {
        let value = of.quantile(f64::from(*part) / 100.0);
        format!("p{part} {}", value.map_or_else(|| "-".to_owned(), duration))
    });
    all.collect::<Vec<_>>().join(", ")
}

fn classes(numbers: &PoolNumbers) -> String {
    let all = counts(StatusClass::NAMES, numbers.requests.counts());
    match all.is_empty() {
        true => "-".to_owned(),
        false => all,
    }
}

/// Returns the counts above zero.
fn counts<const N: usize>(names: [&str; N], counts: [u64; N]) -> String {
    let counted = names.into_iter().zip(counts).filter(|(_, count)| *count > 0);
    let all: Vec<String> = counted.map(|(name, count)| format!("{name} {count}")).collect();
    all.join(", ")
}

/// Returns microseconds with the unit that suits them.
pub(super) fn duration(micros: f64) -> String {
    match micros {
        short if short < 1e3 => format!("{short:.0} µs"),
        middle if middle < 1e6 => format!("{:.1} ms", middle / 1e3),
        long => format!("{:.2} s", long / 1e6),
    }
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let (mut count, mut unit) = (count as f64, 0);
    while count >= 10_000.0 && unit + 1 < UNITS.len() {
        count /= 1024.0;
        unit += 1;
    }
    format!("{count:.0} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_protocol::control::WorkerLimits;
    use forkyard_protocol::dead_work::DeadWork;
    use forkyard_protocol::numbers::RequestsByClass;

    #[test]
    fn numbers_are_shown_with_their_limits() {
        let distribution = |buckets: Vec<(u8, u64)>| Distribution {
            count: 100,
            sum: 1.0,
            buckets,
        };
        let numbers = PoolNumbers {
            busy_seconds: 12.34,
            saturated_seconds: 1.26,
            run: distribution(vec![(80, 50), (104, 45), (160, 5)]),
            wait: distribution(vec![(0, 100)]),
            requests: RequestsByClass {
                success: 98,
                none: 2,
                ..RequestsByClass::default()
            },
            bytes_in: 9_999,
            bytes_out: 3 << 30,
            aborted: 2,
            week_ago: Some(Period {
                requests: 7,
                dead_work: NotBegun {
                    deadline: 2,
                    ..NotBegun::default()
                },
                busy_workers: 1.0,
                wait_p95_at_most_ms: Some(50),
                ..Period::default()
            }),
            dead_work: DeadWork {
                abandoned: 3,
                overload: 1,
                ..DeadWork::default()
            },
            ..PoolNumbers::default()
        };
        let pool = PoolStatus {
            numbers: Some(Box::new(numbers)),
            limits: WorkerLimits {
                max_children: 5,
                ..WorkerLimits::default()
            },
            ..PoolStatus::default()
        };
        assert_eq!(
            lines(&pool),
            "  busy 12.3 s, saturated 1.3 s (5 workers), queue not empty 0.0 s\n  \
             run p50 1.1 ms, p95 8.6 ms, p99 1.10 s; wait p95 1 µs\n  \
             answers 2xx 98, none 2; received 9999 B, sent 3072 MiB; aborted 2, timed out 0\n  \
             dead work: abandoned 3, overload 1\n  \
             same hour a week ago: 7 requests, 0 errors, 1.00 busy workers; 95 % waited at most 50.0 ms; dead work: deadline 2\n"
        );
        assert_eq!(lines(&PoolStatus::default()), "");
    }
}

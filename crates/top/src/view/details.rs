//! All that is known of one row.

use super::Target;
use super::units::{bytes, count_or_none, percent, printable, rate, time};
use crate::model::{Frame, PoolRow, WorkerRow};

/// Columns behind a name.
const COLUMNS: usize = 66;

/// Returns lines about a row; `None` if it is gone.
pub(crate) fn details(target: &Target, frame: &Frame) -> Option<Vec<String>> {
    let lines = match target {
        Target::Pool(name) => of_pool(frame.pools.iter().find(|row| row.name == *name)?, frame),
        Target::Process(process) => {
            let mut rows = frame.workers.iter();
            of_worker(rows.find(|row| row.pid == Some(process.pid) && row.pool == process.pool)?)
        }
        Target::Route { pool, route } => {
            let mut rows = frame.routes.iter();
            let row = rows.find(|row| row.pool == *pool && row.route == *route)?;
            vec![
                ("pool", row.pool.clone()),
                ("route", row.route.clone()),
                (
                    "requests",
                    format!("{}, {}/s", row.requests, rate(row.requests_per_second)),
                ),
                ("errors", format!("{} in the interval", count_or_none(row.errors))),
                ("busy workers", rate(row.busy)),
                ("times", format!("p50 {}, p95 {}", time(row.p50), time(row.p95))),
                ("why", row.why.words().unwrap_or_default()),
            ]
        }
        Target::Failure { at, .. } => {
            let row = frame.failures.get(*at)?;
            let age = row.time.map(|time| frame.time.saturating_sub(time) as f64);
            vec![
                ("pool", row.pool.clone()),
                ("kind", row.kind.name().to_owned()),
                ("last", format!("{} ago", time(age))),
                (
                    "count",
                    format!(
                        "{}, {} of them new",
                        count_or_none(row.count),
                        count_or_none(row.new)
                    ),
                ),
                ("id", row.id.clone().unwrap_or_default()),
                ("what", row.text.clone()),
            ]
        }
        Target::Application { pool, name } => {
            let mut rows = frame.applications.iter();
            let row = rows.find(|row| row.pool == *pool && row.name == *name)?;
            let pids: Vec<String> = row.pids.iter().map(ToString::to_string).collect();
            vec![
                ("application", row.name.clone()),
                ("pool", row.pool.clone()),
                ("group", row.group.clone().unwrap_or_default()),
                (
                    "instances",
                    format!("{} of {} busy: {}", row.busy, row.instances, pids.join(" ")),
                ),
                (
                    "waiting",
                    format!("{}, the oldest for {}", row.waiting, time(row.oldest_wait)),
                ),
                (
                    "requests",
                    format!("{}, {}/s", row.requests, rate(row.requests_per_second)),
                ),
                ("memory", bytes(row.memory)),
                ("restarts", row.restarts.to_string()),
                ("state", row.remarks.join(", ")),
            ]
        }
        Target::Queue(name) => {
            let row = frame.jobs.iter().find(|row| row.name == *name)?;
            vec![
                ("queue", row.name.clone()),
                ("pool", row.pool.clone().unwrap_or_default()),
                ("running", row.running.to_string()),
                (
                    "waiting",
                    format!("{}, the oldest for {}", row.waiting, time(row.oldest)),
                ),
                ("scheduled", row.scheduled.to_string()),
                ("blocked", row.blocked.to_string()),
                ("failed", row.failed.to_string()),
                ("quarantined", row.quarantined.to_string()),
                ("ended", format!("{}/s", rate(row.ended_per_second))),
            ]
        }
    };
    let shown = lines.into_iter().filter(|(_, text)| !text.is_empty());
    Some(
        shown
            .map(|(name, text)| format!("{name:<14}{}", printable(&text)))
            .collect(),
    )
}

fn of_pool(row: &PoolRow, frame: &Frame) -> Vec<(&'static str, String)> {
    let error = row.error.as_ref().map(|error| {
        let age = time(Some(frame.time.saturating_sub(error.time) as f64));
        format!("{}, {age} ago: {}", error.id, error.summary)
    });
    let limit = row
        .waiting_limit
        .map_or_else(String::new, |limit| format!(" of {limit}"));
    let mut lines = vec![
        ("pool", format!("{} on {}", row.name, row.listen)),
        ("state", format!("{}, {}", row.state, row.manager)),
        ("problem", row.problem.clone().unwrap_or_default()),
        ("last error", error.unwrap_or_default()),
        (
            "workers",
            format!(
                "{} busy, {} idle, {} starting of {}",
                row.busy, row.idle, row.starting, row.max
            ),
        ),
        (
            "saturated",
            format!(
                "{} of the time, and connections waited {}",
                percent(row.saturated),
                percent(row.queued)
            ),
        ),
        ("waiting", format!("{}{limit}", count_or_none(row.waiting))),
        (
            "requests",
            format!("{}, {}/s", row.requests, rate(row.requests_per_second)),
        ),
        (
            "times",
            format!(
                "p50 {}, p95 {}, p99 {}",
                time(row.p50),
                time(row.p95),
                time(row.p99)
            ),
        ),
        ("before them", format!("p95 {}", time(row.wait_p95))),
        (
            "errors",
            format!(
                "{}, {} slow, {} ended for their time, {} left by clients",
                percent(row.errors),
                count_or_none(row.slow),
                count_or_none(row.timed_out),
                count_or_none(row.aborted)
            ),
        ),
        (
            "bytes",
            format!("{}/s received, {}/s sent", flow(row.received), flow(row.sent)),
        ),
        ("cpu", percent(row.cpu)),
        ("memory", bytes(row.memory)),
        ("why", row.why.words().unwrap_or_default()),
    ];
    let advice = lines_of(row.advice.as_deref().unwrap_or_default()).into_iter();
    let names = std::iter::once("autopilot").chain(std::iter::repeat(""));
    lines.extend(names.zip(advice));
    lines
}

/// Divides a text into lines that fit in 80 columns behind a name.
fn lines_of(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns bytes in a second.
fn flow(rate: Option<f64>) -> String {
    bytes(rate.map(|rate| rate as u64))
}

fn of_worker(row: &WorkerRow) -> Vec<(&'static str, String)> {
    let seen = row.last_seen.as_ref();
    let seen = seen.map(|seen| format!("{} {}", seen.cause.name(), seen.detail));
    vec![
        ("pid", row.pid.map(|pid| pid.to_string()).unwrap_or_default()),
        ("pool", row.pool.clone()),
        ("application", row.application.clone().unwrap_or_default()),
        ("state", format!("{} for {}", row.state, time(row.age))),
        (
            "requests",
            format!("{}, {}/s", row.requests, rate(row.requests_per_second)),
        ),
        ("cpu", percent(row.cpu)),
        ("memory", bytes(row.memory)),
        ("why", row.why.words().unwrap_or_default()),
        ("last seen", seen.unwrap_or_default()),
        (
            if row.is_busy { "request" } else { "last request" },
            row.request.clone(),
        ),
        ("script", row.script.clone()),
    ]
}

//! The view of failures and slow requests.

use super::Span;
use forkyard_protocol::control::PoolStatus;
use forkyard_protocol::counters::ExitCause;
use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct FailureRow {
    pub(crate) pool: String,
    pub(crate) kind: Kind,
    /// The time of the last one, in seconds since 1970.
    pub(crate) time: Option<u64>,
    pub(crate) count: Option<u64>,
    /// The number in the interval.
    pub(crate) new: Option<u64>,
    /// The report's id.
    pub(crate) id: Option<String>,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A start that failed.
    Start,
    /// A pool with errors in its configuration.
    Skipped,
    Crash,
    /// Workers that ended otherwise than they should.
    Exit,
    Slow,
    /// Requests that were ended.
    Ended,
    /// Scripts that were not run.
    Refused,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Start => "start",
            Kind::Skipped => "skipped",
            Kind::Crash => "crash",
            Kind::Exit => "exit",
            Kind::Slow => "slow",
            Kind::Ended => "ended",
            Kind::Refused => "refused",
        }
    }
}

pub(super) fn rows(span: Span<'_>) -> Vec<FailureRow> {
    let status = &span.now.status;
    let skipped = status.skipped.iter().map(|skipped| FailureRow {
        text: skipped.reasons.join("; "),
        ..of(&skipped.name(), Kind::Skipped)
    });
    let crashes = span.now.crashes.iter().map(|crash| FailureRow {
        time: Some(crash.time),
        count: Some(crash.deaths),
        id: Some(crash.id.clone()),
        text: match crash.request.as_str() {
            "" => crash.cause.clone(),
            request => format!("{} in {request}", crash.cause),
        },
        ..of(&crash.pool, Kind::Crash)
    });
    let pools = status.pools.iter().flat_map(|pool| {
        let before = span.before.and_then(|before| {
            let mut pools = before.status.pools.iter();
            pools.find(|other| other.name == pool.name)
        });
        of_pool(pool, before)
    });
    skipped.chain(crashes).chain(pools).collect()
}

fn of(pool: &str, kind: Kind) -> FailureRow {
    FailureRow {
        pool: pool.to_owned(),
        kind,
        time: None,
        count: None,
        new: None,
        id: None,
        text: String::new(),
    }
}

fn of_pool(pool: &PoolStatus, before: Option<&PoolStatus>) -> Vec<FailureRow> {
    let status = pool;
    let before = before.map(|before| &before.counts);
    let (name, counts) = (status.name.as_str(), &status.counts);
    let new = |now: u64, before: Option<u64>| now.checked_sub(before?);
    let mut rows = Vec::new();
    if let Some(error) = &status.last_error {
        let state = match (error.refusing, error.is_over) {
            (true, _) => "requests are refused: ",
            (false, true) => "over: ",
            (false, false) => "",
        };
        rows.push(FailureRow {
            time: Some(error.time),
            count: Some(status.failed_starts),
            id: Some(error.id.clone()),
            text: format!("{state}{}", error.summary),
            ..of(name, Kind::Start)
        });
    }
    let errors = status.applications.iter().flat_map(|it| &it.errors);
    rows.extend(errors.map(|error| FailureRow {
        time: Some(error.time).filter(|time| *time > 0),
        id: Some(error.id.clone()),
        text: format!("{}: {}", error.application, error.message),
        ..of(name, Kind::Start)
    }));
    for (kind, count, earlier, text) in [
        (
            Kind::Slow,
            counts.slow,
            before.map(|it| it.slow),
            "requests over request_slowlog_timeout",
        ),
        (
            Kind::Ended,
            counts.terminated,
            before.map(|it| it.terminated),
            "requests that took too long or were ended",
        ),
    ] {
        if count > 0 {
            rows.push(FailureRow {
                count: Some(count),
                new: new(count, earlier),
                text: text.to_owned(),
                ..of(name, kind)
            });
        }
    }
    for exits in counts.exits.iter().filter(|exits| is_failure(exits.cause)) {
        let same = |other: &&forkyard_protocol::counters::Exits| {
            (other.cause, other.code, &other.reason) == (exits.cause, exits.code, &exits.reason)
        };
        let earlier = before.map(|it| it.exits.iter().find(same).map_or(0, |it| it.count));
        let code = exits.code.map(|code| format!(" {code}")).unwrap_or_default();
        let reason = exits.reason.as_ref().map(|reason| format!(" ({reason})"));
        rows.push(FailureRow {
            count: Some(exits.count),
            new: new(exits.count, earlier),
            text: format!(
                "workers: {}{code}{}",
                exits.cause.name(),
                reason.unwrap_or_default()
            ),
            ..of(name, Kind::Exit)
        });
    }
    for refusals in &counts.refusals {
        let earlier = before.map(|it| {
            let same = it.refusals.iter().find(|other| other.cause == refusals.cause);
            same.map_or(0, |same| same.count)
        });
        rows.push(FailureRow {
            time: Some(refusals.time),
            count: Some(refusals.count),
            new: new(refusals.count, earlier),
            text: refusals.words().to_string(),
            ..of(name, Kind::Refused)
        });
    }
    rows
}

/// Whether workers should not end so.
fn is_failure(cause: ExitCause) -> bool {
    match cause {
        ExitCause::Exit
        | ExitCause::Signal
        | ExitCause::Unknown
        | ExitCause::Memory
        | ExitCause::ScriptFailed
        | ExitCause::NotPutBack => true,
        ExitCause::Retired
        | ExitCause::Finished
        | ExitCause::Terminated
        | ExitCause::LoopRequests
        | ExitCause::LoopMemory
        | ExitCause::ScriptEnded
        | ExitCause::ClientLeft => false,
    }
}

//! Dead work: requests that do not begin, because their answer would come too late or too many requests wait.
//!
//! | fact | verdict | answer |
//! | --- | --- | --- |
//! | GET or HEAD, waited for [`Overload::PATIENCE`], the client has left | abandoned | none; 499 in the access log |
//! | the web server gives up before the answer (REQUEST_TIMEOUT) | deadline | 503, Retry-After |
//! | waited longer than `max_request_queue_time` | queue time | 504 |
//! | `"auto"`: the queue stands, and it waited longer than the bound | overload | 503, Retry-After |
//!
//! The estimate of a wait is never too high, and nothing here stops a request that has begun.

use fastcgi::Params;
use forkyard_config::{Abandoned, Overload, QueueTime};
use forkyard_protocol::dead_work::DeadCount;
use std::time::Duration;

/// A longer time is invalid.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
const MOST_RETRY_AFTER: u64 = 5;

/// Facts about a request before it begins.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Facts {
    pub waited: Duration,
    /// How long the web server waits for the answer.
    pub timeout: Option<Duration>,
    /// The usual duration of requests; zero if unknown.
    pub usual: Duration,
    /// The bound, if the queue is a standing queue.
    pub standing: Option<Duration>,
}

/// Why a request does not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dead {
    Abandoned,
    Deadline,
    QueueTime,
    Overload,
}

/// Returns why the request must not begin. `is_left`: checks whether the client has left; called only if that matters.
pub(super) fn judge(rules: &Overload, facts: &Facts, is_left: impl FnOnce() -> bool) -> Option<Dead> {
    let waited = facts.waited;
    if rules.abandoned != Abandoned::Run && waited >= Overload::PATIENCE && is_left() {
        return Some(Dead::Abandoned);
    }
    // A request that waited for less than half of its time begins: the usual time may come from other requests.
    let is_late = |limit: Duration| waited >= limit / 2 && waited.saturating_add(facts.usual) > limit;
    if facts.timeout.is_some_and(is_late) {
        return Some(Dead::Deadline);
    }
    match rules.queue_time {
        QueueTime::Endless => None,
        QueueTime::Fixed(limit) => (waited > limit).then_some(Dead::QueueTime),
        QueueTime::Auto => facts
            .standing
            .is_some_and(|bound| waited > bound)
            .then_some(Dead::Overload),
    }
}

impl Dead {
    pub(super) fn count(self) -> DeadCount {
        match self {
            Dead::Abandoned => DeadCount::Abandoned,
            Dead::Deadline => DeadCount::Deadline,
            Dead::QueueTime => DeadCount::QueueTime,
            Dead::Overload => DeadCount::Overload,
        }
    }

    /// Returns the answer, or `None` to close the connection without one. `random`: spreads the clients' retries.
    pub(super) fn answer(self, random: u64) -> Option<String> {
        let (status, retry, text) = match self {
            Dead::Abandoned => return None,
            Dead::Deadline | Dead::Overload => (
                "503 Service Unavailable",
                format!("Retry-After: {}\r\n", random % MOST_RETRY_AFTER + 1),
                "The application has too many requests. Please try again later.",
            ),
            Dead::QueueTime => (
                "504 Gateway Timeout",
                String::new(),
                "The application did not answer in time.",
            ),
        };
        Some(format!(
            "Status: {status}\r\n{retry}Content-Type: text/plain; charset=UTF-8\r\n\r\n{text}\n"
        ))
    }
}

/// Whether a request may be skipped once its client has left.
pub(super) fn may_be_skipped(params: &Params, rules: &Overload) -> bool {
    rules.may_skip(|name| params.get(name).unwrap_or_default())
}

/// Whether the request runs a background job. A job's connection is its lease.
pub(super) fn is_job(params: &Params) -> bool {
    params.get(b"FORKYARD_JOB_ID").is_some()
}

/// Reads REQUEST_TIMEOUT: seconds, or a number with `s` or `ms`.
pub(super) fn timeout(text: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(text).ok()?;
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1e-3),
        (None, Some(number)) => (number, 1.0),
        (None, None) => (text, 1.0),
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = is_number.then(|| number.parse().ok()).flatten()?;
    let time = Duration::try_from_secs_f64(number * unit).ok()?;
    (time > Duration::ZERO && time <= LONGEST).then_some(time)
}

#[cfg(test)]
#[path = "dead_work_tests.rs"]
mod tests;

//! Time limits of requests: `request_slowlog_timeout` and `request_terminate_timeout`, checked when `watchdog` is due.
//!
//! A worker with an expired request gets SIGTERM (`Action::RespondTimeout`), answers 504 if possible, and exits
//! (`crates/worker/src/timeout_response.rs`). A worker with concurrent requests does so itself
//! (`crates/worker/src/concurrent/times.rs`); its limit here is a second longer (`policy` in
//! `crates/daemon/src/context/pools.rs`).

use super::action::{Action, Notice};
use super::children::Slow;
use super::event::{GenerationId, Policy, WorkerId};
use super::leave::LeaveCause;
use super::manager::{Manager, Step};
use super::snapshot::{TimedRequest, View};
use super::watchdog::WatchdogCause;
use forkyard_base::tick::Tick;
use std::time::Duration;

/// The time to trace a slow request that has also expired.
const TRACE_TIME: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    slow: Option<Duration>,
    terminate: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// It is slow and was not logged.
    pub is_slow: bool,
    pub is_expired: bool,
}

impl Limits {
    pub(super) fn of(policy: &Policy) -> Limits {
        Limits {
            slow: policy.slow_timeout,
            terminate: policy.terminate_timeout,
        }
    }

    pub(super) fn soonest(self) -> Option<Duration> {
        self.slow.into_iter().chain(self.terminate).min()
    }

    pub(super) fn judge(self, request: &TimedRequest, now: Tick) -> Verdict {
        let is_past =
            |limit: Option<Duration>, since: Tick| limit.is_some_and(|limit| now.since(since) >= limit);
        let is_slow = request.executing && request.unlogged.is_some_and(|since| is_past(self.slow, since));
        Verdict {
            is_slow,
            is_expired: !is_slow && is_past(self.terminate, request.since),
        }
    }

    /// Whether a request needs no further check: it was logged as slow and has no other limit.
    pub(super) fn is_settled(self, request: &TimedRequest, now: Tick) -> bool {
        self.terminate.is_none() && (request.unlogged.is_none() || self.judge(request, now).is_slow)
    }

    /// The time until a request becomes slow or expires, beyond what [`Limits::judge`] found; `None`: none does.
    pub(super) fn next_look(self, view: &View, now: Tick) -> Option<Duration> {
        let left = |limit: Option<Duration>, since: Tick| {
            let left = limit?.saturating_sub(now.since(since));
            (!left.is_zero()).then_some(left)
        };
        let running = view.running.iter().flat_map(|request| {
            let is_slow = self.judge(request, now).is_slow;
            let slow = request.unlogged.and_then(|since| left(self.slow, since));
            let terminate = match left(self.terminate, request.since) {
                None => (is_slow && self.terminate.is_some()).then_some(TRACE_TIME),
                left => left,
            };
            [slow, terminate]
        });
        let coming = view
            .about_to_run
            .iter()
            .flat_map(|since| [left(self.slow, *since), left(self.terminate, *since)]);
        running.chain(coming).flatten().min()
    }
}

impl Manager {
    /// Logs slow requests and ends expired ones (`request_slowlog_timeout`, `request_terminate_timeout`), on every
    /// snapshot.
    pub(super) fn end_overdue(&mut self, id: GenerationId, view: &View, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let limits = Limits::of(&generation.policy);
        if limits.soonest().is_none() {
            return;
        }
        for request in &view.running {
            let verdict = limits.judge(request, step.now);
            if verdict.is_slow {
                self.found_slow(id, request.worker, step);
            }
            if verdict.is_expired {
                self.dismiss(request.worker, LeaveCause::Expired, step);
            }
        }
        let is_settled = view
            .running
            .iter()
            .all(|request| limits.is_settled(request, step.now));
        if view.about_to_run.is_empty() && is_settled {
            self.watchdog_changed(id, WatchdogCause::Quiet, None, step);
        } else {
            self.watchdog_changed(id, WatchdogCause::Busy, Some(view), step);
        }
    }

    fn found_slow(&mut self, id: GenerationId, worker: WorkerId, step: &mut Step<'_>) {
        let age = self.children.change(worker, |worker| {
            worker.slow = worker.seen.map(|seen| Slow {
                since: seen.since,
                found: step.now,
            });
            worker.state_age(step.now)
        });
        step.say(Notice::RequestSlow(worker, age.unwrap_or_default()));
        step.act(Action::Trace(worker));
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.figures.slow_requests += 1;
            step.act(Action::Publish(id, generation.figures));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        slow: Some(Duration::from_secs(2)),
        terminate: Some(Duration::from_secs(5)),
    };

    fn at(seconds: u64) -> Tick {
        Tick::ZERO + Duration::from_secs(seconds)
    }

    fn request(since: u64, is_logged: bool) -> TimedRequest {
        TimedRequest {
            worker: WorkerId(0),
            since: at(since),
            executing: true,
            unlogged: (!is_logged).then(|| at(since)),
        }
    }

    fn next(request: TimedRequest, now: Tick) -> Option<Duration> {
        let view = View {
            running: vec![request],
            ..View::default()
        };
        LIMITS.next_look(&view, now)
    }

    #[test]
    fn a_request_is_first_slow_then_expired() {
        let young = request(10, false);
        let judged = |request: &TimedRequest, now| {
            let verdict = LIMITS.judge(request, now);
            (verdict.is_slow, verdict.is_expired)
        };
        assert_eq!(judged(&young, at(11)), (false, false));
        assert_eq!(next(young, at(11)), Some(Duration::from_secs(1)));
        assert_eq!(judged(&young, at(12)), (true, false));
        assert_eq!(next(young, at(12)), Some(Duration::from_secs(3)));
        assert_eq!(judged(&request(10, true), at(14)), (false, false));
        assert_eq!(judged(&request(10, true), at(15)), (false, true));
        assert_eq!(next(request(10, true), at(15)), None);
    }

    #[test]
    fn what_is_found_slow_when_it_has_expired_is_ended_a_little_later() {
        let late = request(10, false);
        let verdict = LIMITS.judge(&late, at(20));
        assert!(verdict.is_slow && !verdict.is_expired);
        assert_eq!(next(late, at(20)), Some(TRACE_TIME));
    }

    #[test]
    fn a_slow_request_that_may_run_for_ever_is_not_looked_at_again() {
        let limits = Limits {
            terminate: None,
            ..LIMITS
        };
        assert!(!limits.is_settled(&request(10, false), at(11)));
        assert!(limits.is_settled(&request(10, false), at(12)));
        assert!(limits.is_settled(&request(10, true), at(13)));
        assert!(!LIMITS.is_settled(&request(10, true), at(13)));
    }

    #[test]
    fn only_an_application_that_runs_is_slow() {
        let reads = TimedRequest {
            executing: false,
            ..request(10, false)
        };
        assert!(!LIMITS.judge(&reads, at(13)).is_slow);
        assert_eq!(next(reads, at(13)), Some(Duration::from_secs(2)));
    }
}

//! How long a request may run: `request_slowlog_timeout` and `request_terminate_timeout`.
//!
//! A worker whose request has expired is told so with SIGTERM (`Action::RespondTimeout`). It then answers 504 itself, unless
//! an answer has begun or it is no child of this master, and ends: see `crates/worker/src/worker/timeout_response.rs`. `watchdog` decides when the requests are looked at.
//!
//! A worker that serves several requests at a time keeps the time itself, answers the one request, and goes on,
//! or ends after the others if it has threads (`crates/worker/src/worker/concurrent/times.rs`). The limit here is a second longer for it (`policy` in
//! `src/master/executor/pools.rs`), so the master ends only one that is held up.

use super::action::{Action, Notice};
use super::children::Slow;
use super::event::{GenerationId, Policy, WorkerId};
use super::leave::LeaveCause;
use super::manager::{Manager, Step};
use super::snapshot::{TimedRequest, View};
use super::watchdog::WatchdogCause;
use crate::tick::Tick;
use std::time::Duration;

/// A request that was just found slow and has expired too is left this time, so that what it does can be written down.
const TRACE_TIME: Duration = Duration::from_millis(100);

/// What a generation allows its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    slow: Option<Duration>,
    terminate: Option<Duration>,
}

/// What is to be done about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// It is slow and was not found so before.
    pub is_slow: bool,
    /// It is to be ended now.
    pub is_expired: bool,
}

impl Limits {
    /// Those of a policy.
    pub(super) fn of(policy: &Policy) -> Limits {
        Limits {
            slow: policy.slow_timeout,
            terminate: policy.terminate_timeout,
        }
    }

    /// The shorter one, if there is any: no request that begins now has to be looked at before.
    pub(super) fn soonest(self) -> Option<Duration> {
        self.slow.into_iter().chain(self.terminate).min()
    }

    /// What is to be done about a request now.
    pub(super) fn judge(self, request: &TimedRequest, now: Tick) -> Verdict {
        let is_past =
            |limit: Option<Duration>, since: Tick| limit.is_some_and(|limit| now.since(since) >= limit);
        let is_slow = request.executing && request.unlogged.is_some_and(|since| is_past(self.slow, since));
        Verdict {
            is_slow,
            is_expired: !is_slow && is_past(self.terminate, request.since),
        }
    }

    /// Whether a request needs no further look: it was found slow, and may run for ever.
    pub(super) fn is_settled(self, request: &TimedRequest, now: Tick) -> bool {
        self.terminate.is_none() && (request.unlogged.is_none() || self.judge(request, now).is_slow)
    }

    /// How long until a request of this snapshot becomes slow or expires; `None`: none does. A request that [`Limits::judge`] has
    /// found slow, or expired, is not waited for again.
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
    /// Has slow requests written down, and ends those that ran too long: `request_slowlog_timeout` and
    /// `request_terminate_timeout`. Asked with every snapshot (`counted` in `manager.rs`); `watchdog.rs` has one taken when the
    /// next request is due. For `Action::RespondTimeout` the executor sends SIGTERM with the word that the time is up.
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

    /// A request is slow: once.
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

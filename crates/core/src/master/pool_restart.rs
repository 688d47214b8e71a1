//! Restarts of a pool on a worker's request. Workers are untrusted: a pool gets at most one restart a second, and the
//! master checks `restart.txt` itself (`situation` in `crates/daemon/src/reload/mod.rs`).

use super::event::{GenerationId, PoolId};
use forkyard_base::tick::Tick;
use forkyard_protocol::accept_notify::RestartReason;
use std::collections::BTreeMap;
use std::time::Duration;

/// Whether a reason concerns code older than a timestamp, so that a later restart settles it.
fn has_timestamp(why: RestartReason) -> bool {
    match why {
        RestartReason::CodeReset | RestartReason::CodeFull | RestartReason::Watched => true,
        RestartReason::RestartFile
        | RestartReason::MaxRequests
        | RestartReason::Memory
        | RestartReason::ReleaseGone => false,
    }
}

/// A worker's request to restart its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartRequest {
    pub generation: GenerationId,
    pub why: RestartReason,
    /// The reason's [`timestamp`](forkyard_protocol::accept_notify::timestamp).
    pub since: u32,
}

/// The requests that wait, once for each generation and reason, and the restarts that count for later ones.
#[derive(Debug, Default)]
pub struct RestartRequests {
    waiting: BTreeMap<(GenerationId, u32), RestartRequest>,
    /// The last restarts because of a full OPcache.
    full: BTreeMap<PoolId, Tick>,
}

impl RestartRequests {
    pub fn add(&mut self, request: RestartRequest) {
        self.waiting
            .insert((request.generation, request.why.bits()), request);
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next pool to restart, and the reason. `situation` returns the pool of a request and its state, or `None` if
    /// it is gone. Only one pool restarts at a time; the requests of others wait.
    pub fn next(
        &mut self,
        now: Tick,
        mut situation: impl FnMut(RestartRequest) -> Option<(PoolId, Situation)>,
    ) -> Option<(PoolId, RestartReason)> {
        self.full.retain(|_, granted| now.since(*granted) < FULL_INTERVAL);
        let mut granted = None;
        for request in std::mem::take(&mut self.waiting).into_values() {
            let Some((pool, situation)) = situation(request) else {
                continue;
            };
            let was_full = self.full.contains_key(&pool);
            let is_granted = situation.grants(request.why, was_full);
            if situation.postpones(request.why) || (is_granted && granted.is_some()) {
                self.add(request);
            } else if is_granted {
                granted = Some((pool, request.why));
            }
        }
        if let Some((pool, RestartReason::CodeFull)) = granted {
            self.full.insert(pool, now);
        }
        granted
    }
}

/// The state of the worker's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    pub is_daemon_ending: bool,
    pub is_reloading: bool,
    /// The latest generation has just started.
    pub is_young: bool,
    /// The worker's generation serves and is the latest.
    pub is_latest: bool,
    /// The pool's program has limits.
    pub is_limited: bool,
    /// `restart.txt` changed since the latest generation started.
    pub is_touched: bool,
    /// The pool has a release.
    pub has_release: bool,
    /// The application boots once.
    pub boots_once: bool,
    /// The latest generation started before the reason's timestamp.
    pub is_older: bool,
}

/// The least time between restarts for a full OPcache, which may simply be too small.
const FULL_INTERVAL: Duration = Duration::from_secs(600);

impl Situation {
    /// Whether the reason is kept until the pool is ready; workers repeat reasons without a timestamp.
    fn postpones(self, why: RestartReason) -> bool {
        let is_early = !self.is_daemon_ending && (self.is_reloading || self.is_young);
        is_early && has_timestamp(why) && self.boots_once && self.is_older
    }

    /// Whether to restart now (`begin_restart` in `crates/daemon/src/master/pool_requests.rs`). The old processes serve until the new
    /// ones are warm. `was_full`: it was restarted for [`RestartReason::CodeFull`] within ten minutes.
    pub fn grants(self, why: RestartReason, was_full: bool) -> bool {
        if self.is_daemon_ending || self.is_reloading || self.is_young {
            return false;
        }
        match why {
            // Code that could not start may have been fixed.
            RestartReason::RestartFile => self.is_touched,
            // While new processes fail, the old ones continue.
            RestartReason::MaxRequests | RestartReason::Memory => self.is_latest && self.is_limited,
            RestartReason::ReleaseGone => self.is_latest && self.has_release,
            RestartReason::CodeReset | RestartReason::Watched => self.boots_once && self.is_older,
            RestartReason::CodeFull => self.boots_once && self.is_older && !was_full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Situation = Situation {
        is_daemon_ending: false,
        is_reloading: false,
        is_young: false,
        is_latest: true,
        is_limited: true,
        is_touched: false,
        has_release: true,
        boots_once: true,
        is_older: true,
    };

    #[test]
    fn limits_count_for_the_latest_generation_and_the_file_if_it_is_another() {
        for why in [RestartReason::MaxRequests, RestartReason::Memory] {
            assert!(CALM.grants(why, false));
            let is_latest = false;
            assert!(!Situation { is_latest, ..CALM }.grants(why, false));
            let is_limited = false;
            assert!(!Situation { is_limited, ..CALM }.grants(why, false));
        }
        assert!(CALM.grants(RestartReason::ReleaseGone, false));
        for calm in [
            Situation {
                is_latest: false,
                ..CALM
            },
            Situation {
                has_release: false,
                ..CALM
            },
        ] {
            assert!(!calm.grants(RestartReason::ReleaseGone, false));
        }
        assert!(!CALM.grants(RestartReason::RestartFile, false));
        let touched = Situation {
            is_touched: true,
            is_latest: false,
            ..CALM
        };
        assert!(touched.grants(RestartReason::RestartFile, false));
    }

    #[test]
    fn a_new_boot_is_granted_once_for_a_moment() {
        for why in RestartReason::ALL.into_iter().filter(|why| has_timestamp(*why)) {
            let is_latest = false;
            assert!(CALM.grants(why, false) && Situation { is_latest, ..CALM }.grants(why, false));
            let is_older = false;
            assert!(!Situation { is_older, ..CALM }.grants(why, false));
            let is_young = true;
            let young = Situation { is_young, ..CALM };
            assert!(young.postpones(why) && !CALM.postpones(why));
            assert!(!Situation { is_older, ..young }.postpones(why));
            let boots_once = false;
            assert!(!Situation { boots_once, ..CALM }.grants(why, false));
            assert_eq!(CALM.grants(why, true), why != RestartReason::CodeFull);
        }
    }

    #[test]
    fn nothing_is_granted_during_a_reload_or_just_after_one() {
        for why in RestartReason::ALL {
            let touched = Situation {
                is_touched: true,
                ..CALM
            };
            assert!(touched.grants(why, false));
            let is_reloading = true;
            assert!(
                !Situation {
                    is_reloading,
                    ..touched
                }
                .grants(why, false)
            );
            let ending = Situation {
                is_daemon_ending: true,
                ..touched
            };
            assert!(!ending.grants(why, false) && !ending.postpones(why));
            let is_young = true;
            assert!(!Situation { is_young, ..touched }.grants(why, false));
        }
    }

    #[test]
    fn one_pool_restarts_at_a_time_and_seldom_for_a_full_opcache() {
        let mut requests = RestartRequests::default();
        let request = |generation, why| RestartRequest {
            generation: GenerationId(generation),
            why,
            since: 0,
        };
        let both = |requests: &mut RestartRequests| {
            for generation in [1, 2] {
                requests.add(request(generation, RestartReason::CodeFull));
                requests.add(request(generation, RestartReason::CodeFull));
            }
        };
        let calm = |request: RestartRequest| Some((PoolId(request.generation.0), CALM));
        let at = |seconds: u64| Tick::from_nanos(seconds * 1_000_000_000);
        both(&mut requests);
        let young = Situation {
            is_young: true,
            ..CALM
        };
        assert_eq!(
            requests.next(at(1), |request| Some((calm(request)?.0, young))),
            None
        );
        assert_eq!(
            requests.next(at(2), calm),
            Some((PoolId(1), RestartReason::CodeFull))
        );
        assert_eq!(
            requests.next(at(3), calm),
            Some((PoolId(2), RestartReason::CodeFull))
        );
        assert!(requests.is_empty());
        both(&mut requests);
        assert_eq!(requests.next(at(601), calm), None);
        both(&mut requests);
        assert_eq!(
            requests.next(at(602), calm),
            Some((PoolId(1), RestartReason::CodeFull))
        );
        assert_eq!(requests.next(at(603), |_| None), None);
        assert!(requests.is_empty());
    }
}

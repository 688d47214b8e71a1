//! Which process answers for a pool whose application can't be started.
//!
//! A preloader fails to start, or a worker ends before it is up. If no worker of the pool is up then, requests would wait
//! until a later try succeeds, without an end in sight. So the 503 responder refuses each of them at once and names the
//! failure. It stops when a preloader is ready again, or, after a worker's failure, when a worker is up. Requests wait if
//! a preloader or a worker crashed after it was up: the next one is likely to come up.

use super::action::Action;
use super::event::{Exit, GenerationId, PoolId};
use super::manager::{Manager, Step};
use super::manager_state::ManagerState;
use crate::config::ProcessManager;

/// The last failure to start a process of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FailedStart {
    pub process: FailedProcess,
    /// The 503 responder got this failure.
    pub is_told: bool,
}

/// The process that failed to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailedProcess {
    Preloader,
    Worker,
}

impl FailedStart {
    pub(super) fn new(process: FailedProcess) -> FailedStart {
        FailedStart {
            process,
            is_told: false,
        }
    }
}

impl Manager {
    /// Starts the 503 responder of a generation's pool, or stops it. If one runs already, it is told of a further failure.
    pub(super) fn update_unavailable_responder(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(pool_id) = self.pool_of(id) else { return };
        let refusing = self.refusing(pool_id);
        let Some(pool) = self.pools.get_mut(&pool_id) else {
            return;
        };
        match refusing {
            None => {
                if std::mem::take(&mut pool.is_refused) {
                    step.act(Action::StopUnavailableResponder(pool_id));
                }
            }
            // The process has this failure. The next failure starts another process, if that one is gone.
            Some((_, failed)) if failed.is_told => {}
            Some((id, failed)) => {
                let Some(generation) = self.generations.get_mut(&id) else {
                    return;
                };
                pool.is_refused = true;
                generation.failed_start = Some(FailedStart {
                    is_told: true,
                    ..failed
                });
                let wait = generation.backoff.wait(step.now).unwrap_or_default();
                step.act(Action::UnavailableResponder(pool_id, id, wait));
            }
        }
    }

    /// The process that refused a pool's requests ended, or could not be made.
    pub(super) fn unavailable_responder_gone(&mut self, id: PoolId) {
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.is_refused = false;
        }
    }

    /// The generation whose failure to start has a pool's requests refused.
    fn refusing(&self, id: PoolId) -> Option<(GenerationId, FailedStart)> {
        let pool = self.pools.get(&id).filter(|pool| !pool.closed)?;
        let serving = pool.serving.filter(|_| self.state == ManagerState::Running)?;
        let generation = self.generations.get(&serving)?;
        // An application of an application pool has no address of its own: its router answers the requests.
        if matches!(generation.policy.pm, ProcessManager::Ordered { .. }) {
            return None;
        }
        let failed = generation.failed_start?;
        (!self.is_staffed(id)).then_some((serving, failed))
    }

    /// Whether a worker of the pool is up and stays.
    fn is_staffed(&self, id: PoolId) -> bool {
        let mut takers = self.pools.get(&id).into_iter().flat_map(|pool| pool.takers());
        takers.any(|taker| self.worker_counts(taker).up > 0)
    }

    /// A worker ended by itself before it was up.
    pub(super) fn worker_start_failed(&mut self, id: GenerationId, exit: Exit) {
        // While another worker is up, the application can start. There is a report only of an end that was seen.
        let is_staffed = self.pool_of(id).is_some_and(|pool| self.is_staffed(pool));
        if is_staffed || exit == Exit::Unknown || exit.is_from_outside() {
            return;
        }
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.failed_start = Some(FailedStart::new(FailedProcess::Worker));
        }
    }

    /// A worker is up.
    pub(super) fn worker_started(&mut self, id: GenerationId, step: &mut Step<'_>) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.failed_start = None;
        }
        self.tell_up(id, step);
    }
}

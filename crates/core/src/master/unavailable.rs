//! Has a 503 responder refuse a pool's requests while a preloader or worker fails to start and no worker is up. After a
//! later crash requests wait, since the next process is likely to come up.

use super::action::Action;
use super::event::{Ended, GenerationId, PoolId};
use super::manager::{Manager, Step};
use super::manager_state::ManagerState;
use crate::config::ProcessManager;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FailedStart {
    pub process: FailedProcess,
    /// The 503 responder has this failure.
    pub is_told: bool,
}

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
    /// Starts or stops the 503 responder. A running one gets the new failure.
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
            // The responder has it. The next failure starts another process if this one is gone.
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

    pub(super) fn unavailable_responder_gone(&mut self, id: PoolId) {
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.is_refused = false;
        }
    }

    fn refusing(&self, id: PoolId) -> Option<(GenerationId, FailedStart)> {
        let pool = self.pools.get(&id).filter(|pool| !pool.closed)?;
        let serving = pool.serving.filter(|_| self.state == ManagerState::Running)?;
        let generation = self.generations.get(&serving)?;
        // A router answers for its applications.
        if matches!(generation.policy.pm, ProcessManager::Ordered { .. }) {
            return None;
        }
        let failed = generation.failed_start?;
        (!self.is_staffed(id)).then_some((serving, failed))
    }

    fn is_staffed(&self, id: PoolId) -> bool {
        let mut takers = self.pools.get(&id).into_iter().flat_map(|pool| pool.takers());
        takers.any(|taker| self.worker_counts(taker).up > 0)
    }

    pub(super) fn worker_start_failed(&mut self, id: GenerationId, exit: Ended) {
        // With another worker up the application can start. A report exists only of an exit that the master saw.
        let is_staffed = self.pool_of(id).is_some_and(|pool| self.is_staffed(pool));
        if is_staffed || exit == Ended::Unknown || exit.is_from_outside() {
            return;
        }
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.failed_start = Some(FailedStart::new(FailedProcess::Worker));
        }
    }

    pub(super) fn worker_started(&mut self, id: GenerationId, step: &mut Step<'_>) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.failed_start = None;
        }
        self.tell_up(id, step);
    }
}

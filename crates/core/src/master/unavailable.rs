//! Which process answers for a pool whose application can't be started.
//!
//! When a preloader has failed to *start* and the pool has no worker, requests would wait until a later try succeeds,
//! without an end in sight. So the 503 responder refuses each of them at once and names the failure. It goes when a
//! preloader is ready. If a preloader was up and crashed, requests wait: the next one is likely to come up.

use super::action::Action;
use super::event::{GenerationId, PoolId};
use super::manager::{Manager, Step};
use super::manager_state::ManagerState;
use crate::config::ProcessManager;

/// How the last start of a generation's preloader came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum PreloaderStart {
    /// Well, or it is not known yet.
    #[default]
    Well,
    /// It failed, and no process was told to refuse requests because of that.
    Failed,
    /// It failed, and a process was told to.
    Refused,
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
            Some((id, PreloaderStart::Failed)) => {
                let Some(generation) = self.generations.get_mut(&id) else {
                    return;
                };
                (pool.is_refused, generation.start) = (true, PreloaderStart::Refused);
                let wait = generation.backoff.wait(step.now).unwrap_or_default();
                step.act(Action::UnavailableResponder(pool_id, id, wait));
            }
            // The process knows this failure. The next failure starts another process, if that one is gone.
            Some((_, PreloaderStart::Refused | PreloaderStart::Well)) => {}
        }
    }

    /// The process that refused a pool's requests ended, or could not be made.
    pub(super) fn unavailable_responder_gone(&mut self, id: PoolId) {
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.is_refused = false;
        }
    }

    /// The generation whose failure to start has a pool's requests refused.
    fn refusing(&self, id: PoolId) -> Option<(GenerationId, PreloaderStart)> {
        let pool = self.pools.get(&id).filter(|pool| !pool.closed)?;
        let serving = pool.serving.filter(|_| self.state == ManagerState::Running)?;
        let generation = self.generations.get(&serving)?;
        // An application of an application pool has no address of its own: its router answers the requests.
        if matches!(generation.policy.pm, ProcessManager::Ordered { .. }) {
            return None;
        }
        let start = generation.start;
        let is_unstaffed = pool.takers().all(|taker| self.worker_counts(taker).kept == 0);
        (start != PreloaderStart::Well && is_unstaffed).then_some((serving, start))
    }
}

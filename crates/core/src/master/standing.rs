//! Who answers for a pool whose application can't be started.
//!
//! When a preloader has failed to *start* and the pool has no worker, nobody would answer until a later try succeeds, and
//! requests would wait without an end in sight. So a process stands in: it refuses each of them at once and names the
//! failure. It goes when a preloader is ready. A preloader that was up and crashed is another matter: the next one is
//! likely to come up, and is worth waiting for.

use super::action::Action;
use super::event::{GenerationId, PoolId};
use super::manager::{Manager, Step};
use super::phase::Phase;
use crate::config::ProcessManager;

/// How the last start of a generation's preloader came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Start {
    /// Well, or it is not known yet.
    #[default]
    Well,
    /// It failed, and nobody was told to refuse requests because of that.
    Failed,
    /// It failed, and somebody was.
    Refused,
}

impl Manager {
    /// Has a process refuse the requests to the pool of a generation, or no more. A further failure is told to the one that
    /// does already.
    pub(super) fn mind_stand_in(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(pool_id) = self.pool_of(id) else { return };
        let refusing = self.refusing(pool_id);
        let Some(pool) = self.pools.get_mut(&pool_id) else {
            return;
        };
        match refusing {
            None => {
                if std::mem::take(&mut pool.is_refused) {
                    step.act(Action::StandDown(pool_id));
                }
            }
            Some((id, Start::Failed)) => {
                let Some(generation) = self.generations.get_mut(&id) else {
                    return;
                };
                (pool.is_refused, generation.start) = (true, Start::Refused);
                let wait = generation.backoff.wait(step.now).unwrap_or_default();
                step.act(Action::StandIn(pool_id, id, wait));
            }
            // What was told is known. The next failure starts another, if that one is gone.
            Some((_, Start::Refused | Start::Well)) => {}
        }
    }

    /// The process that refused a pool's requests ended, or could not be made.
    pub(super) fn stand_in_gone(&mut self, id: PoolId) {
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.is_refused = false;
        }
    }

    /// The generation because of which a pool's requests are refused.
    fn refusing(&self, id: PoolId) -> Option<(GenerationId, Start)> {
        let pool = self.pools.get(&id).filter(|pool| !pool.closed)?;
        let serving = pool.serving.filter(|_| self.phase == Phase::Running)?;
        let generation = self.generations.get(&serving)?;
        // An application of an application pool has no address of its own: its router tells those who ask.
        if matches!(generation.policy.pm, ProcessManager::Ordered { .. }) {
            return None;
        }
        let start = generation.start;
        let is_unstaffed = pool.takers().all(|taker| self.crew(taker).staying == 0);
        (start != Start::Well && is_unstaffed).then_some((serving, start))
    }
}

//! Who answers for a pool whose application can't be started.
//!
//! ```text
//!            Refuse               Refuse: it is told of the new failure
//!   Absent ──────────▶ Standing ──┐
//!     ▲                 │ │  ▲────┘
//!     └─────────────────┘ │
//!     ▲  Relieve          │ Gone
//!     └───────────────────┘
//! ```
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

/// Whether somebody stands in for a pool's workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StandIn {
    /// Nobody.
    Absent,
    /// A process refuses requests.
    Standing,
}

/// What changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A start failed and the pool has no worker.
    Refuse,
    /// It is not so any more.
    Relieve,
    /// The process ended, or could not be made.
    Gone,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Nothing.
    Nothing,
    /// Start it, or tell it of the failure.
    Begin,
    /// Let it go.
    End,
}

impl StandIn {
    /// The state after `cause`, and the order that goes with the change.
    pub(super) fn after(self, cause: Cause) -> (StandIn, Order) {
        match (self, cause) {
            (StandIn::Absent | StandIn::Standing, Cause::Refuse) => (StandIn::Standing, Order::Begin),
            (StandIn::Standing, Cause::Relieve) => (StandIn::Absent, Order::End),
            // The next failure starts another: the preloader's back-off is one for this, too.
            (StandIn::Standing, Cause::Gone) => (StandIn::Absent, Order::Nothing),
            (StandIn::Absent, Cause::Relieve | Cause::Gone) => (self, Order::Nothing),
        }
    }
}

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
    /// Lets somebody stand in for the pool of a generation, or no more.
    pub(super) fn mind_stand_in(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(pool_id) = self.pool_of(id) else { return };
        let failed = self.refusing(pool_id);
        let Some(pool) = self.pools.get(&pool_id) else {
            return;
        };
        let cause = match failed {
            None => Cause::Relieve,
            Some((_, Start::Failed)) => Cause::Refuse,
            // Who was told knows.
            Some((_, Start::Refused | Start::Well)) => return,
        };
        if pool.stand_in == StandIn::Absent && cause == Cause::Relieve {
            return;
        }
        self.stand_in_changed(pool_id, cause, failed.map(|(generation, _)| generation), step);
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

    pub(super) fn stand_in_changed(
        &mut self,
        id: PoolId,
        cause: Cause,
        generation: Option<GenerationId>,
        step: &mut Step<'_>,
    ) {
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        let (next, order) = pool.stand_in.after(cause);
        pool.stand_in = next;
        match order {
            Order::Nothing => {}
            Order::End => step.act(Action::StandDown(id)),
            Order::Begin => {
                let Some(generation_id) = generation else { return };
                let Some(generation) = self.generations.get_mut(&generation_id) else {
                    return;
                };
                generation.start = Start::Refused;
                let wait = generation.backoff.wait(step.now).unwrap_or_default();
                step.act(Action::StandIn(id, generation_id, wait));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_is_told_and_one_that_is_gone_waits_for_the_next() {
        let (standing, order) = StandIn::Absent.after(Cause::Refuse);
        assert_eq!((standing, order), (StandIn::Standing, Order::Begin));
        assert_eq!(standing.after(Cause::Refuse), (standing, Order::Begin));
        assert_eq!(standing.after(Cause::Gone), (StandIn::Absent, Order::Nothing));
        assert_eq!(standing.after(Cause::Relieve), (StandIn::Absent, Order::End));
        assert_eq!(
            StandIn::Absent.after(Cause::Relieve),
            (StandIn::Absent, Order::Nothing)
        );
    }
}

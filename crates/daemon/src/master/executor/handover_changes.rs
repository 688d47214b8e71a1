//! The outdated parts of the hand-over document; only these are written again ([`super::fd_store`]).

use super::handover::Handover;
use super::pools::Pools;
use forkyard_core::master::action::{Action, Fact};
use forkyard_core::master::event::{GenerationId, PoolId, WorkerId};
use std::collections::BTreeSet;

#[derive(Debug, Clone, Default)]
pub(super) struct Stale {
    pub(super) pools: BTreeSet<PoolId>,
    pub(super) generations: BTreeSet<GenerationId>,
    pub(super) last_reload: bool,
}

impl Stale {
    pub(super) fn is_empty(&self) -> bool {
        self.pools.is_empty() && self.generations.is_empty() && !self.last_reload
    }
}

impl Handover {
    pub(super) fn pool_changed(&mut self, id: PoolId) {
        if let Some(store) = &mut self.fd_store {
            store.stale.pools.insert(id);
        }
    }

    pub(super) fn generation_changed(&mut self, id: GenerationId) {
        if let Some(store) = &mut self.fd_store {
            store.stale.generations.insert(id);
        }
    }

    pub(super) fn last_reload_changed(&mut self) {
        if let Some(store) = &mut self.fd_store {
            store.stale.last_reload = true;
        }
    }

    pub(super) fn note_change(&mut self, pools: &Pools, action: &Action) {
        if self.fd_store.is_none() {
            return;
        }
        let generation_of = |worker: &WorkerId| pools.workers.get(worker).map(|worker| worker.generation);
        match action {
            Action::Fork(_, generation, _) => self.generation_changed(*generation),
            Action::Retire(worker) | Action::Kill(worker, _) | Action::RespondTimeout(worker) => {
                if let Some(generation) = generation_of(worker) {
                    self.generation_changed(generation);
                }
            }
            // A pool whose serving generation leaves has none. From now on its counts are the pool's.
            Action::DropGeneration(generation) | Action::StopPreloader(generation, _) => {
                let found = pools.generations.get(generation);
                for pool in found.into_iter().flat_map(|it| pools.counted_with(it)) {
                    self.pool_changed(pool);
                }
                self.generation_changed(*generation);
            }
            Action::ClosePool(pool) => self.pool_changed(*pool),
            Action::Note(Fact::Serves(generation)) => {
                if let Some(generation) = pools.generations.get(generation) {
                    self.pool_changed(generation.pool);
                }
            }
            Action::Watch(_)
            | Action::Unwatch(_)
            | Action::SetWakeOnAccept(..)
            | Action::Fill(..)
            | Action::Fail(_)
            | Action::TakeSnapshot(_)
            | Action::StartPreloader(_)
            | Action::UnavailableResponder(..)
            | Action::StopUnavailableResponder(_)
            | Action::Promote(..)
            | Action::SwitchMold(_)
            | Action::StopNextMold(..)
            | Action::Wake(_)
            | Action::Publish(..)
            | Action::Trace(_)
            | Action::Renew
            | Action::Note(Fact::Up(_) | Fact::Waits(_) | Fact::Fails(_) | Fact::Gone(_))
            | Action::Say(_)
            | Action::Exit(_) => {}
        }
    }
}

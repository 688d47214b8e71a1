//! The state from the previous master and for the next, and the outdated parts of the hand-over document: only these
//! are written again ([`super::fd_store`]).

use super::fd_store::FdStore;
use super::pools::Pools;
use super::upgrade::Rehearsal;
use forkyard_core::master::action::Action;
use forkyard_core::master::event::{GenerationId, PoolId};
use forkyard_host::listen::Inherited;
use forkyard_protocol::last_reload::LastReload;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

#[derive(Debug, Default)]
pub(in crate::master) struct Handover {
    pub(in crate::master) inherited: Inherited,
    pub(in crate::master) todo: Vec<Action>,
    pub(super) fd_store: Option<FdStore>,
    pub(in crate::master) rehearsal: Option<Rehearsal>,
    pub(super) last_reload: Option<LastReload>,
}

/// A descriptor for the next master, and its name.
pub(super) type Named<'a> = (String, &'a OwnedFd);

#[derive(Debug, Clone, Default)]
pub(super) struct Stale {
    pub(super) pools: BTreeSet<PoolId>,
    pub(super) generations: BTreeSet<GenerationId>,
    last_reload: bool,
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

    /// A pool whose serving generation leaves has none. From now on the generation's counts are the pool's.
    pub(super) fn generation_leaves(&mut self, pools: &Pools, id: GenerationId) {
        let Some(store) = &mut self.fd_store else {
            return;
        };
        let leaving = pools.generations.get(&id).into_iter();
        let counted = leaving.flat_map(|it| pools.counted_with(it));
        store.stale.pools.extend(counted);
        store.stale.generations.insert(id);
    }

    pub(in crate::master) fn remember_reload(&mut self, last: LastReload) {
        self.last_reload = Some(last);
        if let Some(store) = &mut self.fd_store {
            store.stale.last_reload = true;
        }
    }

    /// The last reload, if the written configuration is not in force.
    pub(in crate::master) fn trouble(&self) -> Option<&LastReload> {
        self.last_reload.as_ref().filter(|last| !last.is_done())
    }
}

//! Ends of pools and generations.

use super::lanes::refuse_parked;
use crate::context::Context;
use crate::context::effect::Effect;
use crate::context::sources::Source;
use forkyard_core::master::event::{GenerationId, PoolId};
use forkyard_host::listen::Listener;
use forkyard_protocol::handover::names::{self, QueueKind};
use forkyard_sys::Error;

impl Context {
    /// Opens the queues that workers of a generation need.
    pub(crate) fn open_queues(&mut self, id: GenerationId) -> Result<(), Error> {
        let Some(generation) = self.pools.generations.get(&id) else {
            return Ok(());
        };
        let (pool, settings) = (generation.pool, &generation.settings);
        let has_lanes = settings.pool.load.lanes.is_some().then_some(QueueKind::Lanes);
        let may_share = settings.turn.is_some().then_some(QueueKind::Turns);
        let kinds = [Some(QueueKind::HandOff), has_lanes, may_share];
        kinds
            .into_iter()
            .flatten()
            .try_for_each(|kind| self.open_queue(pool, kind))
    }

    pub(crate) fn open_queue(&mut self, id: PoolId, kind: QueueKind) -> Result<(), Error> {
        let Some(pool) = self.pools.by_id.get_mut(&id) else {
            return Ok(());
        };
        if !pool.queues.open(kind)? {
            return Ok(());
        }
        if pool.watched {
            for end in pool.queues.work_of(kind) {
                self.services.sources.watch(end, Source::Work(id))?;
            }
        }
        self.handover.keep(pool.named_queues(id));
        self.handover.pool_changed(id);
        Ok(())
    }

    pub(crate) fn drop_generation(&mut self, id: GenerationId) {
        self.handover.generation_leaves(&self.pools, id);
        self.pools.take_over_counts(id);
        let Some(mut generation) = self.pools.generations.remove(&id) else {
            return;
        };
        self.close_lanes(generation.pool);
        self.empty_turns(generation.pool, generation.settings.turn);
        generation.rest_app_log(&mut self.services.sources);
        self.services.cause(Effect::GenerationDropped(id));
        if generation.share.is_some() {
            self.handover.unkeep([names::program_table(id.0)]);
        }
        let Some(resources) = generation.resources.take() else {
            return;
        };
        if !generation.is_ordered() {
            self.handover.unkeep([names::board(id.0)]);
        }
        if let Some(pipes) = resources.pipes {
            self.disconnect(id, &generation, pipes);
        }
    }

    pub(crate) fn close_pool(&mut self, id: PoolId) {
        self.handover.pool_changed(id);
        self.pools.unwatch(&mut self.services, id);
        self.services.cause(Effect::PoolClosed(id));
        if let Some(pool) = self.pools.by_id.remove(&id) {
            refuse_parked(&pool);
            let Some(listener) = pool.listener else {
                return;
            };
            listener.remove_file();
            pool.http.iter().for_each(Listener::remove_file);
            if self.pools.pools_named(&pool.name).is_empty() {
                self.services.cause(Effect::PoolEnded(pool.name.clone()));
                self.pools.errors.end(&pool.name);
                self.pools.counters.end(&pool.name);
            }
            let http = pool.http.iter().map(|_| names::http(id.0));
            let listener = std::iter::once(names::listener(id.0));
            let queues = QueueKind::ALL.into_iter().flat_map(|kind| kind.names(id.0));
            self.handover.unkeep(listener.chain(http).chain(queues));
        }
    }
}

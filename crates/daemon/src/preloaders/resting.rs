//! Releases the pipes and the hand-off queue of a pool without a process, until it needs one. Its listening socket,
//! scoreboard, and a zygote pool's OPcache memory remain.

use crate::context::Context;
use crate::context::generation::{Generation, Pipes};
use crate::context::handover::Handover;
use crate::context::helpers::Helpers;
use crate::context::pools::Pools;
use crate::context::services::Services;
use crate::preloaders::Preloaders;
use crate::preloaders::preloader::Preloader;
use forkyard_core::master::event::{GenerationId, PoolId};
use forkyard_core::master::resting::{Holder, Holdings};
use forkyard_protocol::handover::names::{self, QueueKind};

impl Context {
    pub(crate) fn rest_generations(&mut self, preloaders: &Preloaders) {
        for id in std::mem::take(&mut self.pools.vacated) {
            if !self.pools.rests(preloaders, &self.helpers, id) {
                continue;
            }
            // The last output is logged by these settings.
            let Some(mut generation) = self.pools.generations.remove(&id) else {
                continue;
            };
            let pipes = generation.resources.as_mut().and_then(|it| it.pipes.take());
            if let Some(pipes) = pipes {
                self.disconnect(id, &generation, pipes);
            }
            let waiting = generation.rest_app_log(&mut self.services.sources);
            self.services.again.extend(waiting);
            let pool = generation.pool;
            self.pools.generations.insert(id, generation);
            self.pools
                .close_queues(&mut self.services, &mut self.handover, pool);
        }
    }

    pub(crate) fn disconnect(&mut self, id: GenerationId, generation: &Generation, mut pipes: Pipes) {
        if !generation.is_ordered() {
            self.handover.generation_changed(id);
            self.handover.unkeep(names::of_processes(id.0));
            if pipes.reports.is_some() {
                self.handover.unkeep(names::reports(id.0));
            }
        }
        if let Some(reports) = &mut pipes.reports {
            let into = (&mut self.pools.errors, &mut self.pools.unrecorded);
            reports.keep(into, &generation.settings, &generation.secrets);
        }
        self.services
            .drain_messages(&generation.settings.pool.name, &mut pipes.messages);
        for (fd, _) in pipes.sources(id) {
            self.services.sources.forget(fd);
        }
    }
}

impl Pools {
    pub(crate) fn vacate(&mut self, pool: PoolId) {
        self.vacated.extend(self.generations.of(&pool).map(|(id, _)| id));
    }

    fn rests(&self, preloaders: &Preloaders, helpers: &Helpers, id: GenerationId) -> bool {
        let Some(generation) = self.generations.get(&id) else {
            return false;
        };
        let Some(resources) = generation.resources.as_ref().filter(|it| it.pipes.is_some()) else {
            return false;
        };
        let preloader = match resources.preloader {
            None => Holder::Nobody,
            Some(pid) if preloaders.by_pid.get(&pid).is_some_and(Preloader::is_zygote) => Holder::Zygote,
            Some(_) => Holder::OwnPreloader,
        };
        let pool = self.by_id.get(&generation.pool);
        let holdings = Holdings {
            workers: generation.slots.len(),
            preloader,
            has_next_mold: resources.next_mold.is_some(),
            has_applications: generation.share.is_some() || generation.has_applications(),
            is_configured: pool.is_some_and(|it| it.listener.is_some()),
            has_responder: helpers.answers_for(generation.pool),
        };
        holdings.rests()
    }

    fn close_queues(&mut self, services: &mut Services, handover: &mut Handover, id: PoolId) {
        if self.generations.of(&id).any(|(_, it)| it.pipes().is_some()) {
            return;
        }
        let Some(pool) = self.by_id.get_mut(&id) else {
            return;
        };
        for kind in QueueKind::ALL {
            if !pool.queues.are_empty(kind) {
                continue;
            }
            let work = pool.queues.work_of(kind);
            work.iter().for_each(|end| services.sources.forget(end));
            if pool.queues.remove(kind).is_some() {
                handover.pool_changed(id);
                handover.unkeep(kind.names(id.0));
            }
        }
    }
}

//! Builds the hand-over document and its named descriptors.

use crate::autopilot::Autopilots;
use crate::context::Context;
use crate::context::generation::Generation as ExecutorGeneration;
use crate::context::handover::{Named, Stale};
use crate::context::pools::{Pools, RunningPool};
use crate::context::worker::WorkerProcess;
use crate::helpers::jobs::Jobs;
use crate::helpers::reporter::Reporters;
use crate::helpers::web::Web;
use crate::programs::Programs;
use crate::status::archive::PastHours;
use forkyard_core::master::event::{GenerationId, PoolId, WorkerId};
use forkyard_core::master::manager::Manager;
use forkyard_protocol::counters::PoolCounters;
use forkyard_protocol::handover::changes::Changes;
use forkyard_protocol::handover::document::{
    Document, HttpSocket, SavedGeneration, SavedPool, SavedWorker, Stopping, VERSION,
};
use forkyard_protocol::handover::names::{self, QueueKind};
use forkyard_sys::process;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};

/// The most bytes of the reports of crashes.
const MOST_CRASH_BYTES: usize = 1 << 20;

/// The parts with state for the next master.
pub(crate) struct LeftState<'e> {
    pub(crate) context: &'e Context,
    pub(crate) programs: &'e Programs,
    pub(crate) reporters: &'e Reporters,
    pub(crate) jobs: &'e Jobs,
    pub(crate) web: &'e Web,
    pub(crate) archive: &'e PastHours,
    pub(crate) autopilots: &'e Autopilots,
}

impl<'e> LeftState<'e> {
    pub(crate) fn document(&self, manager: &Manager, stopping: Option<Stopping>) -> Document {
        let all = &self.context.pools;
        let ending = all.counted_by_ordered();
        let pools = all.by_id.iter();
        let pools = pools.filter_map(|(id, pool)| all.entry(*id, pool, manager, &ending));
        let mut pools: Vec<SavedPool> = pools.collect();
        pools.sort_by_key(|pool| pool.id);
        let generations = all.generations.iter();
        let generations = generations.filter_map(|(id, it)| self.generation_entry(*id, it));
        let mut generations: Vec<SavedGeneration> = generations.collect();
        generations.sort_by_key(|generation| generation.id);
        Document {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            master: std::process::id() as i32,
            stopping,
            descriptor_limit: self.context.services.descriptor_limit,
            last_pool: all.last_pool,
            last_generation: all.last_generation,
            last_reload: self.context.handover.last_reload.clone(),
            crashes: Vec::new(),
            autopilots: Vec::new(),
            last_upgrade: self.context.handover.last_upgrade.clone(),
            started: self.context.handover.started,
            events: self.context.handover.history.events().cloned().collect(),
            pools,
            generations,
        }
    }

    /// Returns the document with the reports of crashes and the figures of autopilots, which change too often for others.
    pub(crate) fn document_for_upgrade(&self, manager: &Manager, stopping: Option<Stopping>) -> Document {
        Document {
            crashes: self.context.pools.errors.crashes_left(MOST_CRASH_BYTES),
            autopilots: self.autopilots.learnt(),
            ..self.document(manager, stopping)
        }
    }

    pub(crate) fn changes(&self, manager: &Manager, stopping: Option<Stopping>, stale: &Stale) -> Changes {
        let all = &self.context.pools;
        let mut changes = Changes {
            stopping,
            last_pool: all.last_pool,
            last_generation: all.last_generation,
            last_reload: self.context.handover.last_reload.clone(),
            last_upgrade: self.context.handover.last_upgrade.clone(),
            events: stale.history.events.clone(),
            events_gone: stale.history.gone.clone(),
            ..Changes::default()
        };
        let mut stale_pools = stale.pools.clone();
        for id in &stale.generations {
            let generation = all.generations.get(id);
            // The pool's counters have also changed.
            stale_pools.extend(generation.into_iter().flat_map(|it| all.counted_with(it)));
            match generation.and_then(|it| self.generation_entry(*id, it)) {
                Some(entry) => changes.generations.push(entry),
                None if generation.is_some_and(ExecutorGeneration::is_ordered) => {}
                None => changes.generations_gone.push(id.0),
            }
        }
        let is_counted_anew = |id: &PoolId| {
            let serving = all.by_id.get(id).and_then(|pool| pool.serving);
            let generation = serving.and_then(|id| all.generations.get(&id));
            generation.is_some_and(ExecutorGeneration::has_applications)
        };
        let ending = match stale_pools.iter().any(is_counted_anew) {
            true => all.counted_by_ordered(),
            false => HashMap::new(),
        };
        for id in stale_pools {
            let pool = all.by_id.get(&id);
            match pool.and_then(|pool| all.entry(id, pool, manager, &ending)) {
                Some(entry) => changes.pools.push(entry),
                None => changes.pools_gone.push(id.0),
            }
        }
        changes
    }

    /// Returns a generation's entry; none without resources, or if its workers are ordered and end with this master.
    fn generation_entry(&self, id: GenerationId, generation: &ExecutorGeneration) -> Option<SavedGeneration> {
        let is_left = generation.resources.is_some() && !generation.is_ordered();
        is_left.then(|| SavedGeneration {
            id: id.0,
            pool: generation.pool.0,
            name: generation.settings.pool.name.clone(),
            started: generation.settings.started,
            slots: generation.settings.slots,
            rests: generation.pipes().is_none(),
            workers: self.context.pools.worker_entries(generation),
            programs: self.programs.programs_left(id),
            release: generation.release(),
            turn: generation.settings.turn,
            places: generation
                .share
                .as_ref()
                .map_or(0, |share| u32::try_from(share.processes()).unwrap_or_default()),
        })
    }

    pub(crate) fn descriptors(&self) -> Vec<(String, BorrowedFd<'e>)> {
        let pools = &self.context.pools;
        let mut all: Vec<Named<'e>> = Vec::new();
        for (id, pool) in pools.by_id.iter() {
            all.extend(pool.named_listener(*id));
            all.extend(pool.named_http(*id));
            all.extend(pool.named_queues(*id));
        }
        for (id, listener) in self.reporters.listeners() {
            all.push((names::status(id.0), &listener.socket));
        }
        let jobs = self.jobs.tcp.socket();
        all.extend(jobs.map(|socket| (names::JOBS.to_owned(), socket)));
        let web = self.web.socket();
        all.extend(web.map(|socket| (names::WEB.to_owned(), socket)));
        all.extend(self.archive.named());
        for (id, generation) in pools.generations.iter() {
            all.extend(generation.named(*id));
            all.extend(generation.named_share(*id));
            all.extend(self.programs.program_ends(*id));
        }
        for (id, worker) in &pools.workers {
            all.extend(worker.named(*id));
        }
        all.into_iter().map(|(name, fd)| (name, fd.as_fd())).collect()
    }
}

impl Pools {
    /// Returns a pool's entry; none for an ordered pool, which ends with this master. `ending`: counters of generations
    /// that also end.
    fn entry(
        &self,
        id: PoolId,
        pool: &RunningPool,
        manager: &Manager,
        ending: &HashMap<&str, PoolCounters>,
    ) -> Option<SavedPool> {
        let listener = pool.listener.as_ref()?;
        let mut counters = self.past(&pool.name);
        if let Some(ending) = ending.get(pool.name.as_str()) {
            counters.add(ending);
        }
        let has = |kind| pool.queues.get(kind).is_some();
        Some(SavedPool {
            id: id.0,
            name: pool.name.clone(),
            address: listener.address.clone(),
            file: listener.file(),
            http: pool.http.as_ref().map(|http| HttpSocket {
                address: http.address.clone(),
                file: http.file(),
            }),
            serving: manager.serving(id).map(|generation| generation.0),
            has_queue: has(QueueKind::HandOff),
            has_lanes: has(QueueKind::Lanes),
            has_turns: has(QueueKind::Turns),
            counters,
            release: pool.serving.and_then(|id| self.generations.get(&id)?.release()),
            sites: self.sites.left(id),
            last_deployment: pool.last_deployment.clone(),
            had: self.had(pool),
        })
    }

    fn worker_entries(&self, generation: &ExecutorGeneration) -> Vec<SavedWorker> {
        let ids = generation.slots.values();
        let mut entries: Vec<SavedWorker> = ids.filter_map(|id| entry(*id, self.workers.get(id)?)).collect();
        entries.sort_by_key(|worker| worker.id);
        entries
    }
}

fn entry(id: WorkerId, worker: &WorkerProcess) -> Option<SavedWorker> {
    let pid = worker.pid?;
    if worker.start_time.get().is_none() {
        worker.start_time.set(process::start_time(pid));
    }
    Some(SavedWorker {
        id: id.0,
        slot: worker.slot,
        pid,
        start_time: worker.start_time.get()?,
        begun: worker.begun.as_nanos(),
        up: worker.up,
        told: worker.told.map(|(told, when)| (told, when.as_nanos())),
        output: !worker.output.is_empty(),
    })
}

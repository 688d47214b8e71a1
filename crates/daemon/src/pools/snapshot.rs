//! Reads the core's input: a pool's slots and its number of waiting connections.

use crate::context::pools::Pools;
use crate::context::services::Services;
use forkyard_base::tick::Tick;
use forkyard_core::master::event::{Event, GenerationId, Row, WorkerId};
use forkyard_scoreboard::layout::slot;
use forkyard_scoreboard::{RequestStage, slot_reader};
use std::sync::atomic::AtomicU64;

impl Pools {
    pub(crate) fn take_snapshot(&self, services: &mut Services, id: GenerationId) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let serving = &generation.settings.pool.serving;
        let tracks_finished = serving.request_terminate_timeout_track_finished;
        let rows = generation.pages();
        let rows = rows.map(|(slot, worker, page)| Row {
            memory: generation.own_memory(slot),
            ..row(worker, page, tracks_finished)
        });
        let rows = rows.collect();
        // The first worker is started for any number; the rest are counted when it is up.
        let is_first = generation.slots.is_empty();
        let pool = self.by_id.get(&generation.pool);
        let queued = pool.map(|pool| pool.queued(is_first));
        services.tell(Event::Snapshot(id, rows, queued.flatten()));
    }
}

/// A slot as the core needs it. `track_finished`: an answered request may still be ended.
fn row(worker: WorkerId, page: &[AtomicU64], track_finished: bool) -> Row {
    let stage = slot_reader::stage(page);
    let (since, running) = match stage {
        RequestStage::Creating
        | RequestStage::Accepting
        | RequestStage::Accepted
        | RequestStage::Open
        | RequestStage::Finished => (slot::SINCE, false),
        RequestStage::ReadingHeaders
        | RequestStage::Info
        | RequestStage::Executing
        | RequestStage::Working => (slot::TAKEN, true),
        RequestStage::End => (slot::TAKEN, track_finished),
    };
    Row {
        worker,
        idle: stage == RequestStage::Accepting,
        has_room: slot_reader::load(page).has_room,
        since: Tick::from_nanos(slot_reader::word(page, since)),
        running,
        executing: stage == RequestStage::Executing,
        kept: u32::try_from(slot_reader::word(page, slot::KEPT)).unwrap_or(u32::MAX),
        memory: 0,
    }
}

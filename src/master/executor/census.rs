//! What the core looks at before it decides: a pool's slots, and how many connections wait.

use super::pools::RunningPool;
use super::{Context, Pools};
use crate::master::event::{Event, GenerationId, Row, WorkerId};
use crate::scoreboard::layout::slot;
use crate::scoreboard::{Stage, census};
use crate::tick::Tick;
use std::sync::atomic::AtomicU64;

impl Pools {
    /// Tells the core what a generation's workers do.
    pub(super) fn take_census(&self, context: &mut Context, id: GenerationId) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let mut rows = Vec::new();
        if let Some(resources) = &generation.resources {
            for (&slot, &worker) in &generation.seats {
                let Some(page) = resources.board.slot(slot as usize) else {
                    continue;
                };
                rows.push(row(
                    worker,
                    page,
                    generation.settings.pool.request_terminate_timeout_track_finished,
                ));
            }
        }
        let queued = self.by_id.get(&generation.pool).map(RunningPool::queued);
        context
            .happened
            .push_back(Event::Census(id, rows, queued.flatten()));
    }
}

/// A slot, as far as the core looks at it. `track_finished`: a request that is answered may still be ended.
fn row(worker: WorkerId, page: &[AtomicU64], track_finished: bool) -> Row {
    let stage = census::stage(page);
    let (since, running) = match stage {
        Stage::Creating | Stage::Accepting | Stage::Accepted | Stage::Finished => (slot::SINCE, false),
        Stage::ReadingHeaders | Stage::Info | Stage::Executing | Stage::Working => (slot::TAKEN, true),
        Stage::End => (slot::TAKEN, track_finished),
    };
    Row {
        worker,
        idle: stage == Stage::Accepting,
        since: Tick::from_nanos(census::word(page, since)),
        running,
        executing: stage == Stage::Executing,
        kept: u32::try_from(census::word(page, slot::KEPT)).unwrap_or(u32::MAX),
    }
}

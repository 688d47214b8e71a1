//! Whether static pools are saturated, as events. The process manager notices the other kinds.

use crate::context::Context;
use crate::context::generation::Generation;
use crate::context::pools::{Pools, RunningPool};
use forkyard_base::tick::Tick;
use forkyard_config::ProcessManager;
use forkyard_core::master::event::{GenerationId, PoolId};
use forkyard_core::master::saturation::{Change, Saturation, Sight};
use forkyard_protocol::past_event::{EventKind, Happening};
use forkyard_scoreboard::{Board, slot_reader};
use std::collections::HashMap;
use std::time::Duration;

/// Pools that are or may be saturated. All others are quiet.
#[derive(Debug, Default)]
pub(crate) struct Saturations(HashMap<PoolId, Saturation>);

impl Saturations {
    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.0.values().filter_map(Saturation::deadline).min()
    }

    /// A worker of this generation has reported a queue, and may be wrong.
    pub(crate) fn crowded(&mut self, context: &mut Context, id: GenerationId, now: Tick) {
        let pool = context
            .pools
            .generations
            .get(&id)
            .map(|generation| generation.pool);
        let Some((pool, saturated_ns)) =
            pool.and_then(|pool| Some((pool, context.pools.saturated_ns(pool, now)?)))
        else {
            return;
        };
        let mut state = self.0.remove(&pool).unwrap_or_default();
        state.heard(saturated_ns, now);
        self.keep(context, pool, state);
    }

    /// Looks at pools that may be saturated, if it is time.
    pub(crate) fn poll(&mut self, context: &mut Context, now: Tick) {
        let is_due = |state: &Saturation| state.deadline().is_some_and(|due| due <= now);
        let due = self.0.iter().filter(|(_, state)| is_due(state));
        let due: Vec<PoolId> = due.map(|(pool, _)| *pool).collect();
        due.into_iter().for_each(|pool| self.look_at(context, pool, now));
    }

    /// Looks at all pools: workers that never finish report nothing.
    pub(crate) fn look_at_all(&mut self, context: &mut Context, now: Tick) {
        let pools = &context.pools;
        let is_full = |id: PoolId| {
            let board = pools.static_board(id);
            board.is_some_and(|(_, board)| board.gate().is_some_and(|gate| gate.is_saturated()))
        };
        let full = pools.by_id.iter().map(|(id, _)| *id).filter(|id| is_full(*id));
        let full: Vec<PoolId> = full.collect();
        full.into_iter().for_each(|pool| self.look_at(context, pool, now));
    }

    fn look_at(&mut self, context: &mut Context, id: PoolId, now: Tick) {
        let mut state = self.0.remove(&id).unwrap_or_default();
        let Some(pool) = context.pools.by_id.get(&id) else {
            return;
        };
        let sight = context.pools.sight(id, pool, now);
        let change = state.look(sight, now);
        if let Some(change) = change {
            let name = pool.name.clone();
            let workers = pool.serving.and_then(|id| context.pools.generations.get(&id));
            let workers = workers.map_or(0, Generation::most_workers);
            let (kind, text) = match change {
                Change::Begun => (
                    EventKind::MaxChildren,
                    format!("all {workers} of max_children are busy, and connections wait"),
                ),
                Change::Over => (
                    EventKind::MaxChildrenOver,
                    "fewer than max_children are busy again, or no connection waits".to_owned(),
                ),
            };
            let happening = Happening::of_pool(kind, &name, context.pools.user_of_pool(id), text);
            context.services.record(happening);
        }
        self.keep(context, id, state);
    }

    fn keep(&mut self, context: &Context, id: PoolId, state: Saturation) {
        let serving = context.pools.by_id.get(&id).and_then(|pool| pool.serving);
        if let Some(generation) = serving.and_then(|id| context.pools.generations.get(&id)) {
            generation.set_tell_crowded(state.wants_report());
        }
        if !state.wants_report() {
            self.0.insert(id, state);
        }
    }
}

impl Pools {
    /// Returns the serving generation of a static pool, with its scoreboard.
    fn static_board(&self, id: PoolId) -> Option<(&Generation, &Board)> {
        let pool = self.by_id.get(&id).filter(|pool| pool.listener.is_some())?;
        let generation = self.generations.get(&pool.serving?)?;
        let is_static = matches!(generation.settings.pool.pm, ProcessManager::Static { .. });
        let resources = generation.resources.as_ref().filter(|_| is_static)?;
        Some((generation, &resources.board))
    }

    fn saturated_ns(&self, id: PoolId, now: Tick) -> Option<u64> {
        let (_, board) = self.static_board(id)?;
        Some(board.gate()?.saturated_ns(now))
    }

    /// Returns what is known of a pool; nothing of one that is not static.
    fn sight(&self, id: PoolId, pool: &RunningPool, now: Tick) -> Sight {
        let Some((generation, board)) = self.static_board(id) else {
            return Sight::default();
        };
        let Some(gate) = board.gate() else {
            return Sight::default();
        };
        let all_busy_for = match gate.is_saturated() {
            true => {
                let pages = generation.pages();
                let times = pages.map(|(_, _, page)| now.since(slot_reader::read(page).since));
                times.min().unwrap_or_default()
            }
            false => Duration::ZERO,
        };
        Sight {
            saturated_ns: gate.saturated_ns(now),
            all_busy_for,
            has_queue: pool.queued(true).is_some_and(|waiting| waiting > 0),
        }
    }
}

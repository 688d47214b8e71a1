//! When workers are made: by demand (ondemand), for spare ones (dynamic), or because they are to be there (static, and
//! a generation that comes).

use super::action::{Action, Notice};
use super::census::View;
use super::event::{GenerationId, PoolId, Row};
use super::generation::{CensusNumber, Stage};
use super::manager::{Manager, Step};
use super::policy::{self, Load};
use super::source::{self, Block, Order, Source};
use super::spare;
use super::timers::Timer;
use crate::config::ProcessManager;
use crate::life;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a worker that says it is idle may let work wait before it is no longer counted upon.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long capacity is kept for the generation whose turn it is. It is used at once or not at all: a source that has
/// work is ready as soon as it is watched.
const TURN: Duration = Duration::from_millis(10);

/// Making this many spare workers at once is worth a line.
const MANY: u32 = 8;

impl Manager {
    /// What stood in a generation's way may do so no more.
    pub(super) fn freed(&mut self, id: GenerationId, step: &mut Step<'_>) {
        self.demand_changed(id, source::Cause::Freed, spare::Cause::Freed, step);
    }

    /// A worker of the generation ended or could not be made.
    pub(super) fn worker_gone(&mut self, id: GenerationId, step: &mut Step<'_>) {
        self.demand_changed(id, source::Cause::Gone, spare::Cause::Gone, step);
    }

    fn demand_changed(
        &mut self,
        id: GenerationId,
        source: source::Cause,
        spare: spare::Cause,
        step: &mut Step<'_>,
    ) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let pool = generation.pool;
        match (generation.stage, generation.policy.pm) {
            (Stage::Serving, ProcessManager::Static { .. }) => self.fill(id, step),
            (Stage::Serving, ProcessManager::Dynamic { .. }) => self.spare_changed(id, spare, step),
            (Stage::Serving, ProcessManager::Ondemand { .. }) => self.source_changed(pool, source, step),
            (Stage::Serving, ProcessManager::Ordered { .. }) => self.fill_orders(id, step),
            (Stage::Warming(_), _) => {
                // It takes work too: the serving generation may count upon the worker that is gone.
                self.source_changed(pool, source, step);
                self.warm_up(id, step);
            }
            (Stage::Measuring(_) | Stage::Superseded | Stage::Leaving, _) => {}
        }
        self.touched.insert(id);
    }

    /// Makes a static generation complete.
    pub(super) fn fill(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let load = Load {
            staying: self.crew(id).staying,
            ..Load::default()
        };
        let wanted = policy::growth(generation.policy.pm, load);
        self.make(id, wanted, step);
    }

    /// Changes the state of a pool's source of work and does what goes with it.
    pub(super) fn source_changed(&mut self, id: PoolId, cause: source::Cause, step: &mut Step<'_>) {
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        let (next, order) = pool.source.after(cause);
        if next == pool.source && order == Order::Nothing {
            return;
        }
        pool.source = next;
        self.timers.clear(Timer::Patience(id));
        if next == Source::Told {
            self.timers.set(Timer::Patience(id), step.now, PATIENCE);
        }
        match order {
            Order::Nothing => {}
            Order::Watch => {
                self.hush(id, step);
                step.act(Action::Watch(id));
            }
            Order::Park => {
                pool.inquiry.open(step.now);
                step.act(Action::Unwatch(id));
                self.inquire(id, step);
            }
            Order::Ask => {
                pool.inquiry.doubts = true;
                self.inquire(id, step);
            }
            Order::Hush => self.hush(id, step),
            Order::Unwatch => {
                step.act(Action::Unwatch(id));
                self.hush(id, step);
            }
        }
    }

    fn hush(&mut self, id: PoolId, step: &mut Step<'_>) {
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        pool.inquiry.drop_answers();
        for generation in pool.takers() {
            self.publish_notify(generation, step);
        }
    }

    /// Lets the workers of all generations that take work tell, and only then counts them.
    fn inquire(&mut self, id: PoolId, step: &mut Step<'_>) {
        let Some(pool) = self.pools.get(&id) else { return };
        let serving = pool.serving;
        let takers: Vec<GenerationId> = pool.takers().collect();
        for generation in &takers {
            self.publish_notify(*generation, step);
        }
        let mut awaited = BTreeMap::new();
        for generation in takers {
            if Some(generation) == serving || self.crew(generation).staying > 0 {
                awaited.insert(generation, self.take_census(generation, step));
            }
        }
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.inquiry.begin(awaited);
        }
    }

    /// Work waits although no worker has told anything for a while: a worker that was idle all the time does not take it.
    pub(super) fn doubt(
        &mut self,
        id: GenerationId,
        number: CensusNumber,
        rows: &[Row],
        queued: Option<u32>,
    ) {
        let Some(pool) = self
            .generations
            .get(&id)
            .and_then(|generation| self.pools.get(&generation.pool))
        else {
            return;
        };
        let inquiry = &pool.inquiry;
        if !inquiry.convicts(id, number, queued) {
            return;
        }
        for row in rows
            .iter()
            .filter(|row| (row.idle || row.has_room) && row.since <= inquiry.parked)
        {
            self.children.change(row.worker, |worker| {
                if worker.generation == id {
                    worker.stalled = Some(row.since);
                }
            });
        }
    }

    /// Decides about a parked source, once every generation that takes work was counted.
    pub(super) fn source_counted(
        &mut self,
        id: GenerationId,
        number: CensusNumber,
        view: &View,
        step: &mut Step<'_>,
    ) {
        let Some(pool_id) = self.generations.get(&id).map(|generation| generation.pool) else {
            return;
        };
        let Some(pool) = self.pools.get_mut(&pool_id) else {
            return;
        };
        if pool.source != Source::Asking || !pool.inquiry.take(id, number, view) {
            return;
        }
        let Some(serving) = pool.serving else { return };
        let waiting = pool.waiting();
        if waiting == 0 {
            pool.inquiry.close_empty(step.now);
            self.end_turn(serving);
            self.source_changed(pool_id, source::Cause::None, step);
            return;
        }
        let Some(generation) = self.generations.get(&serving) else {
            return;
        };
        let load = pool.inquiry.load(generation.policy.workers_for(waiting));
        let wanted = policy::growth(generation.policy.pm, load);
        let cause = match self.make(serving, wanted, step).1 {
            None => source::Cause::Enough,
            Some(block) => source::Cause::Blocked(block),
        };
        self.source_changed(pool_id, cause, step);
    }

    /// Changes the state of a dynamic generation's spare workers.
    pub(super) fn spare_changed(&mut self, id: GenerationId, cause: spare::Cause, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let (next, asks) = generation.spare.after(cause);
        generation.spare = next;
        self.publish_notify(id, step);
        if !asks {
            return;
        }
        if self.crew(id).all == 0 {
            // Nobody to be counted.
            self.make_spare(id, &View::default(), step);
            return;
        }
        let number = self.take_census(id, step);
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.spare_on = number;
        }
    }

    /// Decides about a dynamic generation's spare workers, on the newest census that was asked for them.
    pub(super) fn spare_counted(
        &mut self,
        id: GenerationId,
        number: CensusNumber,
        view: &View,
        step: &mut Step<'_>,
    ) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        if generation.spare == spare::Spare::Asking && number >= generation.spare_on {
            self.make_spare(id, view, step);
        }
    }

    fn make_spare(&mut self, id: GenerationId, view: &View, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let load = Load {
            staying: self.crew(id).staying,
            idle: view.ready(),
            born: view.born,
            waiting: view.queued.map(|queued| generation.policy.workers_for(queued)),
            owed: generation.owed,
        };
        let wanted = policy::growth(generation.policy.pm, load);
        let (made, block) = self.make(id, wanted, step);
        let staying = self.crew(id).staying;
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        generation.owed = if wanted == 0 && load.born == 0 {
            0
        } else {
            generation.owed.saturating_sub(made)
        };
        let many = made >= MANY && load.staying > 0;
        if many && !generation.said_busy {
            step.say(Notice::SeemsBusy(generation.pool, made, load.idle, staying));
        }
        generation.said_busy = many;
        let cause = match block {
            None => spare::Cause::Enough,
            Some(block) => spare::Cause::Blocked(block),
        };
        self.spare_changed(id, cause, step);
    }

    /// Makes up to `wanted` workers. How many were made, and what stands in the way of the rest: each block ends with an
    /// event that leads to `freed` or `worker_gone`.
    pub(super) fn make(
        &mut self,
        id: GenerationId,
        wanted: u32,
        step: &mut Step<'_>,
    ) -> (u32, Option<Block>) {
        let (made, block) = self.make_some(id, wanted, step);
        self.end_turn(id);
        if block == Some(Block::Full) {
            self.tell_full(id, step);
        } else if let Some(generation) = self.generations.get_mut(&id) {
            generation.said_full = false;
        }
        if block == Some(Block::ProcessMax) {
            self.wait_for_turn(id, step);
        }
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.block = block;
        }
        self.touched.insert(id);
        (made, block)
    }

    fn make_some(&mut self, id: GenerationId, wanted: u32, step: &mut Step<'_>) -> (u32, Option<Block>) {
        let Some(generation) = self.generations.get(&id) else {
            return (0, None);
        };
        if wanted == 0 {
            return (0, None);
        }
        if let Some(wait) = generation.held_back(step.now) {
            self.timers.set(Timer::Backoff(id), step.now, wait);
            return (0, Some(Block::Backoff));
        }
        if !self.quota.admits(id, 0, self.children.total()) {
            // A preloader is of no use before that.
            return (0, Some(Block::ProcessMax));
        }
        if !generation.can_fork() {
            self.preloader_changed(id, life::Cause::Needed, None, step);
            return (0, Some(Block::Preloader));
        }
        for made in 0..wanted {
            let Some(generation) = self.generations.get_mut(&id) else {
                return (made, None);
            };
            if !self.quota.admits(id, made, self.children.total()) {
                return (made, Some(Block::ProcessMax));
            }
            let Some(slot) = generation.slots.take() else {
                return (made, Some(Block::Full));
            };
            let line = generation.line;
            let worker = self.children.add(id, slot, line, step.now);
            self.fill_order(id, worker, step);
            step.act(Action::Fork(worker, id, slot));
        }
        (wanted, None)
    }

    /// `max_children` keeps a pool from growing by demand. A static one simply waits for those that are leaving.
    fn tell_full(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let by_demand = match generation.policy.pm {
            ProcessManager::Static { .. } | ProcessManager::Ordered { .. } => false,
            ProcessManager::Dynamic { .. } | ProcessManager::Ondemand { .. } => {
                generation.stage == Stage::Serving
            }
        };
        if by_demand && !generation.said_full {
            generation.said_full = true;
            generation.figures.max_children_reached += 1;
            step.act(Action::Publish(id, generation.figures));
            step.say(Notice::MaxChildrenReached(
                generation.pool,
                generation.policy.pm.max_children(),
            ));
        }
    }

    fn wait_for_turn(&mut self, id: GenerationId, step: &mut Step<'_>) {
        if let Some(max) = self.quota.wait(id) {
            step.say(Notice::ProcessMaxReached(max));
        }
        let none_left = self.crew(id).all == 0;
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let serves = generation.stage == Stage::Serving;
        let Some(pool) = self.pools.get_mut(&generation.pool) else {
            return;
        };
        if serves && none_left && !pool.said_none && !pool.by_order {
            pool.said_none = true;
            step.say(Notice::NoWorkerPossible(generation.pool, None));
        }
    }

    /// Gives free capacity to those who waited for it, the longest first.
    pub(super) fn give_turns(&mut self, step: &mut Step<'_>) {
        for _ in 0..self.quota.waiting() {
            let Some(id) = self.quota.give_turn(self.children.total()) else {
                break;
            };
            self.timers.set(Timer::Turn(id), step.now, TURN);
            self.freed(id, step);
        }
    }

    pub(super) fn end_turn(&mut self, id: GenerationId) {
        if self.quota.has_turn(id) {
            self.quota.end_turn(id);
            self.timers.clear(Timer::Turn(id));
        }
    }
}

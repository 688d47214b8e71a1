//! Workers that a router orders one by one: the instances of an application. They stay until dismissed.
//!
//! Such a pool has no source of work and closes when nothing is left. A request for a new generation replaces the old
//! one, whose workers stay with their program (`GenerationState::Superseded`).
//!
//! ```text
//!                    Fill, Fork              ForkFailed, the first time
//!  order ──▶ queued ────────────▶ a worker ─────────────────────────────▶ queued
//!              │ Fail: the preloader can't be started; canceled; closed
//!              ▼                     │ ForkFailed again
//!             over ◀─────────────────┘
//! ```

use super::action::Action;
use super::event::{GenerationId, PoolId, SpawnRequest, SpawnRequestId, WorkerId};
use super::generation::{Generation, GenerationState};
use super::leave;
use super::manager::{Manager, Step};
use super::manager_state::ManagerState;
use super::pool::Pool;
use super::timers::Timer;
use crate::config::ProcessManager;
use crate::life::{self, Force, Life};

const TRIES: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Queued {
    pub id: SpawnRequestId,
    pub tries: u8,
}

impl Manager {
    pub(super) fn take_order(&mut self, ordered: SpawnRequest, step: &mut Step<'_>) {
        let SpawnRequest {
            order,
            pool: pool_id,
            generation: id,
            policy,
        } = ordered;
        let is_ordered = matches!(policy.pm, ProcessManager::Ordered { .. });
        let is_running = matches!(self.state, ManagerState::Running | ManagerState::Draining);
        let fits = match self.pools.get(&pool_id) {
            None => !self.generations.contains_key(&id),
            Some(pool) => {
                let known = self.generations.get(&id);
                let serves = pool.serving == Some(id);
                pool.by_order && !pool.closed && known.is_none_or(|known| serves && known.pool == pool_id)
            }
        };
        if !(is_ordered && is_running && fits) {
            return self.refuse_order(ordered, step);
        }
        self.pools.entry(pool_id).or_insert_with(|| Pool {
            by_order: true,
            ..Pool::default()
        });
        if !self.generations.contains_key(&id) {
            self.begin_generation(
                pool_id,
                id,
                Generation::new(pool_id, policy, GenerationState::Serving),
                step,
            );
        }
        self.queue(id, Queued { id: order, tries: 0 });
        self.fork_ordered(id, step);
    }

    fn refuse_order(&mut self, ordered: SpawnRequest, step: &mut Step<'_>) {
        step.act(Action::Fail(ordered.order));
        if !self.generations.contains_key(&ordered.generation) {
            step.act(Action::DropGeneration(ordered.generation));
        }
        if !self.pools.contains_key(&ordered.pool) {
            step.act(Action::ClosePool(ordered.pool));
        }
    }

    fn begin_generation(
        &mut self,
        pool_id: PoolId,
        id: GenerationId,
        mut generation: Generation,
        step: &mut Step<'_>,
    ) {
        let old = self
            .pools
            .get_mut(&pool_id)
            .and_then(|pool| pool.serving.replace(id));
        if let Some(before) = old.and_then(|old| self.generations.get_mut(&old)) {
            before.state = GenerationState::Superseded;
            generation.orders = std::mem::take(&mut before.orders);
        }
        self.generations.insert(id, generation);
        if let Some(old) = old {
            self.quota.forget(old);
            for timer in [Timer::Grant(old), Timer::Backoff(old)] {
                self.timers.clear(timer);
            }
            if !self.workers_need_preloader(old) {
                self.preloader_changed(old, life::LifeCause::Stop(Force::Ask), None, step);
            }
            self.touched.insert(old);
        }
        self.touched.insert(id);
    }

    fn queue(&mut self, id: GenerationId, order: Queued) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.orders.push_back(order);
        }
    }

    pub(super) fn fork_ordered(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        if generation.state != GenerationState::Serving || generation.orders.is_empty() {
            return;
        }
        let wanted = u32::try_from(generation.orders.len()).unwrap_or(u32::MAX);
        self.fork_workers(id, wanted, step);
    }

    /// Assigns the next spawn request, if any, to a worker that is forked now.
    pub(super) fn fill_order(&mut self, id: GenerationId, worker: WorkerId, step: &mut Step<'_>) {
        let next = self.generations.get_mut(&id).and_then(|it| it.orders.pop_front());
        let Some(order) = next else { return };
        let tried = Queued {
            tries: order.tries + 1,
            ..order
        };
        self.children.change(worker, |worker| worker.order = Some(tried));
        step.act(Action::Fill(order.id, worker));
    }

    /// Handles a failed fork. `is_wanted`: the worker was not told to exit.
    pub(super) fn unfilled(&mut self, id: GenerationId, order: Queued, is_wanted: bool, step: &mut Step<'_>) {
        let pool = self.generations.get(&id).map(|generation| generation.pool);
        let serving = pool.and_then(|pool| self.pools.get(&pool)?.serving);
        match serving.filter(|_| is_wanted && order.tries < TRIES) {
            Some(serving) => {
                self.queue(serving, order);
                if serving != id {
                    self.fork_ordered(serving, step);
                }
            }
            None => step.act(Action::Fail(order.id)),
        }
    }

    pub(super) fn fail_orders(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        if generation.orders.is_empty() {
            return;
        }
        for order in std::mem::take(&mut generation.orders) {
            step.act(Action::Fail(order.id));
        }
        self.quota.forget(id);
        self.timers.clear(Timer::Grant(id));
        self.touched.insert(id);
    }

    pub(super) fn cancel(&mut self, id: SpawnRequestId, kill: bool, step: &mut Step<'_>) {
        let of_order = |generation: &Generation| generation.orders.iter().position(|order| order.id == id);
        let queued = self
            .generations
            .iter()
            .find_map(|(id, it)| Some((*id, of_order(it)?)));
        if let Some((generation, at)) = queued {
            if let Some(generation) = self.generations.get_mut(&generation) {
                generation.orders.remove(at);
            }
            step.act(Action::Fail(id));
            self.touched.insert(generation);
            return;
        }
        if let Some(worker) = self.children.of_order(id) {
            let cause = if kill {
                leave::LeaveCause::Kill
            } else {
                leave::LeaveCause::Surplus
            };
            self.dismiss(worker, cause, step);
        }
    }

    pub(super) fn disband(&mut self, id: PoolId, step: &mut Step<'_>) {
        if self.pools.get(&id).is_some_and(|pool| pool.by_order) {
            self.close(id, leave::LeaveCause::Leave, step);
        }
    }

    pub(super) fn expel(&mut self, id: PoolId, step: &mut Step<'_>) {
        if self
            .pools
            .get(&id)
            .is_some_and(|pool| pool.by_order || pool.closed)
        {
            self.close(id, leave::LeaveCause::Stop, step);
        }
    }

    pub(super) fn close_if_unused(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let pool_id = generation.pool;
        let Some(pool) = self.pools.get(&pool_id) else {
            return;
        };
        let is_empty = generation.state == GenerationState::Serving
            && generation.orders.is_empty()
            && generation.preloader == Life::Absent
            && self.worker_counts(id).all == 0;
        let has_others = self.generations.of(&pool_id).any(|(other, _)| other != id);
        if pool.by_order && !pool.closed && is_empty && !has_others {
            self.close(pool_id, leave::LeaveCause::Leave, step);
        }
    }
}

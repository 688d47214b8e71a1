//! What is done about configurations: generations come, take over, and leave. And how everything ends.

use super::action::{Action, Fact, Notice, Outcome};
use super::census::View;
use super::event::{GenerationId, PoolId, Wanted, WantedPool};
use super::generation::{CensusNumber, Generation, Stage};
use super::leave;
use super::manager::{Manager, Step};
use super::phase::{self, Phase};
use super::policy;
use super::pool::Pool;
use super::refork;
use super::source::{self, Block};
use super::spare;
use super::timers::Timer;
use crate::config::ProcessManager;
use crate::life::{self, Force, Life};
use std::collections::BTreeSet;

impl Manager {
    /// Takes in a configuration.
    pub(super) fn apply(&mut self, wanted: Wanted, step: &mut Step<'_>) {
        match self.phase {
            Phase::Running => {}
            Phase::Draining | Phase::Finishing | Phase::Terminating | Phase::Gone => {
                return self.refuse(&wanted, step);
            }
        }
        self.quota.set_max(wanted.process_max);
        self.control_timeout = wanted.control_timeout;
        self.emergency.set_rule(wanted.emergency);
        let starting: BTreeSet<GenerationId> = wanted
            .pools
            .iter()
            .filter(|pool| policy::at_start(pool.policy.pm) > 0)
            .map(|pool| pool.generation)
            .collect();
        let is_first = !std::mem::replace(&mut self.applied, true);
        let all_start = !starting.is_empty() && starting.len() == wanted.pools.len();
        self.starting = (is_first && all_start).then_some(starting);
        let names: BTreeSet<PoolId> = wanted.pools.iter().map(|pool| pool.pool).collect();
        let gone: Vec<PoolId> = self
            .pools
            .iter()
            .filter(|(id, pool)| !names.contains(id) && !pool.by_order)
            .map(|(id, _)| *id)
            .collect();
        for pool in gone {
            self.close(pool, leave::Cause::Leave, step);
        }
        for pool in wanted.pools {
            self.apply_pool(pool, step);
        }
    }

    /// The daemon is ending: what was prepared for this configuration is given up.
    fn refuse(&self, wanted: &Wanted, step: &mut Step<'_>) {
        for pool in &wanted.pools {
            if !self.generations.contains_key(&pool.generation) {
                step.act(Action::DropGeneration(pool.generation));
            }
            if !self.pools.contains_key(&pool.pool) {
                step.act(Action::ClosePool(pool.pool));
            }
        }
    }

    fn apply_pool(&mut self, wanted: WantedPool, step: &mut Step<'_>) {
        let WantedPool {
            pool: pool_id,
            generation: id,
            policy,
        } = wanted;
        let pool = self.pools.entry(pool_id).or_insert_with(Pool::new);
        pool.closed = false;
        let (serving, coming) = (pool.serving, pool.coming);
        if coming == Some(id) {
            return;
        }
        if let Some(overtaken) = coming {
            self.leave(overtaken, leave::Cause::Leave, step);
        }
        if serving == Some(id) || self.generations.contains_key(&id) {
            return;
        }
        self.touched.insert(id);
        let Some(old) = serving.filter(|old| self.crew(*old).staying > 0) else {
            // There is nobody who could go on serving meanwhile.
            self.generations
                .insert(id, Generation::new(pool_id, policy, Stage::Serving));
            self.serve(pool_id, id, step);
            return;
        };
        let crew = self.crew(old);
        let stage = match policy.pm {
            ProcessManager::Ondemand { .. } => Stage::Measuring(self.take_census(old, step)),
            ProcessManager::Static { .. }
            | ProcessManager::Dynamic { .. }
            | ProcessManager::Ordered { .. } => {
                Stage::Warming(policy::warm(policy.pm, crew.staying, crew.staying))
            }
        };
        self.generations
            .insert(id, Generation::new(pool_id, policy, stage));
        if let Some(pool) = self.pools.get_mut(&pool_id) {
            pool.coming = Some(id);
        }
        self.publish_notify(id, step);
        self.warm_up(id, step);
    }

    /// Makes the workers that a coming generation is to have up.
    pub(super) fn warm_up(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let staying = self.crew(id).staying;
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let Stage::Warming(target) = generation.stage else {
            return;
        };
        if staying >= target && !generation.can_fork() {
            // Nobody is to be made, but it must be possible before it serves.
            match generation.backoff.wait(step.now) {
                Some(wait) => self.timers.set(Timer::Backoff(id), step.now, wait),
                None => self.preloader_changed(id, life::Cause::Needed, None, step),
            }
            return;
        }
        let (_, block) = self.make(id, target.saturating_sub(staying), step);
        if block == Some(Block::ProcessMax) && self.crew(id).staying == 0 {
            self.make_room(id, step);
        }
    }

    /// `process.max` leaves no place for a first worker of the coming generation: one of the serving one gives its.
    fn make_room(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(pool) = self.generations.get(&id).map(|generation| generation.pool) else {
            return;
        };
        let Some(serving) = self.pools.get(&pool).and_then(|pool| pool.serving) else {
            return;
        };
        self.quota.wait_first(id);
        let crew = self.crew(serving);
        let is_asked = self
            .generations
            .get(&id)
            .is_some_and(|generation| generation.room_on.is_some());
        if crew.all > crew.staying || crew.staying == 0 || is_asked {
            return;
        }
        let number = self.take_census(serving, step);
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.room_on = Some(number);
        }
    }

    /// A census of the serving generation, for the one that comes.
    pub(super) fn measured(
        &mut self,
        id: GenerationId,
        number: CensusNumber,
        view: &View,
        step: &mut Step<'_>,
    ) {
        let Some(pool) = self
            .generations
            .get(&id)
            .and_then(|generation| self.pools.get(&generation.pool))
        else {
            return;
        };
        let Some(coming) = pool.coming.filter(|_| pool.serving == Some(id)) else {
            return;
        };
        let Some(generation) = self.generations.get_mut(&coming) else {
            return;
        };
        let mut gives_way = None;
        if generation.room_on.is_some_and(|wanted| number >= wanted) {
            generation.room_on = None;
            // The longest idle one; if all are busy, one of them, after its request.
            let longest = view
                .idle
                .iter()
                .min_by_key(|idle| (idle.since, idle.worker))
                .map(|idle| idle.worker);
            gives_way = longest.or_else(|| self.children.staying(id));
        }
        let starts = match generation.stage {
            Stage::Measuring(wanted) if number >= wanted => {
                let busy = view.busy;
                let running = self.children.crew(id).staying;
                generation.stage = Stage::Warming(policy::warm(generation.policy.pm, running, busy));
                true
            }
            Stage::Measuring(_) | Stage::Warming(_) | Stage::Serving => false,
            Stage::Superseded | Stage::Leaving => false,
        };
        if let Some(worker) = gives_way {
            self.dismiss(worker, leave::Cause::Surplus, step);
        }
        if starts {
            self.touched.insert(coming);
            self.warm_up(coming, step);
        }
    }

    /// Lets a coming generation serve once it is warm, or as warm as `process.max` allows.
    pub(super) fn take_over_if_warm(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let Stage::Warming(target) = generation.stage else {
            return;
        };
        let crew = self.crew(id);
        let as_warm_as_can_be =
            generation.block == Some(Block::ProcessMax) && crew.up > 0 && crew.up == crew.staying;
        if generation.can_fork() && (crew.up >= target || as_warm_as_can_be) {
            let pool = generation.pool;
            self.serve(pool, id, step);
        }
    }

    /// Makes a generation the one that serves; the one before it leaves.
    fn serve(&mut self, pool_id: PoolId, id: GenerationId, step: &mut Step<'_>) {
        let Some(pool) = self.pools.get_mut(&pool_id) else {
            return;
        };
        let old = pool.serving.replace(id);
        pool.coming = None;
        let staying = self.children.crew(id).staying;
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        generation.stage = Stage::Serving;
        generation.room_on = None;
        let pm = generation.policy.pm;
        generation.owed = policy::at_start(pm).saturating_sub(staying);
        if let Some(old) = old {
            step.note(Fact::Serves(id));
            step.say(Notice::GenerationServes(id));
            self.leave(old, leave::Cause::Leave, step);
        }
        self.open_for_work(pool_id, id, pm, step);
        if matches!(pm, ProcessManager::Static { .. }) {
            self.fill(id, step);
        }
        self.touched.insert(id);
    }

    /// Lets a generation that serves from now on have its work.
    pub(super) fn open_for_work(
        &mut self,
        pool_id: PoolId,
        id: GenerationId,
        pm: ProcessManager,
        step: &mut Step<'_>,
    ) {
        self.publish_notify(id, step);
        match pm {
            ProcessManager::Ordered { .. } => {}
            ProcessManager::Static { .. } => self.source_changed(pool_id, source::Cause::End, step),
            ProcessManager::Dynamic { .. } => {
                self.source_changed(pool_id, source::Cause::End, step);
                self.spare_changed(id, spare::Cause::Begin, step);
            }
            ProcessManager::Ondemand { .. } => {
                self.source_changed(pool_id, source::Cause::Changed, step);
                self.source_changed(pool_id, source::Cause::Begin, step);
            }
        }
    }

    /// Makes a generation leave, or leave faster.
    pub(super) fn leave(&mut self, id: GenerationId, cause: leave::Cause, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let pool_id = generation.pool;
        generation.stage = Stage::Leaving;
        generation.spare = generation.spare.after(spare::Cause::End).0;
        generation.shrink_on = None;
        if let Some(pool) = self.pools.get_mut(&pool_id) {
            pool.serving = pool.serving.filter(|serving| *serving != id);
            pool.coming = pool.coming.filter(|coming| *coming != id);
        }
        self.fail_orders(id, step);
        self.quota.forget(id);
        for timer in [Timer::Turn(id), Timer::Backoff(id), Timer::Shrink(id)] {
            self.timers.clear(timer);
        }
        // Whoever was to take what waits may be one of those who leave.
        self.source_changed(pool_id, source::Cause::Changed, step);
        for worker in self.children.of(id) {
            self.dismiss(worker, cause, step);
        }
        let stop = if cause == leave::Cause::Stop {
            life::Cause::Stop(Force::Terminate)
        } else {
            life::Cause::Stop(Force::Ask)
        };
        if cause == leave::Cause::Stop || !self.workers_need_preloader(id) {
            self.preloader_changed(id, stop, None, step);
        }
        self.refork_changed(id, refork::Cause::End, None, step);
        self.second_changed(id, stop, None, step);
        self.touched.insert(id);
    }

    /// Whether a generation's preloader has to stay although nobody is made any more.
    fn workers_need_preloader(&self, id: GenerationId) -> bool {
        let policy = self.generations.get(&id).and_then(|it| it.policy.preloader);
        policy.is_some_and(|policy| policy.is_needed_by_workers) && self.crew(id).all > 0
    }

    /// The preloader of a generation that leaves goes, once those who need it are gone.
    pub(super) fn let_preloader_go(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let stayed = generation
            .policy
            .preloader
            .is_some_and(|it| it.is_needed_by_workers);
        if generation.stage == Stage::Leaving && stayed && !self.workers_need_preloader(id) {
            self.preloader_changed(id, life::Cause::Stop(Force::Ask), None, step);
        }
    }

    /// Closes a pool for good: nobody is to connect to what nobody will answer. What runs is finished.
    pub(super) fn close(&mut self, id: PoolId, cause: leave::Cause, step: &mut Step<'_>) {
        self.drain(id, cause, step);
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        if !std::mem::replace(&mut pool.closed, true) {
            step.act(Action::ClosePool(id));
        }
    }

    fn drain(&mut self, id: PoolId, cause: leave::Cause, step: &mut Step<'_>) {
        self.source_changed(id, source::Cause::End, step);
        let generations = self
            .generations
            .iter()
            .filter(|(_, generation)| generation.pool == id);
        for generation in generations.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.leave(generation, cause, step);
        }
    }

    /// Drops a generation of which nothing is left.
    pub(super) fn drop_if_gone(&mut self, id: GenerationId, step: &mut Step<'_>) -> bool {
        let Some(generation) = self.generations.get(&id) else {
            return true;
        };
        let has_preloader = generation.preloader != Life::Absent || generation.second != Life::Absent;
        let empty = self.crew(id).all == 0 && !has_preloader;
        let is_over = matches!(generation.stage, Stage::Leaving | Stage::Superseded);
        if !is_over || !empty {
            return false;
        }
        let pool_id = generation.pool;
        for timer in [Timer::Expiry(id), Timer::Preloader(id), Timer::Answer(id)] {
            self.timers.clear(timer);
        }
        self.timers.clear(Timer::Second(id));
        self.generations.remove(&id);
        self.children.forget(id);
        step.act(Action::DropGeneration(id));
        let is_last = self
            .generations
            .values()
            .all(|generation| generation.pool != pool_id);
        let Some(pool) = self.pools.get(&pool_id) else {
            return true;
        };
        if is_last && pool.closed {
            self.pools.remove(&pool_id);
        } else if pool.by_order {
            // It may be that nothing else of the pool was left.
            self.touched.extend(pool.serving);
        }
        true
    }

    /// Stops the daemon.
    pub(super) fn stop(&mut self, cause: phase::Cause, step: &mut Step<'_>) {
        let before = self.phase;
        self.phase = before.after(cause);
        if self.phase == before {
            return;
        }
        self.starting = None;
        let (leave, orders_end) = match self.phase {
            Phase::Draining => (leave::Cause::Leave, false),
            Phase::Running | Phase::Finishing => (leave::Cause::Leave, true),
            Phase::Terminating | Phase::Gone => (leave::Cause::Stop, true),
        };
        for pool in self.pools.keys().copied().collect::<Vec<_>>() {
            if orders_end || !self.is_for_orders(pool) {
                self.drain(pool, leave, step);
            }
        }
    }

    /// Whether a pool's workers are ordered, or its router orders workers for other pools.
    fn is_for_orders(&self, id: PoolId) -> bool {
        let Some(pool) = self.pools.get(&id) else {
            return false;
        };
        let serving = pool.serving.and_then(|serving| self.generations.get(&serving));
        pool.by_order || serving.is_some_and(|it| matches!(it.policy.pm, ProcessManager::Ordered { .. }))
    }

    /// Closes what is still open: the daemon leaves.
    pub(super) fn close_all(&mut self, step: &mut Step<'_>) {
        for (id, pool) in std::mem::take(&mut self.pools) {
            if !pool.closed {
                step.act(Action::ClosePool(id));
            }
        }
    }

    /// The generation could not make its workers at the daemon's first start. If that is so for every pool, the daemon
    /// ends: an error that is seen at once helps more than a daemon that serves nobody. Later, or if any worker was made,
    /// or if there is an ondemand pool that has not been asked yet, it waits and tries again.
    pub(super) fn start_failed(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let asked = self.crew(id).asked;
        let Some(starting) = &mut self.starting else {
            return;
        };
        if asked == 0 {
            starting.remove(&id);
        }
        if starting.is_empty() {
            self.starting = None;
            self.outcome = Outcome::NoWorkerAtStart;
            self.stop(phase::Cause::Terminate, step);
        }
    }
}

//! Applies configurations and stops the daemon.
//!
//! `apply_pool` adds a generation, `warm_up` forks its workers, and `take_over_if_warm` calls `serve` once they are up.
//! `end_generation` stops the old workers and preloader (`leave.rs`), and `drop_if_gone` forgets the generation. A
//! generation without workers is replaced at once, unless the new one has a trial (`trials.rs`).

use super::action::{Action, ExitOutcome, Fact, Notice};
use super::event::{CoreConfig, GenerationId, PoolId, WantedPool};
use super::fork::{Block, DemandCause};
use super::generation::{Generation, GenerationState, SnapshotNumber};
use super::leave;
use super::manager::{Manager, Step};
use super::manager_state::{ManagerCause, ManagerState};
use super::policy;
use super::pool::Pool;
use super::refork;
use super::snapshot::View;
use super::timers::Timer;
use super::turns::Share;
use crate::config::ProcessManager;
use crate::life::{self, Force, Life};
use std::collections::BTreeSet;

impl Manager {
    pub(super) fn apply(&mut self, wanted: CoreConfig, step: &mut Step<'_>) {
        match self.state {
            ManagerState::Running => {}
            ManagerState::Draining
            | ManagerState::Finishing
            | ManagerState::Terminating
            | ManagerState::Gone => {
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
        self.starting = (wanted.gives_up && is_first && all_start).then_some(starting);
        let names: BTreeSet<PoolId> = wanted.pools.iter().map(|pool| pool.pool).collect();
        let gone: Vec<PoolId> = self
            .pools
            .iter()
            .filter(|(id, pool)| !names.contains(id) && !pool.by_order)
            .map(|(id, _)| *id)
            .collect();
        for pool in gone {
            self.close(pool, leave::LeaveCause::Leave, step);
        }
        for pool in wanted.pools {
            self.apply_pool(pool, step);
        }
    }

    fn refuse(&self, wanted: &CoreConfig, step: &mut Step<'_>) {
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
            trial,
            share,
        } = wanted;
        let share = share.filter(|it| *it < 100 && !matches!(policy.pm, ProcessManager::Ordered { .. }));
        let pool = self.pools.entry(pool_id).or_default();
        pool.closed = false;
        let (serving, coming) = (pool.serving, pool.coming);
        if let Some(kept) = self.generations.get_mut(&id) {
            // A running generation updates nothing else.
            kept.policy.drain_timeout = policy.drain_timeout;
        }
        if coming == Some(id) {
            return;
        }
        if let Some(overtaken) = coming {
            self.end_generation(overtaken, leave::LeaveCause::Leave, step);
            if let Some(serving) = serving {
                self.lift_ceiling(serving, step);
            }
        }
        if serving == Some(id) || self.generations.contains_key(&id) {
            return;
        }
        self.touched.insert(id);
        // The new generation serves at once if the old one has no worker.
        let Some(old) = serving.filter(|old| trial || share.is_some() || self.worker_counts(*old).kept > 0)
        else {
            self.generations
                .insert(id, Generation::new(pool_id, policy, GenerationState::Serving));
            self.serve(pool_id, id, step);
            return;
        };
        let counts = self.worker_counts(old);
        let is_trial = counts.kept == 0;
        let share = share.map(|percent| Share::new(old, counts.kept, percent));
        let before = self.generations.get_mut(&old);
        // With a share, which may last long, the old generation may still grow: its release does not change.
        let may_mix = |before: &&mut Generation| before.policy.starts_from_disk && share.is_none();
        if let Some(before) = before.filter(may_mix) {
            before.ceiling.get_or_insert(counts.kept.max(1));
        }
        let state = match policy.pm {
            ProcessManager::Ondemand { .. } if !is_trial => {
                GenerationState::Measuring(self.take_snapshot(old, step))
            }
            ProcessManager::Ondemand { .. }
            | ProcessManager::Static { .. }
            | ProcessManager::Dynamic { .. }
            | ProcessManager::Ordered { .. } => {
                let whole = policy::warm(policy.manager(), counts.kept, counts.kept);
                GenerationState::Warming(share.map_or(whole, |share| share.part(whole)))
            }
        };
        let mut generation = Generation::new(pool_id, policy, state);
        generation.share = share;
        self.generations.insert(id, generation);
        if let Some(pool) = self.pools.get_mut(&pool_id) {
            pool.coming = Some(id);
        }
        self.begin_share(id, step);
        self.publish_wake_on_accept(id, step);
        if !is_trial || self.trials.add(id) {
            self.warm_up(id, step);
        }
    }

    /// Lets a generation grow again once its successor is abandoned.
    pub(super) fn lift_ceiling(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let pools = &self.pools;
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let serves_alone = |pool: &Pool| pool.serving == Some(id) && pool.coming.is_none();
        let is_over = pools.get(&generation.pool).is_some_and(serves_alone);
        if generation.ceiling.take_if(|_| is_over).is_some() {
            self.freed(id, step);
        }
    }

    /// Ends the trial of a generation, if any, so that another may start.
    pub(super) fn trial_over(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let next = self.trials.end(id);
        if let Some(next) = next.filter(|_| matches!(self.state, ManagerState::Running)) {
            self.touched.insert(next);
            self.warm_up(next, step);
        }
    }

    pub(super) fn warm_up(&mut self, id: GenerationId, step: &mut Step<'_>) {
        if self.trials.waits(id) {
            return;
        }
        let kept = self.worker_counts(id).kept;
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let GenerationState::Warming(target) = generation.state else {
            return;
        };
        if kept >= target && !generation.can_fork() {
            // The generation needs no worker yet, but has to be able to fork one.
            match generation.backoff.wait(step.now) {
                Some(wait) => self.timers.set(Timer::Backoff(id), step.now, wait),
                None => self.preloader_changed(id, life::LifeCause::Needed, None, step),
            }
            return;
        }
        let (_, block) = self.fork_workers(id, target.saturating_sub(kept), step);
        if block == Some(Block::ProcessMax) && self.worker_counts(id).kept == 0 {
            self.make_room(id, step);
        }
    }

    /// Retires a worker of the serving generation if `process.max` leaves no room for the coming generation's first
    /// worker.
    fn make_room(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(pool) = self.generations.get(&id).map(|generation| generation.pool) else {
            return;
        };
        let Some(serving) = self.pools.get(&pool).and_then(|pool| pool.serving) else {
            return;
        };
        self.quota.wait_first(id);
        let counts = self.worker_counts(serving);
        let is_asked = self
            .generations
            .get(&id)
            .is_some_and(|generation| generation.room_on.is_some());
        if counts.all > counts.kept || counts.kept == 0 || is_asked {
            return;
        }
        let number = self.take_snapshot(serving, step);
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.room_on = Some(number);
        }
    }

    pub(super) fn measured(
        &mut self,
        id: GenerationId,
        number: SnapshotNumber,
        view: &View,
        step: &mut Step<'_>,
    ) {
        let Some(pool) = self.pool_of(id).and_then(|pool| self.pools.get(&pool)) else {
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
            // The worker that has been idle longest. If all are busy, any worker: it finishes its request first.
            let longest = view
                .idle
                .iter()
                .min_by_key(|idle| (idle.since, idle.worker))
                .map(|idle| idle.worker);
            gives_way = longest.or_else(|| self.children.any_kept(id));
        }
        let starts = match generation.state {
            GenerationState::Measuring(wanted) if number >= wanted => {
                let running = self.children.worker_counts(id).kept;
                // A generation that shares has a part of the work already.
                let busy = view.busy.saturating_add(self.children.worker_counts(coming).kept);
                let whole = policy::warm(generation.policy.manager(), running, busy);
                let target = generation.share.map_or(whole, |share| share.part(whole));
                generation.state = GenerationState::Warming(target);
                true
            }
            GenerationState::Measuring(_) | GenerationState::Warming(_) | GenerationState::Serving => false,
            GenerationState::Superseded | GenerationState::Leaving => false,
        };
        if let Some(worker) = gives_way {
            self.dismiss(worker, leave::LeaveCause::Surplus, step);
        }
        let is_tried = self
            .generations
            .get(&coming)
            .is_some_and(|it| it.share.is_some_and(|it| it.is_told));
        if starts && (is_tried || self.trials.add(coming)) {
            self.touched.insert(coming);
            self.warm_up(coming, step);
        }
    }

    /// Lets a coming generation take over once it has the workers that it wants, or as many as `process.max` allows.
    pub(super) fn take_over_if_warm(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let GenerationState::Warming(target) = generation.state else {
            return;
        };
        let counts = self.worker_counts(id);
        let as_warm_as_can_be =
            generation.block == Some(Block::ProcessMax) && counts.up > 0 && counts.up == counts.kept;
        if generation.can_fork() && (counts.up >= target || as_warm_as_can_be) {
            let pool = generation.pool;
            if !self.shares_on(id, step) {
                self.serve(pool, id, step);
            }
        }
    }

    fn serve(&mut self, pool_id: PoolId, id: GenerationId, step: &mut Step<'_>) {
        let Some(pool) = self.pools.get_mut(&pool_id) else {
            return;
        };
        let old = pool.serving.replace(id);
        pool.coming = None;
        let kept = self.children.worker_counts(id).kept;
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        generation.state = GenerationState::Serving;
        generation.room_on = None;
        let pm = generation.policy.pm;
        generation.to_replace = policy::at_start(generation.policy.manager()).saturating_sub(kept);
        self.end_share(id, step);
        if let Some(old) = old {
            step.note(Fact::Serves(id));
            step.say(Notice::GenerationServes(id));
            self.end_generation(old, leave::LeaveCause::Leave, step);
        }
        self.open_for_work(pool_id, id, pm, step);
        if matches!(pm, ProcessManager::Static { .. }) {
            self.fill(id, step);
        }
        self.touched.insert(id);
        self.tell_up(id, step);
        self.trial_over(id, step);
    }

    /// Reports once that a serving generation has a worker, or needs none yet.
    pub(super) fn tell_up(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let has_worker = self.worker_counts(id).up > 0;
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let is_up = has_worker || policy::at_start(generation.policy.pm) == 0;
        if is_up && generation.state == GenerationState::Serving && !generation.told_up {
            generation.told_up = true;
            step.note(Fact::Up(id));
        }
    }

    pub(super) fn open_for_work(
        &mut self,
        pool_id: PoolId,
        id: GenerationId,
        pm: ProcessManager,
        step: &mut Step<'_>,
    ) {
        self.publish_wake_on_accept(id, step);
        match pm {
            ProcessManager::Ordered { .. } => {}
            ProcessManager::Static { .. } => self.source_changed(pool_id, DemandCause::End, step),
            ProcessManager::Dynamic { .. } => {
                self.source_changed(pool_id, DemandCause::End, step);
                self.spare_changed(id, DemandCause::Begin, step);
            }
            ProcessManager::Ondemand { .. } => {
                self.source_changed(pool_id, DemandCause::Changed, step);
                self.source_changed(pool_id, DemandCause::Begin, step);
            }
        }
    }

    pub(super) fn end_generation(&mut self, id: GenerationId, cause: leave::LeaveCause, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let pool_id = generation.pool;
        generation.state = GenerationState::Leaving;
        generation.spare = generation.spare.after(DemandCause::End).0;
        generation.shrink_on = None;
        if let Some(pool) = self.pools.get_mut(&pool_id) {
            pool.serving = pool.serving.filter(|serving| *serving != id);
            pool.coming = pool.coming.filter(|coming| *coming != id);
            self.touched.extend(pool.serving);
        }
        self.end_share(id, step);
        self.fail_orders(id, step);
        self.quota.forget(id);
        for timer in [Timer::Grant(id), Timer::Backoff(id), Timer::Shrink(id)] {
            self.timers.clear(timer);
        }
        // The worker that was expected to take the waiting connections may be leaving.
        self.source_changed(pool_id, DemandCause::Changed, step);
        for worker in self.children.of(id) {
            self.dismiss(worker, cause, step);
        }
        let stop = if cause == leave::LeaveCause::Stop {
            life::LifeCause::Stop(Force::Terminate)
        } else {
            life::LifeCause::Stop(Force::Ask)
        };
        if cause == leave::LeaveCause::Stop || !self.workers_need_preloader(id) {
            self.preloader_changed(id, stop, None, step);
        }
        self.refork_changed(id, refork::ReforkCause::End, None, step);
        self.next_mold_changed(id, stop, None, step);
        self.touched.insert(id);
        self.trial_over(id, step);
    }

    /// Whether a preloader has to stay alive for its running workers although it forks no more.
    pub(super) fn workers_need_preloader(&self, id: GenerationId) -> bool {
        let policy = self.generations.get(&id).and_then(|it| it.policy.preloader);
        policy.is_some_and(|policy| policy.is_needed_by_workers) && self.worker_counts(id).all > 0
    }

    pub(super) fn let_preloader_go(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let stayed = generation
            .policy
            .preloader
            .is_some_and(|it| it.is_needed_by_workers);
        let is_over = matches!(
            generation.state,
            GenerationState::Superseded | GenerationState::Leaving
        );
        if is_over && stayed && !self.workers_need_preloader(id) {
            self.preloader_changed(id, life::LifeCause::Stop(Force::Ask), None, step);
        }
    }

    /// Drains a pool and closes its socket at once, so that no client connects in vain. Running requests finish.
    pub(super) fn close(&mut self, id: PoolId, cause: leave::LeaveCause, step: &mut Step<'_>) {
        self.drain(id, cause, step);
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        if !std::mem::replace(&mut pool.closed, true) {
            step.act(Action::ClosePool(id));
        }
    }

    fn drain(&mut self, id: PoolId, cause: leave::LeaveCause, step: &mut Step<'_>) {
        self.source_changed(id, DemandCause::End, step);
        let generations: Vec<GenerationId> = self.generations.of(&id).map(|(id, _)| id).collect();
        for generation in generations {
            self.end_generation(generation, cause, step);
        }
    }

    pub(super) fn drop_if_gone(&mut self, id: GenerationId, step: &mut Step<'_>) -> bool {
        let Some(generation) = self.generations.get(&id) else {
            return true;
        };
        let has_preloader = generation.preloader != Life::Absent || generation.next_mold != Life::Absent;
        let empty = self.worker_counts(id).all == 0 && !has_preloader;
        let is_over = matches!(
            generation.state,
            GenerationState::Leaving | GenerationState::Superseded
        );
        if !is_over || !empty {
            return false;
        }
        let pool_id = generation.pool;
        for timer in [Timer::Expiry(id), Timer::Preloader(id), Timer::Answer(id)] {
            self.timers.clear(timer);
        }
        self.timers.clear(Timer::NextMold(id));
        self.generations.remove(&id);
        self.children.forget(id);
        step.act(Action::DropGeneration(id));
        let is_last = self.generations.of(&pool_id).next().is_none();
        let Some(pool) = self.pools.get(&pool_id) else {
            return true;
        };
        if is_last && pool.closed {
            self.pools.remove(&pool_id);
        } else if pool.by_order {
            // This may have been the pool's last other generation, so the serving one is checked again.
            self.touched.extend(pool.serving);
        }
        true
    }

    pub(super) fn stop(&mut self, cause: ManagerCause, step: &mut Step<'_>) {
        let before = self.state;
        self.state = before.after(cause);
        if self.state == before {
            return;
        }
        self.starting = None;
        self.hurry(step);
        let (leave, requests_end) = match self.state {
            ManagerState::Draining => (leave::LeaveCause::Leave, false),
            ManagerState::Running | ManagerState::Finishing => (leave::LeaveCause::Leave, true),
            ManagerState::Terminating | ManagerState::Gone => (leave::LeaveCause::Stop, true),
        };
        for pool in self.pools.keys().copied().collect::<Vec<_>>() {
            if requests_end || !self.is_for_orders(pool) {
                self.drain(pool, leave, step);
            }
        }
    }

    /// Whether this pool starts workers only when a router orders them, or is the router's pool.
    fn is_for_orders(&self, id: PoolId) -> bool {
        let Some(pool) = self.pools.get(&id) else {
            return false;
        };
        let serving = pool.serving.and_then(|serving| self.generations.get(&serving));
        pool.by_order || serving.is_some_and(|it| matches!(it.policy.pm, ProcessManager::Ordered { .. }))
    }

    pub(super) fn close_all(&mut self, step: &mut Step<'_>) {
        for (id, pool) in std::mem::take(&mut self.pools) {
            if !pool.closed {
                step.act(Action::ClosePool(id));
            }
        }
    }

    /// Handles a generation that could not start its workers. At the first start, a daemon that gives up exits if this
    /// is true of all pools. Later, or if any worker was started, or if an ondemand pool has had no request yet, the
    /// generation retries.
    pub(super) fn start_failed(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let asked = self.worker_counts(id).asked;
        let Some(starting) = &mut self.starting else {
            return;
        };
        if asked == 0 {
            starting.remove(&id);
        }
        if starting.is_empty() {
            self.starting = None;
            self.outcome = ExitOutcome::NoWorkerAtStart;
            self.stop(ManagerCause::Terminate, step);
        }
    }
}

//! The master's core: owns all pools, generations and workers, and turns events into actions.

use super::action::{Action, ExitOutcome, Fact, Notice};
use super::children::{Children, WorkerCounts, WorkerProgress};
use super::emergency::Emergency;
use super::event::{Event, GenerationId, PoolId, Row, SlotIndex, WorkerId};
use super::fork::DemandCause;
use super::generation::{Generation, GenerationState, SnapshotNumber};
use super::leave::LeaveCause;
use super::manager_state::{ManagerCause, ManagerState};
use super::pool::Pool;
use super::quota::Quota;
use super::refork;
use super::snapshot::View;
use super::timers::{Timer, Timers};
use super::trials::Trials;
use super::watchdog;
use crate::life;
use forkyard_base::indexed::Indexed;
use forkyard_base::tick::Tick;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Without pools at first; `Apply` adds them.
#[derive(Debug, Default)]
pub struct Manager {
    pub(super) state: ManagerState,
    pub(super) outcome: ExitOutcome,
    /// Generations that need workers at the first start and have not failed; `None`: the start is over, or some pool
    /// needs no worker.
    pub(super) starting: Option<BTreeSet<GenerationId>>,
    pub(super) control_timeout: Duration,
    pub(super) pools: BTreeMap<PoolId, Pool>,
    pub(super) generations: Indexed<GenerationId, Generation>,
    pub(super) children: Children,
    pub(super) quota: Quota,
    pub(super) trials: Trials,
    pub(super) timers: Timers,
    pub(super) emergency: Emergency,
    pub(super) touched: BTreeSet<GenerationId>,
    pub(super) applied: bool,
}

pub(super) struct Step<'a> {
    pub now: Tick,
    pub actions: &'a mut Vec<Action>,
}

impl Step<'_> {
    pub(super) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(super) fn note(&mut self, fact: Fact) {
        self.actions.push(Action::Note(fact));
    }

    pub(super) fn say(&mut self, notice: Notice) {
        self.actions.push(Action::Say(notice));
    }
}

/// The workers of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headcount {
    /// In the serving generation.
    pub serving: u32,
    /// In the next generation.
    pub coming: u32,
    /// Leaving, of any generation.
    pub leaving: u32,
}

impl Manager {
    /// Handles an event that happened at `now` and appends actions in order.
    pub fn handle(&mut self, event: Event, now: Tick, actions: &mut Vec<Action>) {
        let step = &mut Step { now, actions };
        match event {
            Event::Adopt(adopted) => self.adopt(adopted, step),
            Event::Apply(wanted) => self.apply(wanted, step),
            Event::SpawnRequest(ordered) => self.take_order(ordered, step),
            Event::Cancel(order, kill) => self.cancel(order, kill, step),
            Event::Disband(pool) => self.disband(pool, step),
            Event::Expel(pool) => self.expel(pool, step),
            Event::EndRequest(worker) => self.dismiss(worker, LeaveCause::Asked, step),
            Event::SourceReady(pool) => self.source_changed(pool, DemandCause::Ready, step),
            Event::ChildAccept(generation) => self.accepted(generation, step),
            Event::Snapshot(generation, rows, queued) => self.counted(generation, &rows, queued, step),
            Event::Forked(worker) => self.forked(worker, step),
            Event::ForkFailed(worker) => self.fork_failed(worker, step),
            Event::WorkerUp(worker) => self.up(worker, step),
            Event::WorkerExited(worker, exit, had_work) => self.exited(worker, exit, had_work, step),
            Event::Share { pool, percent } => self.share(pool, percent, step),
            Event::Chosen(generation, choice) => self.chosen(generation, choice, step),
            Event::PreloaderReady(generation) => {
                self.preloader_changed(generation, life::LifeCause::Up, None, step);
            }
            Event::PreloaderGone(generation, exit) => {
                self.preloader_changed(generation, life::LifeCause::Gone, Some(exit), step);
            }
            Event::PreloaderAgain(generation) => self.preloader_again(generation, step),
            Event::UnavailableResponderGone(pool) => self.unavailable_responder_gone(pool),
            Event::MoldCandidate(worker) => self.mold_candidate(worker),
            Event::NextMoldReady(generation) => {
                self.next_mold_changed(generation, life::LifeCause::Up, None, step);
            }
            Event::NextMoldGone(generation, exit) => {
                self.next_mold_changed(generation, life::LifeCause::Gone, Some(exit), step);
            }
            Event::Terminate => self.stop(ManagerCause::Terminate, step),
            Event::Drain => self.stop(ManagerCause::Drain, step),
            Event::Finish => self.stop(ManagerCause::Finish, step),
            Event::Deadline => self.fire(step),
        }
        self.settle(step);
        if cfg!(debug_assertions) {
            self.invariants();
        }
    }

    /// When the next `Event::Deadline` is due.
    pub fn next_deadline(&self) -> Option<Tick> {
        self.timers.next()
    }

    /// Returns a worker's generation until the worker is reaped.
    pub fn slot_of(&self, worker: WorkerId) -> Option<(PoolId, GenerationId, SlotIndex)> {
        let worker = self.children.worker(worker)?;
        let generation = self.generations.get(&worker.generation)?;
        Some((generation.pool, worker.generation, worker.slot))
    }

    /// Returns a generation's pool until the generation is dropped.
    pub fn pool_of(&self, generation: GenerationId) -> Option<PoolId> {
        self.generations
            .get(&generation)
            .map(|generation| generation.pool)
    }

    /// Returns a pool's serving generation.
    pub fn serving(&self, pool: PoolId) -> Option<GenerationId> {
        self.pools.get(&pool)?.serving
    }

    /// Counts a pool's workers.
    pub fn headcount(&self, pool: PoolId) -> Headcount {
        let mut count = Headcount::default();
        for (id, generation) in self.generations.of(&pool) {
            let counts = self.children.worker_counts(id);
            match generation.state {
                GenerationState::Measuring(_) | GenerationState::Warming(_) => count.coming += counts.kept,
                GenerationState::Serving | GenerationState::Superseded => count.serving += counts.kept,
                GenerationState::Leaving => {}
            }
            count.leaving += counts.all - counts.kept;
        }
        count
    }

    /// Counts all workers, including requested ones.
    pub fn workers(&self) -> usize {
        self.children.total()
    }

    pub(super) fn worker_counts(&self, generation: GenerationId) -> WorkerCounts {
        self.children.worker_counts(generation)
    }

    fn accepted(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let pool = generation.pool;
        self.watchdog_changed(id, watchdog::WatchdogCause::Accepted, None, step);
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.found_empty = 0;
        }
        self.source_changed(pool, DemandCause::Accepted, step);
        self.spare_changed(id, DemandCause::Accepted, step);
    }

    fn counted(&mut self, id: GenerationId, rows: &[Row], queued: Option<u32>, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        if generation.answered == generation.asked {
            return;
        }
        generation.answered.0 += 1;
        let number = generation.answered;
        self.doubt(id, number, rows, queued);
        let view = View::read(&mut self.children, id, rows, queued, step.now);
        self.end_hung(&view, step);
        self.end_overdue(id, &view, step);
        self.source_counted(id, number, &view, step);
        self.spare_counted(id, number, &view, step);
        self.trim(id, number, rows, step);
        self.shrink(id, number, &view, step);
        self.measured(id, number, &view, step);
        self.touched.insert(id);
    }

    fn forked(&mut self, id: WorkerId, step: &mut Step<'_>) {
        let Some((generation, order, going, is_up)) = self.children.change(id, |worker| {
            if worker.progress == WorkerProgress::Asked {
                worker.progress = if worker.early {
                    WorkerProgress::Up
                } else {
                    WorkerProgress::Forked
                };
            }
            worker.forked = step.now;
            let is_up = worker.progress == WorkerProgress::Up;
            (worker.generation, worker.going.when_forked(), worker.going, is_up)
        }) else {
            return;
        };
        if is_up {
            self.worker_started(generation, step);
        }
        self.starting = None;
        self.quota.said = false;
        self.timers.clear(Timer::Answer(generation));
        self.touched.insert(generation);
        self.act_on(id, going, order, step);
    }

    fn up(&mut self, id: WorkerId, step: &mut Step<'_>) {
        let Some((generation, is_up)) = self.children.change(id, |worker| {
            // It stays requested until its preloader answers.
            match worker.progress {
                WorkerProgress::Asked => worker.early = true,
                WorkerProgress::Forked | WorkerProgress::Up => worker.progress = WorkerProgress::Up,
            }
            (worker.generation, worker.progress == WorkerProgress::Up)
        }) else {
            return;
        };
        self.touched.insert(generation);
        if let Some(pool) = self
            .pool_of(generation)
            .and_then(|pool| self.pools.get_mut(&pool))
        {
            pool.said_none = false;
        }
        if is_up {
            self.worker_started(generation, step);
        }
    }

    fn fire(&mut self, step: &mut Step<'_>) {
        while let Some(timer) = self.timers.take_due(step.now) {
            match timer {
                Timer::Accept(pool) => self.source_changed(pool, DemandCause::TimedOut, step),
                Timer::Grant(generation) => self.end_grant(generation),
                Timer::Backoff(generation) => self.freed(generation, step),
                Timer::Shrink(generation) => self.look_for_surplus(generation, step),
                Timer::Expiry(generation) => {
                    self.watchdog_changed(generation, watchdog::WatchdogCause::Due, None, step);
                }
                Timer::Preloader(generation) => self.preloader_due(generation, step),
                Timer::Answer(generation) => {
                    self.preloader_changed(generation, life::LifeCause::Late, None, step);
                }
                Timer::NextMold(generation) => {
                    self.next_mold_changed(generation, life::LifeCause::Late, None, step);
                }
                Timer::Rest(generation) => {
                    self.refork_changed(generation, refork::ReforkCause::Rested, None, step);
                }
                Timer::Worker(worker) => self.worker_due(worker, step),
                Timer::Killed => self.leave_behind(step),
            }
        }
    }

    /// Takes a snapshot. First publishes what workers have to report: a worker that takes up work later reports it, and
    /// one that did so before isn't idle in the snapshot.
    pub(super) fn take_snapshot(&mut self, id: GenerationId, step: &mut Step<'_>) -> SnapshotNumber {
        self.publish_wake_on_accept(id, step);
        let Some(generation) = self.generations.get_mut(&id) else {
            return SnapshotNumber::default();
        };
        if step.actions.last() != Some(&Action::TakeSnapshot(id)) {
            generation.asked.0 += 1;
            step.act(Action::TakeSnapshot(id));
        }
        generation.asked
    }

    pub(super) fn publish_wake_on_accept(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let asks = self
            .pools
            .get(&generation.pool)
            .is_some_and(|pool| pool.source.wants_telling());
        let notify = generation.wants_told(asks);
        if notify != generation.notify {
            generation.notify = notify;
            step.act(Action::SetWakeOnAccept(id, notify));
        }
    }

    fn settle(&mut self, step: &mut Step<'_>) {
        loop {
            while let Some(generation) = self.touched.pop_first() {
                self.settle_generation(generation, step);
            }
            self.grant_forks(step);
            if self.touched.is_empty() {
                break;
            }
        }
        self.tell_waits(step);
        self.await_killed(step);
        if self.generations.is_empty() {
            let before = self.state;
            self.state = before.after(ManagerCause::Empty);
            if before != self.state {
                self.close_all(step);
                step.act(Action::Exit(self.outcome));
            }
        }
    }

    fn settle_generation(&mut self, id: GenerationId, step: &mut Step<'_>) {
        self.update_unavailable_responder(id, step);
        if !self.generations.contains_key(&id) || self.drop_if_gone(id, step) {
            return;
        }
        self.let_preloader_go(id, step);
        self.tell_shares(id, step);
        self.take_over_if_warm(id, step);
        self.lift_ceiling(id, step);
        self.refork_if_due(id, step);
        self.watch_for_surplus(id, step);
        self.wind_preloader_clock(id, step);
        self.publish_wake_on_accept(id, step);
        self.close_if_unused(id, step);
    }
}

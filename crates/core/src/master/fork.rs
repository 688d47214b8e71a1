//! Forks of workers by `fork_workers`. `policy` decides how many; `dynamic`, `ondemand`, `reload`, `reforking` and
//! `spawn_requests` when. The executor performs `Action::Fork` (`crates/daemon/src/workers/fork.rs`).

use super::action::{Action, Fact, Notice};
use super::choice;
use super::event::GenerationId;
use super::generation::GenerationState;
use super::manager::{Manager, Step};
use super::policy::{self, Load};
use super::timers::Timer;
use crate::config::ProcessManager;
use crate::life;
use std::time::Duration;

/// How long capacity is reserved for a fork grant. It is used at once or never: a source with work is ready as soon as
/// it is watched.
const GRANT: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    /// All slots are taken, or the autopilot allows no more. Ends when a worker exits, or with another choice.
    Full,
    /// `process.max` is reached. Ends with a fork grant.
    ProcessMax,
    /// Starts failed. Ends with the timer.
    Backoff,
    /// The preloader is not ready.
    Preloader,
    /// The next generation is on trial or shares the requests (`Generation::ceiling`).
    Ceiling,
}

/// Why more workers may be wanted, or fewer: for [`Spare`](super::dynamic::Spare) and
/// [`Source`](super::ondemand::Source).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DemandCause {
    /// The generation, or an ondemand one, starts to serve.
    Begin,
    /// It stops serving.
    End,
    /// The watched source of an ondemand pool is ready.
    Ready,
    /// A worker took work or is up.
    Accepted,
    /// A worker exited or could not be forked.
    Gone,
    /// Other generations take work now, so the expected worker may leave.
    Changed,
    /// The obstacle is gone.
    Freed,
    /// The snapshot shows no waiting work.
    None,
    /// By the snapshot enough workers are idle or starting.
    Enough,
    /// By the snapshot too few are idle, and no more can be forked.
    Blocked(Block),
    /// No worker has reported for a while.
    TimedOut,
}

impl Manager {
    pub(super) fn freed(&mut self, id: GenerationId, step: &mut Step<'_>) {
        self.demand_changed(id, DemandCause::Freed, step);
    }

    pub(super) fn worker_gone(&mut self, id: GenerationId, step: &mut Step<'_>) {
        self.demand_changed(id, DemandCause::Gone, step);
    }

    fn demand_changed(&mut self, id: GenerationId, cause: DemandCause, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let pool = generation.pool;
        let is_serving = generation.state == GenerationState::Serving;
        match (generation.state, generation.policy.pm) {
            (GenerationState::Serving, ProcessManager::Static { .. }) => self.fill(id, step),
            (GenerationState::Serving, ProcessManager::Dynamic { .. }) => self.spare_changed(id, cause, step),
            (GenerationState::Serving, ProcessManager::Ondemand { .. }) => {
                self.source_changed(pool, cause, step)
            }
            (GenerationState::Serving, ProcessManager::Ordered { .. }) => self.fork_ordered(id, step),
            (GenerationState::Warming(_), _) => {
                // A warming generation also takes work: the serving one may rely on its workers.
                self.source_changed(pool, cause, step);
                self.warm_up(id, step);
            }
            // With a share it has workers.
            (GenerationState::Measuring(_), _) => self.source_changed(pool, cause, step),
            (GenerationState::Superseded | GenerationState::Leaving, _) => {}
        }
        if is_serving {
            self.keep_one(id, step);
        }
        self.touched.insert(id);
    }

    pub(super) fn fill(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let load = Load {
            kept: self.worker_counts(id).kept,
            ..Load::default()
        };
        let wanted = policy::growth(generation.policy.manager(), load);
        self.fork_workers(id, wanted, step);
    }

    /// Forks up to `wanted` workers. Returns how many, and the obstacle, whose end calls `freed` or `worker_gone`.
    pub(super) fn fork_workers(
        &mut self,
        id: GenerationId,
        wanted: u32,
        step: &mut Step<'_>,
    ) -> (u32, Option<Block>) {
        let (made, block) = self.fork_some(id, wanted, step);
        self.end_grant(id);
        if block == Some(Block::Full) {
            self.tell_full(id, step);
        } else {
            self.tell_room(id, step);
        }
        if block == Some(Block::ProcessMax) {
            self.wait_for_grant(id, step);
        }
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.block = block;
        }
        self.touched.insert(id);
        (made, block)
    }

    fn fork_some(&mut self, id: GenerationId, wanted: u32, step: &mut Step<'_>) -> (u32, Option<Block>) {
        let Some(generation) = self.generations.get(&id) else {
            return (0, None);
        };
        if wanted == 0 {
            return (0, None);
        }
        let counts = self.worker_counts(id);
        let kept = counts.kept;
        let chosen = choice::room(generation.policy.choice, counts.all);
        if chosen == Some(0) {
            return (0, Some(Block::Full));
        }
        let room = generation.ceiling.map(|ceiling| ceiling.saturating_sub(kept));
        if room == Some(0) {
            return (0, Some(Block::Ceiling));
        }
        if let Some(wait) = generation.held_back(step.now) {
            self.timers.set(Timer::Backoff(id), step.now, wait);
            return (0, Some(Block::Backoff));
        }
        if !self.quota.admits(id, 0, self.children.total()) {
            // A preloader would be useless now.
            return (0, Some(Block::ProcessMax));
        }
        if !generation.can_fork() {
            self.preloader_changed(id, life::LifeCause::Needed, None, step);
            return (0, Some(Block::Preloader));
        }
        for made in 0..wanted {
            let Some(generation) = self.generations.get_mut(&id) else {
                return (made, None);
            };
            if room == Some(made) {
                return (made, Some(Block::Ceiling));
            }
            if !self.quota.admits(id, made, self.children.total()) {
                return (made, Some(Block::ProcessMax));
            }
            if chosen == Some(made) {
                return (made, Some(Block::Full));
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

    /// Logs `max_children` if it limits growth. A static pool just waits for leaving workers.
    fn tell_full(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let by_demand = match generation.policy.pm {
            ProcessManager::Static { .. } | ProcessManager::Ordered { .. } => false,
            ProcessManager::Dynamic { .. } | ProcessManager::Ondemand { .. } => {
                generation.state == GenerationState::Serving
            }
        };
        if by_demand && !generation.said_full {
            generation.said_full = true;
            generation.figures.max_children_reached += 1;
            step.act(Action::Publish(id, generation.figures));
            step.say(Notice::MaxChildrenReached(
                generation.pool,
                generation.policy.manager().max_children(),
            ));
        }
    }

    pub(super) fn tell_room(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        if std::mem::take(&mut generation.said_full) {
            step.say(Notice::MaxChildrenOver(generation.pool));
        }
    }

    fn wait_for_grant(&mut self, id: GenerationId, step: &mut Step<'_>) {
        if let Some(max) = self.quota.wait(id) {
            step.say(Notice::ProcessMaxReached(max));
        }
        let none_left = self.worker_counts(id).all == 0;
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let serves = generation.state == GenerationState::Serving;
        let Some(pool) = self.pools.get_mut(&generation.pool) else {
            return;
        };
        if serves && none_left && !pool.said_none && !pool.by_order {
            pool.said_none = true;
            step.say(Notice::NoWorkerPossible(generation.pool, None));
        }
    }

    pub(super) fn grant_forks(&mut self, step: &mut Step<'_>) {
        for _ in 0..self.quota.waiting() {
            let Some(id) = self.quota.grant_fork(self.children.total()) else {
                break;
            };
            self.timers.set(Timer::Grant(id), step.now, GRANT);
            self.freed(id, step);
        }
    }

    /// Reports generations without room for their first worker, unless a leaving worker makes room.
    pub(super) fn tell_waits(&mut self, step: &mut Step<'_>) {
        if self.quota.waiting() == 0 || self.children.is_one_leaving() {
            return;
        }
        for id in self.quota.line() {
            let has_none = self.children.worker_counts(id).all == 0;
            let Some(generation) = self.generations.get_mut(&id).filter(|_| has_none) else {
                continue;
            };
            let is_new = generation.state == GenerationState::Serving && !generation.told_up;
            if is_new && !std::mem::replace(&mut generation.told_waits, true) {
                step.note(Fact::Waits(id));
            }
        }
    }

    pub(super) fn end_grant(&mut self, id: GenerationId) {
        if self.quota.has_grant(id) {
            self.quota.end_grant(id);
            self.timers.clear(Timer::Grant(id));
        }
    }
}

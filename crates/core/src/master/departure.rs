//! Exits of workers. After each `exited` has the pool recount (`worker_gone` in `fork.rs`), possibly after a delay
//! (`budget.rs`, `crates/core/src/life/backoff.rs`).

use super::action::{Action, Fact, Force, Notice};
use super::children::WorkerProgress;
use super::event::{Ended, GenerationId, WorkerId};
use super::leave::{Going, LeaveAction, LeaveCause, Why};
use super::manager::{Manager, Step};
use super::manager_state::ManagerState;
use super::timers::Timer;
use crate::config::ProcessManager;
use crate::life::{Life, backoff};
use std::time::Duration;

/// From SIGTERM to SIGKILL for processes with nothing to finish; for preloaders and programs also from the request to
/// SIGTERM.
pub(super) const KILL_AFTER: Duration = Duration::from_secs(1);

/// How long the daemon's end waits for killed processes.
pub(super) const KILLED_LIMIT: Duration = Duration::from_secs(5);

/// The interval of checks on a surplus worker with an order to exit.
pub(super) const LOOK_AFTER: Duration = Duration::from_secs(10);

impl Manager {
    pub(super) fn dismiss(&mut self, id: WorkerId, cause: LeaveCause, step: &mut Step<'_>) {
        let changed = self.children.change(id, |worker| {
            let (next, action) = worker.going.after(cause);
            let changed = next != worker.going;
            worker.going = next;
            (changed, worker.progress, worker.generation, next, action)
        });
        let Some((true, progress, generation, next, action)) = changed else {
            return;
        };
        self.touched.insert(generation);
        // A worker that does not exist yet gets the order after its fork.
        if progress != WorkerProgress::Asked {
            self.act_on(id, next, action, step);
        }
    }

    pub(super) fn act_on(&mut self, id: WorkerId, going: Going, action: LeaveAction, step: &mut Step<'_>) {
        match action {
            LeaveAction::Nothing => {}
            LeaveAction::Retire => step.act(Action::Retire(id)),
            LeaveAction::RespondTimeout => {
                self.tell_kill(id, going, Force::Terminate, step);
                step.act(Action::RespondTimeout(id));
            }
            LeaveAction::Kill(force) => {
                self.tell_kill(id, going, force, step);
                step.act(Action::Kill(id, force));
            }
        }
        let timer = Timer::Worker(id);
        match going {
            Going::Kept => {}
            Going::Surplus => self.timers.set(timer, step.now, LOOK_AFTER),
            Going::Leaving => match self.time_to_leave(id) {
                Duration::ZERO => self.dismiss(id, LeaveCause::Due, step),
                limit => self.timers.set(timer, step.now, limit),
            },
            Going::Terminated(why) => {
                let limit = match self.children.worker(id).map(|worker| worker.generation) {
                    Some(generation) if !matches!(why, Why::Expired | Why::Asked) => {
                        self.time_to_stop(generation)
                    }
                    _ => KILL_AFTER,
                };
                self.timers.set(timer, step.now, limit);
            }
            Going::Killed(_) => self.timers.clear(timer),
        }
    }

    /// How long a leaving worker may take; longer with a possible job, unless the daemon exits.
    pub(super) fn time_to_leave(&self, id: WorkerId) -> Duration {
        let worker = self.children.worker(id);
        let generation = worker.and_then(|worker| self.generations.get(&worker.generation));
        let drain = generation.and_then(|generation| generation.policy.drain_timeout);
        match drain.filter(|_| self.state == ManagerState::Running) {
            Some(drain) => self.control_timeout.max(drain),
            None => self.control_timeout,
        }
    }

    /// The time from SIGTERM to SIGKILL: `stop_timeout`, unless the daemon stops at once.
    pub(super) fn time_to_stop(&self, id: GenerationId) -> Duration {
        let policy = self.generations.get(&id).map(|generation| &generation.policy);
        match policy.filter(|_| self.state != ManagerState::Terminating) {
            Some(policy) => policy.stop_timeout,
            None => KILL_AFTER,
        }
    }

    /// Shortens the deadlines of processes that were sent SIGTERM before the daemon's immediate stop.
    fn hurry_stopped(&mut self, step: &Step<'_>) {
        let ids: Vec<GenerationId> = self.generations.iter().map(|(id, _)| *id).collect();
        for id in ids {
            for worker in self.children.of(id) {
                let going = self.children.worker(worker).map(|worker| worker.going);
                if matches!(going, Some(Going::Terminated(_))) {
                    self.timers.set_by(Timer::Worker(worker), step.now, KILL_AFTER);
                }
            }
            let preloader = self.generations.get(&id).map(|generation| generation.preloader);
            if preloader == Some(Life::Stopping(Force::Terminate)) {
                self.timers.set_by(Timer::Preloader(id), step.now, KILL_AFTER);
            }
        }
    }

    pub(super) fn hurry(&mut self, step: &Step<'_>) {
        if self.state == ManagerState::Terminating {
            return self.hurry_stopped(step);
        }
        let longer = self.generations.iter();
        let longer = longer.filter(|(_, generation)| generation.policy.drain_timeout.is_some());
        let ids: Vec<WorkerId> = longer.flat_map(|(id, _)| self.children.of(*id)).collect();
        for id in ids {
            let is_leaving = (self.children.worker(id)).is_some_and(|worker| worker.going == Going::Leaving);
            if is_leaving {
                self.timers
                    .set_by(Timer::Worker(id), step.now, self.control_timeout);
            }
        }
    }

    /// Waits for killed processes, which may hang in the kernel on a tenant's resource.
    pub(super) fn await_killed(&mut self, step: &Step<'_>) {
        let ends = matches!(self.state, ManagerState::Finishing | ManagerState::Terminating);
        if !ends || self.generations.is_empty() || !self.all_are_killed() {
            self.timers.clear(Timer::Killed);
        } else if !self.timers.is_set(Timer::Killed) {
            self.timers.set(Timer::Killed, step.now, KILLED_LIMIT);
        }
    }

    fn all_are_killed(&self) -> bool {
        let is_killed =
            |life: Life| matches!(life, Life::Absent | Life::Failing | Life::Stopping(Force::Kill));
        self.generations.iter().all(|(id, generation)| {
            let workers = self.children.of(*id);
            let mut workers = workers.iter().filter_map(|worker| self.children.worker(*worker));
            // Workers requested from a killed preloader are not forked any more.
            is_killed(generation.preloader)
                && is_killed(generation.next_mold)
                && workers
                    .all(|it| it.progress == WorkerProgress::Asked || matches!(it.going, Going::Killed(_)))
        })
    }

    pub(super) fn leave_behind(&mut self, step: &mut Step<'_>) {
        for id in self.generations.iter().map(|(id, _)| *id).collect::<Vec<_>>() {
            for worker in self.children.of(id) {
                let left = self.children.remove(worker);
                self.timers.clear(Timer::Worker(worker));
                if left.is_some_and(|it| it.progress != WorkerProgress::Asked) {
                    step.say(Notice::WorkerStays(worker));
                }
            }
            let Some(generation) = self.generations.get_mut(&id) else {
                continue;
            };
            for life in [&mut generation.preloader, &mut generation.next_mold] {
                if std::mem::replace(life, Life::Absent) != Life::Absent {
                    step.say(Notice::PreloaderStays(id));
                }
            }
            self.touched.insert(id);
        }
    }

    fn tell_kill(&mut self, id: WorkerId, going: Going, force: Force, step: &mut Step<'_>) {
        let ran = self
            .children
            .worker(id)
            .map(|worker| worker.state_age(step.now))
            .unwrap_or_default();
        match going {
            Going::Terminated(Why::Expired) | Going::Killed(Why::Expired) => {
                step.say(Notice::RequestTimedOut(id, ran, force));
            }
            Going::Terminated(Why::Asked) | Going::Killed(Why::Asked) => {
                step.say(Notice::RequestEnded(id, force));
            }
            // Its time limit is zero, so this is no overrun.
            Going::Terminated(Why::Stayed) if self.control_timeout.is_zero() => {}
            Going::Terminated(Why::Stayed) | Going::Killed(Why::Stayed | Why::Stop) => {
                step.say(Notice::RetireTimedOut(id, force));
            }
            Going::Killed(Why::Ordered) | Going::Terminated(Why::Ordered | Why::Stop) => {}
            Going::Kept | Going::Surplus | Going::Leaving => {}
        }
    }

    pub(super) fn worker_due(&mut self, id: WorkerId, step: &mut Step<'_>) {
        let Some(worker) = self.children.worker(id) else {
            return;
        };
        let (going, generation) = (worker.going, worker.generation);
        match going {
            Going::Surplus => {
                self.children.change(id, |worker| worker.overdue = true);
                self.timers.set(Timer::Worker(id), step.now, LOOK_AFTER);
                self.take_snapshot(generation, step);
            }
            Going::Leaving | Going::Terminated(_) => self.dismiss(id, LeaveCause::Due, step),
            Going::Kept | Going::Killed(_) => {}
        }
    }

    pub(super) fn fork_failed(&mut self, id: WorkerId, step: &mut Step<'_>) {
        let Some(worker) = self.children.remove(id) else {
            return;
        };
        let generation = worker.generation;
        self.timers.clear(Timer::Answer(generation));
        // It may have been up before its preloader reported the fork.
        self.timers.clear(Timer::Worker(id));
        self.give_back(generation, worker.slot);
        if let Some(order) = worker.order {
            self.unfilled(generation, order, worker.going == Going::Kept, step);
        }
        if worker.going == Going::Kept {
            self.failed(generation, backoff::LONGEST, step);
        }
        self.start_failed(generation, step);
        self.worker_gone(generation, step);
    }

    /// A worker was reaped: told to exit, by itself (`max_requests`, `memory_limit`), or crashed.
    pub(super) fn exited(&mut self, id: WorkerId, exit: Ended, had_work: bool, step: &mut Step<'_>) {
        let Some(worker) = self.children.remove(id) else {
            return;
        };
        let id_of_generation = worker.generation;
        self.timers.clear(Timer::Worker(id));
        self.give_back(id_of_generation, worker.slot);
        let stayed = worker.going == Going::Kept;
        let expired = matches!(
            worker.going,
            Going::Terminated(Why::Expired) | Going::Killed(Why::Expired)
        );
        let was_told = !(stayed || expired);
        step.note(Fact::Gone(id));
        step.say(Notice::WorkerGone(id, exit, was_told));
        if let Some(generation) = self.generations.get_mut(&id_of_generation) {
            if (stayed || expired || worker.replaced)
                && matches!(generation.policy.pm, ProcessManager::Dynamic { .. })
            {
                generation.to_replace = generation.to_replace.saturating_add(1);
            }
            if worker.progress == WorkerProgress::Up {
                generation.backoff.lives(worker.forked);
            }
        }
        let young = step.now.since(worker.forked) < backoff::LONGEST_ONCE_UP;
        let has_failed = stayed && !matches!(exit, Ended::Code(0) | Ended::Unknown);
        match worker.progress {
            _ if has_failed && had_work => self.crashed_at_work(id_of_generation, step),
            // A worker that had work was up, even if its exit was reported first.
            WorkerProgress::Asked | WorkerProgress::Forked if stayed && !had_work => {
                self.worker_start_failed(id_of_generation, exit);
                self.failed(id_of_generation, backoff::LONGEST, step);
            }
            WorkerProgress::Up if has_failed && young => {
                self.failed(id_of_generation, backoff::LONGEST_ONCE_UP, step);
            }
            WorkerProgress::Asked | WorkerProgress::Forked | WorkerProgress::Up => {}
        }
        if exit != Ended::Code(0) {
            self.pass_on_wake_up(id_of_generation, step);
        }
        // Generations that wait for capacity come before a replacement.
        self.grant_forks(step);
        self.worker_gone(id_of_generation, step);
        if exit.is_crash() {
            self.crashed(step);
        }
    }

    fn crashed_at_work(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        if let Some(wait) = generation.budget.spend(step.now) {
            step.say(Notice::CrashingFast(
                generation.pool,
                generation.budget.per_second,
                wait,
            ));
        }
    }

    /// Wakes a sibling: the dead worker may have taken the kernel's wake-up with it.
    fn pass_on_wake_up(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(pool) = self.generations.get(&id).map(|generation| generation.pool) else {
            return;
        };
        let takers = self.pools.get(&pool).into_iter().flat_map(|pool| pool.takers());
        if takers.into_iter().any(|taker| self.worker_counts(taker).kept > 0) {
            step.act(Action::Wake(pool));
        }
    }

    fn crashed(&mut self, step: &mut Step<'_>) {
        let is_changing =
            self.state != ManagerState::Running || self.pools.values().any(|pool| pool.coming.is_some());
        if let Some(rule) = self.emergency.crashed(step.now, is_changing) {
            step.say(Notice::EmergencyRestart(rule));
            step.act(Action::Renew);
        }
    }

    fn give_back(&mut self, id: GenerationId, slot: super::event::SlotIndex) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.slots.give_back(slot);
        }
    }

    pub(super) fn failed(&mut self, id: GenerationId, longest: Duration, step: &mut Step<'_>) {
        let Some(delay) = self.back_off(id, longest, step) else {
            return;
        };
        let none_left = self.worker_counts(id).kept == 0;
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let Some(pool) = self.pools.get_mut(&generation.pool) else {
            return;
        };
        step.note(Fact::Fails(id));
        if none_left && pool.serving == Some(id) && !pool.said_none && !pool.by_order {
            pool.said_none = true;
            step.say(Notice::NoWorkerPossible(generation.pool, Some(delay)));
        } else {
            step.say(Notice::BackingOff(generation.pool, delay));
        }
        self.trial_over(id, step);
    }

    pub(super) fn back_off(
        &mut self,
        id: GenerationId,
        longest: Duration,
        step: &mut Step<'_>,
    ) -> Option<Duration> {
        let generation = self.generations.get_mut(&id)?;
        if generation.backoff.wait(step.now).is_none() {
            for worker in self
                .children
                .of(id)
                .iter()
                .filter_map(|id| self.children.worker(*id))
            {
                if worker.progress == WorkerProgress::Up {
                    generation.backoff.lives(worker.forked);
                }
            }
        }
        generation.backoff.fail(step.now, longest)
    }
}

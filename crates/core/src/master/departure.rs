//! How workers go: told to, by themselves, or before they were there.

use super::action::{Action, Fact, Force, Notice};
use super::children::Life;
use super::event::{Exit, GenerationId, WorkerId};
use super::leave::{Cause, Going, Order, Why};
use super::manager::{Manager, Step};
use super::phase::Phase;
use super::timers::Timer;
use crate::config::ProcessManager;
use crate::life::backoff;
use std::time::Duration;

/// From SIGTERM to SIGKILL.
pub(super) const KILL_AFTER: Duration = Duration::from_secs(1);

/// How often a surplus worker that was told to go is looked at.
pub(super) const LOOK_AFTER: Duration = Duration::from_secs(10);

impl Manager {
    /// Makes a worker go, or go faster.
    pub(super) fn dismiss(&mut self, id: WorkerId, cause: Cause, step: &mut Step<'_>) {
        let changed = self.children.change(id, |worker| {
            let (next, order) = worker.going.after(cause);
            let changed = next != worker.going;
            worker.going = next;
            (changed, worker.life, worker.generation, next, order)
        });
        let Some((true, life, generation, next, order)) = changed else {
            return;
        };
        self.touched.insert(generation);
        // One that does not exist yet is told when it does.
        if life != Life::Asked {
            self.order(id, next, order, step);
        }
    }

    /// Gives a worker that exists the order, and the time to follow it.
    pub(super) fn order(&mut self, id: WorkerId, going: Going, order: Order, step: &mut Step<'_>) {
        match order {
            Order::Nothing => {}
            Order::Retire => step.act(Action::Retire(id)),
            Order::TimeUp => {
                self.tell_kill(id, going, Force::Terminate, step);
                step.act(Action::TimeUp(id));
            }
            Order::Kill(force) => {
                self.tell_kill(id, going, force, step);
                step.act(Action::Kill(id, force));
            }
        }
        let timer = Timer::Worker(id);
        match going {
            Going::Staying => {}
            Going::Surplus => self.timers.set(timer, step.now, LOOK_AFTER),
            Going::Leaving if self.control_timeout.is_zero() => self.dismiss(id, Cause::Due, step),
            Going::Leaving => self.timers.set(timer, step.now, self.control_timeout),
            Going::Terminated(_) => self.timers.set(timer, step.now, KILL_AFTER),
            Going::Killed(_) => self.timers.clear(timer),
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
            // It was given no time that it could have overrun.
            Going::Terminated(Why::Stayed) if self.control_timeout.is_zero() => {}
            Going::Terminated(Why::Stayed) | Going::Killed(Why::Stayed | Why::Stop) => {
                step.say(Notice::RetireTimedOut(id, force));
            }
            Going::Killed(Why::Ordered) | Going::Terminated(Why::Ordered | Why::Stop) => {}
            Going::Staying | Going::Surplus | Going::Leaving => {}
        }
    }

    /// The time that a worker on its way out was given is over.
    pub(super) fn worker_due(&mut self, id: WorkerId, step: &mut Step<'_>) {
        let Some(worker) = self.children.worker(id) else {
            return;
        };
        let (going, generation) = (worker.going, worker.generation);
        match going {
            Going::Surplus => {
                self.children.change(id, |worker| worker.overdue = true);
                self.timers.set(Timer::Worker(id), step.now, LOOK_AFTER);
                self.take_census(generation, step);
            }
            Going::Leaving | Going::Terminated(_) => self.dismiss(id, Cause::Due, step),
            Going::Staying | Going::Killed(_) => {}
        }
    }

    pub(super) fn fork_failed(&mut self, id: WorkerId, step: &mut Step<'_>) {
        let Some(worker) = self.children.remove(id) else {
            return;
        };
        let generation = worker.generation;
        self.timers.clear(Timer::Answer(generation));
        // It may have said that it was up before its preloader, which is gone, could say that it was made.
        self.timers.clear(Timer::Worker(id));
        self.give_back(generation, worker.slot);
        if let Some(order) = worker.order {
            self.unfilled(generation, order, worker.going == Going::Staying, step);
        }
        if worker.going == Going::Staying {
            self.failed(generation, backoff::LONGEST, step);
        }
        self.start_failed(generation, step);
        self.worker_gone(generation, step);
    }

    pub(super) fn exited(&mut self, id: WorkerId, exit: Exit, had_work: bool, step: &mut Step<'_>) {
        let Some(worker) = self.children.remove(id) else {
            return;
        };
        let id_of_generation = worker.generation;
        self.timers.clear(Timer::Worker(id));
        self.give_back(id_of_generation, worker.slot);
        let stayed = worker.going == Going::Staying;
        let expired = matches!(
            worker.going,
            Going::Terminated(Why::Expired) | Going::Killed(Why::Expired)
        );
        let is_expected = exit == Exit::Code(0) || !(stayed || expired);
        step.note(Fact::Gone(id));
        step.say(Notice::WorkerGone(id, exit, is_expected));
        if let Some(generation) = self.generations.get_mut(&id_of_generation) {
            if (stayed || expired || worker.replaced)
                && matches!(generation.policy.pm, ProcessManager::Dynamic { .. })
            {
                generation.owed = generation.owed.saturating_add(1);
            }
            if worker.life == Life::Up {
                generation.backoff.lives(worker.forked, step.now);
            }
        }
        let young = step.now.since(worker.forked) < backoff::WELL_AFTER;
        let has_failed = stayed && !matches!(exit, Exit::Code(0) | Exit::Unknown);
        match worker.life {
            _ if has_failed && had_work => self.crashed_at_work(id_of_generation, step),
            Life::Asked | Life::Born if stayed => self.failed(id_of_generation, backoff::LONGEST, step),
            Life::Up if has_failed && young => {
                self.failed(id_of_generation, backoff::LONGEST_ONCE_UP, step);
            }
            Life::Asked | Life::Born | Life::Up => {}
        }
        if exit != Exit::Code(0) {
            self.pass_on_wake_up(id_of_generation, step);
        }
        // Those who have waited for capacity come before a replacement.
        self.give_turns(step);
        self.worker_gone(id_of_generation, step);
        if exit.is_crash() {
            self.crashed(step);
        }
    }

    /// A worker went down with its request: the next is made at once, within the budget.
    fn crashed_at_work(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        if let Some(wait) = generation.budget.spend(step.now) {
            step.say(Notice::CrashingFast(
                generation.pool,
                generation.budget.per_second(),
                wait,
            ));
        }
    }

    /// A worker did not leave in order: a wake-up for work may have gone with it, and only a sibling that waits, if there
    /// is one, is sure to look. A replacement would, too, but there may be none for a while.
    fn pass_on_wake_up(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(pool) = self.generations.get(&id).map(|generation| generation.pool) else {
            return;
        };
        let takers = self.pools.get(&pool).into_iter().flat_map(|pool| pool.takers());
        if takers.into_iter().any(|taker| self.crew(taker).staying > 0) {
            step.act(Action::Nudge(pool));
        }
    }

    fn crashed(&mut self, step: &mut Step<'_>) {
        let is_changing =
            self.phase != Phase::Running || self.pools.values().any(|pool| pool.coming.is_some());
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

    /// A worker could not be made, or did not live. The delay until the next try, if this begins one.
    pub(super) fn failed(&mut self, id: GenerationId, longest: Duration, step: &mut Step<'_>) {
        let Some(delay) = self.back_off(id, longest, step) else {
            return;
        };
        let none_left = self.crew(id).staying == 0;
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
                if worker.life == Life::Up {
                    generation.backoff.lives(worker.forked, step.now);
                }
            }
        }
        generation.backoff.fail(step.now, longest)
    }
}

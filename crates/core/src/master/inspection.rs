//! What is done about workers that a census shows: requests that are slow or run too long, workers that are idle for too long, and
//! workers that should have gone.

use super::action::{Action, Notice};
use super::census::View;
use super::children::Slow;
use super::event::{GenerationId, WorkerId};
use super::generation::{CensusNumber, Stage};
use super::leave::Cause;
use super::manager::{Manager, Step};
use super::overdue::Limits;
use super::policy;
use super::source::Source;
use super::timers::Timer;
use super::watchdog;
use std::time::Duration;

/// A pool in which work waits is not the moment to retire workers: look again after this long.
const NOT_NOW: Duration = Duration::from_secs(1);

impl Manager {
    /// Has slow requests written down, ends those that ran too long, and workers that say they are idle and do not go.
    pub(super) fn inspect(&mut self, id: GenerationId, view: &View, step: &mut Step<'_>) {
        for worker in &view.lingering {
            if self.children.worker(*worker).is_some_and(|worker| worker.overdue) {
                self.dismiss(*worker, Cause::Hung, step);
            }
        }
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let limits = Limits::of(&generation.policy);
        if limits.soonest().is_none() {
            return;
        }
        for request in &view.running {
            let verdict = limits.judge(request, step.now);
            if verdict.is_slow {
                self.found_slow(id, request.worker, step);
            }
            if verdict.is_expired {
                self.dismiss(request.worker, Cause::Expired, step);
            }
        }
        let is_settled = view
            .running
            .iter()
            .all(|request| limits.is_settled(request, step.now));
        if view.about_to_run.is_empty() && is_settled {
            self.watchdog_changed(id, watchdog::Cause::Quiet, None, step);
        } else {
            self.watchdog_changed(id, watchdog::Cause::Busy, Some(view), step);
        }
    }

    /// A request is slow: once.
    fn found_slow(&mut self, id: GenerationId, worker: WorkerId, step: &mut Step<'_>) {
        let age = self.children.change(worker, |worker| {
            worker.slow = worker.seen.map(|seen| Slow {
                since: seen.since,
                found: step.now,
            });
            worker.state_age(step.now)
        });
        step.say(Notice::RequestSlow(worker, age.unwrap_or_default()));
        step.act(Action::Trace(worker));
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.figures.slow_requests += 1;
            step.act(Action::Publish(id, generation.figures));
        }
    }

    pub(super) fn watchdog_changed(
        &mut self,
        id: GenerationId,
        cause: watchdog::Cause,
        view: Option<&View>,
        step: &mut Step<'_>,
    ) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let limits = Limits::of(&generation.policy);
        let Some(soonest) = limits.soonest() else {
            return;
        };
        let (next, order) = generation.watchdog.after(cause);
        generation.watchdog = next;
        match order {
            watchdog::Order::Nothing => {}
            watchdog::Order::Time => self.timers.set_by(Timer::Expiry(id), step.now, soonest),
            watchdog::Order::TimeEarliest => {
                // Not later than for a request that begins now and of which nobody tells.
                let next = view.and_then(|view| limits.next_look(view, step.now));
                let next = next.map_or(soonest, |next| next.min(soonest));
                self.timers.set(Timer::Expiry(id), step.now, next);
            }
            watchdog::Order::Look => {
                self.take_census(id, step);
            }
        }
        self.publish_notify(id, step);
    }

    /// Sets the timer that looks for surplus workers, as long as there can be any.
    pub(super) fn watch_for_surplus(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let timer = Timer::Shrink(id);
        let look = match generation.stage {
            Stage::Serving => policy::shrinks(generation.policy.pm, self.crew(id).staying),
            Stage::Measuring(_) | Stage::Warming(_) | Stage::Superseded | Stage::Leaving => None,
        };
        match look {
            None => self.timers.clear(timer),
            Some(_) if self.timers.is_set(timer) || generation.shrink_on.is_some() => {}
            Some(after) => self.timers.set(timer, step.now, after),
        }
    }

    pub(super) fn look_for_surplus(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let number = self.take_census(id, step);
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.shrink_on = Some(number);
        }
    }

    /// Retires workers that have been idle for too long, on the census that was asked for that.
    pub(super) fn shrink(
        &mut self,
        id: GenerationId,
        number: CensusNumber,
        view: &View,
        step: &mut Step<'_>,
    ) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        if generation.shrink_on.is_none_or(|wanted| number < wanted) {
            return;
        }
        generation.shrink_on = None;
        let (pm, pool) = (generation.policy.pm, generation.pool);
        if generation.stage != Stage::Serving {
            return;
        }
        let Some(pool) = self.pools.get(&pool) else { return };
        if pool.source == Source::Asking || pool.source == Source::Told {
            self.timers.set(Timer::Shrink(id), step.now, NOT_NOW);
            return;
        }
        let in_pool: u32 = pool
            .takers()
            .map(|generation| self.crew(generation).staying)
            .sum();
        let surplus = policy::surplus(pm, view.idle.clone(), in_pool == 1, step.now);
        for worker in surplus.retire {
            self.dismiss(worker, Cause::Surplus, step);
        }
        if let Some(after) = surplus.look_after {
            self.timers.set(Timer::Shrink(id), step.now, after);
        }
        // Without a time named here, `watch_for_surplus` has the busy ones looked at again.
    }
}

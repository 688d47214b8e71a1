//! Starts, stops and timeouts of preloaders.

use super::action::{Action, Fact, Force, Notice};
use super::departure::KILL_AFTER;
use super::dynamic::Spare;
use super::event::{Ended, GenerationId};
use super::generation::GenerationState;
use super::manager::{Manager, Step};
use super::ondemand::Source;
use super::timers::Timer;
use super::unavailable::{FailedProcess, FailedStart};
use crate::config::ProcessManager;
use crate::life::backoff;
use crate::life::{Life, LifeAction, LifeCause};
use std::time::Duration;

impl Manager {
    pub(super) fn preloader_changed(
        &mut self,
        id: GenerationId,
        cause: LifeCause,
        exit: Option<Ended>,
        step: &mut Step<'_>,
    ) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let Some(policy) = generation.policy.preloader else {
            return;
        };
        let before = generation.preloader;
        let (next, action) = before.after(cause);
        if next == before && action == LifeAction::Nothing {
            return;
        }
        generation.preloader = next;
        if action == LifeAction::Start {
            generation.came_up = false;
        } else if cause == LifeCause::Up {
            generation.preloader_came_up();
        } else if action == LifeAction::Lost && !generation.came_up {
            generation.failed_start = Some(FailedStart::new(FailedProcess::Preloader));
        }
        self.touched.insert(id);
        self.timers.clear(Timer::Preloader(id));
        self.timers.clear(Timer::Answer(id));
        match next {
            Life::Starting => self
                .timers
                .set(Timer::Preloader(id), step.now, policy.start_timeout),
            Life::Stopping(Force::Terminate) if policy.is_needed_by_workers => {
                let limit = self.time_to_stop(id);
                self.timers.set(Timer::Preloader(id), step.now, limit);
            }
            Life::Stopping(Force::Ask | Force::Terminate) => {
                self.timers.set(Timer::Preloader(id), step.now, KILL_AFTER);
            }
            Life::Absent | Life::Ready | Life::Failing | Life::Stopping(Force::Kill) => {}
        }
        match action {
            LifeAction::Nothing => {}
            LifeAction::Start => step.act(Action::StartPreloader(id)),
            LifeAction::Stop(force) => step.act(Action::StopPreloader(id, force)),
            LifeAction::Fail => {
                step.say(Notice::PreloaderTimedOut(id, policy.start_timeout));
                step.act(Action::StopPreloader(id, Force::Kill));
            }
            LifeAction::Lost => self.preloader_lost(id, exit, step),
        }
        if action == LifeAction::Lost && before != Life::Ready {
            // Another try is unlikely to help, and the router must know.
            self.fail_orders(id, step);
        }
        match next {
            Life::Absent | Life::Ready => self.freed(id, step),
            Life::Starting | Life::Stopping(_) | Life::Failing => {}
        }
    }

    pub(super) fn preloader_again(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let Some(policy) = generation.policy.preloader else {
            return;
        };
        if matches!(generation.preloader, Life::Starting | Life::Failing) {
            generation.preloader = Life::Starting;
            self.timers
                .set(Timer::Preloader(id), step.now, policy.start_timeout);
        }
    }

    fn preloader_lost(&mut self, id: GenerationId, exit: Option<Ended>, step: &mut Step<'_>) {
        let delay = self.back_off(id, backoff::LONGEST, step);
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let delay = delay
            .or(generation.backoff.wait(step.now))
            .unwrap_or(Duration::ZERO);
        if let Some(exit) = exit {
            step.note(Fact::Fails(id));
            step.say(Notice::PreloaderLost(id, exit, delay));
            self.trial_over(id, step);
        }
        self.start_failed(id, step);
    }

    pub(super) fn preloader_due(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let cause = match generation.preloader {
            Life::Ready => LifeCause::Stop(Force::Ask),
            Life::Absent | Life::Starting | Life::Stopping(_) | Life::Failing => LifeCause::Late,
        };
        self.preloader_changed(id, cause, None, step);
    }

    fn is_short(&self, id: GenerationId) -> bool {
        let Some(generation) = self.generations.get(&id) else {
            return false;
        };
        match generation.policy.manager() {
            ProcessManager::Static { max_children } => self.worker_counts(id).kept < max_children,
            ProcessManager::Dynamic { .. } => matches!(generation.spare, Spare::Closed(_)),
            ProcessManager::Ordered { .. } => !generation.orders.is_empty(),
            ProcessManager::Ondemand { .. } => self
                .pools
                .get(&generation.pool)
                .is_some_and(|pool| matches!(pool.source, Source::Blocked(_))),
        }
    }

    /// Sets the timer of a ready preloader: for its answers, for its idle time, or none.
    pub(super) fn wind_preloader_clock(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let Some(policy) = generation.policy.preloader else {
            return;
        };
        if generation.preloader != Life::Ready {
            return;
        }
        let counts = self.children.worker_counts(id);
        let (idle, answer) = (Timer::Preloader(id), Timer::Answer(id));
        if counts.asked == 0 {
            self.timers.clear(answer);
        } else if !self.timers.is_set(answer) {
            self.timers.set(answer, step.now, policy.start_timeout);
        }
        let needed = counts.all > 0 || generation.state != GenerationState::Serving || self.is_short(id);
        if needed {
            self.timers.clear(idle);
        } else if !self.timers.is_set(idle) {
            self.timers.set(idle, step.now, policy.idle_timeout);
        }
    }
}

//! Applies the rules of `refork`.

use super::action::{Action, Force, Notice};
use super::children::{self, Worker};
use super::departure::KILL_AFTER;
use super::dynamic::Spare;
use super::event::{Ended, GenerationId, WorkerId};
use super::fork::Block;
use super::generation::{Generation, GenerationState};
use super::leave;
use super::leave::Going;
use super::manager::{Manager, Step};
use super::ondemand::Source;
use super::refork::{Refork, ReforkAction, ReforkCause};
use super::timers::Timer;
use crate::config::ProcessManager;
use crate::life::{self, Life};
use std::time::Duration;

const REST: Duration = Duration::from_secs(1);
/// The first pause after a failure; doubled up to the longest.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(10);
const LONGEST_REST: Duration = Duration::from_secs(600);

impl Manager {
    pub(super) fn mold_candidate(&mut self, id: WorkerId) {
        let generation = self.children.change(id, |worker| {
            worker.mold_candidate = true;
            worker.generation
        });
        self.touched.extend(generation);
    }

    pub(super) fn refork_if_due(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        match generation.refork {
            Refork::Off | Refork::Promoting | Refork::Resting => {}
            Refork::Waiting => {
                if self.candidate(id, generation).is_some() {
                    self.refork_changed(id, ReforkCause::Begin, None, step);
                }
            }
            Refork::Arrived => {
                if self.worker_counts(id).asked == 0 {
                    self.refork_changed(id, ReforkCause::Free, None, step);
                }
            }
            Refork::Replacing => self.replace_next(id, step),
        }
    }

    fn candidate(&self, id: GenerationId, generation: &Generation) -> Option<WorkerId> {
        if generation.state != GenerationState::Serving || generation.next_mold != Life::Absent {
            return None;
        }
        let fits = |worker: &Worker| {
            worker.mold_candidate
                && worker.progress == children::WorkerProgress::Up
                && worker.going == Going::Kept
                && worker.line >= generation.line
        };
        let mut workers = self.children.of(id).into_iter();
        workers.find(|id| self.children.worker(*id).is_some_and(fits))
    }

    pub(super) fn refork_changed(
        &mut self,
        id: GenerationId,
        cause: ReforkCause,
        exit: Option<Ended>,
        step: &mut Step<'_>,
    ) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let (next, action) = generation.refork.after(cause);
        if next == generation.refork {
            return;
        }
        let worker = self.candidate(id, generation);
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        generation.refork = next;
        self.touched.insert(id);
        self.timers.clear(Timer::Rest(id));
        match action {
            ReforkAction::Nothing => {}
            ReforkAction::Promote => self.promote(id, worker, step),
            ReforkAction::SwitchMold => self.switch_mold(id, step),
            ReforkAction::Rest => {
                generation.promotions_failed = 0;
                self.timers.set(Timer::Rest(id), step.now, REST);
            }
            ReforkAction::Failed => {
                let rest = REST_AFTER_FAILURE * (1 << generation.promotions_failed.min(6));
                let rest = rest.min(LONGEST_REST);
                generation.promotions_failed = generation.promotions_failed.saturating_add(1);
                self.timers.set(Timer::Rest(id), step.now, rest);
                step.say(Notice::PromotionFailed(id, exit.unwrap_or(Ended::Unknown), rest));
            }
        }
    }

    fn promote(&mut self, id: GenerationId, worker: Option<WorkerId>, step: &mut Step<'_>) {
        let Some(worker) = worker else { return };
        self.children.change(worker, |worker| {
            worker.mold_candidate = false;
            // It exits after the fork.
            worker.replaced = true;
        });
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let Some(policy) = generation.policy.preloader else {
            return;
        };
        generation.next_mold = Life::Starting;
        self.timers
            .set(Timer::NextMold(id), step.now, policy.start_timeout);
        step.say(Notice::Promoting(worker));
        step.act(Action::Promote(worker, id));
    }

    /// Swaps the preloader and the next mold, and stops the old one.
    fn switch_mold(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        std::mem::swap(&mut generation.preloader, &mut generation.next_mold);
        generation.line += 1;
        // The new preloader is up, so no 503 responder is needed.
        generation.preloader_came_up();
        for timer in [Timer::Preloader(id), Timer::Answer(id), Timer::NextMold(id)] {
            self.timers.clear(timer);
        }
        step.act(Action::SwitchMold(id));
        step.say(Notice::MoldSwitched(id));
        self.wind_next_mold_clock(id, step);
        self.next_mold_changed(id, life::LifeCause::Stop(Force::Ask), None, step);
        self.freed(id, step);
    }

    pub(super) fn next_mold_changed(
        &mut self,
        id: GenerationId,
        cause: life::LifeCause,
        exit: Option<Ended>,
        step: &mut Step<'_>,
    ) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let before = generation.next_mold;
        let (next, action) = before.after(cause);
        // Only a promotion starts a next mold.
        if next == before && action == life::LifeAction::Nothing || action == life::LifeAction::Start {
            return;
        }
        generation.next_mold = next;
        let limit = generation.policy.preloader.map(|policy| policy.start_timeout);
        self.touched.insert(id);
        self.wind_next_mold_clock(id, step);
        match action {
            life::LifeAction::Nothing | life::LifeAction::Start | life::LifeAction::Lost => {}
            life::LifeAction::Stop(force) => step.act(Action::StopNextMold(id, force)),
            life::LifeAction::Fail => {
                step.say(Notice::PreloaderTimedOut(id, limit.unwrap_or_default()));
                step.act(Action::StopNextMold(id, Force::Kill));
            }
        }
        match next {
            Life::Ready => self.refork_changed(id, ReforkCause::Made, None, step),
            Life::Absent => self.refork_changed(id, ReforkCause::Gone, exit, step),
            Life::Starting | Life::Stopping(_) | Life::Failing => {}
        }
    }

    fn wind_next_mold_clock(&mut self, id: GenerationId, step: &Step<'_>) {
        let second = self.generations.get(&id).map(|generation| generation.next_mold);
        self.timers.clear(Timer::NextMold(id));
        if let Some(Life::Stopping(Force::Ask | Force::Terminate)) = second {
            self.timers.set(Timer::NextMold(id), step.now, KILL_AFTER);
        }
    }

    fn replace_next(&mut self, id: GenerationId, step: &mut Step<'_>) {
        if self.is_replacing(id) {
            return;
        }
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let is_old = |worker: &Worker| worker.line < generation.line && worker.going == Going::Kept;
        let mut workers = self.children.of(id).into_iter();
        match workers.find(|id| self.children.worker(*id).is_some_and(is_old)) {
            Some(worker) => {
                self.children.change(worker, |worker| worker.replaced = true);
                self.dismiss(worker, leave::LeaveCause::Surplus, step);
            }
            None => self.refork_changed(id, ReforkCause::Renewed, None, step),
        }
    }

    /// Whether a replacement is pending. Very long requests don't block others.
    fn is_replacing(&self, id: GenerationId) -> bool {
        let Some(generation) = self.generations.get(&id) else {
            return false;
        };
        let is_leaving = |worker: &Worker| worker.replaced && !worker.overdue;
        let mut workers = self.children.of(id).into_iter();
        if workers.any(|id| self.children.worker(id).is_some_and(is_leaving)) {
            return true;
        }
        let counts = self.worker_counts(id);
        let is_short = match generation.policy.manager() {
            ProcessManager::Static { max_children } => counts.kept + self.held_up(id) < max_children,
            ProcessManager::Dynamic { .. } => match generation.spare {
                Spare::Unused | Spare::Open | Spare::Closed(Block::Full | Block::Ceiling) => false,
                Spare::Asking | Spare::Closed(Block::ProcessMax | Block::Backoff | Block::Preloader) => true,
            },
            ProcessManager::Ondemand { .. } => {
                let pool = self.pools.get(&generation.pool);
                pool.is_some_and(|pool| pool.source == Source::Asking)
            }
            // The router orders the workers that it wants.
            ProcessManager::Ordered { .. } => false,
        };
        is_short || counts.up < counts.kept
    }

    /// The number of leaving workers that take long; their places are not free.
    fn held_up(&self, id: GenerationId) -> u32 {
        let is_long = |worker: &Worker| worker.going == Going::Surplus && worker.overdue;
        let workers = self.children.of(id).into_iter();
        let long = workers.filter(|id| self.children.worker(*id).is_some_and(is_long));
        u32::try_from(long.count()).unwrap_or(u32::MAX)
    }
}

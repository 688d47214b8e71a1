//! Stops idle workers that `policy::surplus` selects from a snapshot, and ends workers that stay.

use super::event::GenerationId;
use super::generation::{Generation, GenerationState, SnapshotNumber};
use super::leave::LeaveCause;
use super::manager::{Manager, Step};
use super::ondemand::Source;
use super::policy;
use super::snapshot::View;
use super::timers::Timer;
use crate::config::ProcessManager;
use std::time::Duration;

/// The delay while work waits in the pool.
const NOT_NOW: Duration = Duration::from_secs(1);

impl Manager {
    /// Sets the timer for the next check, if any worker can become surplus.
    pub(super) fn watch_for_surplus(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let timer = Timer::Shrink(id);
        let look = match generation.state {
            GenerationState::Serving => {
                policy::shrinks(self.present_manager(generation), self.worker_counts(id).kept)
            }
            GenerationState::Measuring(_)
            | GenerationState::Warming(_)
            | GenerationState::Superseded
            | GenerationState::Leaving => None,
        };
        match look {
            None => self.timers.clear(timer),
            Some(_) if self.timers.is_set(timer) || generation.shrink_on.is_some() => {}
            Some(after) => self.timers.set(timer, step.now, after),
        }
    }

    fn present_manager(&self, generation: &Generation) -> ProcessManager {
        match self.is_shared(generation.pool) {
            true => policy::sharing(generation.policy.pm),
            false => generation.policy.pm,
        }
    }

    pub(super) fn look_for_surplus(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let number = self.take_snapshot(id, step);
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.shrink_on = Some(number);
        }
    }

    pub(super) fn shrink(
        &mut self,
        id: GenerationId,
        number: SnapshotNumber,
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
        let pool_id = generation.pool;
        // A worker needed again would load the code on trial.
        let is_on_trial = generation.ceiling.is_some() && generation.policy.starts_from_disk;
        if generation.state != GenerationState::Serving || is_on_trial {
            return;
        }
        let (Some(pool), Some(generation)) = (self.pools.get(&pool_id), self.generations.get(&id)) else {
            return;
        };
        let pm = self.present_manager(generation);
        if pool.source == Source::Asking || pool.source == Source::Told {
            self.timers.set(Timer::Shrink(id), step.now, NOT_NOW);
            return;
        }
        let in_pool: u32 = pool
            .takers()
            .map(|generation| self.worker_counts(generation).kept)
            .sum();
        let mut surplus = policy::surplus(pm, view.idle.clone(), in_pool == 1, step.now);
        if self.is_shared(pool_id) {
            // The last worker takes the generation's turns.
            let kept = self.worker_counts(id).kept as usize;
            surplus.retire.truncate(kept.saturating_sub(1));
        }
        if !surplus.retire.is_empty() {
            self.tell_room(id, step);
        }
        for worker in surplus.retire {
            self.dismiss(worker, LeaveCause::Surplus, step);
        }
        if let Some(after) = surplus.look_after {
            self.timers.set(Timer::Shrink(id), step.now, after);
        }
        // `watch_for_surplus` has busy workers checked again if no time is set.
    }

    pub(super) fn end_hung(&mut self, view: &View, step: &mut Step<'_>) {
        for worker in &view.lingering {
            if self.children.worker(*worker).is_some_and(|worker| worker.overdue) {
                self.dismiss(*worker, LeaveCause::Hung, step);
            }
        }
    }
}

//! Reforks: simulation and checks.

use super::kernel::CRASH;
use super::scenario::Mutant;
use super::world::{Generation, Loader, World};
use forkyard_base::tick::Tick;
use forkyard_core::config::ProcessManager;
use forkyard_core::master::action::{Action, Force};
use forkyard_core::master::event::{Ended, Event, GenerationId, WorkerId};
use std::time::Duration;

/// A leaving worker that is busy for longer does not block others.
const LONG: Duration = Duration::from_secs(10);

/// The tolerance after a deadline.
const MOMENT: Duration = Duration::from_millis(50);

impl Generation {
    pub(crate) fn next_mold_can_go(&self, now: Tick) -> bool {
        matches!(self.next_mold, Loader::Loading(Some(until)) if until <= now)
    }
}

impl World {
    pub(crate) fn season(&mut self, id: WorkerId) {
        let after = self.scenario.refork_after;
        let worker = &self.workers[&id];
        if after == 0 || worker.served % after != 0 {
            return;
        }
        let generation = worker.generation;
        self.tally.happenings += 1;
        if let Some(generation) = self.generations.get_mut(&generation) {
            generation.mold_candidate.push_back(id);
        }
    }

    pub(crate) fn hear_mold_candidate(&mut self, id: GenerationId) {
        let generation = self.generations.get_mut(&id);
        let Some(worker) = generation.and_then(|generation| generation.mold_candidate.pop_front()) else {
            return;
        };
        // A reaped worker's bytes were read before.
        if let Some(known) = self.workers.get_mut(&worker) {
            known.told_mold_candidate = true;
            self.tell(Event::MoldCandidate(worker));
        }
    }

    pub(crate) fn promote(&mut self, id: WorkerId, generation: GenerationId) {
        self.tally.happenings += 5;
        let Some(worker) = self.workers.get_mut(&id) else {
            let gone = Event::NextMoldGone(generation, Ended::Unknown);
            return self.answers.push_back(gone);
        };
        worker.told_mold_candidate = false;
        worker.promote = true;
        let (is_gone, is_retired) = (worker.gone.is_some(), worker.was_retired);
        let second = self.generations[&generation].next_mold;
        if is_retired || second != Loader::Absent || self.generations[&generation].promoting.is_some() {
            self.fail(format!("{id:?} is to make a preloader beside {second:?}"));
        }
        if let Some(generation) = self.generations.get_mut(&generation) {
            generation.promoting = Some(id);
        }
        if self.scenario.mutant == Some(Mutant::TwoNextMolds) {
            let mut others = self.workers.iter_mut();
            let other =
                others.find(|(other, it)| it.generation == generation && **other != id && it.gone.is_none());
            if let Some((_, other)) = other {
                other.promote = true;
            }
        }
        if is_gone {
            self.no_next_mold_of(id, generation);
        }
    }

    pub(crate) fn no_next_mold_of(&mut self, id: WorkerId, generation: GenerationId) {
        let Some(known) = self.generations.get_mut(&generation) else {
            return;
        };
        if known.promoting == Some(id) {
            known.promoting = None;
            self.answers
                .push_back(Event::NextMoldGone(generation, Ended::Unknown));
        }
    }

    pub(crate) fn make_next_mold(&mut self, id: WorkerId) {
        let faults = self.scenario.faults;
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.promote = false;
        let generation = worker.generation;
        if self.random.percent(faults.fork_fails) {
            self.fault();
            return self.no_next_mold_of(id, generation);
        }
        let hangs = self.random.percent(faults.preloader_hangs);
        let stubborn = hangs || self.random.percent(faults.ignores_term);
        let until = self.now + self.random.millis(1, 400);
        let is_wanted = self.generations[&generation].promoting == Some(id);
        if !is_wanted && self.scenario.mutant != Some(Mutant::TwoNextMolds) {
            // Its channel is closed.
            return;
        }
        if hangs {
            self.fault();
        }
        if let Some(generation) = self.generations.get_mut(&generation) {
            generation.promoting = None;
            generation.next_mold = Loader::Loading((!hangs).then_some(until));
            generation.next_mold_stubborn = stubborn;
        }
    }

    pub(crate) fn step_next_mold(&mut self, id: GenerationId) {
        self.tally.happenings += 1;
        let now = self.now;
        if self.random.percent(self.scenario.faults.preloader_dies) {
            self.fault();
            return self.next_mold_dies(id, CRASH);
        }
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        generation.next_mold = Loader::Ready;
        generation.next_mold_ready = now;
        if self.scenario.mutant != Some(Mutant::NextMoldLost) {
            self.answers.push_back(Event::NextMoldReady(id));
        }
    }

    fn next_mold_dies(&mut self, id: GenerationId, exit: Ended) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.next_mold = Loader::Absent;
            self.answers.push_back(Event::NextMoldGone(id, exit));
        }
    }

    pub(crate) fn switch_mold_first(&mut self, id: GenerationId) {
        self.reforks += 1;
        self.tally.happenings += 5;
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let asked = generation.requests.len();
        // It may have just died.
        let is_there = generation.next_mold == Loader::Ready || !self.scenario.faults.none();
        if self.scenario.mutant != Some(Mutant::MoldNotSwitched) {
            std::mem::swap(&mut generation.loader, &mut generation.next_mold);
            std::mem::swap(&mut generation.stubborn, &mut generation.next_mold_stubborn);
            generation.line += 1;
            generation.stopped = false;
            let answers = std::mem::take(&mut self.answers);
            self.answers = answers
                .into_iter()
                .map(|event| event.in_other_place(id))
                .collect();
        }
        if asked > 0 || !is_there {
            self.fail(format!(
                "{id:?} is given another preloader while {asked} are asked for"
            ));
        }
    }

    pub(crate) fn stop_next_mold(&mut self, id: GenerationId, force: Force) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        if let Some(worker) = generation.promoting {
            return self.no_next_mold_of(worker, id);
        }
        let was_ready = generation.next_mold == Loader::Ready
            && force == Force::Kill
            && self.now.since(generation.next_mold_ready) > MOMENT
            && self.tally.last_stall <= generation.next_mold_ready;
        if was_ready && self.scenario.faults.none() && self.scenario.mutant != Some(Mutant::NextMoldStays) {
            return self.fail(format!("{id:?}: a second preloader is killed that does its part"));
        }
        let mute = generation.next_mold_stubborn || generation.next_mold == Loader::Mute;
        let obeys = force == Force::Kill || !mute;
        if generation.next_mold != Loader::Absent
            && obeys
            && self.scenario.mutant != Some(Mutant::NextMoldStays)
        {
            self.next_mold_dies(id, Ended::Code(0));
        }
    }

    pub(crate) fn is_old(&self, id: WorkerId) -> bool {
        let worker = self.workers.get(&id);
        let generation = worker.and_then(|worker| self.generations.get(&worker.generation));
        worker
            .zip(generation)
            .is_some_and(|(worker, generation)| worker.line < generation.line)
    }

    /// Checks replacements at the time of the decision, since others may exit until they are performed.
    pub(crate) fn check_replacements(&mut self, actions: &[Action]) {
        for action in actions {
            let Action::Retire(id) = *action else { continue };
            let Some(worker) = self.workers.get(&id) else {
                continue;
            };
            let (pool, generation) = (worker.pool, worker.generation);
            let serves = self.manager.serving(pool) == Some(generation);
            if serves && !self.stopping && self.is_old(id) {
                self.check_replaced(id);
            }
        }
    }

    /// Workers are replaced one at a time, except slow ones.
    fn check_replaced(&mut self, id: WorkerId) {
        let worker = &self.workers[&id];
        let generation = &self.generations[&worker.generation];
        let ProcessManager::Static { max_children } = generation.policy.pm else {
            return;
        };
        let is_sound = self.scenario.faults.none()
            && self.scenario.max_requests.is_none()
            && self.scenario.process_max.is_none()
            && generation.lost.is_empty();
        let there = self.workers.iter().filter(|(other, it)| {
            // It may have exited without the master's knowledge.
            let is_long = it.was_retired && self.now.since(it.retired_at) >= LONG;
            let is_here = is_long || (!it.was_retired && it.gone.is_none());
            it.generation == worker.generation && **other != id && it.told_up && is_here
        });
        let there = there.count() as u32;
        if is_sound && there + 1 < max_children && !worker.was_termed {
            self.fail(format!(
                "{id:?} is replaced while {there} others of {max_children} are there"
            ));
        }
    }

    /// If there are no faults, a static pool's worker forks a preloader on request.
    pub(crate) fn check_failed_promotion(&mut self, id: GenerationId) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let is_static = matches!(generation.policy.pm, ProcessManager::Static { .. });
        let scenario = &self.scenario;
        let is_limited = scenario.max_requests.is_some()
            || scenario.process_max.is_some()
            || generation.policy.terminate_timeout.is_some();
        // It was too late: the worker was busy or the machine asleep.
        let was_late = self.now.since(self.tally.last_deadline) <= MOMENT;
        if is_static && !is_limited && !was_late && self.scenario.faults.none() && !self.stopping {
            self.fail(format!("{id:?} has no second preloader"));
        }
    }

    /// At rest all workers have the newest line, and there is one preloader.
    pub(crate) fn check_lines(&self, id: GenerationId) -> Result<(), String> {
        let generation = &self.generations[&id];
        if generation.next_mold != Loader::Absent {
            return Err(format!("{id:?} rests with two preloaders"));
        }
        for (worker, it) in self.workers.iter().filter(|(_, it)| it.generation == id) {
            let stays = it.gone.is_none() && !it.was_retired;
            if stays
                && (it.line < generation.line || it.told_mold_candidate)
                && self.scenario.process_max.is_none()
            {
                return Err(format!("{worker:?} rests at {:?} and was to be replaced", it.at));
            }
        }
        Ok(())
    }
}

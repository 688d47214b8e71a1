//! The master dies and another takes over; pending actions, events and knowledge are lost.

use super::world::{Loader, World};
use forkyard_core::master::Manager;
use forkyard_core::master::action::WakeOnAccept;
use forkyard_core::master::event::{
    Adopted, AdoptedGeneration, AdoptedWorker, Ended, Event, GenerationId, PoolId, SlotIndex, StopRequest,
    WorkerId,
};

impl World {
    pub(crate) fn switch_mold(&mut self) {
        self.note(|| "the master dies".into());
        self.actions.clear();
        self.reading = None;
        self.answers.clear();
        self.fired = None;
        self.tally.happenings += 10;
        // Pending events are late for the next master.
        self.tally.last_stall = self.now;
        let before = std::mem::take(&mut self.manager);
        // The number after the last requested worker.
        let asked = self.generations.values().flat_map(|it| it.slots.values());
        let last = asked.map(|given| given.worker).chain(self.reaped.last().copied());
        let next_worker = last.max().map_or(0, |id| id.0 + 1);
        self.lose_preloaders();
        self.lose_unforked();
        self.bury();
        let ids: Vec<GenerationId> = self.generations.keys().copied().collect();
        let adopted = Adopted {
            process_max: self.scenario.process_max,
            control_timeout: self.random.millis(0, 2_000),
            next_worker,
            pools: self
                .pools
                .iter()
                .filter(|(_, pool)| !pool.closed)
                .map(|(id, _)| *id)
                .collect(),
            generations: ids.into_iter().map(|id| self.adopted(id, &before)).collect(),
        };
        for generation in self.generations.values_mut() {
            generation.notify = WakeOnAccept::default();
            // The next master clears them in the boards.
            generation.turn = None;
        }
        // The next master finds slow requests again.
        self.workers.values_mut().for_each(|worker| {
            (worker.traced, worker.line) = (None, 0);
            (worker.promote, worker.told_mold_candidate) = (false, false);
        });
        for pool in self.pools.values_mut() {
            (pool.watched, pool.told, pool.wanted) = (false, false, None);
            pool.unavailable_responder = false;
        }
        self.tell(Event::Adopt(adopted));
        let pools: Vec<PoolId> = self
            .pools
            .iter()
            .filter(|(_, pool)| !pool.unwanted)
            .map(|(id, _)| *id)
            .collect();
        self.apply(&pools);
    }

    fn adopted(&self, id: GenerationId, before: &Manager) -> AdoptedGeneration {
        let generation = &self.generations[&id];
        let workers = generation.slots.iter().filter_map(|(slot, given)| {
            let worker = self.workers.get(&given.worker)?;
            let told = if worker.was_termed {
                Some(StopRequest::Terminate)
            } else {
                worker.retire.then_some(StopRequest::Retire)
            };
            Some(AdoptedWorker {
                worker: given.worker,
                slot: *slot,
                forked: given.since,
                up: worker.told_up,
                told: told.map(|told| (told, self.now)),
            })
        });
        AdoptedGeneration {
            generation: id,
            pool: generation.pool,
            policy: generation.policy,
            slots: generation.policy.pm.max_children(),
            serves: before.serving(generation.pool) == Some(id),
            workers: workers.collect(),
            lost: generation.lost.iter().copied().collect(),
            has_preloader: false,
        }
    }

    fn lose_preloaders(&mut self) {
        let ids: Vec<GenerationId> = self.generations.keys().copied().collect();
        for id in ids {
            let Some(generation) = self.generations.get_mut(&id) else {
                continue;
            };
            generation.loader = Loader::Absent;
            // The next master does not know next molds.
            (generation.next_mold, generation.promoting, generation.line) = (Loader::Absent, None, 0);
            for (worker, slot) in std::mem::take(&mut generation.requests) {
                self.lose_slot(id, slot, worker);
            }
        }
    }

    /// Unreported workers find their stop pipe closed and exit.
    fn lose_unforked(&mut self) {
        let unforked: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, worker)| !worker.told_forked)
            .map(|(id, _)| *id)
            .collect();
        for id in unforked {
            self.die(id, Ended::Code(0));
            if let Some(worker) = self.workers.remove(&id) {
                self.lose_slot(worker.generation, worker.slot, id);
            }
        }
        let ids: Vec<GenerationId> = self.generations.keys().copied().collect();
        for id in ids {
            let empty: Vec<(SlotIndex, WorkerId)> = self.generations[&id]
                .slots
                .iter()
                .filter(|(_, given)| !self.workers.contains_key(&given.worker))
                .map(|(slot, given)| (*slot, given.worker))
                .collect();
            for (slot, worker) in empty {
                self.lose_slot(id, slot, worker);
            }
        }
    }

    /// Some exited workers were reaped by another process before the adoption.
    fn bury(&mut self) {
        let gone: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.gone.is_some())
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            if self.random.percent(50) {
                if let Some(worker) = self.workers.remove(&id) {
                    self.free_slot(worker.generation, worker.slot, id);
                }
            }
        }
    }

    fn lose_slot(&mut self, id: GenerationId, slot: SlotIndex, worker: WorkerId) {
        self.free_slot(id, slot, worker);
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.lost.insert(slot);
        }
    }
}

//! Adopts a previous master's workers. The serving generation continues until the next configuration replaces it;
//! others leave.

use super::children::{self, Worker};
use super::departure::LOOK_AFTER;
use super::event::{Adopted, AdoptedGeneration, AdoptedWorker, GenerationId, PoolId, StopRequest};
use super::generation::{Generation, GenerationState};
use super::leave::{self, Going, Why};
use super::manager::{Manager, Step};
use super::pool::Pool;
use super::slots::Slots;
use super::timers::Timer;
use super::watchdog::{self, Watchdog};
use crate::config::ProcessManager;
use crate::life::Life;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

impl Adopted {
    /// Sets each pool's serving generation: the named one, or the newest with workers that stay.
    pub fn choose_serving(&mut self, pools: impl IntoIterator<Item = (PoolId, Option<GenerationId>)>) {
        let pools: HashMap<PoolId, Option<GenerationId>> = pools.into_iter().collect();
        let mut best: HashMap<PoolId, &mut AdoptedGeneration> = HashMap::new();
        for generation in &mut self.generations {
            let stays = generation.workers.iter().any(|worker| worker.told.is_none());
            let Some(said) = pools.get(&generation.pool).filter(|_| stays) else {
                continue;
            };
            let rank = |it: &AdoptedGeneration| (*said == Some(it.generation), it.generation);
            match best.entry(generation.pool) {
                Entry::Occupied(mut known) if rank(known.get()) < rank(generation) => {
                    known.insert(generation);
                }
                Entry::Occupied(_) => {}
                Entry::Vacant(place) => {
                    place.insert(generation);
                }
            }
        }
        best.into_values().for_each(|generation| generation.serves = true);
    }
}

impl Manager {
    pub(super) fn adopt(&mut self, adopted: Adopted, step: &mut Step<'_>) {
        if self.applied || !self.pools.is_empty() {
            return;
        }
        // The next configuration is not a first start.
        self.applied = true;
        self.quota.set_max(adopted.process_max);
        self.control_timeout = adopted.control_timeout;
        self.children.skip_to(adopted.next_worker);
        for pool in adopted.pools {
            self.pools.entry(pool).or_default();
        }
        let ids: Vec<GenerationId> = adopted.generations.iter().map(|it| it.generation).collect();
        for generation in adopted.generations {
            self.adopt_generation(generation, step);
        }
        // Only now the number of all workers is known.
        for id in ids {
            self.resume(id, step);
        }
    }

    fn adopt_generation(&mut self, adopted: AdoptedGeneration, step: &mut Step<'_>) {
        let id = adopted.generation;
        if self.generations.contains_key(&id) {
            return;
        }
        let pool = self.pools.entry(adopted.pool).or_insert_with(|| Pool {
            closed: true,
            ..Pool::default()
        });
        // Without a serving worker the next generation serves at once.
        let stays = adopted.workers.iter().any(|worker| worker.told.is_none());
        let serves = adopted.serves && stays && !pool.closed && pool.serving.is_none();
        let mut generation = Generation::new(adopted.pool, adopted.policy, GenerationState::Leaving);
        generation.slots = Slots::new(adopted.slots);
        if adopted.has_preloader && adopted.policy.preloader.is_some() {
            generation.preloader = Life::Ready;
        }
        for slot in &adopted.lost {
            generation.slots.lose(*slot);
        }
        let known: Vec<AdoptedWorker> = adopted
            .workers
            .into_iter()
            .filter(|worker| {
                self.children.worker(worker.worker).is_none() && generation.slots.occupy(worker.slot)
            })
            .collect();
        if serves {
            pool.serving = Some(id);
            generation.state = GenerationState::Serving;
        }
        self.generations.insert(id, generation);
        for worker in known {
            self.adopt_worker(id, worker, step);
        }
    }

    fn resume(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let (pool, pm) = (generation.pool, generation.policy.pm);
        let is_timed = generation.watchdog != Watchdog::Off;
        if generation.state == GenerationState::Serving {
            self.open_for_work(pool, id, pm, step);
            if matches!(pm, ProcessManager::Static { .. }) {
                self.fill(id, step);
            }
        } else {
            self.end_generation(id, leave::LeaveCause::Leave, step);
        }
        if is_timed {
            // Workers have not reported running requests to this master.
            if let Some(generation) = self.generations.get_mut(&id) {
                generation.watchdog = Watchdog::Timing;
            }
            self.watchdog_changed(id, watchdog::WatchdogCause::Due, None, step);
        }
        self.touched.insert(id);
    }

    fn adopt_worker(&mut self, generation: GenerationId, adopted: AdoptedWorker, step: &mut Step<'_>) {
        let serves = self
            .generations
            .get(&generation)
            .is_some_and(|generation| generation.state == GenerationState::Serving);
        let (going, grace) = match adopted.told {
            None => (Going::Kept, None),
            Some((StopRequest::Retire, _)) if serves => (Going::Surplus, Some((step.now, LOOK_AFTER))),
            Some((StopRequest::Retire, since)) => {
                let drain = self
                    .generations
                    .get(&generation)
                    .and_then(|it| it.policy.drain_timeout);
                let limit = self.control_timeout.max(drain.unwrap_or_default());
                (Going::Leaving, Some((since, limit)))
            }
            Some((StopRequest::Terminate, since)) => (
                Going::Terminated(Why::Stayed),
                Some((since, self.time_to_stop(generation))),
            ),
            Some((StopRequest::Kill, _)) => (Going::Killed(Why::Stayed), None),
        };
        let worker = Worker {
            generation,
            slot: adopted.slot,
            progress: if adopted.up {
                children::WorkerProgress::Up
            } else {
                children::WorkerProgress::Forked
            },
            going,
            forked: adopted.forked.min(step.now),
            ..Worker::default()
        };
        self.children.adopt(adopted.worker, worker);
        if let Some((since, grace)) = grace {
            let left = grace.saturating_sub(step.now.since(since));
            self.timers.set(Timer::Worker(adopted.worker), step.now, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master::event::{Policy, SlotIndex, WorkerId};
    use forkyard_base::tick::Tick;

    fn generation(id: u32, told: Option<StopRequest>) -> AdoptedGeneration {
        AdoptedGeneration {
            generation: GenerationId(id),
            pool: PoolId(1),
            policy: Policy {
                concurrency: 1,
                stop_timeout: std::time::Duration::from_secs(10),
                ..Policy::default()
            },
            slots: 1,
            serves: false,
            workers: vec![AdoptedWorker {
                worker: WorkerId(u64::from(id)),
                slot: SlotIndex(0),
                forked: Tick::ZERO,
                up: true,
                told: told.map(|told| (told, Tick::ZERO)),
            }],
            lost: Vec::new(),
            has_preloader: false,
        }
    }

    fn chosen(generations: &[AdoptedGeneration], said: u32) -> Vec<u32> {
        let mut adopted = Adopted {
            generations: generations.to_vec(),
            ..Adopted::default()
        };
        adopted.choose_serving([(PoolId(1), Some(GenerationId(said)))]);
        let serving = adopted.generations.iter().filter(|it| it.serves);
        serving.map(|it| it.generation.0).collect()
    }

    #[test]
    fn the_generation_that_is_said_to_serve_does_unless_its_workers_leave() {
        let [old, new] = [generation(1, None), generation(2, None)];
        let leaving = generation(1, Some(StopRequest::Retire));
        assert_eq!(chosen(&[old.clone(), new.clone()], 1), [1]);
        assert_eq!(chosen(&[old, new.clone()], 7), [2]);
        assert_eq!(chosen(&[leaving.clone(), new], 1), [2]);
        assert_eq!(chosen(&[leaving], 1), [] as [u32; 0]);
    }
}

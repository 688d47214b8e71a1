//! What is done about workers that another master made: this one goes on where it ended.
//!
//! The generation that served goes on serving, with all that belongs to that, until the configuration that is applied
//! next has brought up another in its place; one that was to take over, or was leaving, leaves. Timers are set anew from
//! the times at which things were told, and whoever may be counted upon is counted first.

use super::children::{self, Worker};
use super::departure::{KILL_AFTER, LOOK_AFTER};
use super::event::{Adopted, AdoptedGeneration, AdoptedWorker, GenerationId, PoolId, Told};
use super::generation::{Generation, Stage};
use super::leave::{self, Going, Why};
use super::manager::{Manager, Step};
use super::pool::Pool;
use super::slots::Slots;
use super::timers::Timer;
use super::watchdog::{self, Watchdog};
use crate::config::ProcessManager;
use crate::life::Life;

impl Adopted {
    /// Notes of each pool which generation serves: the one that is named beside it, or, if all of its workers were told to
    /// go, the newest that has others.
    pub fn choose_serving(&mut self, pools: impl IntoIterator<Item = (PoolId, Option<GenerationId>)>) {
        for (pool, said) in pools {
            let stays = |generation: &AdoptedGeneration| {
                generation.pool == pool && generation.workers.iter().any(|worker| worker.told.is_none())
            };
            let candidates = self.generations.iter_mut().filter(|it| stays(it));
            let best = candidates.max_by_key(|it| (said == Some(it.generation), it.generation));
            if let Some(generation) = best {
                generation.serves = true;
            }
        }
    }
}

impl Manager {
    /// Takes in what was left. Only before anything else was.
    pub(super) fn adopt(&mut self, adopted: Adopted, step: &mut Step<'_>) {
        if self.applied || !self.pools.is_empty() {
            return;
        }
        // Whatever comes is no first start.
        self.applied = true;
        self.quota.set_max(adopted.process_max);
        self.control_timeout = adopted.control_timeout;
        self.children.skip_to(adopted.next_worker);
        for pool in adopted.pools {
            self.pools.entry(pool).or_insert_with(Pool::new);
        }
        let ids: Vec<GenerationId> = adopted.generations.iter().map(|it| it.generation).collect();
        for generation in adopted.generations {
            self.adopt_generation(generation, step);
        }
        // Only now is it known how many workers there are in all.
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
            ..Pool::new()
        });
        // Where nobody is left to serve, the next generation does at once.
        let stays = adopted.workers.iter().any(|worker| worker.told.is_none());
        let serves = adopted.serves && stays && !pool.closed && pool.serving.is_none();
        let mut generation = Generation::new(adopted.pool, adopted.policy, Stage::Leaving);
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
            generation.stage = Stage::Serving;
        }
        self.generations.insert(id, generation);
        for worker in known {
            self.adopt_worker(id, worker, step);
        }
    }

    /// Lets an adopted generation do what it did before: serve, or leave.
    fn resume(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let (pool, pm) = (generation.pool, generation.policy.pm);
        let is_timed = generation.watchdog != Watchdog::Off;
        if generation.stage == Stage::Serving {
            self.open_for_work(pool, id, pm, step);
            if matches!(pm, ProcessManager::Static { .. }) {
                self.fill(id, step);
            }
        } else {
            self.leave(id, leave::Cause::Leave, step);
        }
        if is_timed {
            // Nobody has told what runs already.
            if let Some(generation) = self.generations.get_mut(&id) {
                generation.watchdog = Watchdog::Timing;
            }
            self.watchdog_changed(id, watchdog::Cause::Due, None, step);
        }
        self.touched.insert(id);
    }

    fn adopt_worker(&mut self, generation: GenerationId, adopted: AdoptedWorker, step: &mut Step<'_>) {
        let serves = self
            .generations
            .get(&generation)
            .is_some_and(|generation| generation.stage == Stage::Serving);
        let (going, grace) = match adopted.told {
            None => (Going::Staying, None),
            Some((Told::Retire, _)) if serves => (Going::Surplus, Some((step.now, LOOK_AFTER))),
            Some((Told::Retire, since)) => (Going::Leaving, Some((since, self.control_timeout))),
            Some((Told::Terminate, since)) => (Going::Terminated(Why::Stayed), Some((since, KILL_AFTER))),
            Some((Told::Kill, _)) => (Going::Killed(Why::Stayed), None),
        };
        let worker = Worker {
            early: false,
            generation,
            slot: adopted.slot,
            life: if adopted.up {
                children::Life::Up
            } else {
                children::Life::Born
            },
            going,
            forked: adopted.forked.min(step.now),
            seen: None,
            stalled: None,
            overdue: false,
            order: None,
            slow: None,
            line: 0,
            seasoned: false,
            replaced: false,
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
    use crate::tick::Tick;

    fn generation(id: u32, told: Option<Told>) -> AdoptedGeneration {
        AdoptedGeneration {
            generation: GenerationId(id),
            pool: PoolId(1),
            policy: Policy {
                pm: ProcessManager::Static { max_children: 1 },
                terminate_timeout: None,
                slow_timeout: None,
                preloader: None,
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
        let leaving = generation(1, Some(Told::Retire));
        assert_eq!(chosen(&[old.clone(), new.clone()], 1), [1]);
        assert_eq!(chosen(&[old, new.clone()], 7), [2]);
        assert_eq!(chosen(&[leaving.clone(), new], 1), [2]);
        assert_eq!(chosen(&[leaving], 1), [] as [u32; 0]);
    }
}

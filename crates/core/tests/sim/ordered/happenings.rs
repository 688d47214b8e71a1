//! Random events: spawn requests and cancellations, starts and crashes, time.

use super::{APPLICATIONS, Fate, Generation, Loader, MAX, TIMEOUT, World};
use forkyard_core::config::ProcessManager;
use forkyard_core::master::event::{
    Event, GenerationId, Policy, PoolId, PreloaderPolicy, SpawnRequest, SpawnRequestId, WorkerId,
};
use std::time::Duration;

const STEPS_OF_DRAINING: usize = 100;

impl World {
    pub(super) fn step(&mut self) {
        let faults = if self.is_calm { 0 } else { 6 };
        match self.random.below(20) {
            0..=4 if !self.is_calm => self.order(),
            5 if !self.is_calm => self.cancel(),
            6..=8 => self.loaders(faults),
            9..=14 => self.forks(faults),
            15..=17 => self.departures(faults),
            _ => {
                let by = self.random.millis(0, 800);
                self.advance(by);
            }
        }
    }

    fn order(&mut self) {
        let application = self.random.below(APPLICATIONS);
        self.next += 1;
        let order = SpawnRequestId(PoolId(0), u64::from(self.next));
        let restarts = self.random.percent(15);
        let has_loader = application % 2 == 0;
        let known = self.applications[application];
        let pool = match known {
            Some((pool, _)) => pool,
            None => PoolId(self.next),
        };
        let generation = match known {
            Some((_, generation)) if !restarts => generation,
            _ => GenerationId(self.next),
        };
        self.pools.insert(pool);
        self.applications[application] = Some((pool, generation));
        self.generations.entry(generation).or_insert(Generation {
            application,
            pool,
            has_loader,
            loader: Loader::Absent,
        });
        self.orders.insert(order, (application, Fate::Waits));
        let policy = Policy {
            pm: ProcessManager::Ordered {
                max_children: MAX + 1,
            },
            choice: None,
            terminate_timeout: None,
            concurrency: 1,
            slow_timeout: None,
            drain_timeout: None,
            stop_timeout: Duration::from_secs(10),
            preloader: has_loader.then_some(PreloaderPolicy {
                start_timeout: Duration::from_secs(3),
                idle_timeout: Duration::from_secs(2),
                reforks: true,
                is_needed_by_workers: generation.0 % 3 == 0,
            }),
            starts_from_disk: false,
        };
        // A router does not exceed its pool's total.
        let open = self
            .orders
            .values()
            .filter(|(of, fate)| *of == application && *fate != Fate::Over);
        if open.count() > MAX as usize {
            self.orders.remove(&order);
            return self.undo(generation, pool, application, known);
        }
        self.tell(Event::SpawnRequest(SpawnRequest {
            order,
            pool,
            generation,
            policy,
        }));
    }

    fn undo(&mut self, id: GenerationId, pool: PoolId, at: usize, known: Option<(PoolId, GenerationId)>) {
        if known.is_none_or(|(_, generation)| generation != id) {
            self.generations.remove(&id);
        }
        if known.is_none() {
            self.pools.remove(&pool);
        }
        self.applications[at] = known;
    }

    fn open_orders(&self) -> Vec<SpawnRequestId> {
        let open = self.orders.iter().filter(|(_, (_, fate))| *fate != Fate::Over);
        open.map(|(order, _)| *order).collect()
    }

    fn cancel(&mut self) {
        let open = self.open_orders();
        if let Some(order) = (!open.is_empty()).then(|| self.random.pick(&open)) {
            self.canceled.insert(order);
            let kill = self.random.percent(30);
            self.tell(Event::Cancel(order, kill));
        }
    }

    fn loaders(&mut self, faults: u32) {
        let ids: Vec<GenerationId> = self.generations.keys().copied().collect();
        for id in ids {
            let Some(generation) = self.generations.get(&id) else {
                continue;
            };
            match generation.loader {
                Loader::Starting if self.random.percent(faults * 5) => self.loader_ends(id),
                Loader::Starting if self.random.percent(60) => {
                    if let Some(generation) = self.generations.get_mut(&id) {
                        generation.loader = Loader::Ready;
                    }
                    self.tell(Event::PreloaderReady(id));
                }
                Loader::Ready if self.random.percent(faults) => self.loader_ends(id),
                Loader::Ending if self.random.percent(50) => self.loader_ends(id),
                Loader::Absent | Loader::Starting | Loader::Ready | Loader::Ending => {}
            }
        }
    }

    fn forks(&mut self, faults: u32) {
        let unforked: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, worker)| !worker.exists)
            .map(|(id, _)| *id)
            .collect();
        for id in unforked {
            let generation = self
                .workers
                .get(&id)
                .and_then(|worker| self.generations.get(&worker.generation));
            let can = generation.is_some_and(|it| !it.has_loader || it.loader != Loader::Absent);
            if self.random.percent(faults * 2) {
                self.not_made(id);
            } else if can && self.random.percent(70) {
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.exists = true;
                }
                self.tell(Event::Forked(id));
                if self.random.percent(faults) {
                    self.worker_ends(id, 11);
                } else if self.workers.contains_key(&id) {
                    self.tell(Event::WorkerUp(id));
                }
            }
        }
    }

    fn departures(&mut self, faults: u32) {
        let ids: Vec<WorkerId> = self.workers.keys().copied().collect();
        for id in ids {
            let Some(worker) = self.workers.get(&id) else {
                continue;
            };
            if worker.was_dismissed && self.random.percent(70) {
                self.worker_ends(id, 0);
            } else if self.random.percent(faults / 3) {
                self.worker_ends(id, 11);
            }
        }
    }

    fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some(due) = self.manager.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.tell(Event::Deadline);
            if self.manager.next_deadline().is_some_and(|next| next <= due) {
                return self.fail("the deadline after one that fired is not later".to_owned());
            }
        }
        self.now = end;
    }

    /// Without faults every spawn request succeeds or has failed.
    pub(super) fn calm_down(&mut self) {
        self.is_calm = true;
        let until = self.now + TIMEOUT;
        while self.now < until && self.broken.is_none() {
            self.step();
        }
        let capacity = self.process_max.is_none();
        let waits = self.orders.values().any(|(_, fate)| *fate == Fate::Waits);
        let unforked = self.workers.values().any(|worker| !worker.exists);
        if capacity && (waits || unforked) {
            self.fail("orders are neither filled nor failed".to_owned());
        }
        for (id, generation) in &self.generations {
            let is_used = self.workers.values().any(|worker| worker.generation == *id);
            let has_others = self.workers.values().any(|worker| {
                self.generations
                    .get(&worker.generation)
                    .is_some_and(|it| it.pool == generation.pool)
            });
            if !is_used && !has_others && capacity {
                let text = format!(
                    "{id:?} of application {} is there for nothing",
                    generation.application
                );
                return self.fail(text);
            }
        }
    }

    pub(super) fn drain(&mut self) {
        self.tell(Event::Drain);
        self.is_calm = false;
        for _ in 0..STEPS_OF_DRAINING {
            if self.broken.is_none() {
                self.step();
            }
        }
        if self.has_exited {
            self.fail("the daemon ended while there may be orders".to_owned());
        }
        self.calm_down();
    }

    pub(super) fn finish(&mut self) {
        if self.random.percent(50) {
            for order in self.open_orders() {
                self.canceled.insert(order);
                self.tell(Event::Cancel(order, false));
            }
            let until = self.now + TIMEOUT;
            while self.now < until && self.broken.is_none() {
                self.step();
            }
            if !self.generations.is_empty()
                || !self.pools.is_empty()
                || self.manager.next_deadline().is_some()
            {
                let text = format!(
                    "left: {:?} {:?} {:?} {:?}",
                    self.generations,
                    self.pools,
                    self.workers,
                    self.open_orders()
                );
                self.fail(text);
            }
        }
        self.canceled.insert(SpawnRequestId(PoolId(0), u64::MAX));
        self.tell(Event::Finish);
        let until = self.now + TIMEOUT;
        while self.now < until && self.broken.is_none() && !self.has_exited {
            self.step();
        }
        let left = self.open_orders().len() + self.workers.len() + self.generations.len() + self.pools.len();
        if !self.has_exited || left > 0 {
            self.fail(format!("{left} things are left after the end"));
        }
    }
}

//! Simulated workers, preloaders and kernel.

use super::scenario::Mutant;
use super::world::{At, Generation, Loader, Work, Worker, World};
use forkyard_base::tick::Tick;
use forkyard_core::master::event::{Ended, Event, GenerationId, PoolId, SlotIndex, WorkerId};
use forkyard_scoreboard::stage::RequestStage;

pub(crate) const CRASH: Ended = Ended::Signal {
    number: 11,
    core: true,
};

impl Generation {
    pub(crate) fn can_go(&self, now: Tick) -> bool {
        match self.loader {
            Loader::Absent | Loader::Mute | Loader::Loading(None) => false,
            Loader::Loading(Some(until)) => until <= now,
            Loader::Ready => !self.requests.is_empty(),
        }
    }
}

impl World {
    pub(crate) fn runnable(&self) -> Vec<WorkerId> {
        let mut running = Vec::new();
        for (id, worker) in &self.workers {
            if self.can_go(worker) {
                running.push(*id);
            }
        }
        running
    }

    fn can_go(&self, worker: &Worker) -> bool {
        if worker.gone.is_some() || worker.frozen {
            return false;
        }
        match worker.at {
            At::Wait => worker.woken || worker.retire || worker.promote,
            At::Run(until) => until <= self.now,
            At::Boot | At::Offer | At::Try | At::WriteEmpty | At::Finish | At::Promote => true,
            At::StoreAccepted(_) | At::LoadWakeOnAccept(_) | At::Count(..) | At::Write(_) | At::Start(_) => {
                true
            }
        }
    }

    pub(crate) fn arrive(&mut self, id: PoolId, work: Work) {
        self.note(|| format!("{id:?} gets {work:?}"));
        self.tally.happenings += 1;
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        pool.arrived += 1;
        if pool.closed {
            return;
        }
        pool.queue.push_back(work);
        self.wake_one(id);
    }

    /// Wakes the first registered worker that waits (epoll(7), EPOLLEXCLUSIVE).
    pub(crate) fn wake_one(&mut self, id: PoolId) {
        let sleeper = self.workers.values_mut().find(|worker| {
            worker.pool == id && worker.at == At::Wait && !worker.woken && worker.gone.is_none()
        });
        if let Some(worker) = sleeper {
            worker.woken = true;
        }
    }

    pub(crate) fn new_worker(&mut self, id: WorkerId, generation: GenerationId, slot: SlotIndex) {
        let faults = self.scenario.faults;
        let worker = Worker {
            generation,
            pool: self.generations[&generation].pool,
            slot,
            at: At::Boot,
            first: true,
            had_work: false,
            told_forked: false,
            told_up: false,
            retire: false,
            woken: false,
            kept: 0,
            kept_request: false,
            served: 0,
            ignores_term: self.random.percent(faults.ignores_term),
            hostile: self.random.percent(faults.hostile),
            frozen: false,
            gone: None,
            last_row: None,
            was_retired: false,
            was_termed: false,
            line: self.generations[&generation].line,
            promote: false,
            told_mold_candidate: false,
            retired_at: Tick::ZERO,
            traced: None,
            traced_at: Tick::ZERO,
        };
        if worker.hostile || worker.ignores_term {
            self.tally.faults += 1;
        }
        self.tally.happenings += 1;
        self.workers.insert(id, worker);
    }

    pub(crate) fn step_worker(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get(&id) else {
            return;
        };
        let (at, hostile) = (worker.at, worker.hostile);
        if let Some(exit) = self.strike(at, hostile) {
            self.note(|| format!("{id:?} dies at {at:?}"));
            self.fault();
            return self.die(id, exit);
        }
        if at == At::Wait && self.random.percent(self.scenario.faults.freezes) {
            self.note(|| format!("{id:?} is frozen"));
            self.fault();
            if let Some(worker) = self.workers.get_mut(&id) {
                worker.frozen = true;
            }
            return;
        }
        let next = self.advance(id, at);
        self.note(|| format!("{id:?} {at:?} -> {next:?}"));
        match next {
            Some(next) => {
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.at = next;
                }
            }
            None => self.die(id, Ended::Code(0)),
        }
    }

    fn strike(&mut self, at: At, hostile: bool) -> Option<Ended> {
        let faults = self.scenario.faults;
        let percent = match at {
            At::Boot => faults.dies_before_up,
            At::Offer | At::Try | At::Wait => faults.dies_accepting,
            At::LoadWakeOnAccept(_) | At::Count(..) | At::Write(_) | At::WriteEmpty => {
                faults.dies_before_telling
            }
            At::Run(_) => faults.dies_executing,
            At::StoreAccepted(_) | At::Start(_) | At::Finish => 0,
            At::Promote => faults.dies_executing,
        };
        self.random.percent(percent).then(|| {
            if hostile {
                Ended::Code(0)
            } else {
                self.random.pick(&[CRASH, Ended::Code(1)])
            }
        })
    }

    fn advance(&mut self, id: WorkerId, at: At) -> Option<At> {
        let mutant = self.scenario.mutant;
        let first = self.workers[&id].first;
        Some(match at {
            At::Boot => At::Offer,
            At::Offer => {
                let worker = &self.workers[&id];
                let done = self
                    .scenario
                    .max_requests
                    .is_some_and(|most| worker.served >= most);
                if worker.retire || done {
                    return None;
                }
                if worker.promote {
                    self.store(id, RequestStage::Accepted);
                    return Some(At::Promote);
                }
                self.store(id, RequestStage::Accepting);
                At::Try
            }
            At::Try => match self.take(id) {
                Some(work) if mutant == Some(Mutant::LoadBeforeStore) && !first => At::LoadWakeOnAccept(work),
                Some(work) => At::StoreAccepted(work),
                None if first && mutant != Some(Mutant::SilentFirstAccept) => At::WriteEmpty,
                None => self.sleep(id),
            },
            At::Wait => {
                let leaves = mutant == Some(Mutant::LeavesWhenWoken);
                let worker = self.workers.get_mut(&id)?;
                if worker.retire && (!worker.woken || leaves) {
                    return None;
                }
                if worker.promote && !worker.woken {
                    self.store(id, RequestStage::Accepted);
                    // Before it checks what to report.
                    return Some(At::Promote);
                }
                // A worker woken for work looks once more before it exits; otherwise the wake-up would be lost.
                worker.woken = false;
                At::Try
            }
            At::StoreAccepted(work) => {
                self.store(id, RequestStage::Accepted);
                if mutant == Some(Mutant::LoadBeforeStore) && !first {
                    At::Start(work)
                } else {
                    At::LoadWakeOnAccept(work)
                }
            }
            At::LoadWakeOnAccept(work) => {
                let quiet = if mutant == Some(Mutant::LoadBeforeStore) && !first {
                    At::StoreAccepted(work)
                } else {
                    At::Start(work)
                };
                let notify = self.generations[&self.workers[&id].generation].notify;
                if (first && mutant != Some(Mutant::SilentFirstAccept)) || notify.always {
                    At::Write(work)
                } else if notify.idle_below > 0 {
                    At::Count(work, notify.idle_below, 0, 0)
                } else {
                    quiet
                }
            }
            At::Count(work, below, slot, idle) => {
                let generation = &self.generations[&self.workers[&id].generation];
                let Some((index, found)) = generation.slots.range(SlotIndex(slot)..).next() else {
                    return Some(if idle < below {
                        At::Write(work)
                    } else {
                        At::Start(work)
                    });
                };
                let idles = u32::from(found.stage == RequestStage::Accepting);
                At::Count(work, below, index.0 + 1, idle + idles)
            }
            At::Write(work) => {
                self.write(id);
                if mutant == Some(Mutant::LoadBeforeStore) && !first {
                    At::StoreAccepted(work)
                } else {
                    At::Start(work)
                }
            }
            At::WriteEmpty => {
                self.write(id);
                self.sleep(id)
            }
            At::Start(work) => self.start(id, work),
            At::Run(_) => {
                let keep = self.scenario.keeps && self.random.percent(50);
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.kept += u32::from(keep);
                    worker.served += 1;
                }
                self.season(id);
                At::Finish
            }
            At::Finish => {
                self.store(id, RequestStage::Finished);
                At::Offer
            }
            At::Promote => {
                self.make_next_mold(id);
                return None;
            }
        })
    }

    fn take(&mut self, id: WorkerId) -> Option<Work> {
        let takes = self.random.millis(0, self.scenario.slow_millis);
        let worker = self.workers.get_mut(&id)?;
        let pool = self.pools.get_mut(&worker.pool)?;
        // The source first: a worker woken for it alone would otherwise sleep on.
        let mut work = pool.queue.pop_front();
        if work.is_none() && worker.kept_request && worker.kept > 0 {
            worker.kept_request = false;
            worker.kept -= 1;
            work = Some(Work::Request(takes));
        }
        if work.is_some() {
            pool.neglected = None;
        }
        self.tally.happenings += u64::from(work.is_some());
        work
    }

    fn sleep(&mut self, id: WorkerId) -> At {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.first = false;
            let waits = self
                .pools
                .get(&worker.pool)
                .is_some_and(|pool| !pool.queue.is_empty());
            worker.woken = waits || worker.kept_request;
        }
        At::Wait
    }

    fn start(&mut self, id: WorkerId, work: Work) -> At {
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&id) else {
            return At::Finish;
        };
        worker.first = false;
        match work {
            Work::Kept => {
                worker.kept += 1;
                At::Finish
            }
            Work::Request(takes) => {
                let (pool, kept) = (worker.pool, std::mem::take(&mut worker.kept));
                let asks = std::mem::take(&mut worker.kept_request) && kept > 0;
                self.store(id, RequestStage::Executing);
                self.hand_over(pool, kept - u32::from(asks));
                if asks {
                    self.arrive(pool, Work::Request(takes));
                }
                At::Run(now + takes)
            }
        }
    }

    fn hand_over(&mut self, pool: PoolId, kept: u32) {
        for _ in 0..kept {
            self.arrive(pool, Work::Kept);
        }
    }

    fn store(&mut self, id: WorkerId, stage: RequestStage) {
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.had_work |= stage == RequestStage::Accepted;
        let generation = self
            .generations
            .get_mut(&worker.generation)
            .expect("a worker's generation is there");
        if let Some(slot) = generation
            .slots
            .get_mut(&worker.slot)
            .filter(|slot| slot.worker == id)
        {
            if (slot.stage == RequestStage::Accepting) != (stage == RequestStage::Accepting) {
                slot.since = now;
            }
            slot.stage = stage;
        }
    }

    fn write(&mut self, id: WorkerId) {
        let worker = &self.workers[&id];
        let Some(generation) = self.generations.get_mut(&worker.generation) else {
            return;
        };
        if let Some(slot) = generation
            .slots
            .get_mut(&worker.slot)
            .filter(|slot| slot.worker == id)
        {
            slot.up = true;
        }
        // More bytes say no more; nor does a full pipe.
        generation.pipe = true;
    }

    pub(crate) fn die(&mut self, id: WorkerId, exit: Ended) {
        self.note(|| format!("{id:?} ends: {exit:?}"));
        self.tally.happenings += 1;
        self.tally.exits += 1;
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.gone = Some(exit);
        let generation = worker.generation;
        let (pool, kept) = (worker.pool, std::mem::take(&mut worker.kept));
        let others = self
            .workers
            .values()
            .any(|other| other.pool == pool && other.gone.is_none());
        if exit == Ended::Code(0) && others {
            self.hand_over(pool, kept);
        }
        self.no_next_mold_of(id, generation);
    }

    pub(crate) fn step_loader(&mut self, id: GenerationId) {
        let faults = self.scenario.faults;
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        self.tally.happenings += 1;
        match generation.loader {
            Loader::Absent | Loader::Mute | Loader::Loading(None) => {}
            Loader::Loading(Some(_)) => {
                if self.random.percent(faults.preloader_dies) {
                    self.fault();
                    return self.loader_dies(id, Ended::Code(1));
                }
                generation.loader = Loader::Ready;
                self.answers.push_back(Event::PreloaderReady(id));
            }
            Loader::Ready => {
                if self.random.percent(faults.preloader_dies / 5) {
                    self.fault();
                    return self.loader_dies(id, CRASH);
                }
                if self.random.percent(faults.preloader_is_mute) {
                    generation.loader = Loader::Mute;
                    return self.fault();
                }
                if let Some((worker, slot)) = generation.requests.pop_front() {
                    self.make_worker(worker, id, slot);
                }
            }
        }
    }

    pub(crate) fn make_worker(&mut self, worker: WorkerId, id: GenerationId, slot: SlotIndex) {
        if self.random.percent(self.scenario.faults.fork_fails) {
            self.fault();
            self.free_slot(id, slot, worker);
            self.answers.push_back(Event::ForkFailed(worker));
        } else {
            self.new_worker(worker, id, slot);
            self.answers.push_back(Event::Forked(worker));
        }
    }

    pub(crate) fn loader_dies(&mut self, id: GenerationId, exit: Ended) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        generation.loader = Loader::Absent;
        let outstanding = std::mem::take(&mut generation.requests);
        for (worker, slot) in outstanding {
            self.free_slot(id, slot, worker);
            self.answers.push_back(Event::ForkFailed(worker));
        }
        self.answers.push_back(Event::PreloaderGone(id, exit));
        self.note(|| format!("the preloader of {id:?} is gone"));
    }

    pub(crate) fn free_slot(&mut self, id: GenerationId, slot: SlotIndex, worker: WorkerId) {
        if let Some(generation) = self.generations.get_mut(&id) {
            if generation
                .slots
                .get(&slot)
                .is_some_and(|slot| slot.worker == worker)
            {
                generation.slots.remove(&slot);
            }
        }
    }
}

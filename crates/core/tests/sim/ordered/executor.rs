//! Performs and checks the core's actions.

use super::{Fate, Loader, Loses, MAX, Worker, World};
use forkyard_core::master::action::{Action, Force, Notice};
use forkyard_core::master::event::{Ended, Event, GenerationId, PoolId, SlotIndex, SpawnRequestId, WorkerId};

impl World {
    pub(super) fn perform(&mut self, action: Action) {
        match action {
            Action::Fill(order, worker) => self.fill(order, worker),
            Action::Fork(worker, id, slot) => self.fork(worker, id, slot),
            Action::Fail(order) => {
                if self.mutant == Some(Loses::Fail) && self.random.percent(20) {
                    return;
                }
                self.end(order, "fails");
            }
            Action::StartPreloader(id) => {
                if !self.is_newest(id) {
                    self.fail(format!("a preloader of {id:?}, which is not the newest"));
                }
                if let Some(generation) = self.generations.get_mut(&id) {
                    generation.loader = Loader::Starting;
                }
            }
            Action::StopPreloader(id, force) => {
                // The report of its exit may be pending.
                let there = self.generations.get_mut(&id);
                if let Some(generation) = there.filter(|it| it.loader != Loader::Absent) {
                    generation.loader = Loader::Ending;
                }
                if force == Force::Kill {
                    self.loader_ends(id);
                }
            }
            Action::Retire(id) => self.dismissed(id, "retired"),
            Action::Kill(id, force) => {
                self.dismissed(id, "killed");
                if force == Force::Kill {
                    self.worker_ends(id, 9);
                }
            }
            Action::DropGeneration(id) => {
                let gone = self.generations.remove(&id);
                let is_used = self.workers.values().any(|worker| worker.generation == id);
                if is_used || gone.is_none_or(|gone| gone.loader != Loader::Absent) {
                    self.fail(format!("{id:?} is dropped and not empty"));
                }
            }
            Action::ClosePool(id) => {
                self.pools.remove(&id);
                for application in &mut self.applications {
                    *application = application.filter(|(pool, _)| *pool != id);
                }
                let waits = |(order, (_, fate)): (&SpawnRequestId, &(usize, Fate))| match fate {
                    Fate::Filled(worker) => {
                        let worker = self.workers.get(worker);
                        worker.is_some_and(|it| !it.was_dismissed && self.pool_of(it.generation) == Some(id))
                            && !self.canceled.contains(order)
                    }
                    Fate::Waits | Fate::Over => false,
                };
                if self.orders.iter().any(waits) && !self.has_exited {
                    self.fail(format!("{id:?} is closed and used"));
                }
            }
            Action::Exit(_) => self.has_exited = true,
            Action::Say(Notice::NoWorkerPossible(..)) => self.fail("no request waits in a socket".to_owned()),
            Action::Watch(_)
            | Action::Unwatch(_)
            | Action::RespondTimeout(_)
            | Action::Trace(_)
            | Action::UnavailableResponder(..)
            | Action::StopUnavailableResponder(_)
            | Action::Share { .. }
            | Action::Promote(..)
            | Action::SwitchMold(_)
            | Action::StopNextMold(..) => {
                self.fail(format!("there is no reason for {action:?}"));
            }
            Action::TakeSnapshot(id) => {
                self.tell(Event::Snapshot(id, Vec::new(), None));
            }
            Action::SetWakeOnAccept(..)
            | Action::Wake(_)
            | Action::Publish(..)
            | Action::Note(_)
            | Action::Say(_)
            | Action::Renew => {}
        }
    }

    fn pool_of(&self, id: GenerationId) -> Option<PoolId> {
        self.generations.get(&id).map(|generation| generation.pool)
    }

    fn is_newest(&self, id: GenerationId) -> bool {
        self.applications
            .iter()
            .flatten()
            .any(|(_, newest)| *newest == id)
    }

    fn fill(&mut self, order: SpawnRequestId, worker: WorkerId) {
        match self.orders.get_mut(&order) {
            Some((_, fate @ Fate::Waits)) => *fate = Fate::Filled(worker),
            other => {
                let text = format!("{order:?} is filled and was {other:?}");
                self.fail(text);
            }
        }
    }

    fn fork(&mut self, id: WorkerId, generation: GenerationId, slot: SlotIndex) {
        let of_worker = |(_, (_, fate)): &(&SpawnRequestId, &(usize, Fate))| *fate == Fate::Filled(id);
        let Some(order) = self.orders.iter().find(of_worker).map(|(order, _)| *order) else {
            return self.fail(format!("{id:?} is for no order"));
        };
        let is_taken = self
            .workers
            .values()
            .any(|it| it.generation == generation && it.slot == slot);
        if is_taken || slot.0 > MAX {
            self.fail(format!("{slot:?} of {generation:?} is not free"));
        }
        if !self.is_newest(generation) {
            self.fail(format!("a worker of {generation:?}, which is not the newest"));
        }
        if self
            .process_max
            .is_some_and(|max| self.workers.len() >= max as usize)
        {
            self.fail("more workers than process.max".to_owned());
        }
        let worker = Worker {
            generation,
            slot,
            order,
            exists: false,
            was_dismissed: false,
        };
        self.workers.insert(id, worker);
    }

    fn dismissed(&mut self, id: WorkerId, how: &str) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return self.fail(format!("{id:?} is {how} and was never made"));
        };
        worker.was_dismissed = true;
        let order = worker.order;
        if !self.canceled.contains(&order) && !self.has_exited && !self.is_ending() {
            self.fail(format!("{id:?} is {how} without being dismissed"));
        }
    }

    fn is_ending(&self) -> bool {
        self.canceled.contains(&SpawnRequestId(PoolId(0), u64::MAX))
    }

    fn end(&mut self, order: SpawnRequestId, how: &str) {
        match self.orders.get_mut(&order) {
            Some((_, fate)) if *fate != Fate::Over => *fate = Fate::Over,
            _ => self.fail(format!("{order:?} {how} and was over")),
        }
    }

    pub(super) fn loader_ends(&mut self, id: GenerationId) {
        let lost: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.generation == id && !worker.exists)
            .map(|(id, _)| *id)
            .collect();
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.loader = Loader::Absent;
        }
        for worker in lost {
            self.not_made(worker);
        }
        let exit = Ended::killed(9);
        self.tell(Event::PreloaderGone(id, exit));
    }

    pub(super) fn not_made(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.remove(&id) else {
            return;
        };
        if let Some((_, fate)) = self.orders.get_mut(&worker.order) {
            *fate = Fate::Waits;
        }
        self.tell(Event::ForkFailed(id));
    }

    pub(super) fn worker_ends(&mut self, id: WorkerId, signal: i32) {
        let Some(worker) = self.workers.get(&id).filter(|worker| worker.exists) else {
            return;
        };
        let order = worker.order;
        self.workers.remove(&id);
        self.end(order, "ends");
        let exit = match signal {
            0 => Ended::Code(0),
            signal => Ended::killed(signal),
        };
        self.tell(Event::WorkerExited(id, exit, false));
    }
}

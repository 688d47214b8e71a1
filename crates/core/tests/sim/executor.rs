//! The simulated executor: delivers events and performs actions one at a time.

use super::kernel::CRASH;
use super::scenario::Mutant;
use super::world::{Loader, Reading, Slot, World};
use forkyard_base::tick::Tick;
use forkyard_core::master::action::{Action, Force, Notice};
use forkyard_core::master::event::{Ended, Event, GenerationId, PoolId, Row, SlotIndex, WorkerId};
use forkyard_scoreboard::stage::RequestStage;
use std::time::Duration;

#[derive(Clone, Copy)]
enum Next {
    Answer,
    Reap(WorkerId),
    Pipe(GenerationId),
    Source(PoolId),
    MoldCandidate(GenerationId),
    Deadline,
}

impl World {
    pub(crate) fn master_can_go(&self) -> bool {
        self.reading.is_some() || !self.actions.is_empty() || !self.nexts().is_empty()
    }

    fn nexts(&self) -> Vec<Next> {
        let mut nexts = Vec::new();
        if !self.answers.is_empty() {
            nexts.push(Next::Answer);
        }
        for (id, worker) in &self.workers {
            if worker.gone.is_some() && worker.told_forked && !self.reaped.contains(id) {
                nexts.push(Next::Reap(*id));
            }
        }
        for (id, generation) in &self.generations {
            if generation.pipe {
                nexts.push(Next::Pipe(*id));
            }
            if !generation.mold_candidate.is_empty() {
                nexts.push(Next::MoldCandidate(*id));
            }
        }
        for (id, pool) in &self.pools {
            if pool.watched && !pool.told && !pool.queue.is_empty() {
                nexts.push(Next::Source(*id));
            }
        }
        if self.manager.next_deadline().is_some_and(|due| due <= self.now) {
            nexts.push(Next::Deadline);
        }
        nexts
    }

    pub(crate) fn step_master(&mut self) {
        if self.reading.is_some() {
            return self.read_slot();
        }
        if let Some(action) = self.actions.pop_front() {
            self.check_action(&action);
            return self.perform(action);
        }
        let nexts = self.nexts();
        if nexts.is_empty() {
            return;
        }
        match self.random.pick(&nexts) {
            Next::Answer => {
                let Some(event) = self.answers.pop_front() else {
                    return;
                };
                if let Event::Forked(id) = event {
                    self.tell(event);
                    return self.was_forked(id);
                }
                self.tell(event);
            }
            Next::Reap(id) => self.reap(id),
            Next::Pipe(id) => self.drain_pipe(id),
            Next::MoldCandidate(id) => self.hear_mold_candidate(id),
            Next::Source(id) => {
                if let Some(pool) = self.pools.get_mut(&id) {
                    pool.told = true;
                }
                self.tell(Event::SourceReady(id));
            }
            Next::Deadline => {
                self.tally.deadlines += 1;
                self.tally.last_deadline = self.now;
                self.fired = self.manager.next_deadline();
                self.tell(Event::Deadline);
                let later = self
                    .manager
                    .next_deadline()
                    .is_none_or(|next| Some(next) > self.fired);
                if !later {
                    self.fail("the deadline after one that fired is not later");
                }
            }
        }
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.tally.events += 1;
        self.note(|| format!("    tell {event:?}"));
        self.last_snapshot = None;
        if let Event::Snapshot(id, rows, queued) = &event {
            self.last_snapshot = Some((*id, self.ready_rows(rows), *queued));
            for row in rows {
                if let Some(worker) = self.workers.get_mut(&row.worker) {
                    worker.last_row = Some(*row);
                }
            }
        }
        match &event {
            Event::Apply(wanted) => {
                self.emergency = wanted.emergency;
                self.crashes.clear();
            }
            Event::WorkerExited(_, exit, _) if *exit == CRASH => self.crashes.push(self.now),
            _ => {}
        }
        let crashed = match &event {
            Event::WorkerExited(id, exit, true) => self.manager.slot_of(*id).zip(Some((*id, *exit))),
            _ => None,
        };
        let mut actions = Vec::new();
        self.manager.handle(event, self.now, &mut actions);
        self.check_forks(&actions);
        self.check_replacements(&actions);
        if let Some(((pool, generation, _), (id, exit))) = crashed {
            self.check_crashed_at_work(id, exit, pool, generation, &actions);
        }
        if self.scenario.mutant == Some(Mutant::SnapshotBeforeWakeOnAccept) {
            actions.sort_by_key(|action| !matches!(action, Action::TakeSnapshot(_)));
        }
        self.actions.extend(actions);
    }

    fn was_forked(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.told_forked = true;
        if let Some(generation) = self.generations.get_mut(&worker.generation) {
            generation.pipe |= generation.slots.get(&worker.slot).is_some_and(|slot| slot.up);
        }
    }

    /// Workers that wait or have yet to call accept.
    fn ready_rows(&self, rows: &[Row]) -> u32 {
        let ready = rows.iter().filter(|row| {
            self.workers.get(&row.worker).is_some_and(|worker| {
                !worker.was_retired && !worker.was_termed && (row.idle || !worker.told_up && !row.running)
            })
        });
        ready.count() as u32
    }

    fn reap(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get(&id) else {
            return;
        };
        let (generation, slot, exit) = (
            worker.generation,
            worker.slot,
            worker.gone.unwrap_or(Ended::Code(0)),
        );
        let had_work = worker.had_work;
        self.reaped.insert(id);
        if self.scenario.mutant == Some(Mutant::ExitLost) && self.random.percent(30) {
            return;
        }
        if self
            .generations
            .get(&generation)
            .is_some_and(|generation| generation.pipe)
        {
            self.drain_pipe(generation);
        }
        self.tell(Event::WorkerExited(id, exit, had_work));
        self.free_slot(generation, slot, id);
        self.workers.remove(&id);
    }

    fn drain_pipe(&mut self, id: GenerationId) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        generation.pipe = false;
        let up: Vec<WorkerId> = generation
            .slots
            .values()
            .filter(|slot| slot.up)
            .map(|slot| slot.worker)
            .collect();
        for id in up {
            if let Some(worker) = self.workers.get_mut(&id) {
                // Even before its fork is reported.
                if !std::mem::replace(&mut worker.told_up, true) {
                    self.tell(Event::WorkerUp(id));
                }
            }
        }
        self.tell(Event::ChildAccept(id));
    }

    fn perform(&mut self, action: Action) {
        self.note(|| format!("      do {action:?}"));
        let (mutant, now) = (self.scenario.mutant, self.now);
        match action {
            Action::Watch(id) => {
                let Some(pool) = self.pools.get_mut(&id) else {
                    return;
                };
                let again = pool.told;
                pool.watched = !(again && mutant == Some(Mutant::WatchLost));
                pool.told = again && mutant == Some(Mutant::EdgeTriggered) && !pool.queue.is_empty();
            }
            Action::Unwatch(id) => {
                if let Some(pool) = self.pools.get_mut(&id) {
                    pool.watched = false;
                }
            }
            Action::SetWakeOnAccept(id, notify) => {
                if let Some(generation) = self.generations.get_mut(&id) {
                    if mutant != Some(Mutant::WakeOnAcceptLost) {
                        generation.notify = notify;
                    }
                }
            }
            Action::TakeSnapshot(id) => self.begin_reading(id),
            Action::StartPreloader(id) => self.start_preloader(id),
            Action::StopPreloader(id, force) => self.stop_preloader(id, force),
            Action::Promote(worker, id) => self.promote(worker, id),
            Action::SwitchMold(id) => self.switch_mold_first(id),
            Action::StopNextMold(id, force) => self.stop_next_mold(id, force),
            Action::Fork(worker, id, slot) => self.fork(worker, id, slot),
            Action::Retire(id) => {
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.retire = true;
                    worker.was_retired = true;
                    worker.retired_at = now;
                }
            }
            Action::Kill(id, force) => {
                let Some(worker) = self.workers.get_mut(&id) else {
                    return;
                };
                worker.was_termed = true;
                let obeys = force == Force::Kill || (!worker.ignores_term && !worker.frozen);
                if obeys && worker.gone.is_none() {
                    let signal = if force == Force::Kill { 9 } else { 15 };
                    self.die(id, Ended::killed(signal));
                }
            }
            Action::Wake(id) => self.wake_one(id),
            Action::RespondTimeout(id) => {
                let Some(worker) = self.workers.get_mut(&id) else {
                    return;
                };
                worker.was_termed = true;
                if !worker.ignores_term && !worker.frozen && worker.gone.is_none() {
                    let exit = Ended::killed(15);
                    self.die(id, exit);
                }
            }
            Action::UnavailableResponder(id, _, _) => self.unavailable_responder(id),
            Action::StopUnavailableResponder(id) => {
                if let Some(pool) = self.pools.get_mut(&id) {
                    pool.unavailable_responder = false;
                }
            }
            Action::Trace(_) | Action::Publish(..) | Action::Fill(..) | Action::Fail(_) => {}
            Action::Share { old, new, percent } => self.set_shares(old, new, percent),
            Action::Renew => self.renew(),
            Action::DropGeneration(id) => {
                self.generations.remove(&id);
            }
            Action::ClosePool(id) => {
                if let Some(pool) = self.pools.get_mut(&id) {
                    pool.closed = true;
                    pool.queue.clear();
                }
            }
            Action::Say(Notice::PromotionFailed(id, ..)) => self.check_failed_promotion(id),
            Action::Note(_) | Action::Say(_) => {}
            Action::Exit(_) => self.exited = true,
        }
    }

    fn set_shares(&mut self, old: GenerationId, new: GenerationId, percent: Option<u8>) {
        self.shares += u32::from(percent.is_some());
        if percent.is_none() && self.scenario.mutant == Some(Mutant::ShareStays) {
            return;
        }
        let parts = [(old, percent.map(|it| 100 - it)), (new, percent)];
        for (id, part) in parts {
            if let Some(generation) = self.generations.get_mut(&id) {
                generation.turn = part;
            }
        }
    }

    fn unavailable_responder(&mut self, id: PoolId) {
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        pool.unavailable_responder = true;
        if self.is_staffed(id) {
            self.fail(format!("{id:?}: somebody stands in for workers that are up"));
        }
    }

    pub(crate) fn is_staffed(&self, id: PoolId) -> bool {
        let serving = self.manager.serving(id);
        self.workers.values().any(|worker| {
            let stays = worker.gone.is_none() && !worker.was_retired && !worker.was_termed;
            Some(worker.generation) == serving && stays && worker.told_up && worker.told_forked
        })
    }

    pub(crate) fn step_unavailable_responder(&mut self, id: PoolId) {
        // The executor delivers events after it has performed all actions.
        let is_quiet = self.actions.is_empty() && self.answers.is_empty() && self.reading.is_none();
        let dies = self.random.percent(self.scenario.faults.preloader_dies / 5) && is_quiet;
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        pool.queue.pop_front();
        self.tally.refused += 1;
        if dies {
            pool.unavailable_responder = false;
            self.fault();
            self.tell(Event::UnavailableResponderGone(id));
        }
    }

    fn begin_reading(&mut self, id: GenerationId) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let todo: Vec<SlotIndex> = generation.slots.keys().rev().copied().collect();
        let queued = self.measure(generation.pool);
        self.reading = Some(Reading {
            generation: id,
            todo,
            rows: Vec::new(),
            queued,
        });
    }

    fn measure(&self, pool: PoolId) -> Option<u32> {
        self.scenario
            .measures
            .then(|| self.pools.get(&pool).map_or(0, |pool| pool.queue.len() as u32))
    }

    fn read_slot(&mut self) {
        let Some(mut reading) = self.reading.take() else {
            return;
        };
        let Some(index) = reading.todo.pop() else {
            if self.random.percent(50) {
                let pool = self.generations[&reading.generation].pool;
                reading.queued = self.measure(pool);
            }
            self.answers
                .push_back(Event::Snapshot(reading.generation, reading.rows, reading.queued));
            return;
        };
        if let Some(slot) = self.generations[&reading.generation].slots.get(&index).copied() {
            let row = self.row(slot);
            reading.rows.push(row);
        }
        self.reading = Some(reading);
    }

    fn row(&mut self, slot: Slot) -> Row {
        let worker = self.workers.get(&slot.worker);
        if worker.is_some_and(|worker| worker.hostile) {
            let since = match self.random.below(3) {
                0 => Tick::ZERO,
                1 => self.now + Duration::from_secs(self.random.next() % 1_000_000),
                _ => Tick::from_nanos(self.random.next() % self.now.as_nanos()),
            };
            return Row {
                worker: slot.worker,
                idle: self.random.percent(50),
                has_room: self.random.percent(50),
                since,
                running: self.random.percent(50),
                executing: self.random.percent(50),
                kept: self.random.next() as u32,
                memory: self.random.next(),
            };
        }
        Row {
            worker: slot.worker,
            idle: slot.stage == RequestStage::Accepting,
            has_room: false,
            since: slot.since,
            running: slot.stage > RequestStage::Accepted && slot.stage < RequestStage::Finished,
            executing: slot.stage == RequestStage::Executing,
            kept: worker.map_or(0, |worker| worker.kept),
            memory: 0,
        }
    }

    fn fork(&mut self, worker: WorkerId, id: GenerationId, slot: SlotIndex) {
        let now = self.now;
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        generation.forks += 1;
        generation.slots.insert(
            slot,
            Slot {
                worker,
                stage: RequestStage::Creating,
                since: now,
                up: false,
            },
        );
        if generation.policy.preloader.is_none() {
            return self.make_worker(worker, id, slot);
        }
        match generation.loader {
            Loader::Ready | Loader::Mute => generation.requests.push_back((worker, slot)),
            Loader::Absent | Loader::Loading(_) => {
                self.free_slot(id, slot, worker);
                self.answers.push_back(Event::ForkFailed(worker));
            }
        }
    }

    fn start_preloader(&mut self, id: GenerationId) {
        let hangs = self.random.percent(self.scenario.faults.preloader_hangs);
        let stubborn = hangs || self.random.percent(self.scenario.faults.ignores_term);
        let until = self.now + self.random.millis(1, 400);
        if hangs {
            self.fault();
        }
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.loader = Loader::Loading((!hangs).then_some(until));
            generation.stubborn = stubborn;
            generation.stopped = false;
        }
    }

    fn stop_preloader(&mut self, id: GenerationId, force: Force) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        generation.stopped = true;
        let mute = generation.stubborn || generation.loader == Loader::Mute;
        if generation.loader != Loader::Absent && (force == Force::Kill || !mute) {
            if force == Force::Kill {
                // A back-off follows, however old the failure.
                self.tally.last_fault = self.now;
            }
            self.loader_dies(id, Ended::Code(0));
        }
    }
}

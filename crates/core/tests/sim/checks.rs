//! Checks from outside of the core.

use super::world::{At, Loader, World};
use forkyard_base::tick::Tick;
use forkyard_core::config::ProcessManager;
use forkyard_core::master::action::{Action, Fact, Force, Notice};
use forkyard_core::master::event::{Ended, Event, GenerationId, PoolId, WorkerId};
use std::time::Duration;

/// With faults, work may wait this long, until an idle worker that ignores it is noticed.
const NEGLECT: Duration = Duration::from_secs(3);

/// How long capacity may be reserved for others under `process.max`.
const GRANTS: Duration = Duration::from_millis(60);

/// A source that is ready this soon after the watch was ready before.
const DOUBT: Duration = Duration::from_millis(20);

/// The tolerance after a request's expiry.
const LATE: Duration = Duration::from_millis(50);

/// The time to trace a slow request that has expired.
const TRACE: Duration = Duration::from_millis(100);

const CRASHES_A_SECOND: usize = 32;

/// The longest hold after a fault.
const BACKOFF: Duration = Duration::from_secs(61);

impl World {
    pub(crate) fn check_rest(&mut self) -> Result<(), String> {
        let budget = 60 + self.tally.happenings * 12 + self.tally.deadlines * 6;
        if self.tally.events > budget {
            return Err(format!("the master spins: {:?}", self.tally));
        }
        let ids: Vec<PoolId> = self.pools.keys().copied().collect();
        for id in ids {
            self.check_neglect(id)?;
            self.check_unavailable_responder(id)?;
            self.check_turns(id)?;
        }
        self.check_timeouts()
    }

    fn check_unavailable_responder(&self, id: PoolId) -> Result<(), String> {
        match self.pools[&id].unavailable_responder && self.is_staffed(id) {
            true => Err(format!("{id:?}: its workers are up, and somebody stands in")),
            false => Ok(()),
        }
    }

    /// A pool has no turns while its newest configuration serves alone.
    fn check_turns(&self, id: PoolId) -> Result<(), String> {
        let of_pool = |it: &&super::world::Generation| it.pool == id && it.turn.is_some();
        let turns = self.generations.values().filter(of_pool).count();
        let is_alone = self.pools[&id].wanted == self.manager.serving(id);
        match turns > 0 && is_alone || turns == 1 {
            true => Err(format!("{id:?}: {turns} generations wait for their turns")),
            false => Ok(()),
        }
    }

    fn check_timeouts(&self) -> Result<(), String> {
        for (id, worker) in &self.workers {
            let generation = self.generations.get(&worker.generation);
            let Some(policy) = generation.map(|it| it.policy) else {
                continue;
            };
            let slot = generation.and_then(|it| it.slots.get(&worker.slot));
            let Some(slot) = slot.filter(|_| matches!(worker.at, At::Run(_))) else {
                continue;
            };
            let told_late = slot.since <= self.tally.last_stall;
            if worker.gone.is_some() || worker.hostile || worker.was_termed || told_late {
                continue;
            }
            let is_traced = worker.traced == Some(slot.since);
            let slow = policy.slow_timeout.filter(|_| !is_traced);
            let slow = slow.map(|timeout| slot.since + timeout);
            // A slow request is traced before it is ended.
            let terminate = policy.terminate_timeout.map(|timeout| {
                let since = slot.since + timeout;
                since.max(worker.traced_at + TRACE)
            });
            let Some(due) = slow.into_iter().chain(terminate).min() else {
                continue;
            };
            let latest = due + LATE;
            if self.manager.next_deadline().is_none_or(|due| due > latest) {
                return Err(format!("the request of {id:?} runs and the master does not look"));
            }
        }
        Ok(())
    }

    fn check_neglect(&mut self, id: PoolId) -> Result<(), String> {
        let pool = &self.pools[&id];
        let waits = !pool.queue.is_empty() && !pool.closed && !self.stopping;
        let someone_sleeps = waits && self.someone_sleeps(id);
        let neglected = waits && (someone_sleeps || self.could_make_one(id));
        let now = self.now;
        let faults = self.scenario.faults;
        // Only a worker that took the wake-up with it, or froze, leaves work to a sleeping one.
        let wakes_are_lost = faults.dies_accepting + faults.freezes + faults.hostile > 0;
        let strict = faults.none() || (someone_sleeps && !wakes_are_lost);
        let pool = self.pools.get_mut(&id).expect("the pool is there");
        if !neglected {
            pool.neglected = None;
            return Ok(());
        }
        let since = *pool.neglected.get_or_insert(now);
        // Capacity may be reserved for a pool that no longer needs it.
        let kept_back = self.scenario.process_max.is_some() && now.since(since) <= GRANTS;
        if strict && !kept_back {
            return Err(format!("{id:?}: work waits and the master is not told: {pool:?}"));
        }
        if !strict && now.since(since) > NEGLECT && now.since(self.tally.last_fault) > NEGLECT {
            return Err(format!(
                "{id:?}: work has waited since {since:?} and the master is not told: {pool:?}"
            ));
        }
        if self.manager.next_deadline().is_none() {
            return Err(format!(
                "{id:?}: work waits, the master is not told, and nothing is due"
            ));
        }
        Ok(())
    }

    fn has_liars(&self, id: PoolId) -> bool {
        self.workers
            .values()
            .any(|worker| worker.pool == id && (worker.hostile || worker.frozen))
    }

    fn someone_sleeps(&self, id: PoolId) -> bool {
        let sleeps = self
            .workers
            .values()
            .any(|worker| worker.pool == id && worker.at == At::Wait && worker.gone.is_none());
        sleeps && !self.has_liars(id)
    }

    fn could_make_one(&self, id: PoolId) -> bool {
        if self.has_liars(id) {
            return false;
        }
        let Some(serving) = self.manager.serving(id) else {
            return false;
        };
        let Some(generation) = self.generations.get(&serving) else {
            return false;
        };
        let max = generation.policy.pm.max_children() as usize;
        // Two static generations that share the requests have as many workers as the smaller one.
        let is_static = matches!(generation.policy.pm, ProcessManager::Static { .. });
        let sharing = self.generations.values();
        let sharing = sharing.filter(|it| is_static && it.pool == id && it.turn.is_some());
        let both: Vec<(usize, usize)> = sharing
            .map(|it| (it.slots.len(), it.policy.pm.max_children() as usize))
            .collect();
        let workers: usize = both.iter().map(|(workers, _)| workers).sum();
        let share = both.iter().map(|(_, max)| *max).min();
        let full =
            generation.slots.len() + generation.lost.len() >= max || share.is_some_and(|max| workers >= max);
        let capped = self
            .scenario
            .process_max
            .is_some_and(|max| self.manager.workers() >= max as usize);
        let loads = generation.policy.preloader.is_some()
            && (generation.loader != Loader::Ready || generation.stopped);
        // A preloader killed for lateness also counts.
        let held_back = self.tally.last_fault > Tick::ZERO && self.now.since(self.tally.last_fault) < BACKOFF;
        // Another worker would load the code on trial.
        let is_tried = self.pools[&id].wanted != Some(serving);
        let spared = generation.policy.starts_from_disk && is_tried && !generation.slots.is_empty();
        !(full || capped || loads || held_back || spared)
    }

    pub(crate) fn check_at_rest(&mut self) -> Result<(), String> {
        if self.exited {
            return Ok(());
        }
        let ids: Vec<PoolId> = self
            .pools
            .iter()
            .filter(|(_, pool)| !pool.closed)
            .map(|(id, _)| *id)
            .collect();
        let liars = self
            .workers
            .values()
            .any(|worker| worker.hostile || worker.frozen);
        let faults = self.scenario.faults;
        let broken =
            faults.fork_fails + faults.dies_before_up + faults.preloader_hangs + faults.preloader_dies > 0
                || faults.preloader_is_mute + faults.dies_accepting > 0;
        let works = self
            .workers
            .values()
            .any(|worker| matches!(worker.at, At::Run(_)));
        let settles = faults.none() || self.tally.faults == 0;
        if liars || broken || (works && !settles) {
            return Ok(());
        }
        if let Some(due) = self.manager.next_deadline() {
            return Err(format!("nothing happens, yet something is due at {due:?}"));
        }
        for id in ids {
            let Some(serving) = self.manager.serving(id) else {
                continue;
            };
            let Some(generation) = self.generations.get(&serving) else {
                continue;
            };
            let count = self.manager.headcount(id).serving;
            let capped = self.scenario.process_max.is_some();
            let right = match generation.policy.pm {
                ProcessManager::Static { max_children } => count == max_children || capped,
                ProcessManager::Dynamic {
                    min_spare_servers,
                    max_spare_servers,
                    ..
                } => count <= max_spare_servers && (count >= min_spare_servers || capped),
                ProcessManager::Ondemand { .. } | ProcessManager::Ordered { .. } => count == 0,
            };
            if !right {
                return Err(format!(
                    "{id:?} rests with {count} workers: {:?}",
                    generation.policy.pm
                ));
            }
            self.check_lines(serving)?;
            if self.pools[&id].wanted != Some(serving) && !capped {
                return Err(format!(
                    "{id:?} rests and its newest configuration does not serve"
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn check_end(&mut self) -> Result<(), String> {
        if !self.exited {
            return Err("the daemon does not end".into());
        }
        // A late configuration was never delivered.
        for event in std::mem::take(&mut self.answers) {
            let Event::Apply(wanted) = event else { continue };
            for pool in wanted.pools {
                self.generations.remove(&pool.generation);
                self.pools.remove(&pool.pool);
            }
        }
        let alive = self
            .workers
            .values()
            .filter(|worker| worker.gone.is_none())
            .count();
        let loaders = self
            .generations
            .values()
            .filter(|it| it.loader != Loader::Absent || it.next_mold != Loader::Absent)
            .count();
        let open = self.pools.values().filter(|pool| !pool.closed).count();
        if alive + loaders + open + self.generations.len() > 0 {
            return Err(format!(
                "left after the end: {alive} workers, {loaders} preloaders, {open} pools, {} generations",
                self.generations.len()
            ));
        }
        if !self.actions.is_empty() {
            return Err(format!("still to be done after the end: {:?}", self.actions));
        }
        Ok(())
    }

    pub(crate) fn check_forks(&mut self, actions: &[Action]) {
        let forks = |id: GenerationId| {
            actions
                .iter()
                .filter(|action| matches!(action, Action::Fork(_, of, _) if *of == id))
                .count() as u32
        };
        let Some((counted, ready, queued)) = self.last_snapshot else {
            return;
        };
        let Some(pool) = self.manager.pool_of(counted) else {
            return;
        };
        let made = forks(counted);
        let alone = self.manager.headcount(pool).coming == 0;
        let Some(generation) = self.generations.get(&counted) else {
            return;
        };
        let ondemand = matches!(generation.policy.pm, ProcessManager::Ondemand { .. });
        // A measured length of zero that is contradicted repeatedly is ignored.
        let needed = queued.unwrap_or(1).max(1).saturating_sub(ready);
        // If the queue can't be measured, work that arrives during a doubt seems to have waited.
        // A worker that was doubted before, and has had no work since, is ignored.
        let is_recent = self.now.since(self.tally.last_deadline) <= DOUBT;
        let mistaken = queued.is_none() && (is_recent || self.may_share);
        if made > needed
            && !mistaken
            && ondemand
            && alone
            && self.scenario.faults.none()
            && self.scenario.mutant.is_none()
        {
            self.fail(format!(
                "{made} workers made where {ready} were ready for {queued:?}"
            ));
        }
    }

    /// A worker that crashes during a request is replaced at once, and no other is held back.
    pub(crate) fn check_crashed_at_work(
        &mut self,
        id: WorkerId,
        exit: Ended,
        pool: PoolId,
        generation: GenerationId,
        actions: &[Action],
    ) {
        let was_told = self
            .workers
            .get(&id)
            .is_none_or(|it| it.was_retired || it.was_termed);
        if matches!(exit, Ended::Code(0) | Ended::Unknown) || was_told {
            return;
        }
        let recent = |crash: &&Tick| self.now.since(**crash) <= Duration::from_secs(1);
        let is_within_budget = self.crashed_at_work.iter().filter(recent).count() < CRASHES_A_SECOND;
        self.crashed_at_work.push(self.now);
        let holds_back = actions.iter().any(|action| {
            matches!(
                action,
                Action::Say(Notice::BackingOff(..) | Notice::NoWorkerPossible(_, Some(_)))
            )
        });
        if holds_back {
            return self.fail(format!("{id:?} had work, and its end holds others back"));
        }
        let Some(it) = self.generations.get(&generation) else {
            return;
        };
        let is_static = matches!(it.policy.pm, ProcessManager::Static { .. });
        let serves = self.manager.serving(pool) == Some(generation) && !self.stopping;
        let faults = self.scenario.faults;
        let others_hold_back = faults.dies_before_up + faults.dies_accepting + faults.dies_before_telling;
        let may_be_held_back = others_hold_back + faults.fork_fails + faults.hostile > 0;
        let is_capped = self.scenario.process_max.is_some() || it.policy.preloader.is_some();
        if !is_static || !serves || may_be_held_back || is_capped || !is_within_budget {
            return;
        }
        let is_made = |action: &Action| matches!(action, Action::Fork(_, of, _) if *of == generation);
        match actions.iter().any(is_made) {
            true => self.replaced_at_once += 1,
            false => self.fail(format!("{id:?} crashed at work and is not replaced at once")),
        }
    }

    pub(crate) fn check_action(&mut self, action: &Action) {
        match *action {
            Action::Fork(worker, id, slot) => {
                let Some(generation) = self.generations.get(&id) else {
                    return self.fail(format!("a worker for {id:?}, which is not there"));
                };
                let in_use = generation
                    .slots
                    .get(&slot)
                    .is_some_and(|slot| slot.worker != worker);
                let in_use = in_use || generation.lost.contains(&slot);
                if in_use || slot.0 >= generation.policy.pm.max_children() {
                    self.fail(format!("{slot:?} of {id:?} is not free"));
                }
                if self
                    .scenario
                    .process_max
                    .is_some_and(|max| self.manager.workers() > max as usize)
                {
                    self.fail("more workers than process.max");
                }
                if self.stopping && self.manager.serving(self.generations[&id].pool).is_none() {
                    self.fail("a worker is made while the daemon stops");
                }
            }
            Action::Note(Fact::Serves(id)) => self.check_warm(id),
            Action::Note(Fact::Shares(id)) => {
                let has_turn = self.generations.get(&id).is_some_and(|it| it.turn.is_some());
                if !has_turn {
                    self.fail(format!("{id:?} has a worker and no turns"));
                }
            }
            Action::Note(Fact::Up(_) | Fact::Waits(_) | Fact::Fails(_) | Fact::Gone(_)) => {}
            Action::Retire(id) => self.check_retire(id),
            Action::Kill(id, force) => self.check_kill(id, force),
            Action::RespondTimeout(id) => self.check_respond_timeout(id),
            Action::Trace(id) => self.check_trace(id),
            Action::Renew => self.check_renew(),
            Action::DropGeneration(id) => {
                let workers = self.workers.values().any(|worker| worker.generation == id);
                let loads = self
                    .generations
                    .get(&id)
                    .is_some_and(|it| it.loader != Loader::Absent || it.next_mold != Loader::Absent);
                if workers && self.scenario.mutant.is_none() || loads {
                    self.fail(format!("{id:?} is dropped and not empty"));
                }
            }
            Action::Fill(..) | Action::Fail(_) => self.fail("there was no order"),
            Action::Watch(_)
            | Action::Unwatch(_)
            | Action::SetWakeOnAccept(..)
            | Action::TakeSnapshot(_)
            | Action::Share { .. }
            | Action::StartPreloader(_)
            | Action::StopPreloader(..)
            | Action::UnavailableResponder(..)
            | Action::StopUnavailableResponder(_)
            | Action::Promote(..)
            | Action::SwitchMold(_)
            | Action::StopNextMold(..)
            | Action::Wake(_)
            | Action::Publish(..)
            | Action::ClosePool(_)
            | Action::Say(_)
            | Action::Exit(_) => {}
        }
    }

    /// While its generation serves only an idle worker is retired, except to make room for the next generation.
    fn check_retire(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get(&id) else {
            // It exited after the decision.
            if !self.reaped.contains(&id) {
                self.fail(format!("{id:?} is retired and was never made"));
            }
            return;
        };
        let (pool, generation) = (worker.pool, worker.generation);
        let serves = self.manager.serving(pool) == Some(generation);
        // With shares the old generation may be wanted again by now.
        let gives_room = self.pools[&pool].wanted != Some(generation) || self.shares > 0;
        let makes_room = gives_room && (self.scenario.process_max.is_some() || self.shares > 0);
        let idle = worker.last_row.is_some_and(|row| row.idle);
        if serves && !self.stopping && self.is_old(id) {
            // Checked at the decision ([`World::check_replacements`]).
            return;
        }
        if serves && !self.stopping && !idle && !makes_room {
            self.fail(format!("{id:?} is retired and was busy"));
        }
    }

    fn check_respond_timeout(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get(&id) else {
            return self.fail(format!("the time of {id:?} is up, which was never made"));
        };
        let generation = self.generations.get(&worker.generation);
        let timeout = generation.and_then(|it| it.policy.terminate_timeout);
        let row = worker.last_row.filter(|row| row.running);
        let is_up = timeout
            .zip(row)
            .is_some_and(|(timeout, row)| self.now.since(row.since) >= timeout);
        if !is_up && !worker.hostile {
            self.fail(format!("the time of {id:?} is up too early"));
        }
    }

    /// Only slow requests are traced, once each, even if the worker lies.
    fn check_trace(&mut self, id: WorkerId) {
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&id) else {
            return self.fail(format!("{id:?} is traced and was never made"));
        };
        let generation = self.generations.get(&worker.generation);
        let timeout = generation.and_then(|it| it.policy.slow_timeout);
        let (Some(timeout), Some(row)) = (timeout, worker.last_row) else {
            return self.fail(format!("{id:?} is traced for no reason"));
        };
        let (hostile, before) = (worker.hostile, worker.traced);
        worker.traced_at = now;
        worker.traced = Some(if hostile { now } else { row.since });
        if hostile {
            if before.is_some_and(|before| now.since(before) < timeout) {
                self.fail(format!("{id:?} lies and is traced again and again"));
            }
        } else if !row.executing || now.since(row.since) < timeout || before == Some(row.since) {
            self.fail(format!("{id:?} is traced and is not slow: {row:?}"));
        }
    }

    fn check_renew(&mut self) {
        let crashes = std::mem::take(&mut self.crashes);
        let Some(rule) = self.emergency else {
            return self.fail("everything is made anew without a rule");
        };
        let first = crashes
            .len()
            .checked_sub(rule.threshold as usize)
            .and_then(|first| crashes.get(first));
        // Decided at the last crash, performed later.
        let took = first.zip(crashes.last()).map(|(first, last)| last.since(*first));
        if took.is_none_or(|took| took > rule.interval + LATE) || self.stopping {
            self.fail(format!("everything is made anew after {crashes:?}"));
        }
    }

    /// Only a worker with an order to exit gets a signal, unless the daemon stops at once.
    fn check_kill(&mut self, id: WorkerId, force: Force) {
        let Some(worker) = self.workers.get(&id) else {
            return self.fail(format!("{id:?} is killed and was never made"));
        };
        let allowed = match force {
            Force::Kill => worker.was_termed,
            Force::Ask | Force::Terminate => worker.was_retired || self.terminated || self.failing_start(),
        };
        if !allowed {
            self.fail(format!("{id:?} is sent {force:?} for no reason"));
        }
    }

    fn failing_start(&self) -> bool {
        self.tally.faults > 0
            && self.generations.keys().all(|id| {
                self.manager
                    .pool_of(*id)
                    .is_none_or(|pool| self.manager.serving(pool).is_none())
            })
    }

    fn check_warm(&mut self, id: GenerationId) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let up = self
            .workers
            .values()
            .filter(|worker| worker.generation == id && worker.told_up)
            .count();
        let needs = generation.initial > 0;
        let loads = generation.policy.preloader.is_some() && generation.loader == Loader::Absent;
        let served = self
            .pools
            .get_mut(&generation.pool)
            .and_then(|pool| pool.served.replace(id));
        let replaces = self
            .workers
            .values()
            .any(|worker| Some(worker.generation) == served && !worker.was_retired && worker.gone.is_none());
        if self.scenario.faults.none()
            && self.scenario.max_requests.is_none()
            && replaces
            && (needs && up == 0 || loads)
        {
            self.fail(format!("{id:?} takes over with {up} workers"));
        }
    }
}

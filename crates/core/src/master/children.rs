//! All workers, from the fork decision until they are reaped.

use super::event::{GenerationId, SlotIndex, SpawnRequestId, WorkerId};
use super::leave::Going;
use super::spawn_requests::Queued;
use forkyard_base::tick::Tick;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Worker {
    pub generation: GenerationId,
    pub slot: SlotIndex,
    pub progress: WorkerProgress,
    /// It called accept before its preloader reported the fork.
    pub early: bool,
    pub going: Going,
    /// When it was requested; once forked, when it was forked.
    pub forked: Tick,
    /// The last reading of its slot.
    pub seen: Option<Seen>,
    /// Since when it has claimed to be idle although work waits.
    pub stalled: Option<Tick>,
    pub slow: Option<Slow>,
    /// It exceeded its time to exit as surplus.
    pub overdue: bool,
    /// The line of the preloader that forked it.
    pub line: u64,
    /// It has served enough requests for a refork.
    pub mold_candidate: bool,
    /// It exits because of a refork.
    pub replaced: bool,
    pub order: Option<Queued>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum WorkerProgress {
    #[default]
    Asked,
    Forked,
    /// It has called accept.
    Up,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub idle: bool,
    pub since: Tick,
    pub first: Tick,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slow {
    /// Its start according to the worker, which identifies it.
    pub since: Tick,
    /// When it was noticed. The next request can't have started earlier.
    pub found: Tick,
}

impl Worker {
    /// Since when the present request runs, unless logged as slow. A worker that lies is logged no more often than an
    /// honest one.
    pub(super) fn unlogged_since(&self, since: Tick) -> Option<Tick> {
        let Some(slow) = self.slow else {
            return Some(since);
        };
        let said = self.seen.map(|seen| seen.since);
        (said != Some(slow.since)).then(|| since.max(slow.found))
    }

    /// Records a slot's state and returns its start, as far as the worker is credible: not before its fork; instead of
    /// a future time, when the master first read one.
    pub(super) fn see(&mut self, idle: bool, since: Tick, now: Tick) -> Tick {
        let first = match self.seen {
            Some(seen) if seen.idle == idle && (seen.since == since || (seen.since > now && since > now)) => {
                seen.first
            }
            Some(_) | None => now,
        };
        self.seen = Some(Seen { idle, since, first });
        if since > now {
            first
        } else {
            since.max(self.forked)
        }
    }

    pub(super) fn state_age(&self, now: Tick) -> Duration {
        self.seen
            .map(|seen| {
                if seen.since > now {
                    seen.first
                } else {
                    seen.since.max(self.forked)
                }
            })
            .map_or(Duration::ZERO, |since| now.since(since))
    }

    fn is_kept(&self) -> bool {
        self.going == Going::Kept
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct WorkerCounts {
    pub all: u32,
    pub asked: u32,
    /// Not told to exit.
    pub kept: u32,
    /// Not told to exit, and up.
    pub up: u32,
}

#[derive(Debug, Default)]
pub(super) struct Children {
    workers: BTreeMap<WorkerId, Worker>,
    members: BTreeMap<GenerationId, BTreeSet<WorkerId>>,
    counts: BTreeMap<GenerationId, WorkerCounts>,
    next: u64,
}

impl Children {
    pub(super) fn add(
        &mut self,
        generation: GenerationId,
        slot: SlotIndex,
        line: u64,
        now: Tick,
    ) -> WorkerId {
        let id = WorkerId(self.next);
        self.next += 1;
        let worker = Worker {
            generation,
            slot,
            forked: now,
            line,
            ..Worker::default()
        };
        self.insert(id, worker);
        id
    }

    /// Adds a worker of a previous master; its number is never assigned again.
    pub(super) fn adopt(&mut self, id: WorkerId, worker: Worker) {
        self.skip_to(id.0.saturating_add(1));
        self.insert(id, worker);
    }

    fn insert(&mut self, id: WorkerId, worker: Worker) {
        let generation = worker.generation;
        self.counts.entry(generation).or_default().count(&worker, 1);
        self.members.entry(generation).or_default().insert(id);
        self.workers.insert(id, worker);
    }

    pub(super) fn skip_to(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    pub(super) fn worker(&self, id: WorkerId) -> Option<&Worker> {
        self.workers.get(&id)
    }

    pub(super) fn change<R>(&mut self, id: WorkerId, change: impl FnOnce(&mut Worker) -> R) -> Option<R> {
        let worker = self.workers.get_mut(&id)?;
        let counts = self.counts.entry(worker.generation).or_default();
        counts.count(worker, -1);
        let result = change(worker);
        counts.count(worker, 1);
        Some(result)
    }

    pub(super) fn remove(&mut self, id: WorkerId) -> Option<Worker> {
        let worker = self.workers.remove(&id)?;
        if let Some(members) = self.members.get_mut(&worker.generation) {
            members.remove(&id);
        }
        self.counts
            .entry(worker.generation)
            .or_default()
            .count(&worker, -1);
        Some(worker)
    }

    pub(super) fn forget(&mut self, generation: GenerationId) {
        self.members.remove(&generation);
        self.counts.remove(&generation);
    }

    pub(super) fn worker_counts(&self, generation: GenerationId) -> WorkerCounts {
        self.counts.get(&generation).copied().unwrap_or_default()
    }

    pub(super) fn of(&self, generation: GenerationId) -> Vec<WorkerId> {
        self.members
            .get(&generation)
            .map(|members| members.iter().copied().collect())
            .unwrap_or_default()
    }

    pub(super) fn any_kept(&self, generation: GenerationId) -> Option<WorkerId> {
        let members = self.members.get(&generation)?;
        members
            .iter()
            .copied()
            .find(|id| self.workers.get(id).is_some_and(Worker::is_kept))
    }

    pub(super) fn of_order(&self, id: SpawnRequestId) -> Option<WorkerId> {
        let is_for = |worker: &Worker| worker.order.is_some_and(|order| order.id == id);
        let mut workers = self.workers.iter();
        workers.find(|(_, worker)| is_for(worker)).map(|(id, _)| *id)
    }

    pub(super) fn total(&self) -> usize {
        self.workers.len()
    }

    pub(super) fn is_one_leaving(&self) -> bool {
        self.counts.values().any(|counts| counts.kept < counts.all)
    }

    pub(super) fn is_consistent(&self) -> bool {
        let mut found: BTreeMap<GenerationId, WorkerCounts> = BTreeMap::new();
        let mut slots = BTreeSet::new();
        for worker in self.workers.values() {
            found.entry(worker.generation).or_default().count(worker, 1);
            if !slots.insert((worker.generation, worker.slot)) {
                return false;
            }
        }
        self.counts
            .iter()
            .all(|(id, counts)| found.get(id).copied().unwrap_or_default() == *counts)
    }
}

impl WorkerCounts {
    fn count(&mut self, worker: &Worker, by: i32) {
        let add = |number: &mut u32, holds: bool| {
            if holds {
                *number = number.wrapping_add_signed(by);
            }
        };
        add(&mut self.all, true);
        add(&mut self.asked, worker.progress == WorkerProgress::Asked);
        add(&mut self.kept, worker.is_kept());
        add(
            &mut self.up,
            worker.is_kept() && worker.progress == WorkerProgress::Up,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Tick {
        Tick::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn what_a_slot_says_of_time_is_bounded() {
        let mut children = Children::default();
        let id = children.add(GenerationId(0), SlotIndex(0), 0, at(10));
        let mut see = |since, now| children.change(id, |worker| worker.see(false, since, now));
        assert_eq!(see(at(15), at(20)), Some(at(15)), "believed");
        assert_eq!(see(at(1), at(20)), Some(at(10)), "not before it was forked");
        assert_eq!(
            see(at(99), at(20)),
            Some(at(20)),
            "a time to come counts from when it was first told"
        );
        assert_eq!(see(at(98), at(25)), Some(at(20)), "whichever time to come it is");
    }

    #[test]
    fn a_request_is_found_slow_once_and_the_next_began_later() {
        let mut children = Children::default();
        let id = children.add(GenerationId(0), SlotIndex(0), 0, at(10));
        let mut unlogged = |said, now, is_slow: bool| {
            children.change(id, |worker| {
                let since = worker.see(false, said, now);
                let unlogged = worker.unlogged_since(since);
                if is_slow {
                    worker.slow = Some(Slow {
                        since: said,
                        found: now,
                    });
                }
                unlogged
            })
        };
        assert_eq!(unlogged(at(15), at(20), true), Some(Some(at(15))));
        assert_eq!(unlogged(at(15), at(25), false), Some(None), "the same");
        assert_eq!(unlogged(at(16), at(25), false), Some(Some(at(20))), "a lie");
        assert_eq!(unlogged(at(24), at(25), false), Some(Some(at(24))), "another");
    }

    #[test]
    fn counts_follow_every_change() {
        let mut children = Children::default();
        let generation = GenerationId(0);
        let first = children.add(generation, SlotIndex(0), 0, at(0));
        let second = children.add(generation, SlotIndex(1), 0, at(0));
        children.change(first, |worker| worker.progress = WorkerProgress::Up);
        children.change(second, |worker| worker.going = Going::Surplus);
        assert_eq!(
            children.worker_counts(generation),
            WorkerCounts {
                all: 2,
                asked: 1,
                kept: 1,
                up: 1
            }
        );
        children.remove(first);
        assert_eq!(
            children.worker_counts(generation),
            WorkerCounts {
                all: 1,
                asked: 1,
                kept: 0,
                up: 0
            }
        );
        assert!(children.is_consistent());
    }
}

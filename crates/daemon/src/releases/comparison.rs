//! Compares the two generations of a deployment by the counters of their workers
//! ([`compare`](forkyard_core::release::compare) decides).

use crate::context::generation::Generation;
use crate::context::pools::Pools;
use forkyard_core::master::event::{GenerationId, WorkerId};
use forkyard_core::release::compare::{Compare, Counts, Events, Pair, Second, Verdict};
use forkyard_core::release::reading::{Reading, Side};
use forkyard_core::release::steering::Steering;
use forkyard_protocol::release::Answered;
use forkyard_protocol::routes::RouteCounts;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(crate) struct Comparison {
    compare: Compare,
    reading: Reading,
    steering: Steering,
    /// The percentage for workers to read now.
    shown: u8,
    old: GenerationId,
    new: GenerationId,
    /// Workers with a counted start.
    started: BTreeSet<WorkerId>,
    events: [Events; 2],
    /// Both generations' refused scripts, up to the last second.
    refused: [u64; 2],
    answered: Pair<Answered>,
}

impl Comparison {
    /// Begins a comparison without the requests so far. `percent`: the new generation's part of the requests.
    pub(crate) fn begin(pools: &Pools, (old, new): (GenerationId, GenerationId), percent: u8) -> Comparison {
        let mut begun = Comparison {
            compare: Compare::new(percent),
            reading: Reading::default(),
            steering: Steering::new(percent),
            shown: percent,
            old,
            new,
            started: BTreeSet::new(),
            events: [Events::default(); 2],
            refused: [0; 2],
            answered: Pair::default(),
        };
        for (side, id) in [(Side::Old, old), (Side::New, new)] {
            let Some(generation) = pools.generations.get(&id) else {
                continue;
            };
            begun.started.extend(generation.slots.values().copied());
            if side == Side::Old {
                begun.refused[0] = generation.refused();
                read(generation, |slot, rows, other| {
                    begun.reading.begin(number(id, slot), rows, other)
                });
            }
        }
        begun
    }

    pub(crate) fn step(&mut self, percent: u8) {
        self.compare.step(percent);
    }

    /// Restarts the steering at the percentage that workers read from now on.
    pub(crate) fn shows(&mut self, percent: u8) {
        (self.steering, self.shown) = (Steering::new(percent), percent);
    }

    /// Returns both generations, and the percentage for workers to read now.
    pub(crate) fn shown(&self) -> (GenerationId, GenerationId, u8) {
        (self.old, self.new, self.shown)
    }

    /// Whether the new generation has too few workers for its part.
    pub(crate) fn needs_workers(&self) -> bool {
        self.steering.needs_workers()
    }

    /// Returns the old and the new generation.
    pub(crate) fn of(&self) -> (GenerationId, GenerationId) {
        (self.old, self.new)
    }

    pub(crate) fn compared(&self) -> u64 {
        self.compare.compared()
    }

    /// Returns the counts of both releases' answers, up to the last comparison.
    pub(crate) fn answered(&self) -> Pair<Answered> {
        self.answered
    }

    pub(crate) fn is_suspicious(&self) -> bool {
        self.compare.is_suspicious()
    }

    fn events_of(&mut self, id: GenerationId) -> Option<&mut Events> {
        match id {
            _ if id == self.old => Some(&mut self.events[0]),
            _ if id == self.new => Some(&mut self.events[1]),
            _ => None,
        }
    }

    /// Counts a worker that died.
    pub(crate) fn died(&mut self, id: GenerationId) {
        if let Some(events) = self.events_of(id) {
            events.deaths += 1;
        }
    }

    /// Counts a start that failed.
    pub(crate) fn failed(&mut self, id: GenerationId) {
        if let Some(events) = self.events_of(id) {
            events.starts += 1;
            events.failed_starts += 1;
        }
    }

    /// Compares the counts since the last call, and returns the verdict.
    pub(crate) fn second(&mut self, pools: &Pools) -> Verdict {
        let mut second = Second::default();
        for (side, id) in [(Side::Old, self.old), (Side::New, self.new)] {
            let Some(generation) = pools.generations.get(&id) else {
                continue;
            };
            let workers: Vec<WorkerId> = generation.slots.values().copied().collect();
            let begun = workers.into_iter().filter(|worker| self.started.insert(*worker));
            let begun = begun.count() as u64;
            let refused = generation.refused();
            let before = std::mem::replace(&mut self.refused[side as usize], refused);
            if let Some(events) = self.events_of(id) {
                events.starts += begun;
                events.refused += refused.saturating_sub(before);
            }
            let reading = &mut self.reading;
            read(generation, |slot, rows, other| {
                reading.worker(number(id, slot), side, rows, other, &mut second);
            });
        }
        for counts in second.routes.values() {
            add(&mut self.answered.old, &counts.old);
            add(&mut self.answered.new, &counts.new);
        }
        [second.events.old, second.events.new] = std::mem::take(&mut self.events);
        self.shown = self.steering.second(&second);
        self.compare.second(&second)
    }
}

fn add(answered: &mut Answered, counts: &Counts) {
    answered.requests = answered.requests.saturating_add(counts.requests);
    answered.failures = answered.failures.saturating_add(counts.errors);
}

/// Numbers a slot of a generation. The slot's counters continue from one worker to the next.
fn number(id: GenerationId, slot: usize) -> u64 {
    u64::from(id.0) << 32 | slot as u64
}

fn read(generation: &Generation, mut take: impl FnMut(usize, &[RouteCounts], &RouteCounts)) {
    let Some(resources) = &generation.resources else {
        return;
    };
    for slot in 0..resources.board.slots() {
        let Some(counters) = resources.board.counters(slot) else {
            continue;
        };
        let (rows, other) = counters.routes().read();
        if other.requests > 0 || !rows.is_empty() {
            take(slot, &rows, &other);
        }
    }
}

//! The events of a simulated pool, in order of time. Times are in microseconds.

use forkyard_base::tick::Tick;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug)]
pub(crate) struct Agenda<E> {
    pub(crate) now: u64,
    events: BinaryHeap<Reverse<(u64, u64, E)>>,
    /// Events of the same time keep the order in which they were planned.
    number: u64,
}

impl<E: Ord> Agenda<E> {
    pub(crate) fn new() -> Agenda<E> {
        Agenda {
            now: 1,
            events: BinaryHeap::new(),
            number: 0,
        }
    }

    pub(crate) fn plan(&mut self, after: u64, event: E) {
        self.number += 1;
        self.events.push(Reverse((self.now + after, self.number, event)));
    }

    /// Removes the next event. The caller sets `now` to its time.
    pub(crate) fn next(&mut self) -> Option<(u64, E)> {
        let Reverse((at, _, event)) = self.events.pop()?;
        Some((at, event))
    }

    pub(crate) fn tick(&self) -> Tick {
        tick(self.now)
    }
}

pub(crate) fn tick(micros: u64) -> Tick {
    Tick::from_nanos(micros * 1_000)
}

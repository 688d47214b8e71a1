//! Something that serves all that are there at the same speed: processors, a database, or plain time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Guest<T> {
    /// How much each guest has had when this one is done.
    until: f64,
    who: T,
}

impl<T: PartialEq> Eq for Guest<T> {}

impl<T: PartialEq> Ord for Guest<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.until.total_cmp(&other.until)
    }
}

impl<T: PartialEq> PartialOrd for Guest<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug)]
pub(super) struct Station<T> {
    /// How much each guest that was always there has had.
    given: f64,
    /// How much each guest gets in a second.
    pub(super) speed: f64,
    guests: BinaryHeap<Reverse<Guest<T>>>,
}

impl<T: Copy + PartialEq> Station<T> {
    pub(super) fn new() -> Station<T> {
        Station {
            given: 0.0,
            speed: 1.0,
            guests: BinaryHeap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.guests.len()
    }

    pub(super) fn enter(&mut self, who: T, need: f64) {
        self.guests.push(Reverse(Guest {
            until: self.given + need,
            who,
        }));
    }

    /// Seconds until the first guest is done.
    pub(super) fn next(&self) -> f64 {
        let first = self.guests.peek();
        first.map_or(f64::INFINITY, |first| {
            (first.0.until - self.given).max(0.0) / self.speed
        })
    }

    pub(super) fn pass(&mut self, seconds: f64) {
        self.given += seconds * self.speed;
    }

    /// Takes out the guest that is done first.
    pub(super) fn leave(&mut self) -> Option<T> {
        self.guests.pop().map(|guest| guest.0.who)
    }

    pub(super) fn retain(&mut self, stays: impl Fn(T) -> bool) {
        self.guests.retain(|guest| stays(guest.0.who));
    }
}

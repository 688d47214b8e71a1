//! One-shot timers for pure code.

use crate::tick::Tick;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

/// Shortest delay: a timer set by a timer's handler is always later.
pub const SHORTEST: Duration = Duration::from_millis(1);

/// Timers by name, each set at most once.
#[derive(Debug)]
pub struct Timers<T> {
    order: BTreeSet<(Tick, T)>,
    due: HashMap<T, Tick>,
}

impl<T> Default for Timers<T> {
    fn default() -> Timers<T> {
        Timers {
            order: BTreeSet::new(),
            due: HashMap::new(),
        }
    }
}

impl<T: Copy + Ord + Hash> Timers<T> {
    /// Sets or moves a timer, relative to now.
    pub fn set(&mut self, timer: T, now: Tick, after: Duration) {
        self.set_at(timer, now + after.max(SHORTEST));
    }

    /// Sets or moves a timer.
    pub fn set_at(&mut self, timer: T, at: Tick) {
        self.clear(timer);
        self.order.insert((at, timer));
        self.due.insert(timer, at);
    }

    /// Sets a timer or moves it to an earlier time, never to a later one.
    pub fn set_by(&mut self, timer: T, now: Tick, after: Duration) {
        let at = now + after.max(SHORTEST);
        if self.due.get(&timer).is_none_or(|due| *due > at) {
            self.set_at(timer, at);
        }
    }

    /// Cancels a timer.
    pub fn clear(&mut self, timer: T) {
        if let Some(due) = self.due.remove(&timer) {
            self.order.remove(&(due, timer));
        }
    }

    /// Whether a timer is set.
    pub fn is_set(&self, timer: T) -> bool {
        self.due.contains_key(&timer)
    }

    /// Time of the next timer.
    pub fn next(&self) -> Option<Tick> {
        self.order.first().map(|(due, _)| *due)
    }

    /// Takes the first due timer.
    pub fn take_due(&mut self, now: Tick) -> Option<T> {
        let (due, timer) = *self.order.first()?;
        if due > now {
            return None;
        }
        self.clear(timer);
        Some(timer)
    }

    /// Iterates over the timers by time.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        self.order.iter().map(|(_, timer)| *timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: u32 = 7;

    #[test]
    fn a_timer_is_set_once_and_fires_once() {
        let mut timers = Timers::default();
        timers.set(POOL, Tick::ZERO, Duration::from_secs(5));
        timers.set(POOL, Tick::ZERO, Duration::from_secs(3));
        let due = Tick::ZERO + Duration::from_secs(3);
        assert_eq!(timers.next(), Some(due));
        assert_eq!(timers.take_due(Tick::ZERO), None);
        assert_eq!(timers.take_due(due), Some(POOL));
        assert_eq!(timers.take_due(due), None);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn set_by_never_moves_a_timer_to_a_later_time() {
        let mut timers = Timers::default();
        timers.set_by(POOL, Tick::ZERO, Duration::from_secs(3));
        timers.set_by(POOL, Tick::ZERO, Duration::from_secs(5));
        assert_eq!(timers.next(), Some(Tick::ZERO + Duration::from_secs(3)));
        timers.set_by(POOL, Tick::ZERO, Duration::from_secs(1));
        assert_eq!(timers.next(), Some(Tick::ZERO + Duration::from_secs(1)));
    }

    #[test]
    fn a_timer_without_delay_is_still_later_than_now() {
        let mut timers = Timers::default();
        timers.set(POOL, Tick::ZERO, Duration::ZERO);
        assert!(timers.next() > Some(Tick::ZERO));
    }
}

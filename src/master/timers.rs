//! When something is due. Nothing here repeats: a timer is set because something is due, and is gone when it fired.

use super::event::{GenerationId, PoolId, WorkerId};
use crate::tick::Tick;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The shortest delay: a timer set while handling one is always later than it, whatever the configuration says.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A worker that said it was idle has not taken the work that waits.
    Patience(PoolId),
    /// A generation that was next when capacity became free has not used it.
    Turn(GenerationId),
    /// The generation may try again to make workers.
    Backoff(GenerationId),
    /// Workers may have been idle for long enough.
    Shrink(GenerationId),
    /// A request may have run for too long.
    Expiry(GenerationId),
    /// The preloader has not come up, has not stopped, or has had no worker for long enough.
    Preloader(GenerationId),
    /// The preloader has not answered a request to fork.
    Answer(GenerationId),
    /// The second preloader has not come up, or has not stopped.
    Second(GenerationId),
    /// The next preloader may be made from a worker.
    Rest(GenerationId),
    /// A worker that was told to go is still there.
    Worker(WorkerId),
}

/// All timers, each at most once.
#[derive(Debug, Default)]
pub(super) struct Timers {
    order: BTreeSet<(Tick, Timer)>,
    due: BTreeMap<Timer, Tick>,
}

impl Timers {
    /// Sets or moves a timer.
    pub(super) fn set(&mut self, timer: Timer, now: Tick, after: Duration) {
        self.clear(timer);
        let due = now + after.max(SHORTEST);
        self.order.insert((due, timer));
        self.due.insert(timer, due);
    }

    /// Sets a timer, or moves it to an earlier time, never to a later one.
    pub(super) fn set_by(&mut self, timer: Timer, now: Tick, after: Duration) {
        if self
            .due
            .get(&timer)
            .is_none_or(|due| *due > now + after.max(SHORTEST))
        {
            self.set(timer, now, after);
        }
    }

    pub(super) fn clear(&mut self, timer: Timer) {
        if let Some(due) = self.due.remove(&timer) {
            self.order.remove(&(due, timer));
        }
    }

    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.due.contains_key(&timer)
    }

    /// When the first is due.
    pub(super) fn next(&self) -> Option<Tick> {
        self.order.first().map(|(due, _)| *due)
    }

    /// Takes the first that is due.
    pub(super) fn take_due(&mut self, now: Tick) -> Option<Timer> {
        let (due, timer) = *self.order.first()?;
        if due > now {
            return None;
        }
        self.clear(timer);
        Some(timer)
    }

    /// Every timer that is set.
    pub(super) fn iter(&self) -> impl Iterator<Item = Timer> {
        self.due.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: Timer = Timer::Patience(PoolId(1));

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

//! When something is due. A timer is set because something is due, and is gone when it fired.

use super::application::AppId;
use super::event::{InstanceId, Ticket};
use crate::tick::Tick;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// The shortest delay: a timer set while handling one is always later than it.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Timer {
    /// A waiter has waited for long enough.
    Waiter(Ticket),
    /// A session has lasted for long enough.
    Session(Ticket),
    /// An instance is not up, its work has not ended, it has not drained or not stopped.
    Instance(InstanceId),
    /// Instances may have been idle for long enough.
    Idle(AppId),
    /// The application may start instances again.
    Backoff(AppId),
    /// The application's failures are long past.
    Forgive(AppId),
    /// The application's removal becomes immediate.
    Removal(AppId),
    /// The shutdown becomes immediate.
    Shutdown,
}

/// All timers, each at most once.
#[derive(Debug, Default)]
pub(super) struct Timers {
    order: BTreeSet<(Tick, Timer)>,
    due: HashMap<Timer, Tick>,
}

impl Timers {
    /// Sets or moves a timer.
    pub(super) fn set(&mut self, timer: Timer, at: Tick) {
        self.clear(timer);
        self.order.insert((at, timer));
        self.due.insert(timer, at);
    }

    /// Sets or moves a timer to a time from now.
    pub(super) fn set_in(&mut self, timer: Timer, now: Tick, after: Duration) {
        self.set(timer, now + after.max(SHORTEST));
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
}

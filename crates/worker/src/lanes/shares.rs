//! How much time each lane has had.

use super::{Lane, PerLane, weight};
use std::time::Duration;

/// The busy time of each lane, divided by its weight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shares {
    paid: PerLane<Duration>,
}

impl Shares {
    /// Counts time that a request of the lane kept a worker busy, in parts while it runs.
    pub fn pay(&mut self, lane: Lane, busy: Duration) {
        let paid = self.paid.get_mut(lane);
        *paid = paid.saturating_add(busy / weight(lane));
    }

    pub(super) fn paid(&self, lane: Lane) -> &Duration {
        self.paid.get(lane)
    }

    pub(super) fn set(&mut self, lane: Lane, paid: Duration) {
        *self.paid.get_mut(lane) = paid;
    }

    /// Takes back the credit of a lane that had no requests. `active`: the lanes that have some.
    pub fn wake(&mut self, lane: Lane, active: &PerLane<bool>) {
        let others = |other: Lane| other != lane && other.is_high() == lane.is_high();
        if let Some(least) = self.least(active, others) {
            let least = *self.paid.get(least);
            let paid = self.paid.get_mut(lane);
            *paid = least.max(*paid);
        }
    }

    /// Returns the waiting lane of the wanted ones with the least time for its weight.
    pub(super) fn least(&self, waits: &PerLane<bool>, is_wanted: impl Fn(Lane) -> bool) -> Option<Lane> {
        let candidates = Lane::ALL.into_iter();
        let candidates = candidates.filter(|lane| *waits.get(*lane) && is_wanted(*lane));
        candidates.min_by_key(|lane| *self.paid.get(*lane))
    }
}

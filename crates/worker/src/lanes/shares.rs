//! The time that each lane has used.

use super::{Lane, PerLane, weight};
use std::time::Duration;

/// The busy time of each lane, divided by its weight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shares {
    paid: PerLane<Duration>,
}

impl Shares {
    /// Counts busy time of a lane's request. A running request may be counted in parts.
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

    /// Takes back the credit that a lane gathered without requests. `active`: the lanes with requests.
    pub fn wake(&mut self, lane: Lane, active: &PerLane<bool>) {
        let others = |other: Lane| other != lane && other.is_high() == lane.is_high();
        if let Some(least) = self.least(active, others) {
            let least = *self.paid.get(least);
            let paid = self.paid.get_mut(lane);
            *paid = least.max(*paid);
        }
    }

    /// Returns the wanted lane with a waiting request and the least time for its weight.
    pub(super) fn least(&self, waits: &PerLane<bool>, is_wanted: impl Fn(Lane) -> bool) -> Option<Lane> {
        let candidates = Lane::ALL.into_iter();
        let candidates = candidates.filter(|lane| *waits.get(*lane) && is_wanted(*lane));
        candidates.min_by_key(|lane| *self.paid.get(*lane))
    }
}

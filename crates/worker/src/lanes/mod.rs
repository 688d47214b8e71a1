//! Lanes divide the requests of one pool into classes, and decide which request a free worker begins.
//!
//! People wait for requests of high lanes. Low lanes get the remaining workers, except for a reserve that stays idle for
//! the next person.
//!
//! | a free worker begins | if |
//! | --- | --- |
//! | a low request | no low one runs, and high ones have all other workers |
//! | a high request | one waits |
//! | a low request | no low one runs, or the reserve stays idle after it |
//!
//! Among the lanes of a class, the lane with the least time for its weight is next.

mod claim;
mod classes;
mod priority;
mod queues;
mod shares;
mod sorting;
#[cfg(test)]
mod tests;

pub use claim::{Verdict, judge};
pub(crate) use classes::PARAM;
pub use forkyard_protocol::lanes::Lane;
pub use forkyard_scoreboard::lanes::Mark;
pub use forkyard_scoreboard::reserve::Reserve;
pub(crate) use queues::LaneQueues;
pub use shares::Shares;

/// Low lanes always get this many workers.
const FLOOR: u32 = 1;

/// Returns the lane's part of the time relative to the other lanes of its class.
fn weight(lane: Lane) -> u32 {
    match lane {
        Lane::First | Lane::People => 4,
        Lane::Background => 2,
        Lane::Bots => 1,
    }
}

/// A value for each lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PerLane<T>([T; 4]);

impl<T> PerLane<T> {
    pub fn get(&self, lane: Lane) -> &T {
        &self.0[lane as usize]
    }

    pub fn get_mut(&mut self, lane: Lane) -> &mut T {
        &mut self.0[lane as usize]
    }
}

/// The number of a pool's busy workers, by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Workers with a high request.
    pub high: u32,
    /// Workers with a low request.
    pub low: u32,
    pub total: u32,
    /// Workers that low requests leave idle.
    pub reserve: u32,
}

impl Load {
    /// Whether one more low request may begin.
    pub fn admits_low(self) -> bool {
        let with_it = self.high.saturating_add(self.low).saturating_add(1);
        self.low == 0 || with_it.saturating_add(self.reserve) <= self.total
    }

    /// Whether a free worker must take a low request, because high requests have all other workers. A pool with a single
    /// worker has no such floor: people come first.
    fn owes_low(self) -> bool {
        self.total > FLOOR && self.low < FLOOR && self.high.saturating_add(FLOOR) >= self.total
    }
}

/// Returns the lane to take a request from. `None`: no request waits, or none may begin.
pub fn next(waits: &PerLane<bool>, load: Load, shares: &Shares) -> Option<Lane> {
    let high = shares.least(waits, Lane::is_high);
    let low = shares.least(waits, |lane| !lane.is_high());
    let low = low.filter(|_| load.admits_low());
    if load.owes_low() {
        low.or(high)
    } else {
        high.or(low)
    }
}

//! Lanes: classes of requests in one pool, and which request a free worker begins.
//!
//! People wait for requests of high lanes. Low lanes take the remaining workers, except for a reserve of idle
//! workers: the next person finds one.
//!
//! | a free worker begins | if |
//! | --- | --- |
//! | a low request | no low one runs, and high ones have all other workers |
//! | a high request | one waits |
//! | a low request | no low one runs, or the reserve stays idle after it |
//!
//! Among the lanes of a class, the one begins that has had the least time for its weight.

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

/// How many workers low lanes have in any case.
const FLOOR: u32 = 1;

/// Returns the lane's part of the time, against the other lanes of its class.
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

/// What a pool's workers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Workers that have a high request.
    pub high: u32,
    /// Workers that have a low one.
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

    /// Whether high requests have all workers except the floor of low ones. People have a single worker
    /// first.
    fn owes_low(self) -> bool {
        self.total > FLOOR && self.low < FLOOR && self.high.saturating_add(FLOOR) >= self.total
    }
}

/// Returns the lane whose oldest request a free worker begins. `None`: none waits, or none may begin.
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

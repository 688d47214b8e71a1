//! Lanes: classes of requests in one pool.

use serde::{Deserialize, Serialize};

/// Upper bounds of the waits' histogram, in milliseconds. The last count has no bound.
pub const WAIT_BOUNDS_MS: [u64; 8] = [5, 20, 100, 500, 1_000, 5_000, 10_000, 30_000];
/// Counts of the waits' histogram.
pub const WAITS: usize = WAIT_BOUNDS_MS.len() + 1;

/// Bytes of the message about a parked request.
pub const PARKED_BYTES: usize = 25;

/// A class of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// Requests that must not wait behind requests of other people.
    First,
    /// Every request without a rule.
    People,
    Background,
    Bots,
}

impl Lane {
    /// All, the most important first.
    pub const ALL: [Lane; 4] = [Lane::First, Lane::People, Lane::Background, Lane::Bots];

    /// Returns its name in settings and in numbers.
    pub fn name(self) -> &'static str {
        match self {
            Lane::First => "first",
            Lane::People => "people",
            Lane::Background => "background",
            Lane::Bots => "bots",
        }
    }

    /// Returns the lane with a name.
    pub fn from_name(name: &[u8]) -> Option<Lane> {
        Lane::ALL.into_iter().find(|lane| lane.name().as_bytes() == name)
    }

    /// Whether people wait for its requests.
    pub fn is_high(self) -> bool {
        matches!(self, Lane::First | Lane::People)
    }

    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns the end of the pool's two socket pairs from which its parked requests come. They are sent into the end with
    /// the lane's index: a pair carries two lanes, one in each direction.
    pub fn out_end(self) -> usize {
        self.index() ^ 1
    }
}

/// The numbers of one lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneNumbers {
    /// Requests that have begun.
    pub requests: u64,
    /// How long they kept workers busy.
    pub busy_ms: u64,
    /// Requests that were refused because too many waited.
    pub refused: u64,
    /// The sum of the waits.
    pub wait_ms: u64,
    /// Requests by their wait ([`WAIT_BOUNDS_MS`]).
    pub waits: [u64; WAITS],
    /// Requests that wait now.
    pub parked: u32,
}

/// The numbers of a pool's lanes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lanes {
    pub first: LaneNumbers,
    pub people: LaneNumbers,
    pub background: LaneNumbers,
    pub bots: LaneNumbers,
    /// How many workers low lanes leave idle.
    pub reserve: u32,
    /// Whether requests of low lanes give way to others on a processor.
    pub has_priority: bool,
}

impl Lanes {
    /// Adds the counters of another generation.
    pub fn add(&mut self, other: &Lanes) {
        for (own, (_, more)) in self.each_mut().into_iter().zip(other.each()) {
            own.requests = own.requests.saturating_add(more.requests);
            own.busy_ms = own.busy_ms.saturating_add(more.busy_ms);
            own.refused = own.refused.saturating_add(more.refused);
            own.wait_ms = own.wait_ms.saturating_add(more.wait_ms);
            for (count, more) in own.waits.iter_mut().zip(more.waits) {
                *count = count.saturating_add(more);
            }
        }
        self.has_priority = other.has_priority;
    }

    /// Returns the lanes with their numbers.
    pub fn each(&self) -> [(Lane, &LaneNumbers); 4] {
        let numbers = [&self.first, &self.people, &self.background, &self.bots];
        std::array::from_fn(|index| (Lane::ALL[index], numbers[index]))
    }

    /// Returns the numbers of all lanes, in the order of [`Lane::ALL`].
    pub fn each_mut(&mut self) -> [&mut LaneNumbers; 4] {
        [
            &mut self.first,
            &mut self.people,
            &mut self.background,
            &mut self.bots,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for lane in Lane::ALL {
            assert_eq!(Lane::from_name(lane.name().as_bytes()), Some(lane));
            assert_eq!(Lane::ALL[lane.index()], lane);
        }
        assert_eq!(Lane::from_name(b"Bots"), None);
    }
}

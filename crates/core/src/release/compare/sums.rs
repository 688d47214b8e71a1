//! The sums of a second, which workers write. A field may have any value.

use forkyard_protocol::numbers;
use forkyard_protocol::routes::OTHER;
use std::collections::BTreeMap;

/// Buckets of times: microseconds, two to a power of two, as in [`forkyard_protocol::routes`].
pub(super) const BUCKETS: usize = 64;
/// Routes with their own sums.
pub(super) const MOST_ROUTES: usize = 64;
/// The most requests of a route in a second.
const MOST: u64 = 1_000_000;

/// The times of requests by bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times(pub(super) [u64; BUCKETS]);

impl Default for Times {
    fn default() -> Times {
        Times([0; BUCKETS])
    }
}

impl Times {
    /// Adds requests to a bucket.
    pub fn add(&mut self, bucket: u8, requests: u64) {
        let bucket = &mut self.0[usize::from(bucket).min(BUCKETS - 1)];
        *bucket = bucket.saturating_add(requests);
    }

    pub(super) fn merge(&mut self, other: &Times) {
        for (own, others) in self.0.iter_mut().zip(other.0) {
            *own = own.saturating_add(others.min(MOST));
        }
    }

    pub(in crate::release) fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the median in seconds.
    pub(super) fn median(&self) -> Option<f64> {
        let buckets: Vec<(u8, u64)> = (0..).zip(self.0).collect();
        let rank = numbers::count(&buckets).div_ceil(2).max(1);
        let mut below = 0_u64;
        let found = buckets.iter().find(|(_, count)| {
            below = below.saturating_add(*count);
            below >= rank
        });
        found.map(|(index, _)| ((f64::from(*index) + 0.5) / 2.0).exp2() / 1e6)
    }
}

/// The requests of a route in one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub requests: u64,
    /// Requests with a status of 500 or above, without an answer, or with a worker that died.
    pub errors: u64,
    /// Errors that are evidence: a client that repeats a broken request on one worker gives few.
    pub evident: u64,
    /// Without the first requests of each worker.
    pub times: Times,
}

impl Counts {
    pub(in crate::release) fn merge(&mut self, other: &Counts) {
        let requests = other.requests.min(MOST);
        self.requests = self.requests.saturating_add(requests);
        let errors = other.errors.min(requests);
        self.errors = self.errors.saturating_add(errors);
        self.evident = self.evident.saturating_add(other.evident.min(errors));
        self.times.merge(&other.times);
    }
}

/// A value of each of the two generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pair<T> {
    /// The release in service.
    pub old: T,
    /// The release under way.
    pub new: T,
}

impl Pair<Counts> {
    pub(super) fn merge(&mut self, other: &Pair<Counts>) {
        self.old.merge(&other.old);
        self.new.merge(&other.new);
    }
}

/// Events of a generation that belong to no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Events {
    /// Workers that died, not at a limit of their requests.
    pub deaths: u64,
    /// Requests whose script was missing or refused.
    pub refused: u64,
    /// Starts of workers that ended, well or not.
    pub starts: u64,
    /// Starts that the application failed, or that took longer than they may. Failures of the machine do not count.
    pub failed_starts: u64,
}

/// The sums since the call before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Second {
    pub routes: BTreeMap<String, Pair<Counts>>,
    pub events: Pair<Events>,
}

impl Second {
    /// Returns the sums of a route. The path of a route is relative to the release.
    pub fn route(&mut self, name: &str) -> &mut Pair<Counts> {
        let name = match self.routes.contains_key(name) || self.routes.len() < MOST_ROUTES {
            true => name,
            false => OTHER,
        };
        self.routes.entry(name.to_owned()).or_default()
    }
}

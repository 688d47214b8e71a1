//! The usual wait of requests for something other than a processor, by route, and how much longer it is now.

use super::{Route, sane};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const MOST_ROUTES: usize = 64;
/// A route's first requests make its base.
const FIRST: f64 = 30.0;

/// Logarithms, so that a few long requests count little.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Base {
    log: f64,
    count: f64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Usual {
    routes: BTreeMap<u64, Base>,
    /// ln(wait / usual wait).
    pub(super) slower: f64,
}

impl Usual {
    /// Returns the work of the second: requests, weighted by the usual wait of their routes. `calm`: nothing queues, so the waits
    /// are usual.
    pub(super) fn second(&mut self, routes: &[Route], calm: bool) -> f64 {
        let (mut sum, mut work) = (0.0, 0.0);
        for route in routes.iter().filter(|route| route.done > 0) {
            let done = f64::from(route.done);
            let log = (finite(route.log_blocked) / done).clamp(-7.0, 12.0);
            self.make_room(route.key);
            let base = self.routes.entry(route.key).or_insert(Base { log, count: 0.0 });
            if base.count < FIRST {
                base.log = (base.log * base.count + log * done) / (base.count + done);
                base.count += done;
                continue;
            }
            if calm {
                base.log += (done / 50.0).min(0.2) * (log - base.log);
            }
            base.count = (base.count + done).min(1e9);
            let weight = done * base.log.exp();
            sum += weight * (log - base.log);
            work += weight;
        }
        if work > 0.0 {
            self.slower += 0.4 * (sum / work - self.slower);
        }
        sane(work)
    }

    /// Forgets the rarest route if there are too many.
    fn make_room(&mut self, key: u64) {
        if self.routes.len() < MOST_ROUTES || self.routes.contains_key(&key) {
            return;
        }
        let rarest = self
            .routes
            .iter()
            .min_by(|one, other| one.1.count.total_cmp(&other.1.count));
        if let Some(rarest) = rarest.map(|(key, _)| *key) {
            self.routes.remove(&rarest);
        }
    }

    pub(super) fn times_slower(&self) -> f64 {
        self.slower.clamp(0.0, 20.0).exp()
    }

    /// Makes the present waits the usual ones.
    pub(super) fn accept(&mut self, log_slower: f64) {
        for base in self.routes.values_mut() {
            base.log = (base.log + log_slower).clamp(-7.0, 12.0);
        }
        self.slower = 0.0;
    }
}

fn finite(number: f64) -> f64 {
    if number.is_finite() { number } else { 0.0 }
}

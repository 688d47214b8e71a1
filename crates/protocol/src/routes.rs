//! The routes of a pool: requests with the same method and path, with ids and digits left out.

use crate::numbers;
use forkyard_base::scale::IN_OCTAVE;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Buckets of [`forkyard_base::scale`] in a bucket of a route. A power of two has two buckets of a route.
pub const SCALE_STEP: usize = IN_OCTAVE / 2;
/// The first bucket of a route, which has everything up to 64 µs.
pub const FIRST_BUCKET: usize = 11;
/// Routes in an answer; the rest is one row.
const MOST: usize = 64;
/// The name of the last row: all other routes.
pub const OTHER: &str = "other";

/// The sums of a route.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteCounts {
    pub route: String,
    pub requests: u64,
    /// Requests with a status of 500 or above, without an answer, or with a client that left.
    pub errors: u64,
    pub busy_ns: u64,
    pub cpu_ns: u64,
    pub blocked_ns: u64,
    pub growth_kib: u64,
    /// Two buckets to a power of two, of microseconds: index and count.
    pub buckets: Vec<(u8, u64)>,
}

impl RouteCounts {
    fn add(&mut self, other: &RouteCounts) {
        let sums = [
            (&mut self.requests, other.requests),
            (&mut self.errors, other.errors),
            (&mut self.busy_ns, other.busy_ns),
            (&mut self.cpu_ns, other.cpu_ns),
            (&mut self.blocked_ns, other.blocked_ns),
            (&mut self.growth_kib, other.growth_kib),
        ];
        for (own, others) in sums {
            *own = own.saturating_add(others);
        }
        for (index, count) in &other.buckets {
            match self.buckets.binary_search_by_key(index, |(index, _)| *index) {
                Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(*count),
                Err(at) => self.buckets.insert(at, (*index, *count)),
            }
        }
    }

    /// Returns a quantile of the durations in microseconds, with an error of at most 19 %.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let rank = (numbers::count(&self.buckets) as f64 * part).ceil().max(1.0);
        let mut below = 0_u64;
        let found = self.buckets.iter().find(|(_, count)| {
            below = below.saturating_add(*count);
            below as f64 >= rank
        });
        found.map(|(index, _)| ((f64::from(*index) + 0.5) / 2.0).exp2())
    }
}

/// Merges the rows of slots.
#[derive(Debug, Default)]
pub struct RouteSums {
    routes: BTreeMap<String, RouteCounts>,
    other: RouteCounts,
}

impl RouteSums {
    pub fn add(&mut self, rows: Vec<RouteCounts>, other: &RouteCounts) {
        for row in rows {
            let sum = self
                .routes
                .entry(row.route.clone())
                .or_insert_with(|| RouteCounts {
                    route: row.route.clone(),
                    ..RouteCounts::default()
                });
            sum.add(&row);
        }
        self.other.add(other);
    }

    /// Returns the busiest routes, and a last row for all others.
    pub fn answer(self) -> Vec<RouteStatus> {
        let mut rows: Vec<RouteCounts> = self.routes.into_values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.busy_ns));
        let mut other = self.other;
        other.route = OTHER.to_owned();
        for row in rows.drain(rows.len().min(MOST)..) {
            other.add(&row);
        }
        if other.requests > 0 {
            rows.push(other);
        }
        rows.iter().map(RouteStatus::new).collect()
    }
}

/// A route in an answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RouteStatus {
    /// A name such as `GET /item/#`, or `other` for all routes without a row.
    pub route: String,
    pub requests: u64,
    /// Requests with a status of 500 or above, without an answer, or with a client that left.
    pub errors: u64,
    /// Time from the parameters to the end of the answer.
    pub busy_seconds: f64,
    /// Processor time; 0 in workers with several requests.
    pub cpu_seconds: f64,
    /// Time without a processor; 0 in workers with several requests.
    pub blocked_seconds: f64,
    /// How much the route's requests raised workers' peaks of memory, in bytes.
    pub memory_growth: u64,
    /// Index and count of buckets of microseconds, two to a power of two.
    pub buckets: Vec<(u8, u64)>,
    /// Quantiles of the duration in seconds, with an error of at most 19 %.
    #[serde(default)]
    pub p50: Option<f64>,
    #[serde(default)]
    pub p95: Option<f64>,
}

impl RouteStatus {
    fn new(of: &RouteCounts) -> RouteStatus {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let quantile = |part| of.quantile(part).map(|micros| micros / 1e6);
        RouteStatus {
            route: of.route.clone(),
            requests: of.requests,
            errors: of.errors,
            busy_seconds: seconds(of.busy_ns),
            cpu_seconds: seconds(of.cpu_ns),
            blocked_seconds: seconds(of.blocked_ns),
            memory_growth: of.growth_kib.saturating_mul(1024),
            buckets: of.buckets.clone(),
            p50: quantile(0.5),
            p95: quantile(0.95),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_slots_are_merged_and_the_rest_is_one_row() {
        let row = |name: u64, busy: u64| RouteCounts {
            route: format!("GET /{name}"),
            requests: 1,
            busy_ns: busy * 1_000_000_000,
            buckets: vec![(20, 1)],
            ..RouteCounts::default()
        };
        let mut sums = RouteSums::default();
        sums.add((0..100).map(|name| row(name, name)).collect(), &row(0, 5));
        sums.add(vec![row(99, 1)], &RouteCounts::default());
        let answer = sums.answer();
        assert_eq!(answer.len(), MOST + 1);
        assert_eq!((answer[0].route.as_str(), answer[0].requests), ("GET /99", 2));
        assert_eq!(
            (answer[0].busy_seconds, answer[0].buckets.clone()),
            (100.0, vec![(20, 2)])
        );
        let last = &answer[MOST];
        assert_eq!((last.route.as_str(), last.requests), (OTHER, 37));
        let total: f64 = answer.iter().map(|row| row.busy_seconds).sum();
        assert_eq!(total, f64::from(99 * 50 + 6));
    }
}

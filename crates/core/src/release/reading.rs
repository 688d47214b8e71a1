//! The sums of a second, from the rows that each worker counts in shared memory.
//!
//! A worker's first requests do not count for time, because it loads code and fills caches; a worker's first requests of a
//! route do not, either.
//!
//! A client that repeats a broken request may stay with one worker of the new generation. So only one failure of a route in a
//! reading of a worker is evidence.

use super::compare::{Counts, Pair, Second};
use forkyard_protocol::routes::{OTHER, RouteCounts};
use std::collections::BTreeMap;

/// A worker's first requests.
const FIRST: u64 = 20;
/// The generation of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Old,
    New,
}

/// The last reading of each worker.
#[derive(Debug, Default)]
pub struct Reading {
    workers: BTreeMap<u64, Worker>,
}

#[derive(Debug, Default)]
struct Worker {
    rows: BTreeMap<String, RouteCounts>,
    requests: u64,
    errors: u64,
}

/// Returns how many failures of a worker on a route in a reading are evidence. All of the old generation are, in favour of
/// the new one.
pub fn evident(side: Side, errors: u64) -> u64 {
    match side {
        Side::Old => errors,
        Side::New => errors.min(1),
    }
}

impl Reading {
    /// Reads a worker without counting its requests, because the deployment begins. `worker`: a number that no other worker has.
    pub fn begin(&mut self, worker: u64, rows: &[RouteCounts], other: &RouteCounts) {
        self.worker(worker, Side::Old, rows, other, &mut Second::default());
    }

    /// Adds a worker's requests since the last reading, or since its start. The worker wrote the rows; they may have any value.
    pub fn worker(
        &mut self,
        worker: u64,
        side: Side,
        rows: &[RouteCounts],
        other: &RouteCounts,
        second: &mut Second,
    ) {
        let mut before = self.workers.remove(&worker).unwrap_or_default();
        let sum = |of: fn(&RouteCounts) -> u64| rows.iter().map(of).fold(of(other), u64::saturating_add);
        let mut now = Worker {
            rows: BTreeMap::new(),
            requests: sum(|row| row.requests),
            errors: sum(|row| row.errors),
        };
        let is_warm = before.requests >= FIRST;
        let mut rest = Counts {
            requests: now.requests.saturating_sub(before.requests),
            errors: now.errors.saturating_sub(before.errors),
            ..Counts::default()
        };
        for row in rows {
            let known = before.rows.remove(&row.route);
            // A row that has less than before was given to another route and back: its counts begin at zero.
            let known = known.filter(|known| known.requests <= row.requests);
            let mut counts = difference(row, known.as_ref(), is_warm);
            rest.requests = rest.requests.saturating_sub(counts.requests);
            rest.errors = rest.errors.saturating_sub(counts.errors);
            counts.evident = evident(side, counts.errors);
            add(second.route(&row.route), side, &counts);
            now.rows.insert(row.route.clone(), row.clone());
        }
        rest.evident = evident(side, rest.errors);
        if rest.requests > 0 {
            add(second.route(OTHER), side, &rest);
        }
        self.workers.insert(worker, now);
    }

    /// Forgets a worker that has ended.
    pub fn forget(&mut self, worker: u64) {
        self.workers.remove(&worker);
    }
}

fn difference(now: &RouteCounts, before: Option<&RouteCounts>, is_warm: bool) -> Counts {
    let nothing = RouteCounts::default();
    let is_warm = is_warm && before.is_some_and(|before| before.requests > 0);
    let before = before.unwrap_or(&nothing);
    let mut counts = Counts {
        requests: now.requests.saturating_sub(before.requests),
        errors: now.errors.saturating_sub(before.errors),
        ..Counts::default()
    };
    for (index, count) in now.buckets.iter().filter(|_| is_warm) {
        let old = before.buckets.iter().find(|(old, _)| old == index);
        let old = old.map_or(0, |(_, count)| *count);
        counts.times.add(*index, count.saturating_sub(old));
    }
    counts
}

fn add(pair: &mut Pair<Counts>, side: Side, counts: &Counts) {
    match side {
        Side::Old => pair.old.merge(counts),
        Side::New => pair.new.merge(counts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(route: &str, requests: u64, errors: u64) -> RouteCounts {
        RouteCounts {
            route: route.to_owned(),
            requests,
            errors,
            buckets: vec![(30, requests)],
            ..RouteCounts::default()
        }
    }

    fn read(reading: &mut Reading, rows: &[RouteCounts], other: u64) -> Second {
        let mut second = Second::default();
        reading.worker(1, Side::New, rows, &row(OTHER, other, 0), &mut second);
        second
    }

    fn seen(second: &Second, route: &str) -> (u64, u64, u64) {
        let new = second.routes.get(route).copied().unwrap_or_default().new;
        (new.requests, new.errors, new.times.count())
    }

    #[test]
    fn the_first_requests_have_no_time_but_errors() {
        let mut reading = Reading::default();
        let mut total = 0;
        for (more, errors, timed) in [(5, 5, 0), (14, 0, 0), (3, 1, 0), (4, 0, 4), (0, 0, 0)] {
            let before = total;
            total += more;
            let failed = reading.workers.get(&1).map_or(0, |worker| worker.errors) + errors;
            let second = read(&mut reading, &[row("GET /", total, failed)], 0);
            assert_eq!(seen(&second, "GET /"), (more, errors, timed), "after {before}");
        }
        // Another route is cold.
        let rows = [row("GET /", total, 6), row("GET /cold", 2, 0)];
        assert_eq!(seen(&read(&mut reading, &rows, 0), "GET /cold"), (2, 0, 0));
        let rows = [row("GET /", total, 6), row("GET /cold", 5, 0)];
        assert_eq!(seen(&read(&mut reading, &rows, 0), "GET /cold"), (3, 0, 3));
    }

    #[test]
    fn requests_before_the_deployment_do_not_count() {
        let mut reading = Reading::default();
        let other = RouteCounts::default();
        reading.begin(1, &[row("GET /", 1000, 10)], &other);
        let mut second = Second::default();
        reading.worker(1, Side::Old, &[row("GET /", 1003, 11)], &other, &mut second);
        let old = second.routes["GET /"].old;
        assert_eq!((old.requests, old.errors, old.times.count()), (3, 1, 3));
        reading.forget(1);
        assert!(reading.workers.is_empty());
    }

    #[test]
    fn a_row_that_goes_to_the_others_counts_once() {
        let mut reading = Reading::default();
        read(&mut reading, &[row("GET /a", 100, 0), row("GET /b", 50, 0)], 7);
        // The row of /b went to /c: its 50 requests, and one more, are among the others.
        let second = read(&mut reading, &[row("GET /a", 101, 0), row("GET /c", 2, 0)], 58);
        assert_eq!(seen(&second, "GET /a"), (1, 0, 1));
        assert_eq!(seen(&second, "GET /c"), (2, 0, 0));
        assert_eq!(seen(&second, OTHER), (1, 0, 0));
        // And back.
        let second = read(&mut reading, &[row("GET /a", 101, 0), row("GET /b", 1, 0)], 60);
        assert_eq!(seen(&second, "GET /b"), (1, 0, 0));
    }

    #[test]
    fn a_worker_s_failures_are_evidence_at_most_once_in_a_reading() {
        for (side, expected) in [(Side::New, [0, 1, 1]), (Side::Old, [0, 1, 4])] {
            assert_eq!([0, 1, 4].map(|errors| evident(side, errors)), expected);
        }
        let mut reading = Reading::default();
        for requests in 1..=3 {
            let rows = [
                row("GET /", requests * 5, requests * 5),
                row("GET /b", requests, 0),
            ];
            let second = read(&mut reading, &rows, 0);
            let new = second.routes["GET /"].new;
            assert_eq!(new.errors, 5);
            assert_eq!(new.evident, 1);
        }
    }

    #[test]
    fn lies_are_bounded() {
        let mut reading = Reading::default();
        let lie = RouteCounts {
            buckets: vec![(255, u64::MAX), (255, 1), (0, u64::MAX)],
            ..row("GET /", u64::MAX, u64::MAX)
        };
        for rows in [
            vec![lie.clone(); 3],
            vec![],
            vec![lie.clone()],
            vec![row("GET /", 3, 9)],
        ] {
            let second = read(&mut reading, &rows, u64::MAX);
            for pair in second.routes.values() {
                assert!(pair.new.errors <= pair.new.requests && pair.new.requests <= 3_000_000);
            }
        }
        let mut second = Second::default();
        let rows: Vec<RouteCounts> = (0..1000)
            .map(|index| row(&format!("GET /{index}"), 1, 0))
            .collect();
        reading.worker(2, Side::New, &rows, &RouteCounts::default(), &mut second);
        assert!(second.routes.len() <= 65, "{}", second.routes.len());
        assert_eq!(second.routes[OTHER].new.requests, 1000 - 64);
    }
}

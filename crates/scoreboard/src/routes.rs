//! The routes of a slot with the most busy time: a row for each, and the sums of all others.
//!
//! A new route takes the row with the least weight, and adds that row's counts to the others. Its weight continues from
//! there (Metwally, "Efficient computation of frequent and top-k elements in data streams", ICDT 2005), so a busy route
//! stays, and a row only counts its own route.

use super::layout::numbers as at;
use super::numbers::Counters;
use super::text;
use forkyard_base::scale::{BUCKETS, bucket};
use forkyard_base::tick::nanos;
use forkyard_protocol::routes::{FIRST_BUCKET, RouteCounts, SCALE_STEP};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The unit of sums of logarithms, as a part of 1.
pub const LOG_SCALE: f64 = 1e6;

/// A request's part in its route.
#[derive(Debug, Clone, Copy, Default)]
pub struct RouteUse {
    pub run: Duration,
    /// `None` if unknown.
    pub cpu_micros: Option<u64>,
    /// Time in the run queue; zero if unknown.
    pub queued: Duration,
    /// The autopilot wants to know how long the request waited.
    pub is_sampled: bool,
    /// How much the request raised the worker's peak of memory, in bytes.
    pub growth: u64,
    pub is_error: bool,
}

/// A request's row, and its key when the request began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteRow {
    row: usize,
    key: u64,
}

/// The routes of a slot.
#[derive(Debug, Clone, Copy)]
pub struct Routes<'a>(pub(super) Counters<'a>);

impl<'a> Counters<'a> {
    pub fn routes(&self) -> Routes<'a> {
        Routes(*self)
    }
}

impl Routes<'_> {
    pub(super) fn key(&self, row: usize) -> u64 {
        self.0.words[at::ROUTE_KEYS + row].load(Ordering::Acquire)
    }

    /// Whether the row still has its route.
    pub fn has(&self, row: RouteRow) -> bool {
        self.key(row.row) == row.key
    }

    /// Returns the row of a route. A route without a row takes one. `key`: not 0, and the same for the same name.
    pub fn row(&self, key: u64, name: &[u8]) -> RouteRow {
        let rows = 0..at::ROUTES;
        let found = rows.clone().find(|row| self.key(*row) == key);
        let row = found.unwrap_or_else(|| {
            let weight = |row: &usize| (self.key(*row) != 0, self.0.load(at::ROUTE_WEIGHTS + *row));
            let row = rows.min_by_key(weight).unwrap_or(0);
            self.replace(row, key, name);
            row
        });
        RouteRow { row, key }
    }

    fn replace(&self, row: usize, key: u64, name: &[u8]) {
        self.0.words[at::ROUTE_KEYS + row].store(0, Ordering::Release);
        let first = at::ROUTE_ROWS + row * at::ROUTE_WORDS;
        for index in 0..at::ROUTE_SUMS {
            self.0.add(at::OTHER_ROUTES + index, self.0.load(first + index));
        }
        for index in 0..at::ROUTE_NAME {
            self.0.store(first + index, 0);
        }
        let name = &name[..name.len().min(at::ROUTE_NAME_BYTES)];
        text::store(&self.0.words[first + at::ROUTE_NAME..], name);
        self.0.store(first + at::ROUTE_NAME_LENGTH, name.len() as u64);
        self.0.words[at::ROUTE_KEYS + row].store(key, Ordering::Release);
    }

    /// Shows the route of the worker's request, in case the worker dies.
    pub fn begin(&self, row: RouteRow) {
        self.0.store(at::CURRENT_ROUTE, row.row as u64 + 1);
    }

    /// Returns the route of a dead worker's request.
    pub(super) fn current(&self) -> Option<RouteRow> {
        let row = usize::try_from(self.0.load(at::CURRENT_ROUTE))
            .ok()?
            .checked_sub(1)?;
        let key = (row < at::ROUTES).then(|| self.key(row))?;
        Some(RouteRow { row, key })
    }

    /// Returns the route of the present request. Untrusted.
    pub fn present(&self) -> Option<String> {
        let row = self.current()?;
        let counts = self.counts(at::ROUTE_ROWS + row.row * at::ROUTE_WORDS, true);
        (row.key != 0 && self.has(row)).then_some(counts.route)
    }

    /// Counts a request. `row`: `None` for a request without a known route.
    pub fn finished(&self, row: Option<RouteRow>, request: &RouteUse) {
        let row = row.filter(|row| self.has(*row));
        let nanos = nanos(request.run);
        let cpu = request.cpu_micros.map(|micros| micros.saturating_mul(1_000));
        let sums = [
            1,
            u64::from(request.is_error),
            nanos,
            cpu.unwrap_or(0),
            cpu.map_or(0, |cpu| nanos.saturating_sub(cpu)),
            request.growth / 1024,
        ];
        let first = row.map_or(at::OTHER_ROUTES, |row| at::ROUTE_ROWS + row.row * at::ROUTE_WORDS);
        for (index, more) in sums.into_iter().enumerate().filter(|(_, more)| *more > 0) {
            self.0.add(first + index, more);
        }
        self.0.store(at::CURRENT_ROUTE, 0);
        let Some(row) = row else { return };
        self.0.add(at::ROUTE_WEIGHTS + row.row, nanos);
        if request.is_sampled {
            self.0.add(first + at::ROUTE_LOG_BLOCKED, log_blocked(request));
        }
        let place = bucket(nanos / 1_000) / SCALE_STEP;
        let place = place.saturating_sub(FIRST_BUCKET).min(at::ROUTE_BUCKETS - 1);
        // Two counts a word.
        let (index, shift) = (first + at::ROUTE_HISTOGRAM + place / 2, place % 2 * 32);
        let word = self.0.load(index);
        if (word >> shift) as u32 != u32::MAX {
            self.0.store(index, word.wrapping_add(1 << shift));
        }
    }

    /// Reads all rows, and the sums of all other requests. Untrusted.
    pub fn read(&self) -> (Vec<RouteCounts>, RouteCounts) {
        let rows = (0..at::ROUTES).filter_map(|row| {
            let key = self.key(row);
            let counts = self.counts(at::ROUTE_ROWS + row * at::ROUTE_WORDS, true);
            (key != 0 && key == self.key(row)).then_some(counts)
        });
        (rows.collect(), self.counts(at::OTHER_ROUTES, false))
    }

    fn counts(&self, first: usize, is_row: bool) -> RouteCounts {
        let mut counts = RouteCounts {
            requests: self.0.load(first),
            errors: self.0.load(first + 1),
            busy_ns: self.0.load(first + 2),
            cpu_ns: self.0.load(first + 3),
            blocked_ns: self.0.load(first + 4),
            growth_kib: self.0.load(first + 5),
            ..RouteCounts::default()
        };
        if is_row {
            let words = &self.0.words[first + at::ROUTE_NAME..][..at::ROUTE_NAME_BYTES / 8];
            let bytes = text::load(words, self.0.load(first + at::ROUTE_NAME_LENGTH));
            counts.route = String::from_utf8_lossy(&bytes).into_owned();
            let buckets = (0..at::ROUTE_BUCKETS).map(|place| {
                let word = self.0.load(first + at::ROUTE_HISTOGRAM + place / 2);
                let index = (FIRST_BUCKET + place).min(BUCKETS / SCALE_STEP - 1);
                (index as u8, u64::from((word >> (place % 2 * 32)) as u32))
            });
            counts.buckets = buckets.filter(|(_, count)| *count > 0).collect();
        }
        counts
    }
}

/// Returns ln(1 + ms) of the time that a request neither ran nor waited for a processor, in millionths. A route's mean
/// shows how long its requests usually wait, and hardly follows a few that wait much longer.
fn log_blocked(request: &RouteUse) -> u64 {
    let run = Duration::from_micros(request.cpu_micros.unwrap_or(0));
    let blocked = request.run.saturating_sub(run).saturating_sub(request.queued);
    ((blocked.as_secs_f64() * 1e3).ln_1p() * LOG_SCALE) as u64
}

#[cfg(test)]
mod tests {
    use super::super::layout::NUMBERS_PAGES;
    use super::*;
    use forkyard_sys::shm::PAGE_WORDS;
    use std::sync::atomic::AtomicU64;

    fn words() -> Vec<AtomicU64> {
        let count = NUMBERS_PAGES * PAGE_WORDS;
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn the_present_route_is_that_of_a_request_under_way() {
        let words = words();
        let routes = Counters::new(&words).routes();
        assert_eq!(routes.present(), None);
        let row = routes.row(7, b"GET /item/#");
        routes.begin(row);
        assert_eq!(routes.present().as_deref(), Some("GET /item/#"));
        routes.finished(Some(row), &RouteUse::default());
        assert_eq!(routes.present(), None);
        words[at::CURRENT_ROUTE].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(routes.present(), None);
    }

    fn run(routes: Routes<'_>, key: u64, millis: u64) {
        let name = format!("GET /{key}");
        let row = routes.row(key, name.as_bytes());
        routes.begin(row);
        let request = RouteUse {
            run: Duration::from_millis(millis),
            cpu_micros: Some(millis * 250),
            queued: Duration::ZERO,
            is_sampled: true,
            growth: 2048,
            is_error: key % 2 == 0,
        };
        routes.finished(Some(row), &request);
    }

    #[test]
    fn a_route_has_its_sums() {
        let words = words();
        let routes = Counters::new(&words).routes();
        run(routes, 7, 10);
        run(routes, 7, 30);
        run(routes, 8, 1);
        routes.finished(None, &RouteUse::default());
        let (rows, other) = routes.read();
        assert_eq!(other.requests, 1);
        assert_eq!(rows.len(), 2);
        let row = rows.iter().find(|row| row.route == "GET /7").unwrap();
        assert_eq!((row.requests, row.errors, row.busy_ns), (2, 0, 40_000_000));
        assert_eq!(
            (row.cpu_ns, row.blocked_ns, row.growth_kib),
            (10_000_000, 30_000_000, 4)
        );
        assert_eq!(row.buckets.iter().map(|(_, count)| count).sum::<u64>(), 2);
        let p50 = row.quantile(0.5).unwrap();
        assert!((8_000.0..12_000.0).contains(&p50), "{p50}");
    }

    #[test]
    fn busy_routes_stay_and_the_sum_is_whole() {
        let words = words();
        let routes = Counters::new(&words).routes();
        let mut rare = 100;
        for round in 0..20_000_u64 {
            match round % 4 {
                0 => {
                    rare += 1;
                    run(routes, rare, 1);
                }
                hot => run(routes, hot, 20),
            }
        }
        let (rows, other) = routes.read();
        for hot in 1..4 {
            let row = rows
                .iter()
                .find(|row| row.route == format!("GET /{hot}"))
                .unwrap();
            assert_eq!((row.requests, row.busy_ns), (5_000, 100_000_000_000));
        }
        let requests: u64 = rows.iter().map(|row| row.requests).sum();
        assert_eq!(requests + other.requests, 20_000);
        assert_eq!(rows.len(), at::ROUTES);
    }

    #[test]
    fn a_row_of_another_route_is_not_counted_for_the_first() {
        let words = words();
        let routes = Counters::new(&words).routes();
        let row = routes.row(1, b"GET /1");
        for key in 2..100 {
            run(routes, key, 5);
        }
        assert!(!routes.has(row));
        routes.finished(Some(row), &RouteUse::default());
        let (rows, other) = routes.read();
        let all: u64 = rows.iter().map(|row| row.requests).sum();
        assert_eq!(all + other.requests, 99);
    }

    #[test]
    fn nonsense_is_bounded() {
        let words = words();
        for word in &words {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        let (rows, _) = Counters::new(&words).routes().read();
        assert!(rows.iter().all(|row| row.route.len() <= 3 * at::ROUTE_NAME_BYTES));
        assert_eq!(Counters::new(&words).routes().current(), None);
    }
}

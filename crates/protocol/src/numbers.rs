//! A pool's numbers: busy time of workers, and distributions of its requests' times and memory.
//!
//! All are sums that never fall: the difference of two readings covers all of the time between them.

use crate::dead_work::{COUNTS, DeadWork};
use crate::history::{History, LastHour, Minute, Period};
use crate::router::Refusals;
use forkyard_base::scale::{self, BUCKETS, IN_OCTAVE};
use serde::{Deserialize, Serialize};

/// The class of an answer's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatusClass {
    Informational,
    Success,
    Redirection,
    ClientError,
    ServerError,
    /// No answer was sent.
    #[default]
    None,
}

/// The number of classes.
pub const CLASSES: usize = 6;

impl StatusClass {
    pub const NAMES: [&'static str; CLASSES] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

    /// Returns the class of a status.
    pub fn of(status: u16) -> StatusClass {
        match status / 100 {
            1 => StatusClass::Informational,
            2 => StatusClass::Success,
            3 => StatusClass::Redirection,
            4 => StatusClass::ClientError,
            5 => StatusClass::ServerError,
            _ => StatusClass::None,
        }
    }

    pub fn index(self) -> usize {
        self as usize
    }
}

/// Counts by bucket of [`scale`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Histogram {
    /// The sum of all values. Times have it in nanoseconds, and their buckets in microseconds.
    pub sum: u64,
    /// Buckets with a count, in order: index and count.
    pub buckets: Vec<(u8, u64)>,
}

impl Histogram {
    /// Makes a histogram of the counts of all buckets.
    pub fn new(sum: u64, counts: impl Iterator<Item = u64>) -> Histogram {
        let counts = (0..=u8::MAX).zip(counts);
        Histogram {
            sum,
            buckets: counts.filter(|(_, count)| *count > 0).collect(),
        }
    }

    pub fn add(&mut self, other: &Histogram) {
        self.sum = self.sum.saturating_add(other.sum);
        for (index, count) in &other.buckets {
            match self.buckets.binary_search_by_key(index, |(index, _)| *index) {
                Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(*count),
                Err(at) => self.buckets.insert(at, (*index, *count)),
            }
        }
    }

    pub fn count(&self) -> u64 {
        count(&self.buckets)
    }
}

/// Returns the number of values in the buckets.
pub fn count(buckets: &[(u8, u64)]) -> u64 {
    let counts = buckets.iter().map(|(_, count)| *count);
    counts.fold(0, u64::saturating_add)
}

/// Returns a quantile with an error of at most 4.4 %; `None` without values.
pub fn quantile(buckets: &[(u8, u64)], part: f64) -> Option<f64> {
    let rank = (count(buckets) as f64 * part).ceil().max(1.0);
    let mut below = 0_u64;
    let found = buckets.iter().find(|(_, count)| {
        below = below.saturating_add(*count);
        below as f64 >= rank
    });
    found.map(|(index, _)| scale::middle(usize::from(*index)))
}

/// Returns the number of values up to 2^`exponent`. Exact, because powers of two are bounds of buckets.
pub fn at_most_power(buckets: &[(u8, u64)], exponent: usize) -> u64 {
    let end = (exponent * IN_OCTAVE).min(BUCKETS);
    let below = buckets.iter().filter(|(index, _)| usize::from(*index) < end);
    below.fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

/// The sums of a pool, a generation or a slot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Numbers {
    /// Busy time of all workers, in nanoseconds.
    pub busy_ns: u64,
    /// Time with `max_children` busy workers, in nanoseconds.
    pub saturated_ns: u64,
    /// Time with a waiting connection, in nanoseconds; a lower bound.
    pub queue_ns: u64,
    /// Requests by the class of their status.
    pub classes: [u64; CLASSES],
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Requests whose client left before the end of the answer.
    pub aborted: u64,
    /// Requests that a worker with several requests ended after their time limit.
    pub timed_out: u64,
    /// By [`DeadCount`](crate::dead_work::DeadCount).
    pub dead: [u64; COUNTS],
    /// From the parameters to the end of the answer; buckets of microseconds.
    pub run: Histogram,
    /// Time before a worker took the request, a lower bound; buckets of microseconds.
    pub wait: Histogram,
    /// Processor time; buckets of microseconds.
    pub cpu: Histogram,
    /// Peak memory; buckets and sum in KiB.
    pub memory: Histogram,
    pub history: History,
}

impl Numbers {
    pub fn add(&mut self, other: &Numbers) {
        let sums = [
            (&mut self.busy_ns, other.busy_ns),
            (&mut self.saturated_ns, other.saturated_ns),
            (&mut self.queue_ns, other.queue_ns),
            (&mut self.bytes_in, other.bytes_in),
            (&mut self.bytes_out, other.bytes_out),
            (&mut self.aborted, other.aborted),
            (&mut self.timed_out, other.timed_out),
        ];
        let classes = self.classes.iter_mut().zip(other.classes);
        let dead = self.dead.iter_mut().zip(other.dead);
        for (own, others) in sums.into_iter().chain(classes).chain(dead) {
            // Workers may write any number.
            *own = own.saturating_add(others);
        }
        self.run.add(&other.run);
        self.wait.add(&other.wait);
        self.cpu.add(&other.cpu);
        self.memory.add(&other.memory);
        self.history.add(&other.history);
    }

    /// Adds the requests that a router answered itself in this minute. Untrusted.
    pub fn add_refusals(&mut self, refused: &Refusals, minute: u64) {
        let dead = self.dead.iter_mut().zip(refused.dead);
        for (own, more) in self.classes.iter_mut().zip(refused.classes).chain(dead) {
            *own = own.saturating_add(more);
        }
        let class = |class: StatusClass| refused.classes[class.index()];
        self.history.add_minute(&Minute {
            minute,
            requests: refused.classes.into_iter().fold(0, u64::saturating_add),
            errors: class(StatusClass::ServerError).saturating_add(class(StatusClass::None)),
            dead: refused.dead,
            run_micros: 0,
            waits: refused.waits,
        });
        self.history.coarsen(minute);
    }

    pub fn is_nothing(&self) -> bool {
        *self == Numbers::default()
    }
}

/// A pool's numbers in an answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolNumbers {
    /// Busy time of all workers.
    pub busy_seconds: f64,
    /// Processor time of workers, as in the pool's `cpu_ms`.
    pub cpu_seconds: f64,
    /// Time with `max_children` busy workers.
    pub saturated_seconds: f64,
    /// Time with a waiting connection; a lower bound.
    pub queue_seconds: f64,
    pub requests: RequestsByClass,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub aborted: u64,
    pub timed_out: u64,
    /// Requests that did not begin.
    pub dead_work: DeadWork,
    pub run: Distribution,
    pub wait: Distribution,
    pub cpu: Distribution,
    pub memory: Distribution,
    /// `None` without a request in the last hour.
    pub last_hour: Option<LastHour>,
    /// The same hour a day ago, to ten minutes, and a week ago, to an hour; `None` without a request.
    pub day_ago: Option<Period>,
    pub week_ago: Option<Period>,
}

/// Requests by the class of their status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestsByClass {
    #[serde(rename = "1xx")]
    pub informational: u64,
    #[serde(rename = "2xx")]
    pub success: u64,
    #[serde(rename = "3xx")]
    pub redirection: u64,
    #[serde(rename = "4xx")]
    pub client_error: u64,
    #[serde(rename = "5xx")]
    pub server_error: u64,
    pub none: u64,
}

impl RequestsByClass {
    /// Returns the counts in the order of [`StatusClass::NAMES`].
    pub fn counts(&self) -> [u64; CLASSES] {
        [
            self.informational,
            self.success,
            self.redirection,
            self.client_error,
            self.server_error,
            self.none,
        ]
    }
}

/// A histogram in an answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Distribution {
    pub count: u64,
    /// In seconds, or KiB for memory.
    pub sum: f64,
    /// Index and count of buckets of microseconds, or of KiB for memory. Empty buckets are absent.
    pub buckets: Vec<(u8, u64)>,
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl Distribution {
    fn new(of: &Histogram, sum: f64) -> Distribution {
        Distribution {
            count: of.count(),
            sum,
            buckets: of.buckets.clone(),
        }
    }

    /// See [`quantile`].
    pub fn quantile(&self, part: f64) -> Option<f64> {
        quantile(&self.buckets, part)
    }
}

impl PoolNumbers {
    /// `terminated`: requests that the master ended after their time limit. `minute`: the present one.
    pub fn new(of: &Numbers, cpu_ms: u64, terminated: u64, minute: u64) -> PoolNumbers {
        let [
            informational,
            success,
            redirection,
            client_error,
            server_error,
            none,
        ] = of.classes;
        let time = |histogram: &Histogram| Distribution::new(histogram, seconds(histogram.sum));
        PoolNumbers {
            busy_seconds: seconds(of.busy_ns),
            cpu_seconds: cpu_ms as f64 / 1e3,
            saturated_seconds: seconds(of.saturated_ns),
            queue_seconds: seconds(of.queue_ns),
            requests: RequestsByClass {
                informational,
                success,
                redirection,
                client_error,
                server_error,
                none,
            },
            bytes_in: of.bytes_in,
            bytes_out: of.bytes_out,
            aborted: of.aborted,
            timed_out: of.timed_out.saturating_add(terminated),
            dead_work: of.dead.into(),
            run: time(&of.run),
            wait: time(&of.wait),
            cpu: time(&of.cpu),
            memory: Distribution::new(&of.memory, of.memory.sum as f64),
            last_hour: of.history.last_hour(minute),
            day_ago: None,
            week_ago: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut counts = [0; BUCKETS];
        for value in values {
            counts[scale::bucket(*value)] += 1;
        }
        Histogram::new(values.iter().sum(), counts.into_iter())
    }

    #[test]
    fn histograms_are_merged_exactly() {
        let (one, other) = ([1, 5, 900, 70_000], [5, 6, 1_000_000, u64::MAX >> 1]);
        let mut sum = of(&one);
        sum.add(&of(&other));
        assert_eq!(sum, of(&[one, other].concat()));
        assert_eq!(sum.count(), 8);
    }

    #[test]
    fn quantiles_are_near_those_of_the_values() {
        let mut values: Vec<u64> = (0..10_000_u64).map(|i| 40 + i * i % 77_777).collect();
        let histogram = of(&values);
        values.sort_unstable();
        for part in [0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0] {
            let exact = values[((values.len() as f64 * part).ceil() as usize).max(1) - 1] as f64;
            let found = quantile(&histogram.buckets, part).unwrap_or(0.0);
            assert!((found / exact - 1.0).abs() < 0.0443, "{part}: {found}, {exact}");
        }
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn powers_of_two_are_exact_bounds() {
        let values: Vec<u64> = (0..5_000).collect();
        let histogram = of(&values);
        for exponent in 1..14 {
            let bound = 1_u64 << exponent;
            let exact = values.iter().filter(|value| **value <= bound).count() as u64;
            assert_eq!(at_most_power(&histogram.buckets, exponent), exact);
        }
        assert_eq!(at_most_power(&histogram.buckets, 999), 5_000);
    }

    #[test]
    fn sums_have_everything_and_do_not_wrap() {
        let mut sum = Numbers {
            busy_ns: u64::MAX - 1,
            ..Numbers::default()
        };
        let mut more = Numbers {
            busy_ns: 5,
            classes: [1, 2, 3, 4, 5, 6],
            bytes_out: 7,
            run: of(&[3]),
            ..Numbers::default()
        };
        more.run.buckets[0].1 = u64::MAX;
        sum.add(&more);
        sum.add(&more);
        assert_eq!((sum.busy_ns, sum.bytes_out), (u64::MAX, 14));
        assert_eq!(sum.classes, [2, 4, 6, 8, 10, 12]);
        assert_eq!(sum.run.count(), u64::MAX);
    }
}

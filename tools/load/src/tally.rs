//! Counters of a measurement.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// How a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequestFailure {
    /// No connection, for example because of a full listen queue.
    Connect,
    /// The connection ended before the answer did.
    Eof,
    /// Invalid FastCGI, or a refusal by the protocol.
    Protocol,
    /// The answer is complete but its status isn't 200.
    Status,
    /// The answer took too long.
    Timeout,
}

impl RequestFailure {
    pub(crate) const ALL: [RequestFailure; 5] = [
        RequestFailure::Connect,
        RequestFailure::Eof,
        RequestFailure::Protocol,
        RequestFailure::Status,
        RequestFailure::Timeout,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            RequestFailure::Connect => "connect",
            RequestFailure::Eof => "eof",
            RequestFailure::Protocol => "protocol",
            RequestFailure::Status => "status",
            RequestFailure::Timeout => "timeout",
        }
    }
}

/// One interval of the timeline.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Interval {
    pub(crate) completed: u64,
    pub(crate) errors: u64,
    pub(crate) max: Duration,
}

/// A slow request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slow {
    pub(crate) latency: Duration,
    /// Start, from the start of the measurement.
    pub(crate) started: Duration,
}

/// All counters. Times count from the start of the measurement.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Answers with status 200.
    pub(crate) completed: u64,
    /// Answers after the end of the measurement.
    pub(crate) late: u64,
    pub(crate) errors: BTreeMap<RequestFailure, u64>,
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// The first error of each kind, as the kernel words it.
    pub(crate) examples: BTreeMap<RequestFailure, String>,
    /// Kept connections that the server closed between two requests.
    pub(crate) reconnects: u64,
    pub(crate) received_bytes: u64,
    /// Nanoseconds.
    pub(crate) latency: Histogram<u64>,
    pub(crate) timeline: Vec<Interval>,
    pub(crate) slowest: Vec<Slow>,
    interval: Option<Duration>,
    slowest_count: usize,
    ends: Option<Duration>,
}

/// The significant digits of a latency.
const LATENCY_DIGITS: u8 = 3;
/// Time beyond this many intervals is counted into the last.
const MOST_INTERVALS: usize = 1_000_000;

impl Tally {
    /// `ends`: the measurement's end, if it is limited by time.
    pub(crate) fn new(interval: Option<Duration>, slowest_count: usize, ends: Option<Duration>) -> Tally {
        Tally {
            completed: 0,
            late: 0,
            errors: BTreeMap::new(),
            statuses: BTreeMap::new(),
            examples: BTreeMap::new(),
            reconnects: 0,
            received_bytes: 0,
            latency: Histogram::new(LATENCY_DIGITS).expect("up to five digits"),
            timeline: Vec::new(),
            slowest: Vec::new(),
            interval,
            slowest_count,
            ends,
        }
    }

    pub(crate) fn complete(&mut self, started: Duration, now: Duration) {
        let latency = now.saturating_sub(started);
        self.completed += 1;
        self.late += u64::from(self.ends.is_some_and(|ends| now > ends));
        // It grows with its values.
        let _ = self
            .latency
            .record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        if let Some(interval) = self.interval_at(now) {
            interval.completed += 1;
            interval.max = interval.max.max(latency);
        }
        let slow = Slow { latency, started };
        if self.slowest.len() < self.slowest_count || self.slowest.last().is_some_and(|last| slow > *last) {
            let at = self.slowest.partition_point(|other| *other > slow);
            self.slowest.insert(at, slow);
            self.slowest.truncate(self.slowest_count);
        }
    }

    pub(crate) fn fail(&mut self, failure: RequestFailure, now: Duration, example: impl FnOnce() -> String) {
        *self.errors.entry(failure).or_default() += 1;
        self.examples.entry(failure).or_insert_with(example);
        if let Some(interval) = self.interval_at(now) {
            interval.errors += 1;
        }
    }

    pub(crate) fn all_errors(&self) -> u64 {
        self.errors.values().sum()
    }

    fn interval_at(&mut self, now: Duration) -> Option<&mut Interval> {
        let interval = self.interval?;
        let index = ((now.as_nanos() / interval.as_nanos()) as usize).min(MOST_INTERVALS);
        if index >= self.timeline.len() {
            self.timeline.resize(index + 1, Interval::default());
        }
        self.timeline.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_slowest_are_kept_in_order() {
        let mut tally = Tally::new(None, 2, Some(ms(100)));
        for (started, now) in [(0, 5), (1, 3), (2, 20), (30, 37), (50, 51), (99, 101)] {
            tally.complete(ms(started), ms(now));
        }
        let slow = |latency, started| Slow {
            latency: ms(latency),
            started: ms(started),
        };
        assert_eq!(tally.slowest, [slow(18, 2), slow(7, 30)]);
        assert_eq!((tally.completed, tally.late), (6, 1));
    }

    #[test]
    fn intervals_are_counted_by_the_end_of_the_request() {
        let mut tally = Tally::new(Some(ms(10)), 0, None);
        tally.complete(ms(0), ms(5));
        tally.complete(ms(5), ms(35));
        tally.fail(RequestFailure::Eof, ms(36), || "reset".to_owned());
        tally.fail(RequestFailure::Eof, ms(36), || {
            unreachable!("there is an example already")
        });
        let counts: Vec<_> = tally
            .timeline
            .iter()
            .map(|one| (one.completed, one.errors, one.max))
            .collect();
        let none = (0, 0, Duration::ZERO);
        assert_eq!(counts, [(1, 0, ms(5)), none, none, (1, 2, ms(30))]);
        assert_eq!(tally.all_errors(), 2);
    }
}

//! Counters of a measurement.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
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
    ends: Option<Duration>,
}

/// The significant digits of a latency.
const LATENCY_DIGITS: u8 = 3;

impl Tally {
    /// `ends`: the measurement's end, if it is limited by time.
    pub(crate) fn new(ends: Option<Duration>) -> Tally {
        Tally {
            completed: 0,
            late: 0,
            errors: RequestFailure::ALL.map(|failure| (failure, 0)).into(),
            statuses: BTreeMap::new(),
            examples: BTreeMap::new(),
            reconnects: 0,
            received_bytes: 0,
            latency: Histogram::new(LATENCY_DIGITS).expect("up to five digits"),
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
    }

    pub(crate) fn fail(&mut self, failure: RequestFailure, example: impl FnOnce() -> String) {
        *self.errors.entry(failure).or_default() += 1;
        self.examples.entry(failure).or_insert_with(example);
    }

    pub(crate) fn all_errors(&self) -> u64 {
        self.errors.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn late_answers_and_the_first_error_of_a_kind_are_kept() {
        let mut tally = Tally::new(Some(ms(100)));
        for (started, now) in [(0, 5), (2, 20), (99, 101)] {
            tally.complete(ms(started), ms(now));
        }
        assert_eq!((tally.completed, tally.late), (3, 1));
        tally.fail(RequestFailure::Eof, || "reset".to_owned());
        tally.fail(RequestFailure::Eof, || {
            unreachable!("there is an example already")
        });
        assert_eq!(tally.all_errors(), 2);
    }
}

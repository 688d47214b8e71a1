//! Requests that did not begin, because their answer would come too late or too many requests wait.

use serde::{Deserialize, Serialize};

/// A reason for counting a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadCount {
    /// The client had left. No answer.
    Abandoned,
    /// Its time, REQUEST_TIMEOUT, was almost over. Answered with 503.
    Deadline,
    /// It had waited longer than `max_request_queue_time`. Answered with 504.
    QueueTime,
    /// All requests waited too long. Answered with 503.
    Overload,
    /// One of the above with a php-fpm configuration, which lets the request run.
    Ran,
    /// REQUEST_START or REQUEST_TIMEOUT was invalid. The request ran.
    Nonsense,
}

/// The number of counts.
pub const COUNTS: usize = 6;
/// In this many cases, the first ones, the request did not begin.
pub const REASONS: usize = 4;

impl DeadCount {
    pub const NAMES: [&'static str; COUNTS] = [
        "abandoned",
        "deadline",
        "queue_time",
        "overload",
        "ran",
        "nonsense",
    ];

    /// The names of the reasons why a request did not begin.
    pub const REASON_NAMES: [&'static str; REASONS] = {
        let [abandoned, deadline, queue_time, overload, ..] = DeadCount::NAMES;
        [abandoned, deadline, queue_time, overload]
    };

    pub fn index(self) -> usize {
        self as usize
    }
}

/// Requests that did not begin, by [`DeadCount`], in an answer about a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NotBegun {
    pub abandoned: u64,
    pub deadline: u64,
    pub queue_time: u64,
    pub overload: u64,
}

impl NotBegun {
    /// Returns the counts in the order of [`DeadCount::NAMES`].
    pub fn counts(&self) -> [u64; REASONS] {
        [self.abandoned, self.deadline, self.queue_time, self.overload]
    }
}

impl From<[u64; REASONS]> for NotBegun {
    fn from(counts: [u64; REASONS]) -> NotBegun {
        let [abandoned, deadline, queue_time, overload] = counts;
        NotBegun {
            abandoned,
            deadline,
            queue_time,
            overload,
        }
    }
}

/// The counts in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeadWork {
    pub abandoned: u64,
    pub deadline: u64,
    pub queue_time: u64,
    pub overload: u64,
    pub ran: u64,
    pub nonsense: u64,
}

impl DeadWork {
    /// Returns the counts in the order of [`DeadCount::NAMES`].
    pub fn counts(&self) -> [u64; COUNTS] {
        [
            self.abandoned,
            self.deadline,
            self.queue_time,
            self.overload,
            self.ran,
            self.nonsense,
        ]
    }
}

impl From<[u64; COUNTS]> for DeadWork {
    fn from(counts: [u64; COUNTS]) -> DeadWork {
        let [abandoned, deadline, queue_time, overload, ran, nonsense] = counts;
        DeadWork {
            abandoned,
            deadline,
            queue_time,
            overload,
            ran,
            nonsense,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_keep_their_order() {
        let counts = [1, 2, 3, 4, 5, 6];
        assert_eq!(DeadWork::from(counts).counts(), counts);
        let reasons = [1, 2, 3, 4];
        assert_eq!(NotBegun::from(reasons).counts(), reasons);
        assert_eq!(DeadCount::Overload.index() + 1, REASONS);
        assert_eq!(DeadCount::NAMES[DeadCount::Nonsense.index()], "nonsense");
    }
}

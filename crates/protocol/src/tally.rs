//! What is counted of a pool for as long as it is there, over all its generations.
//!
//! A scoreboard begins at zero with its generation. What it has counted is added to the pool's tally when the generation ends, so
//! that no number of a pool ever falls.

use serde::{Deserialize, Serialize};

/// The counts of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tally {
    /// Requests that workers took up.
    pub requests: u64,
    /// Requests that took longer than the slow log's limit.
    pub slow: u64,
    /// Requests that took too long and were ended.
    pub terminated: u64,
    /// How often more workers were wanted than allowed.
    pub max_children_reached: u64,
    /// The longest queue of connections.
    pub queue_max: u64,
    /// Workers that were made.
    pub starts: u64,
    /// Processor time of workers that are gone, microseconds.
    pub gone_cpu_us: u64,
    /// Workers that ended, by cause.
    pub exits: Vec<Exits>,
}

/// How many workers ended alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exits {
    pub cause: Cause,
    /// The exit code, or the signal's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    pub count: u64,
}

/// Why a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// It was told to finish: it was one too many, or its generation ended.
    Retired,
    /// By itself and well, after `max_requests` for one.
    Finished,
    /// The master ended it: its request, or it itself, took too long.
    Terminated,
    /// By itself, with a code that is not 0.
    Exit,
    /// By a signal that was not the master's.
    Signal,
    /// It was not the master's child.
    Unknown,
}

impl Cause {
    /// The cause's name, as in the status.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Retired => "retired",
            Cause::Finished => "finished",
            Cause::Terminated => "terminated",
            Cause::Exit => "exit",
            Cause::Signal => "signal",
            Cause::Unknown => "unknown",
        }
    }
}

impl Tally {
    /// A worker has ended.
    pub fn count_exit(&mut self, cause: Cause, code: Option<i32>) {
        self.add_exits(&Exits {
            cause,
            code,
            count: 1,
        });
    }

    /// Adds what a generation, or another part of the pool, has counted.
    pub fn add(&mut self, other: &Tally) {
        for (own, others) in [
            (&mut self.requests, other.requests),
            (&mut self.slow, other.slow),
            (&mut self.terminated, other.terminated),
            (&mut self.max_children_reached, other.max_children_reached),
            (&mut self.starts, other.starts),
            (&mut self.gone_cpu_us, other.gone_cpu_us),
        ] {
            // What comes from a scoreboard may be any number.
            *own = own.saturating_add(others);
        }
        self.queue_max = self.queue_max.max(other.queue_max);
        for exits in &other.exits {
            self.add_exits(exits);
        }
    }

    /// Codes and signals are few: there is an end to the list.
    fn add_exits(&mut self, exits: &Exits) {
        let key = |exits: &Exits| (exits.cause, exits.code);
        match self.exits.binary_search_by_key(&key(exits), key) {
            Ok(at) => self.exits[at].count = self.exits[at].count.saturating_add(exits.count),
            Err(at) => self.exits.insert(at, exits.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_has_everything_once() {
        let mut tally = Tally {
            requests: u64::MAX - 1,
            queue_max: 7,
            ..Tally::default()
        };
        tally.count_exit(Cause::Signal, Some(11));
        let mut other = Tally {
            requests: 5,
            slow: 2,
            queue_max: 3,
            ..Tally::default()
        };
        other.count_exit(Cause::Exit, Some(255));
        other.count_exit(Cause::Signal, Some(11));
        other.count_exit(Cause::Retired, None);
        tally.add(&other);
        assert_eq!((tally.requests, tally.slow, tally.queue_max), (u64::MAX, 2, 7));
        let exits: Vec<_> = tally
            .exits
            .iter()
            .map(|it| (it.cause, it.code, it.count))
            .collect();
        assert_eq!(
            exits,
            [
                (Cause::Retired, None, 1),
                (Cause::Exit, Some(255), 1),
                (Cause::Signal, Some(11), 2)
            ]
        );
    }
}

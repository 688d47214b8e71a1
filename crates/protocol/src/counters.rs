//! What is counted of a pool for as long as it is there, over all its generations.
//!
//! A scoreboard begins at zero with its generation. What it has counted is added to the pool's counters when the generation ends, so
//! that no number of a pool ever falls.

use crate::refusals::Refusals;
use serde::{Deserialize, Serialize};

/// The counts of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolCounters {
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
    /// Requests whose script was not run, by cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusals>,
}

/// How many workers ended alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exits {
    pub cause: ExitCause,
    /// The exit code, or the signal's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Why it could not be put back, in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub count: u64,
}

/// Why a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCause {
    /// It was told to finish: it was one too many, or its generation ended.
    Retired,
    /// By itself and well, after `max_requests` for one.
    Finished,
    /// The master ended it, or it did so itself: its request, or it itself, took too long.
    Terminated,
    /// By itself, with a code that is not 0.
    Exit,
    /// By a signal that was not the master's.
    Signal,
    /// It was not the master's child.
    Unknown,
    /// By itself, because it used more than `memory_limit`.
    Memory,
    /// By itself, of an application that boots once, after `loop_requests`.
    LoopRequests,
    /// The same, because it used more than `loop_memory`.
    LoopMemory,
    /// The same, because its script has ended well.
    ScriptEnded,
    /// The same, because its script has failed.
    ScriptFailed,
    /// The same, because a client has left its request.
    ClientLeft,
    /// The same, because it could not be put back to what it was before a request.
    NotPutBack,
}

/// Those that a worker says by itself before it ends.
const SAID: [ExitCause; 8] = [
    ExitCause::LoopRequests,
    ExitCause::LoopMemory,
    ExitCause::ScriptEnded,
    ExitCause::ScriptFailed,
    ExitCause::ClientLeft,
    ExitCause::NotPutBack,
    ExitCause::Memory,
    ExitCause::Terminated,
];

impl ExitCause {
    /// The cause's name, as in the status.
    pub fn name(self) -> &'static str {
        match self {
            ExitCause::Retired => "retired",
            ExitCause::Finished => "finished",
            ExitCause::Terminated => "terminated",
            ExitCause::Exit => "exit",
            ExitCause::Signal => "signal",
            ExitCause::Unknown => "unknown",
            ExitCause::Memory => "memory",
            ExitCause::LoopRequests => "loop_requests",
            ExitCause::LoopMemory => "loop_memory",
            ExitCause::ScriptEnded => "script_ended",
            ExitCause::ScriptFailed => "script_failed",
            ExitCause::ClientLeft => "client_left",
            ExitCause::NotPutBack => "not_put_back",
        }
    }

    /// As a worker says it; 0: it is none of those.
    pub fn word(self) -> u64 {
        let index = SAID.iter().position(|cause| *cause == self);
        index.map_or(0, |index| index as u64 + 1)
    }

    /// What a worker has said.
    pub fn from_word(word: u64) -> Option<ExitCause> {
        let index = usize::try_from(word.checked_sub(1)?).ok()?;
        SAID.get(index).copied()
    }
}

impl PoolCounters {
    /// A worker has ended. `reason`: why it could not be put back.
    pub fn count_exit(&mut self, cause: ExitCause, code: Option<i32>, reason: Option<&str>) {
        self.add_exits(&Exits {
            cause,
            code,
            reason: reason.map(str::to_owned),
            count: 1,
        });
    }

    /// Adds what a generation, or another part of the pool, has counted.
    pub fn add(&mut self, other: &PoolCounters) {
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
        self.add_refusals(&other.refusals);
    }

    /// Adds requests whose script was not run.
    pub fn add_refusals(&mut self, others: &[Refusals]) {
        for other in others {
            match self.refusals.binary_search_by_key(&other.cause, |it| it.cause) {
                Ok(at) => self.refusals[at].add(other),
                Err(at) => self.refusals.insert(at, other.clone()),
            }
        }
    }

    /// Codes, signals and reasons are few: there is an end to the list.
    fn add_exits(&mut self, exits: &Exits) {
        let key = |exits: &Exits| (exits.cause, exits.code, exits.reason.clone());
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
    fn what_a_worker_says_is_read_again_and_nonsense_is_nothing() {
        for cause in SAID {
            assert_eq!(ExitCause::from_word(cause.word()), Some(cause));
            assert_eq!(
                serde_json::to_string(&cause).unwrap(),
                format!("\"{}\"", cause.name())
            );
        }
        for word in [0, SAID.len() as u64 + 1, u64::MAX] {
            assert_eq!(ExitCause::from_word(word), None);
        }
        assert_eq!(ExitCause::Retired.word(), 0);
    }

    #[test]
    fn a_sum_has_everything_once() {
        let mut counters = PoolCounters {
            requests: u64::MAX - 1,
            queue_max: 7,
            ..PoolCounters::default()
        };
        counters.count_exit(ExitCause::Signal, Some(11), None);
        counters.count_exit(ExitCause::NotPutBack, None, Some("thread"));
        let mut other = PoolCounters {
            requests: 5,
            slow: 2,
            queue_max: 3,
            ..PoolCounters::default()
        };
        other.count_exit(ExitCause::Exit, Some(255), None);
        other.count_exit(ExitCause::Signal, Some(11), None);
        other.count_exit(ExitCause::NotPutBack, None, Some("child"));
        other.count_exit(ExitCause::NotPutBack, None, Some("thread"));
        other.count_exit(ExitCause::Retired, None, None);
        counters.add(&other);
        assert_eq!(
            (counters.requests, counters.slow, counters.queue_max),
            (u64::MAX, 2, 7)
        );
        let exits: Vec<_> = counters
            .exits
            .iter()
            .map(|it| (it.cause, it.code, it.reason.as_deref(), it.count))
            .collect();
        assert_eq!(
            exits,
            [
                (ExitCause::Retired, None, None, 1),
                (ExitCause::Exit, Some(255), None, 1),
                (ExitCause::Signal, Some(11), None, 2),
                (ExitCause::NotPutBack, None, Some("child"), 1),
                (ExitCause::NotPutBack, None, Some("thread"), 2)
            ]
        );
    }
}

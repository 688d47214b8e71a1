//! A pool's counters over all its generations.
//!
//! A scoreboard starts at zero with its generation. When a generation ends, its counts are added here, so a pool's
//! numbers never decrease.

use crate::lanes::Lanes;
use crate::numbers::Numbers;
use crate::refusals::Refusals;
use crate::release::Outcome;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolCounters {
    pub requests: u64,
    /// Requests over the slow log's limit.
    pub slow: u64,
    /// Requests ended by a timeout.
    pub terminated: u64,
    /// How often the pool needed more than its maximum of workers.
    pub max_children_reached: u64,
    /// The longest connection queue.
    pub queue_max: u64,
    pub starts: u64,
    /// Processor time of exited workers, in microseconds.
    pub gone_cpu_us: u64,
    pub exits: Vec<Exits>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusals>,
    /// Numbers of past generations.
    #[serde(default, skip_serializing_if = "Numbers::is_nothing")]
    pub numbers: Numbers,
    /// The lanes' numbers of past generations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<Box<Lanes>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deployments: Vec<Deployments>,
}

/// How many deployments ended like this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deployments {
    pub outcome: Outcome,
    pub count: u64,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exits {
    pub cause: ExitCause,
    /// The exit code or signal number.
    pub code: Option<i32>,
    /// Why the worker could not be rewound, in one word.
    pub reason: Option<String>,
    pub count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCause {
    /// The master retired it: one too many, or the end of its generation.
    Retired,
    /// It finished normally, for example after `max_requests`.
    Finished,
    /// The worker or its request exceeded a timeout.
    Terminated,
    /// It exited with a code other than 0.
    Exit,
    /// It was killed by a signal that the master didn't send.
    Signal,
    /// It was not the master's child.
    Unknown,
    /// It exceeded `memory_limit`.
    Memory,
    /// An application that boots once reached `loop_requests`.
    LoopRequests,
    /// It exceeded `loop_memory`.
    LoopMemory,
    /// The script of an application that boots once ended normally.
    ScriptEnded,
    /// The script of an application that boots once failed.
    ScriptFailed,
    /// A client aborted a request to an application that boots once.
    ClientLeft,
    /// It could not be rewound after a request.
    NotPutBack,
}

/// Causes that a worker reports before it exits.
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

    /// The encoding in a worker's report, or 0 for other causes.
    pub fn word(self) -> u64 {
        let index = SAID.iter().position(|cause| *cause == self);
        index.map_or(0, |index| index as u64 + 1)
    }

    pub fn from_word(word: u64) -> Option<ExitCause> {
        let index = usize::try_from(word.checked_sub(1)?).ok()?;
        SAID.get(index).copied()
    }
}

impl PoolCounters {
    /// Counts an exit. `reason`: why the worker could not be rewound.
    pub fn count_exit(&mut self, cause: ExitCause, code: Option<i32>, reason: Option<&str>) {
        self.add_exits(&Exits {
            cause,
            code,
            reason: reason.map(str::to_owned),
            count: 1,
        });
    }

    /// Adds the counts of a generation or another part of the pool.
    pub fn add(&mut self, other: &PoolCounters) {
        for (own, others) in [
            (&mut self.requests, other.requests),
            (&mut self.slow, other.slow),
            (&mut self.terminated, other.terminated),
            (&mut self.max_children_reached, other.max_children_reached),
            (&mut self.starts, other.starts),
            (&mut self.gone_cpu_us, other.gone_cpu_us),
        ] {
            // Numbers from a scoreboard can't be trusted.
            *own = own.saturating_add(others);
        }
        self.queue_max = self.queue_max.max(other.queue_max);
        for exits in &other.exits {
            self.add_exits(exits);
        }
        self.add_refusals(&other.refusals);
        self.numbers.add(&other.numbers);
        if let Some(lanes) = &other.lanes {
            self.lanes.get_or_insert_default().add(lanes);
        }
        for deployments in &other.deployments {
            self.add_deployments(*deployments);
        }
    }

    pub fn count_deployment(&mut self, outcome: Outcome) {
        self.add_deployments(Deployments { outcome, count: 1 });
    }

    fn add_deployments(&mut self, other: Deployments) {
        match self.deployments.iter_mut().find(|it| it.outcome == other.outcome) {
            Some(own) => own.count = own.count.saturating_add(other.count),
            None => self.deployments.push(other),
        }
    }

    /// Returns how many deployments ended like this.
    pub fn deployments(&self, outcome: Outcome) -> u64 {
        let found = self.deployments.iter().find(|it| it.outcome == outcome);
        found.map_or(0, |it| it.count)
    }

    pub fn add_refusals(&mut self, others: &[Refusals]) {
        for other in others {
            match self.refusals.binary_search_by_key(&other.cause, |it| it.cause) {
                Ok(at) => self.refusals[at].add(other),
                Err(at) => self.refusals.insert(at, other.clone()),
            }
        }
    }

    /// The list is bounded: there are few codes, signals and reasons.
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
        for outcome in [Outcome::Deployed, Outcome::Failed, Outcome::Deployed] {
            other.count_deployment(outcome);
        }
        counters.count_deployment(Outcome::Failed);
        counters.add(&other);
        let deployments = Outcome::ALL.map(|outcome| counters.deployments(outcome));
        assert_eq!(deployments, [2, 2, 0, 0]);
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

//! The facts of a failed start ([`super::self_spawn`]) for the process that makes the report. They are untrusted and
//! bounded; only output and system errors become text.

use super::error::Ended;
use super::plan::Plan;
use super::report::{ErrorId, Report};
use super::self_spawn::{Attempt, Fall};
use crate::tick::Tick;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The longest encoding in bytes.
pub const MOST_BYTES: usize = 192 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartFailure {
    pub(super) id: u32,
    pub(super) pid: Option<i32>,
    pub(super) fall: Fall,
    /// Monotonic nanoseconds.
    pub(super) started: u64,
    pub(super) prepared: Option<u64>,
    pub(super) executed: Option<u64>,
    pub(super) ended: u64,
    pub(super) output: String,
    pub(super) envvars: Option<String>,
}

impl StartFailure {
    /// Encodes it in at most [`MOST_BYTES`]: shortens the output and drops the environment if needed.
    pub fn encode(&self) -> Vec<u8> {
        let mut start_failure = self.clone();
        loop {
            // Serializing plain values can't fail.
            let bytes = serde_json::to_vec(&start_failure).unwrap_or_default();
            if bytes.len() <= MOST_BYTES {
                return bytes;
            }
            match start_failure.envvars.take() {
                Some(_) => {}
                None if start_failure.output.is_empty() => return Vec::new(),
                None => start_failure.output = last_half(&start_failure.output).to_owned(),
            }
        }
    }

    /// Decodes it; `None`: invalid.
    pub fn decode(bytes: &[u8]) -> Option<StartFailure> {
        let start_failure: StartFailure = serde_json::from_slice(bytes).ok()?;
        let has_pid = start_failure.pid.is_none_or(|pid| pid > 1);
        let has_end = match start_failure.fall {
            Fall::Exited(Ended::Signal { number, .. }, ..) | Fall::Left(Ended::Signal { number, .. }, _) => {
                (1..=64).contains(&number)
            }
            Fall::Exited(Ended::Code(code), ..) | Fall::Left(Ended::Code(code), _) => {
                (0..=255).contains(&code)
            }
            Fall::Exited(Ended::Unknown, ..)
            | Fall::Left(Ended::Unknown, _)
            | Fall::Preparation(_)
            | Fall::Fork(_)
            | Fall::Exec(..)
            | Fall::Timeout
            | Fall::Stranger(_) => true,
        };
        (has_pid && has_end).then_some(start_failure)
    }

    pub fn id(&self) -> ErrorId {
        ErrorId(self.id)
    }

    /// Returns the report of a start by this plan that ended by `now`.
    pub fn report(&self, plan: Arc<Plan>, now: Tick) -> Report {
        let ended = Tick::from_nanos(self.ended).min(now);
        let by = |nanos: u64, after: Tick| Tick::from_nanos(nanos).clamp(after.min(ended), ended);
        let started = by(self.started, Tick::ZERO);
        let mut attempt = Attempt::begin(plan, started);
        if let Some(prepared) = self.prepared {
            let prepared = by(prepared, started);
            attempt.prepared(prepared);
            if let (Some(executed), Some(pid)) = (self.executed, self.pid) {
                attempt.executed(pid, by(executed, prepared));
            }
        }
        attempt.wrote(self.output.as_bytes());
        let report = attempt.fail(&self.fall, self.envvars.clone(), self.id(), ended);
        Report {
            output: self.output.clone(),
            ..report
        }
        .without_secrets()
    }
}

fn last_half(text: &str) -> &str {
    let middle = (text.len() / 2 + 1..=text.len()).find(|at| text.is_char_boundary(*at));
    &text[middle.unwrap_or(text.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn::error::Fault;
    use crate::spawn::handshake::response::CommandCheck;
    use crate::spawn::plan::{Kind, sample};
    use std::time::Duration;

    fn plan() -> Arc<Plan> {
        let mut plan = sample();
        plan.kind = Kind::FastCgi;
        Arc::new(plan)
    }

    fn at(seconds: u64) -> Tick {
        Tick::ZERO + Duration::from_secs(seconds)
    }

    fn attempt() -> Attempt {
        let mut attempt = Attempt::begin(plan(), at(10));
        attempt.prepared(at(11));
        attempt.executed(77, at(12));
        attempt.wrote(b"no database\n");
        attempt
    }

    #[test]
    fn the_reader_makes_the_same_report() {
        for fall in [
            Fall::Timeout,
            Fall::Left(Ended::Code(1), false),
            Fall::Stranger("it said hello".to_owned()),
            Fall::Exited(Ended::Code(3), CommandCheck::default(), false),
            Fall::Exited(
                Ended::Signal {
                    number: 11,
                    core: true,
                },
                CommandCheck::default(),
                false,
            ),
        ] {
            let (own, id) = (attempt(), ErrorId(0xabc));
            let envvars = Some("A=b\n".to_owned());
            let start_failure = own.start_failure(&fall, envvars.clone(), id, at(13));
            let read = StartFailure::decode(&start_failure.encode()).expect("a letter");
            assert_eq!(read, start_failure);
            let there = read.report(plan(), at(20));
            let here = own.fail(&fall, envvars, id, at(13));
            assert_eq!(there.text(), here.text());
            assert_eq!(there.json(5), here.json(5));
        }
    }

    #[test]
    fn a_letter_is_never_too_long() {
        let mut attempt = attempt();
        for _ in 0..100 {
            attempt.wrote(&[1; 8192]);
        }
        let start_failure =
            attempt.start_failure(&Fall::Timeout, Some("\u{1}".repeat(500_000)), ErrorId(1), at(13));
        let bytes = start_failure.encode();
        assert!(
            bytes.len() <= MOST_BYTES && bytes.len() > MOST_BYTES / 4,
            "{}",
            bytes.len()
        );
        assert!(StartFailure::decode(&bytes).is_some());
    }

    #[test]
    fn nonsense_is_no_letter_or_a_harmless_one() {
        let fall = Fall::Fork(Fault {
            text: String::new(),
            errno: i32::MIN,
        });
        let good = attempt().start_failure(&fall, None, ErrorId(1), at(13));
        for ended in [Ended::killed(i32::MIN), Ended::killed(65), Ended::Code(-1)] {
            let start_failure = StartFailure {
                fall: Fall::Exited(ended, CommandCheck::default(), false),
                ..good.clone()
            };
            assert_eq!(StartFailure::decode(&start_failure.encode()), None);
        }
        let start_failure = StartFailure {
            pid: Some(-1),
            ..good.clone()
        };
        assert_eq!(StartFailure::decode(&start_failure.encode()), None);
        assert_eq!(StartFailure::decode(b"{\"id\":1}"), None);
        assert_eq!(StartFailure::decode(&[0xff; 100]), None);
        let odd = StartFailure {
            started: u64::MAX,
            prepared: Some(0),
            executed: Some(u64::MAX),
            ended: 7,
            ..good
        };
        let report = odd.report(plan(), at(20));
        assert!(report.started <= report.ended && report.ended <= at(20));
        assert!(!report.text().is_empty());
    }
}

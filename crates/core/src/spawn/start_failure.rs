//! The report of a failed start from the facts that another process sent.

use super::plan::Plan;
use super::report::{ErrorId, Report};
use super::self_spawn::Attempt;
use forkyard_base::tick::Tick;
use forkyard_protocol::start_failure::StartFailure;
use std::sync::Arc;

/// Returns the report of a start by this plan that ended by `now`.
pub fn report(failure: &StartFailure, plan: Arc<Plan>, now: Tick) -> Report {
    let ended = Tick::from_nanos(failure.ended).min(now);
    let by = |nanos: u64, after: Tick| Tick::from_nanos(nanos).clamp(after.min(ended), ended);
    let started = by(failure.started, Tick::ZERO);
    let mut attempt = Attempt::begin(plan, started);
    if let Some(prepared) = failure.prepared {
        let prepared = by(prepared, started);
        attempt.prepared(prepared);
        if let (Some(executed), Some(pid)) = (failure.executed, failure.pid) {
            attempt.executed(pid, by(executed, prepared));
        }
    }
    attempt.wrote(failure.output.as_bytes());
    let id = ErrorId(failure.id);
    let report = attempt.fail(&failure.fall, failure.envvars.clone(), id, ended);
    Report {
        output: failure.output.clone(),
        ..report
    }
    .without_secrets()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn::error::Ended;
    use crate::spawn::plan::{Kind, sample};
    use forkyard_protocol::start_failure::{CommandCheck, Fall, Fault, MOST_BYTES};
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
            let there = super::report(&read, plan(), at(20));
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
        let report = super::report(&odd, plan(), at(20));
        assert!(report.started <= report.ended && report.ended <= at(20));
        assert!(!report.text().is_empty());
    }
}

//! Decides what follows the end of a start. Failures and crashes are counted separately; ends that the job did not
//! cause are not counted.

use super::event::{Becomes, Counters, End, JobId, Limits, Outcome, Start, Verdict};

pub fn verdict(start: &Start, limits: &Limits, end: End, now_ms: i64) -> Verdict {
    let (id, before) = (start.id, start.counters);
    // Any end except a crash shows that workers survive the job.
    let after = Counters { crashes: 0, ..before };
    let verdict = |outcome, becomes, counters| Verdict {
        becomes: in_time(becomes, start.expires_ms),
        counters,
        outcome,
    };
    let failed = |outcome| {
        let counters = Counters {
            failures: before.failures.saturating_add(1),
            ..after
        };
        let is_last = counters.failures >= start.most_failures.unwrap_or(limits.failures);
        let becomes = match is_last {
            true => Becomes::Failed,
            false => Becomes::Again(later(
                now_ms,
                backoff_ms(limits, counters.failures, seed(id, counters)),
            )),
        };
        verdict(outcome, becomes, counters)
    };
    match end {
        End::Done(status) => verdict(Outcome::Done, Becomes::Done(status), after),
        End::Failed => failed(Outcome::Failed),
        End::TimedOut => failed(Outcome::TimedOut),
        End::Dead => {
            let failures = before.failures.saturating_add(1);
            verdict(Outcome::Failed, Becomes::Failed, Counters { failures, ..after })
        }
        End::Expired => verdict(Outcome::Expired, Becomes::Failed, before),
        End::Crashed => {
            let counters = Counters {
                crashes: before.crashes.saturating_add(1),
                ..before
            };
            let becomes = match counters.crashes >= limits.crashes {
                true => Becomes::Quarantined,
                false => Becomes::Again(later(
                    now_ms,
                    backoff_ms(limits, counters.crashes, seed(id, counters)),
                )),
            };
            verdict(Outcome::Crashed, becomes, counters)
        }
        End::Cancelled => verdict(Outcome::Cancelled, Becomes::Cancelled, after),
        End::Discarded => verdict(Outcome::Discarded, Becomes::Discarded, after),
        End::Snoozed(millis) => {
            let counters = Counters {
                snoozes: before.snoozes.saturating_add(1),
                ..after
            };
            verdict(Outcome::Snoozed, Becomes::Again(later(now_ms, millis)), counters)
        }
        End::Returned => verdict(Outcome::Returned, Becomes::Again(now_ms), before),
        End::Stopped => verdict(Outcome::Stopped, Becomes::Again(now_ms), before),
        End::Lost => verdict(Outcome::Lost, Becomes::Again(now_ms), before),
    }
}

/// A job that could only start after its expiry has failed.
fn in_time(becomes: Becomes, expires_ms: Option<i64>) -> Becomes {
    match becomes {
        Becomes::Again(at) if expires_ms.is_some_and(|expires| expires <= at) => Becomes::Failed,
        becomes => becomes,
    }
}

fn later(now_ms: i64, millis: u64) -> i64 {
    now_ms.saturating_add(i64::try_from(millis).unwrap_or(i64::MAX))
}

fn backoff_ms(limits: &Limits, count: u32, seed: u64) -> u64 {
    let factor = u64::from(limits.factor.max(1)).saturating_pow(count.saturating_sub(1));
    let plain = limits.first_ms.saturating_mul(factor).min(limits.most_ms);
    let width = plain / 100 * u64::from(limits.jitter_percent.min(100));
    if width == 0 {
        return plain;
    }
    plain - width + seed % (2 * width + 1)
}

/// A number that differs between jobs and tries but is reproducible.
fn seed(id: JobId, counters: Counters) -> u64 {
    let tries = u64::from(counters.failures) << 32 | u64::from(counters.crashes);
    let mut bits = (id as u64).wrapping_add(tries.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    // The finaliser of splitmix64.
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::super::event::TaskStatus;
    use super::*;

    const LIMITS: Limits = Limits {
        failures: 3,
        crashes: 2,
        first_ms: 10_000,
        factor: 4,
        most_ms: 100_000,
        jitter_percent: 20,
    };

    fn after(counters: Counters, end: End) -> Verdict {
        let start = Start {
            id: 7,
            counters,
            ..Start::default()
        };
        verdict(&start, &LIMITS, end, 1_000_000)
    }

    #[test]
    fn failures_are_tried_again_later_and_later_until_they_are_too_many() {
        let mut counters = Counters::default();
        for plain in [10_000, 40_000] {
            let verdict = after(counters, End::Failed);
            let Becomes::Again(at) = verdict.becomes else {
                panic!("{verdict:?}");
            };
            let waits = at - 1_000_000;
            assert!(
                (plain * 8 / 10..=plain * 12 / 10).contains(&waits),
                "{waits} for {plain}"
            );
            counters = verdict.counters;
        }
        let last = after(counters, End::TimedOut);
        assert_eq!((last.becomes, last.outcome), (Becomes::Failed, Outcome::TimedOut));
        assert_eq!(last.counters.failures, 3);
        let dead = after(Counters::default(), End::Dead);
        assert_eq!((dead.becomes, dead.outcome), (Becomes::Failed, Outcome::Failed));
        assert_eq!(dead.counters.failures, 1);
        let start = Start {
            id: 7,
            most_failures: Some(1),
            ..Start::default()
        };
        let own = verdict(&start, &LIMITS, End::Failed, 0);
        assert_eq!(own.becomes, Becomes::Failed);
    }

    #[test]
    fn the_wait_never_exceeds_its_limit_and_differs_between_jobs() {
        assert!(backoff_ms(&LIMITS, 40, 0) <= 100_000);
        let waits = |id| backoff_ms(&LIMITS, 1, seed(id, Counters::default()));
        let distinct: std::collections::BTreeSet<u64> = (1..100).map(waits).collect();
        assert!(distinct.len() > 80, "{}", distinct.len());
        assert_eq!(waits(5), waits(5));
    }

    #[test]
    fn the_second_crash_in_a_row_quarantines_and_is_no_failure() {
        let first = after(Counters::default(), End::Crashed);
        assert!(matches!(first.becomes, Becomes::Again(_)));
        assert_eq!((first.counters.crashes, first.counters.failures), (1, 0));
        assert_eq!(after(first.counters, End::Crashed).becomes, Becomes::Quarantined);
        // A failure in between shows that the worker survived.
        let between = after(first.counters, End::Failed);
        assert_eq!(between.counters.crashes, 0);
        assert!(matches!(
            after(between.counters, End::Crashed).becomes,
            Becomes::Again(_)
        ));
    }

    #[test]
    fn what_the_job_has_no_part_in_costs_nothing() {
        let counters = Counters {
            failures: 2,
            crashes: 1,
            snoozes: 3,
        };
        for end in [End::Returned, End::Stopped, End::Lost] {
            let verdict = after(counters, end);
            assert_eq!(verdict.becomes, Becomes::Again(1_000_000), "{end:?}");
            assert_eq!(verdict.counters, counters, "{end:?}");
        }
    }

    #[test]
    fn a_job_is_not_tried_again_after_it_has_expired() {
        let start = Start {
            id: 7,
            expires_ms: Some(1_005_000),
            ..Start::default()
        };
        let late = |end| verdict(&start, &LIMITS, end, 1_000_000).becomes;
        assert_eq!(late(End::Failed), Becomes::Failed);
        assert_eq!(late(End::Snoozed(60_000)), Becomes::Failed);
        assert_eq!(late(End::Snoozed(1_000)), Becomes::Again(1_001_000));
        assert_eq!(late(End::Done(TaskStatus::Ok)), Becomes::Done(TaskStatus::Ok));
    }
}

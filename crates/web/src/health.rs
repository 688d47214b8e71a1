//! Answers to probes.

use super::answer::{Answer, JSON, Status};
use super::numbers::Numbers;
use forkyard_protocol::control::DaemonMode;
use forkyard_protocol::health::trouble;
use serde::Serialize;

/// What a probe asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// The master answers.
    Live,
    /// Every pool serves, and the daemon is neither drained nor ending.
    Ready,
    /// As ready, and no pool has all workers busy and a queue.
    Busy,
}

#[derive(Debug, Serialize)]
struct Report<'n> {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pools: Vec<Problem<'n>>,
}

#[derive(Debug, Serialize)]
struct Problem<'n> {
    pool: &'n str,
    problem: String,
}

/// Answers a probe about some pools, or about all if `pools` is empty.
pub(crate) fn answer(probe: Probe, pools: &[String], numbers: Option<&Numbers>) -> Answer {
    let Some(numbers) = numbers else {
        let report = Report {
            state: "not live",
            daemon: Some("does not answer"),
            pools: Vec::new(),
        };
        return told(Status::ServiceUnavailable, &report);
    };
    let skipped = numbers.status.skipped.iter();
    let skipped = skipped.filter_map(|one| Some((one.pool.as_deref()?, one.goes_on)));
    let known = numbers.status.pools.iter().map(|pool| pool.name.as_str());
    let known: Vec<&str> = known.chain(skipped.clone().map(|(name, _)| name)).collect();
    if let Some(name) = pools.iter().find(|name| !known.contains(&name.as_str())) {
        return Answer::text(Status::NotFound, &format!("There is no pool {name:?}."));
    }
    if probe == Probe::Live {
        return told(
            Status::Ok,
            &Report {
                state: "live",
                daemon: None,
                pools: Vec::new(),
            },
        );
    }
    let is_asked = |name: &str| pools.is_empty() || pools.iter().any(|asked| asked == name);
    let running = numbers.status.pools.iter().filter(|pool| is_asked(&pool.name));
    let mut problems: Vec<Problem<'_>> = running
        .filter_map(|pool| {
            Some(Problem {
                pool: &pool.name,
                problem: trouble(pool, probe == Probe::Busy)?.to_string(),
            })
        })
        .collect();
    let left_out = skipped.filter(|(name, goes_on)| !goes_on && is_asked(name));
    problems.extend(left_out.map(|(pool, _)| Problem {
        pool,
        problem: "skipped".to_owned(),
    }));
    let daemon = match numbers.mode {
        DaemonMode::Serving => None,
        DaemonMode::Draining => Some("drained"),
        DaemonMode::Ending => Some("ending"),
    };
    let is_well = problems.is_empty() && daemon.is_none();
    let report = Report {
        state: match (probe, is_well) {
            (Probe::Busy, false) => "busy or not ready",
            (_, false) => "not ready",
            (_, true) => "ready",
        },
        daemon,
        pools: problems,
    };
    let status = if is_well {
        Status::Ok
    } else {
        Status::ServiceUnavailable
    };
    told(status, &report)
}

fn told(status: Status, report: &Report<'_>) -> Answer {
    // Serialising plain values can't fail.
    let mut body = serde_json::to_vec(report).unwrap_or_default();
    body.push(b'\n');
    Answer {
        status,
        content_type: JSON,
        body: body.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_protocol::control::{GenerationStatus, PoolStatus, Status as Seen, WorkerLimits};
    use forkyard_protocol::skipped::Skipped;
    use std::collections::BTreeMap;

    fn pool(name: &str, state: &str, busy: u32, queue: u32) -> PoolStatus {
        PoolStatus {
            name: name.to_owned(),
            queue: Some(queue),
            busy,
            limits: WorkerLimits {
                max_children: 2,
                ..WorkerLimits::default()
            },
            generations: vec![GenerationStatus {
                state: state.to_owned(),
                ..GenerationStatus::default()
            }],
            ..PoolStatus::default()
        }
    }

    fn numbers(mode: DaemonMode, pools: Vec<PoolStatus>) -> Numbers {
        let status = Seen {
            pools,
            skipped: vec![Skipped {
                pool: Some("kept".to_owned()),
                file: "/f".into(),
                reasons: Vec::new(),
                goes_on: true,
            }],
            ..Seen::default()
        };
        Numbers::new(mode, status, BTreeMap::new())
    }

    #[test]
    fn the_table_of_probes() {
        use DaemonMode::{Draining, Ending, Serving};
        use Probe::{Busy, Live, Ready};
        let ok = Status::Ok;
        let down = Status::ServiceUnavailable;
        for (mode, state, busy, queue, live, ready, is_busy) in [
            (Serving, "serving", 0, 0, ok, ok, ok),
            (Serving, "serving", 2, 0, ok, ok, ok),
            (Serving, "serving", 1, 5, ok, ok, ok),
            (Serving, "serving", 2, 1, ok, ok, down),
            (Serving, "coming", 0, 0, ok, down, down),
            (Draining, "serving", 0, 0, ok, down, down),
            (Ending, "serving", 0, 0, ok, down, down),
        ] {
            let numbers = numbers(mode, vec![pool("www", state, busy, queue)]);
            let of = |probe| answer(probe, &[], Some(&numbers)).status;
            let seen = [of(Live), of(Ready), of(Busy)];
            assert_eq!(seen, [live, ready, is_busy], "{mode:?} {state} {busy} {queue}");
        }
        for probe in [Live, Ready, Busy] {
            assert_eq!(answer(probe, &[], None).status, down);
        }
    }

    #[test]
    fn a_probe_names_the_pools_in_trouble_and_may_ask_about_some() {
        let pools = vec![pool("a", "serving", 2, 3), pool("b", "coming", 0, 0)];
        let numbers = numbers(DaemonMode::Serving, pools);
        let all = answer(Probe::Busy, &[], Some(&numbers));
        let expected = "{\"state\":\"busy or not ready\",\"pools\":[{\"pool\":\"a\",\"problem\":\"all 2 workers are busy, \
                        and 3 wait\"},{\"pool\":\"b\",\"problem\":\"starting\"}]}\n";
        assert_eq!(String::from_utf8_lossy(&all.body), expected);
        let of = |name: &str| answer(Probe::Ready, &[name.to_owned()], Some(&numbers)).status;
        assert_eq!(
            ["a", "b", "kept", "c"].map(of),
            [
                Status::Ok,
                Status::ServiceUnavailable,
                Status::Ok,
                Status::NotFound
            ]
        );
    }
}

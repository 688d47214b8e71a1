use super::*;
use forkyard_base::tick::Tick;
use forkyard_scoreboard::standing::{Bound, Standing};
use std::collections::VecDeque;

const SECOND: Duration = Duration::from_secs(1);

fn rules(abandoned: Abandoned, queue_time: QueueTime) -> Overload {
    Overload {
        abandoned,
        abandoned_keep: vec!["/wp-cron.php".to_owned(), String::new()],
        queue_time,
    }
}

#[test]
fn every_verdict_has_its_facts() {
    let fixed = QueueTime::Fixed(SECOND * 3);
    let facts = |waited: f64, timeout: Option<u32>, standing: Option<u32>| Facts {
        waited: Duration::from_secs_f64(waited),
        timeout: timeout.map(|seconds| SECOND * seconds),
        usual: SECOND,
        standing: standing.map(|seconds| SECOND * seconds),
    };
    use Abandoned::{Count, Run, Skip};
    use QueueTime::{Auto, Endless};
    for (abandoned, queue_time, facts, is_left, verdict) in [
        (Skip, Endless, facts(99.0, None, Some(1)), false, None),
        (Skip, Endless, facts(1.0, None, None), true, Some(Dead::Abandoned)),
        (
            Count,
            Endless,
            facts(1.0, None, None),
            true,
            Some(Dead::Abandoned),
        ),
        (Skip, Endless, facts(0.99, None, None), true, None),
        (Run, Endless, facts(9.0, None, None), true, None),
        (Run, Auto, facts(9.1, Some(10), None), true, Some(Dead::Deadline)),
        (Run, Auto, facts(9.0, Some(10), None), true, None),
        (Run, Auto, facts(0.4, Some(1), None), true, None),
        (Run, Auto, facts(0.6, Some(1), None), true, Some(Dead::Deadline)),
        (Run, fixed, facts(3.0, None, None), true, None),
        (Run, fixed, facts(3.1, None, None), true, Some(Dead::QueueTime)),
        (Skip, Auto, facts(3.0, None, None), false, None),
        (Skip, Auto, facts(3.0, None, Some(3)), false, None),
        (Skip, Auto, facts(3.1, None, Some(3)), false, Some(Dead::Overload)),
    ] {
        let found = judge(&rules(abandoned, queue_time), &facts, || is_left);
        assert_eq!(found, verdict, "{abandoned:?} {queue_time:?} {facts:?} {is_left}");
    }
}

#[test]
fn the_client_is_looked_at_only_after_a_second() {
    let facts = Facts {
        waited: Duration::from_millis(999),
        timeout: Some(SECOND * 60),
        ..Facts::default()
    };
    let looks = || panic!("a look costs a system call");
    assert_eq!(
        judge(&rules(Abandoned::Skip, QueueTime::Auto), &facts, looks),
        None
    );
}

#[test]
fn answers_ask_to_come_again_at_different_times() {
    let seconds: Vec<String> = (0..5)
        .map(|random| Dead::Overload.answer(random).expect("an answer"))
        .collect();
    for (answer, seconds) in seconds.iter().zip(1..) {
        assert!(answer.starts_with("Status: 503 "), "{answer}");
        assert!(
            answer.contains(&format!("\r\nRetry-After: {seconds}\r\n")),
            "{answer}"
        );
    }
    assert_eq!(Dead::Deadline.answer(7), Dead::Overload.answer(2));
    let late = Dead::QueueTime.answer(0).expect("an answer");
    assert!(late.starts_with("Status: 504 ") && !late.contains("Retry-After"));
    assert_eq!(Dead::Abandoned.answer(0), None);
}

fn params(changes: &[(&str, &str)]) -> Params {
    let mut params = Params::new();
    let usual = [
        ("REQUEST_METHOD", "GET"),
        ("REMOTE_ADDR", "198.51.100.7"),
        ("SERVER_ADDR", "192.0.2.1"),
        ("SCRIPT_NAME", "/index.php"),
        ("REQUEST_URI", "/a?b=/wp-cron.php"),
    ];
    for (name, value) in usual.iter().chain(changes) {
        params.set(name.as_bytes(), value.as_bytes());
    }
    params
}

#[test]
fn only_requests_that_somebody_waited_for_are_skipped() {
    for (changes, expected) in [
        (&[][..], true),
        (&[("REQUEST_METHOD", "HEAD")], true),
        (&[("REQUEST_METHOD", "POST")], false),
        (&[("REQUEST_METHOD", "DELETE")], false),
        (&[("REQUEST_METHOD", "")], false),
        (&[("REMOTE_ADDR", "127.0.0.1")], false),
        (&[("REMOTE_ADDR", "::1")], false),
        (&[("REMOTE_ADDR", "::ffff:127.0.0.9")], false),
        (&[("REMOTE_ADDR", "192.0.2.1")], false),
        (&[("REMOTE_ADDR", "unix:")], false),
        (&[("REMOTE_ADDR", "")], false),
        (&[("SERVER_ADDR", "")], true),
        (&[("RUN_ABANDONED", "1")], false),
        (&[("RUN_ABANDONED", "0")], true),
        (&[("RUN_ABANDONED", "")], true),
        (&[("SCRIPT_NAME", "/wp-cron.php")], false),
        (&[("SCRIPT_NAME", "/blog/wp-cron.php")], false),
        (&[("REQUEST_URI", "/wp-cron.php?doing_wp_cron")], false),
    ] {
        let rules = rules(Abandoned::Skip, QueueTime::Endless);
        assert_eq!(may_be_skipped(&params(changes), &rules), expected, "{changes:?}");
    }
    assert!(!is_job(&params(&[])) && is_job(&params(&[("FORKYARD_JOB_ID", "7")])));
}

#[test]
fn timeouts_are_read_and_nonsense_is_none() {
    for (text, millis) in [("60", 60_000), ("60s", 60_000), ("1.5", 1_500), ("250ms", 250)] {
        assert_eq!(
            timeout(text.as_bytes()),
            Some(Duration::from_millis(millis)),
            "{text}"
        );
    }
    for text in [
        "",
        "0",
        "-1",
        "s",
        "ms",
        "1m",
        "nan",
        "inf",
        "1e3",
        "1.2.3",
        "86401",
        "99999999999999999999",
    ] {
        assert_eq!(timeout(text.as_bytes()), None, "{text}");
    }
    assert_eq!(timeout(b"\xff"), None);
}

/// What a storm leaves behind.
#[derive(Debug, Default)]
struct Storm {
    executed: u32,
    useful: u32,
    refused: u32,
    offered: u32,
    /// The end of the last request, after the storm.
    ends: Duration,
}

/// Workers of one request each, requests that come evenly and take `takes`, and clients that leave after `patience`.
fn storm(queue_time: QueueTime, workers: u64, takes: Duration, load: f64, patience: Duration) -> Storm {
    let rules = rules(Abandoned::Skip, queue_time);
    let lasts = SECOND * 40;
    let between = takes.div_f64(workers as f64 * load);
    let begin = Tick::ZERO + SECOND;
    let mut free: Vec<Tick> = (0..workers).map(|_| begin).collect();
    let (mut storm, mut standing, mut usual) = (Storm::default(), Standing::default(), Duration::ZERO);
    let mut queue: VecDeque<Tick> = VecDeque::new();
    let mut next = begin;
    loop {
        while next < begin + lasts && queue.is_empty() {
            queue.push_back(next);
            next = next + between;
            storm.offered += 1;
        }
        let Some(came) = queue.pop_front() else {
            return storm;
        };
        let worker = free.iter_mut().min().expect("a worker");
        let now = (*worker).max(came);
        let waited = now.since(came);
        let bound = Bound::of(usual);
        let (taken, stands) = standing.take(waited, bound, now);
        standing = taken;
        let facts = Facts {
            waited,
            timeout: None,
            usual,
            standing: stands.then_some(bound.refused()),
        };
        match judge(&rules, &facts, || waited > patience) {
            Some(_) => {
                storm.refused += 1;
                *worker = now + Duration::from_micros(50);
            }
            None => {
                (storm.executed, usual) = (storm.executed + 1, takes);
                *worker = now + takes;
                let answered = waited + takes <= patience;
                storm.useful += u32::from(answered);
                storm.ends = (now + takes).since(begin + lasts);
            }
        }
    }
}

#[test]
fn the_work_of_an_overloaded_pool_is_useful() {
    let millis = Duration::from_millis;
    for (takes, patience) in [
        (millis(500), SECOND * 2),
        (millis(100), SECOND),
        (millis(10), SECOND),
        (SECOND, SECOND * 5),
    ] {
        for load in [1.2, 2.0, 4.0] {
            let auto = storm(QueueTime::Auto, 4, takes, load, patience);
            let part = f64::from(auto.useful) / f64::from(auto.executed);
            assert!(part >= 0.95, "{takes:?} at {load}: {part} {auto:?}");
            let capacity = 40.0 * 4.0 / takes.as_secs_f64();
            assert!(
                f64::from(auto.useful) > 0.9 * capacity,
                "{takes:?} at {load}: {auto:?}"
            );
            assert!(auto.ends < patience + takes, "{takes:?} at {load}: {auto:?}");
        }
        let today = storm(QueueTime::Endless, 4, takes, 2.0, patience);
        assert!(today.useful * 2 < today.executed, "{takes:?}: {today:?}");
    }
}

#[test]
fn a_pool_with_room_refuses_nothing() {
    for load in [0.5, 0.8, 0.99] {
        let auto = storm(QueueTime::Auto, 4, Duration::from_millis(300), load, SECOND * 5);
        assert_eq!((auto.refused, auto.useful), (0, auto.offered), "{load}");
    }
}

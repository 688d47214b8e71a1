//! What each limit does, and that nothing a worker writes does more.

mod traps;

use super::*;

const MIB: u64 = 1 << 20;

fn machine(cores: f64, mib: u64) -> Machine {
    Machine {
        cores,
        memory: mib * MIB,
        requests_a_worker: 1,
    }
}

/// A second of a busy pool: each request computes for `run` and is blocked for `blocked` seconds.
fn second(machine: Machine, done: u32, run: f64, blocked: f64, full: f64) -> Second {
    let count = f64::from(done);
    Second {
        elapsed: 1.0,
        machine,
        shared: 100 * MIB,
        others: 0,
        current: 300 * MIB,
        pressure: false,
        live: 20,
        busy: 20,
        waiting: 5,
        full,
        done,
        run: count * run,
        queued: 0.0,
        held: count * (run + blocked),
        routes: vec![Route {
            key: 1,
            done,
            log_blocked: count * (blocked + 0.001).ln(),
            blocked: count * blocked,
        }],
        private: vec![30 * MIB; 4],
    }
}

fn repeat(autopilot: &mut Autopilot, times: u32, second: &Second) -> u32 {
    (0..times)
        .map(|_| autopilot.second(second).most)
        .last()
        .unwrap_or(0)
}

#[test]
fn the_first_guess_is_small_where_memory_or_processors_are_few() {
    for (cores, mib, most) in [(0.5, 256, 2), (2.0, 2048, 10), (32.0, 65_536, 130), (8.0, 50, 1)] {
        let autopilot = Autopilot::start(&machine(cores, mib), 100 * MIB);
        assert_eq!(autopilot.decision().most, most, "{cores} processors, {mib} MiB");
        assert_eq!(autopilot.decision().reason, Reason::Start);
    }
}

#[test]
fn the_number_follows_what_is_short() {
    let large = machine(4.0, 16_384);
    let rows = [
        // Requests that compute want little more workers than processors; waiting requests want many more.
        (
            "computing",
            second(large, 100, 0.04, 0.0, 0.3),
            4..=4,
            "processors; ",
        ),
        (
            "waiting",
            second(large, 100, 0.004, 0.2, 0.3),
            200..=290,
            "processors; ",
        ),
        (
            "memory",
            second(machine(4.0, 1024), 100, 0.004, 0.2, 0.3),
            20..=28,
            "memory; a worker needs 30 MiB of its own, and ",
        ),
    ];
    for (name, second, expected, sentence) in rows {
        let mut autopilot = Autopilot::start(&second.machine, second.shared);
        let most = repeat(&mut autopilot, 200, &second);
        assert!(expected.contains(&most), "{name}: {most}");
        let reason = autopilot.decision().reason.to_string();
        assert!(reason.starts_with(sentence), "{name}: {reason}");
    }
}

#[test]
fn a_worker_that_serves_several_requests_counts_as_several() {
    let several = Machine {
        requests_a_worker: 8,
        ..machine(4.0, 16_384)
    };
    let mut autopilot = Autopilot::start(&several, 0);
    let most = repeat(&mut autopilot, 100, &second(several, 100, 0.004, 0.2, 0.3));
    assert!((25..=36).contains(&most), "{most}");
}

/// A pool of small requests keeps room for the next large one.
#[test]
fn a_large_request_is_remembered() {
    let machine = machine(4.0, 1024);
    let small = second(machine, 100, 0.004, 0.2, 0.3);
    let large = Second {
        private: vec![30 * MIB, 30 * MIB, 30 * MIB, 300 * MIB],
        ..small.clone()
    };
    let mut autopilot = Autopilot::start(&machine, 0);
    let before = repeat(&mut autopilot, 100, &small);
    let during = repeat(&mut autopilot, 1, &large);
    let after = repeat(&mut autopilot, 60, &small);
    assert!(during < before, "{during} {before}");
    let held = u64::from(after) * 30 * MIB + 270 * MIB + small.shared;
    assert!(held < machine.memory, "{after} workers and a large request");
}

#[test]
fn pressure_takes_workers_away_and_holds_growth() {
    let machine = machine(4.0, 16_384);
    let calm = second(machine, 100, 0.004, 0.2, 0.3);
    let pressed = Second {
        pressure: true,
        live: 20,
        ..calm.clone()
    };
    let mut autopilot = Autopilot::start(&machine, 0);
    assert!(repeat(&mut autopilot, 100, &calm) > 100);
    assert_eq!(autopilot.second(&pressed).most, 19);
    assert!(!autopilot.decision().may_fork);
    assert_eq!(autopilot.decision().reason, Reason::Pressure);
    assert_eq!(repeat(&mut autopilot, 9, &calm), 19);
    assert!(repeat(&mut autopilot, 2, &calm) > 100);
    assert!(autopilot.decision().may_fork);
}

#[test]
fn no_fork_where_the_limit_is_near() {
    let machine = machine(4.0, 1000);
    let near = Second {
        current: 900 * MIB,
        ..second(machine, 100, 0.004, 0.2, 0.3)
    };
    let mut autopilot = Autopilot::start(&machine, 0);
    assert!(!autopilot.second(&near).may_fork);
    let far = Second {
        current: 800 * MIB,
        ..near
    };
    assert!(autopilot.second(&far).may_fork);
}

#[test]
fn what_was_learnt_outlives_a_reload() {
    let machine = machine(4.0, 16_384);
    let mut autopilot = Autopilot::start(&machine, 0);
    let most = repeat(&mut autopilot, 100, &second(machine, 100, 0.004, 0.2, 0.05));
    let text = serde_json::to_string(&autopilot.learnt()).expect("plain numbers");
    let learnt: Learnt = serde_json::from_str(&text).expect("what was written");
    assert_eq!(serde_json::to_string(&learnt).ok(), Some(text));
    assert_eq!(Autopilot::resume(learnt.clone(), &machine).decision().most, most);
    let smaller = Machine {
        memory: 1024 * MIB,
        ..machine
    };
    let resumed = Autopilot::resume(learnt, &smaller).decision().most;
    assert!(resumed < 32, "{resumed}");
    assert_eq!(Autopilot::resume(Learnt::default(), &machine).decision().most, 18);
}

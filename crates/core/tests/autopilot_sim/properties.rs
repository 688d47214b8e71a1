//! Whatever workers write, the number stays within memory and within the number of processes, and nothing panics.

use crate::random::{Random, rounds};
use forkyard_core::autopilot::{Autopilot, Learnt, Machine, Route, Second};

const MIB: u64 = 1 << 20;

fn lie(random: &mut Random) -> f64 {
    match random.below(9) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        3 => -1.0,
        4 => f64::MAX,
        5 => f64::MIN_POSITIVE,
        6 => 1e18,
        _ => f64::from(random.between(0, 1000)) / 10.0,
    }
}

fn size(random: &mut Random, lies: bool) -> u64 {
    match random.below(4) {
        0 if lies => random.next(),
        1 if lies => 0,
        _ => u64::from(random.between(10, 90)) * MIB,
    }
}

fn route(random: &mut Random) -> Route {
    Route {
        key: random.next() % 200,
        done: random.next() as u32 >> random.below(32),
        log_blocked: lie(random),
        blocked: lie(random),
    }
}

fn second(random: &mut Random, machine: Machine, live: u32, lies: bool) -> Second {
    Second {
        elapsed: if lies { lie(random) } else { 1.0 },
        machine,
        shared: u64::from(random.between(0, 200)) * MIB,
        others: u64::from(random.between(0, 400)) * MIB,
        current: u64::from(random.between(0, 4000)) * MIB,
        pressure: random.one_in(20),
        live,
        busy: random.between(0, live),
        waiting: random.next() as u32 >> random.below(32),
        full: lie(random),
        done: random.next() as u32,
        run: lie(random),
        queued: lie(random),
        held: lie(random),
        routes: (0..random.below(40)).map(|_| route(random)).collect(),
        private: (0..random.below(6)).map(|_| size(random, lies)).collect(),
    }
}

#[test]
fn lies_cannot_raise_the_number_above_what_there_is() {
    rounds(1000, |random| {
        let machine = Machine {
            cores: lie(random),
            memory: u64::from(random.between(0, 8000)) * MIB,
            requests_a_worker: random.next() as u32 >> random.below(32),
        };
        let mut autopilot = Autopilot::start(&machine, u64::from(random.between(0, 300)) * MIB);
        for _ in 0..60 {
            let live = autopilot.decision().most;
            let second = second(random, machine, live, true);
            let decision = autopilot.second(&second);
            assert!((1..=65_535).contains(&decision.most), "{decision:?}");
            if second.current > machine.memory {
                assert!(!decision.may_fork, "{decision:?}");
            }
            assert!(!decision.reason.to_string().contains("NaN"), "{decision:?}");
            if random.one_in(10) {
                let text = serde_json::to_string(&autopilot.learnt()).expect("plain numbers");
                let learnt: Learnt = serde_json::from_str(&text).expect("what was written");
                autopilot = Autopilot::resume(learnt, &machine);
            }
        }
    });
}

/// The memory of workers is true here; everything else is not.
#[test]
fn the_number_is_never_above_what_memory_holds() {
    rounds(1000, |random| {
        let machine = Machine {
            cores: f64::from(random.between(1, 640)) / 10.0,
            memory: u64::from(random.between(64, 8000)) * MIB,
            requests_a_worker: random.between(1, 8),
        };
        let each = u64::from(random.between(10, 120)) * MIB;
        let mut autopilot = Autopilot::start(&machine, 0);
        for passed in 0..60 {
            let seen = Second {
                private: vec![each; 4],
                pressure: false,
                ..second(random, machine, autopilot.decision().most, true)
            };
            let most = u64::from(autopilot.second(&seen).most);
            let held = most * each + seen.shared + seen.others;
            assert!(
                passed < 20 || most == 1 || held <= machine.memory,
                "{most} workers of {each} in {machine:?}"
            );
        }
    });
}

//! Simulates deployments of good and bad releases under load.
//!
//! The long form prints a table: `cargo test --release -p forkyard-core --test simulations -- release_sim::table --ignored
//! --nocapture`. `FORKYARD_SIM_SEEDS`: how many good releases, and how many bad ones.

mod chance;
mod kind;
mod table;
mod world;

use crate::random::{Random, number, rounds};
use forkyard_core::release::compare::{Verdict, Why};
use kind::{BAD, Kind, Site};
use std::cell::{Cell, RefCell};
use table::{Row, spread};
use world::{Outcome, run};

/// Deploys a release on any site.
fn any(kind: Kind, seed: u64) -> Outcome {
    let mut random = Random::new(seed * 13 + kind as u64);
    let mut site = Site::any(&mut random);
    if kind == Kind::FlappingDatabase {
        site.flaps();
    }
    run(&site, kind, &mut random)
}

/// Deploys a release at 100 requests a second over 20 routes.
fn usual(kind: Kind, random: &mut Random) -> Outcome {
    let mut site = Site::plain(100.0, 20);
    if kind == Kind::FlappingDatabase {
        site.flaps();
    }
    run(&site, kind, random)
}

#[test]
#[ignore = "computes for minutes; the quick form is below"]
fn table_of_good_and_bad_releases() {
    let count = number("FORKYARD_SIM_SEEDS").unwrap_or(10_000);
    println!("Any site. Seconds and failures: median (99 %, most).");
    let mut good = Row::default();
    for seed in 0..count {
        let outcome = any(Kind::Good, seed);
        if let Some((verdict, second)) = &outcome.back {
            println!("good, seed {seed}, {second} s: {verdict}");
        }
        good.add(Kind::Good, &outcome);
    }
    println!("{}", good.line(Kind::Good));
    for kind in BAD {
        let mut row = Row::default();
        for seed in 0..count / 10 {
            row.add(kind, &any(kind, seed));
        }
        println!("{}", row.line(kind));
    }
    println!("100 requests/s over 20 routes, steps of 30 s:");
    for kind in [Kind::Good, Kind::FifthFails].into_iter().chain(BAD) {
        let mut row = Row::default();
        let (mut minute, mut new, mut all) = (vec![], vec![], vec![]);
        for seed in 0..count / 20 {
            let outcome = usual(kind, &mut Random::new(seed));
            minute.push(outcome.minute_failed);
            new.push(outcome.bad_route);
            all.push(outcome.bad_route_all);
            row.add(kind, &outcome);
        }
        println!(
            "{}; {} failures in the first minute; requests of the bad route: {} new, {} all",
            row.line(kind),
            spread(&mut minute),
            spread(&mut new),
            spread(&mut all)
        );
    }
    assert!(
        good.back * 1000 <= good.releases.max(1000),
        "{} of {}",
        good.back,
        good.releases
    );
}

#[test]
fn good_releases_stay() {
    for seed in 0..number("FORKYARD_SIM_SEEDS").unwrap_or(120) {
        let outcome = any(Kind::Good, seed);
        assert!(outcome.back.is_none(), "seed {seed}: {:?}", outcome.back);
        assert!(!outcome.trial_failed);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Back,
    TrialFailed,
    Stays,
    NotCompared,
}

/// Runs rounds whose outcome is up to chance: of a hundred, five may end otherwise.
fn usually(count: u64, complaint: impl Fn(&mut Random) -> Option<String>) {
    let (rounds_done, complaints) = (Cell::new(0), RefCell::new(Vec::new()));
    rounds(count, |random| {
        rounds_done.set(rounds_done.get() + 1);
        complaints.borrow_mut().extend(complaint(random));
    });
    let complaints = complaints.into_inner();
    assert!(
        complaints.len() * 20 <= rounds_done.get(),
        "{} of {}: {complaints:?}",
        complaints.len(),
        rounds_done.get()
    );
}

#[test]
fn each_kind_of_release_ends_by_table() {
    let rows = [
        (Kind::Good, Expected::Stays),
        (Kind::AllFail, Expected::Back),
        (Kind::OneOfTwentyFails, Expected::Back),
        (Kind::FifthFails, Expected::Back),
        (Kind::ThreeTimesSlower, Expected::Back),
        // Its workers die after the deployment, or some of them during it.
        (Kind::Leaks, Expected::Stays),
        (Kind::DiesAfterFifty, Expected::Back),
        (Kind::FailsCold, Expected::Back),
        (Kind::FailsForOneCookie, Expected::Back),
        (Kind::StartHangs, Expected::TrialFailed),
        (Kind::FlappingDatabase, Expected::Stays),
        (Kind::NoTraffic, Expected::NotCompared),
    ];
    for (kind, expected) in rows {
        usually(2, |random| {
            let outcome = usual(kind, random);
            let found = match &outcome {
                Outcome {
                    back: Some((Verdict::RollBack { why: Why::Deaths, .. }, _)),
                    ..
                } if kind == Kind::Leaks => Expected::Stays,
                Outcome { back: Some(_), .. } => Expected::Back,
                Outcome {
                    trial_failed: true, ..
                } => Expected::TrialFailed,
                Outcome { not_compared: 3, .. } => Expected::NotCompared,
                Outcome { .. } => Expected::Stays,
            };
            (found != expected).then(|| format!("{kind:?}: {found:?}, {outcome:?}"))
        });
    }
}

#[test]
fn a_release_that_leaks_goes_back_if_its_workers_die_during_the_steps() {
    rounds(2, |random| {
        let site = Site {
            step_time: 180,
            ..Site::plain(100.0, 20)
        };
        let outcome = run(&site, Kind::Leaks, random);
        assert!(outcome.back.is_some(), "{outcome:?}");
    });
}

#[test]
fn a_fifth_of_the_routes_fails_for_a_short_time() {
    rounds(12, |random| {
        let outcome = usual(Kind::FifthFails, random);
        let second = outcome.back.as_ref().map_or(u64::MAX, |(_, second)| *second);
        assert!(outcome.caused <= 30 || second <= 15, "{outcome:?}");
        // 1 % of 100 requests/s.
        assert!(outcome.minute_failed <= 60, "{outcome:?}");
    });
}

#[test]
fn a_slow_route_goes_back_within_500_requests() {
    usually(6, |random| {
        let outcome = usual(Kind::ThreeTimesSlower, random);
        let is_in_time = outcome.back.is_some() && outcome.bad_route <= 500;
        (!is_in_time).then(|| format!("{outcome:?}"))
    });
}

#[test]
fn a_release_stays_if_the_old_one_is_as_slow() {
    rounds(3, |random| {
        let mut site = Site::plain(100.0, 20);
        // The outage begins with the deployment.
        site.outages = Some((1.0, 1e9));
        let outcome = run(&site, Kind::Good, random);
        assert!(outcome.back.is_none(), "{outcome:?}");
    });
}

#[test]
fn a_client_that_repeats_a_broken_request_takes_nothing_back() {
    for rate in [10.0, 100.0] {
        rounds(4, |random| {
            let site = Site {
                hammered: 0.03,
                ..Site::plain(rate, 20)
            };
            let outcome = run(&site, Kind::Good, random);
            assert!(outcome.back.is_none(), "{rate}: {outcome:?}");
        });
    }
}

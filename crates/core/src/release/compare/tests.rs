use super::evidence::Gains;
use super::*;
use std::time::Duration;

fn counts(requests: u64, errors: u64, bucket: u8) -> Counts {
    let mut counts = Counts {
        requests,
        errors,
        evident: errors,
        ..Counts::default()
    };
    counts.times.add(bucket, requests);
    counts
}

fn second(route: &str, old: Counts, new: Counts) -> Second {
    let mut second = Second::default();
    *second.route(route) = Pair { old, new };
    second
}

/// Repeats a second until it decides.
fn decides(percent: u8, second: &Second) -> Option<(usize, Verdict)> {
    let mut compare = Compare::new(percent);
    (1..400).find_map(|seconds| match compare.second(second) {
        Verdict::GoOn => None,
        verdict @ Verdict::RollBack { .. } => Some((seconds, verdict)),
    })
}

#[test]
fn a_verdict_is_a_sentence() {
    let failing = second("GET /cart\n", counts(90, 0, 30), counts(10, 5, 30));
    let (seconds, verdict) = decides(10, &failing).unwrap();
    assert!(seconds <= 6, "{seconds}");
    assert_eq!(
        verdict.to_string(),
        format!(
            "the new release failed in {} of {} requests, with the release before in 0 of {}",
            5 * seconds,
            10 * seconds,
            90 * seconds
        )
    );
    let figures = |failed, of, millis| Figures {
        of,
        failed,
        median: Some(Duration::from_millis(millis)),
    };
    let verdict = |route: Option<&str>, why| Verdict::RollBack {
        route: route.map(str::to_owned),
        why,
        figures: Pair {
            old: figures(1, 4000, 20),
            new: figures(12, 40, 61),
        },
    };
    let rows = [
        (
            verdict(Some("GET /cart\n"), Why::Errors),
            "GET /cart\\x0a failed in 12 of 40 requests, with the release before in 1 of 4000",
        ),
        (
            verdict(Some("GET /cart"), Why::Slower),
            "GET /cart takes 61.0 ms, with the release before 20.0 ms (medians of 40 and 4000 requests)",
        ),
        (
            verdict(None, Why::Deaths),
            "12 workers died in 40 requests, with the release before 1 in 4000",
        ),
        (
            verdict(None, Why::Refusals),
            "12 of 40 requests named a script that is missing or refused, with the release before 1 of 4000",
        ),
        (
            verdict(None, Why::FailedStarts),
            "12 of 40 starts of a worker failed",
        ),
        (Verdict::GoOn, "the new release is not worse than the one before"),
    ];
    for (verdict, expected) in rows {
        assert_eq!(verdict.to_string(), expected);
    }
}

#[test]
fn differences_by_table() {
    let events = |old, new| Second {
        events: Pair { old, new },
        ..second("GET /", counts(90, 0, 30), counts(10, 0, 30))
    };
    let none = Events::default();
    let deaths = Events { deaths: 1, ..none };
    let refusals = |refused| Events { refused, ..none };
    let starts = Events {
        starts: 1,
        failed_starts: 1,
        ..none
    };
    let of = |old, new| second("GET /", old, new);
    // The second, and the decision.
    let rows = [
        ("equal", of(counts(90, 0, 30), counts(10, 0, 30)), None),
        (
            "failing",
            of(counts(90, 0, 30), counts(10, 1, 30)),
            Some(Why::Errors),
        ),
        ("both fail", of(counts(90, 9, 30), counts(10, 1, 30)), None),
        (
            "the old one fails",
            of(counts(90, 9, 30), counts(10, 0, 30)),
            None,
        ),
        ("no old requests", of(Counts::default(), counts(10, 10, 30)), None),
        ("no new requests", of(counts(90, 9, 30), Counts::default()), None),
        (
            "3 times slower",
            of(counts(90, 0, 30), counts(10, 0, 33)),
            Some(Why::Slower),
        ),
        ("1.4 times slower", of(counts(90, 0, 30), counts(10, 0, 31)), None),
        ("faster", of(counts(90, 0, 30), counts(10, 0, 20)), None),
        // 0.1 and 0.3 ms.
        (
            "slower, but short",
            of(counts(90, 0, 13), counts(10, 0, 16)),
            None,
        ),
        ("deaths", events(none, deaths), Some(Why::Deaths)),
        (
            "deaths of both",
            events(Events { deaths: 9, ..none }, deaths),
            None,
        ),
        ("refusals", events(refusals(9), refusals(5)), Some(Why::Refusals)),
        ("few refusals", events(none, refusals(4)), None),
        ("refusals of both", events(refusals(10), refusals(10)), None),
        ("failed starts", events(none, starts), Some(Why::FailedStarts)),
        ("failed starts of both", events(starts, starts), None),
    ];
    for (name, second, expected) in rows {
        let why = decides(10, &second).map(|(_, verdict)| match verdict {
            Verdict::RollBack { why, .. } => why,
            Verdict::GoOn => unreachable!(),
        });
        assert_eq!(why, expected, "{name}");
    }
}

#[test]
fn one_route_of_many_is_named() {
    let mut all = Second::default();
    for index in 0..50 {
        let errors = if index == 7 { 3 } else { 0 };
        *all.route(&format!("GET /{index}")) = Pair {
            old: counts(20, 0, 30),
            new: counts(20, errors, 30),
        };
    }
    // The whole generation would decide later.
    let mut compare = Compare::new(50);
    compare.all_errors.sums.new.requests = u64::MAX;
    let verdict = (0..100)
        .map(|_| compare.second(&all))
        .find(|verdict| *verdict != Verdict::GoOn);
    match verdict {
        Some(Verdict::RollBack {
            route: Some(route),
            why: Why::Errors,
            ..
        }) => assert_eq!(route, "GET /7"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_burst_of_one_second_does_not_decide() {
    for percent in [1, 10, 50] {
        let mut compare = Compare::new(percent);
        let calm = second(
            "GET /",
            counts(100 - u64::from(percent), 0, 30),
            counts(percent.into(), 0, 30),
        );
        let burst = second("GET /", counts(0, 0, 30), counts(20, 20, 40));
        for at in 0..120 {
            let mut sums = calm.clone();
            if at == 30 {
                sums.route("GET /").new.merge(&burst.routes["GET /"].new);
            }
            assert_eq!(compare.second(&sums), Verdict::GoOn, "{percent} %, {at}");
        }
    }
}

#[test]
fn suspicion_comes_before_the_decision() {
    let mut compare = Compare::new(50);
    let failing = second("GET /", counts(5, 0, 30), counts(5, 1, 30));
    let mut suspicious = 0;
    while compare.second(&failing) == Verdict::GoOn {
        suspicious += u32::from(compare.is_suspicious());
        assert!(suspicious < 100);
    }
    assert!(suspicious >= 3, "{suspicious}");
    assert!(compare.compared() > 0);
    compare.step(90);
    assert_eq!(compare.compared(), 0);
}

#[test]
fn requests_are_compared_once_their_times_are() {
    let cold = Counts {
        times: Times::default(),
        ..counts(9, 0, 30)
    };
    let warm = counts(9, 0, 30);
    for (old, new, expected) in [(warm, cold, 0), (cold, warm, 0), (warm, warm, 9)] {
        let mut compare = Compare::new(50);
        for _ in 0..2 {
            compare.second(&second("GET /", old, new));
        }
        assert_eq!(compare.compared() / 2, expected, "{old:?} {new:?}");
    }
}

fn take(evidence: &mut Evidence, window: &Pair<Counts>, gains: fn(&Pair<Counts>) -> Option<Gains>) {
    evidence.add(window, gains(window));
}

#[test]
fn evidence_survives_a_step_and_a_loss_does_not() {
    let mut evidence = Evidence::default();
    let window = |old, new| Pair {
        old: counts(50, old, 30),
        new: counts(50, new, 30),
    };
    take(&mut evidence, &window(0, 2), evidence::errors);
    let value = evidence.value();
    assert!(value > 0.5);
    evidence.renew();
    assert_eq!(evidence.value(), value);
    for _ in 0..3 {
        take(&mut evidence, &window(2, 0), evidence::errors);
    }
    evidence.renew();
    assert_eq!(evidence.mean(), 1.0);
    assert!(evidence.value() < 0.5);
}

/// A bet is fair: over all draws of the new generation's requests its mean is 1 at most.
#[test]
fn bets_are_fair() {
    // Failures: each of them falls on the new generation by chance.
    let (old, new, failures) = (12_u64, 5_u64, 4_u64);
    let choose = |n: u64, k: u64| (0..k).fold(1.0, |product, i| product * (n - i) as f64 / (i + 1) as f64);
    let mut mean = 0.0;
    for failed in 0..=failures {
        let mut evidence = Evidence::default();
        let window = Pair {
            old: counts(old, failures - failed, 30),
            new: counts(new, failed, 30),
        };
        take(&mut evidence, &window, evidence::errors);
        let chance = choose(new, failed) * choose(old, failures - failed) / choose(old + new, failures);
        mean += chance * evidence.mean();
    }
    assert!(mean <= 1.0 && mean > 0.3, "{mean}");
    // Times: any three of eight requests are the new generation's. The old ones are as slow as tolerated.
    let buckets = [20, 22, 22, 25, 30, 31, 40, 41];
    let (mut mean, mut draws) = (0.0, 0.0);
    for draw in (0_u32..256).filter(|draw| draw.count_ones() == 3) {
        let mut window = Pair::<Counts>::default();
        for (index, bucket) in buckets.into_iter().enumerate() {
            match draw & (1 << index) {
                0 => window.old.times.add(bucket - 1, 1),
                _ => window.new.times.add(bucket, 1),
            }
        }
        let mut evidence = Evidence::default();
        take(&mut evidence, &window, evidence::times);
        mean += evidence.mean();
        draws += 1.0;
    }
    mean /= draws;
    assert!(mean <= 1.0 + 1e-9 && mean > 0.8, "{mean}");
}

#[test]
fn large_windows_are_bounded_like_small_ones() {
    for requests in [60, 70, 1_000_000] {
        let mut evidence = Evidence::default();
        let window = Pair {
            old: counts(requests, 0, 30),
            new: counts(requests, 0, 60),
        };
        take(&mut evidence, &window, evidence::times);
        assert!(
            (evidence.mean() - 5.0).abs() < 1e-9,
            "{requests}: {}",
            evidence.mean()
        );
        let mut evidence = Evidence::default();
        let window = Pair {
            old: window.new,
            new: window.old,
        };
        take(&mut evidence, &window, evidence::times);
        assert!((0.0..1.0).contains(&evidence.mean()));
    }
}

#[test]
fn lies_do_not_panic() {
    let mut state = 3_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) << (state >> 60) << (state >> 62 << 4)
    };
    for _ in 0..8 {
        let mut compare = Compare::new(next() as u8);
        for _ in 0..30 {
            let mut lie = Second::default();
            for _ in 0..next() % 90 {
                let mut counts = [Counts::default(); 2];
                for side in &mut counts {
                    (side.requests, side.errors, side.evident) = (next(), next(), next());
                    side.times.add(next() as u8, next());
                    side.times.add(next() as u8, u64::MAX);
                }
                let [old, new] = counts;
                lie.routes
                    .insert(format!("GET /{}", next() % 200), Pair { old, new });
            }
            lie.events.old.deaths = next();
            lie.events.new = Events {
                deaths: next(),
                refused: next(),
                starts: next(),
                failed_starts: next(),
            };
            assert!(!compare.second(&lie).to_string().contains("NaN"));
            if next() % 9 == 0 {
                compare.step(next() as u8);
            }
            assert!(compare.routes.len() <= sums::MOST_ROUTES + 1);
        }
    }
}

mod interleaved;
mod scenes;

use super::*;
use forkyard_base::tick::Tick;
use std::time::Duration;

const MILLI: Duration = Duration::from_millis(1);

fn waits(lanes: &[Lane]) -> PerLane<bool> {
    let mut waits = PerLane::default();
    for lane in lanes {
        *waits.get_mut(*lane) = true;
    }
    waits
}

#[test]
fn people_begin_first_and_low_requests_leave_the_reserve_idle() {
    use Lane::{Background, Bots, First, People};
    for (high, low, total, reserve, lanes, expected) in [
        (0, 0, 5, 1, &[Bots, People][..], Some(People)),
        (0, 0, 5, 1, &[Bots], Some(Bots)),
        (0, 3, 5, 1, &[Bots], Some(Bots)),
        (0, 4, 5, 1, &[Bots], None),
        (0, 4, 5, 1, &[Bots, First], Some(First)),
        (2, 1, 5, 1, &[Background], Some(Background)),
        (2, 2, 5, 1, &[Background], None),
        // The last worker goes to the low lanes, if they have none.
        (4, 0, 5, 1, &[Bots, People], Some(Bots)),
        (3, 0, 5, 1, &[Bots, People], Some(People)),
        (3, 1, 5, 1, &[Bots, People], Some(People)),
        // A reserve larger than the pool stops all low requests but one.
        (0, 0, 2, 9, &[Bots], Some(Bots)),
        (0, 1, 2, 9, &[Bots], None),
        (0, 0, 1, 1, &[Bots, People], Some(People)),
        (0, 0, 1, 1, &[Bots], Some(Bots)),
        (u32::MAX, u32::MAX, 5, u32::MAX, &[Bots], None),
        (0, 0, 5, 1, &[], None),
    ] {
        let load = Load {
            high,
            low,
            total,
            reserve,
        };
        let found = next(&waits(lanes), load, &Shares::default());
        assert_eq!(found, expected, "{load:?} {lanes:?}");
    }
}

#[test]
fn lanes_of_a_class_share_the_time_by_weight() {
    for (a, b, parts) in [
        (Lane::First, Lane::People, (1, 1)),
        (Lane::Background, Lane::Bots, (2, 1)),
    ] {
        let both = waits(&[a, b]);
        let mut shares = Shares::default();
        let mut busy: PerLane<Duration> = PerLane::default();
        for request in 0..3_000 {
            let lane = shares.least(&both, |_| true).unwrap();
            // The requests of one lane take three times as long.
            let time = if lane == a { MILLI * 3 } else { MILLI };
            shares.pay(lane, time);
            *busy.get_mut(lane) += time;
            let bound = MILLI * 3 * 2 * (parts.0 + parts.1);
            let difference = (*busy.get(a) * parts.1).abs_diff(*busy.get(b) * parts.0);
            assert!(difference <= bound, "{a:?} {b:?} after {request}: {difference:?}");
        }
    }
}

#[test]
fn a_lane_keeps_no_credit_while_it_has_no_requests() {
    let both = waits(&[Lane::Background, Lane::Bots]);
    let mut shares = Shares::default();
    shares.pay(Lane::Bots, Duration::from_secs(100));
    let without = shares;
    shares.wake(Lane::Background, &both);
    // By weight, two of three; with its credit, all.
    for (mut shares, expected) in [(shares, 20), (without, 30)] {
        let begun = std::iter::repeat_with(|| {
            let lane = shares.least(&both, |_| true).unwrap();
            shares.pay(lane, Duration::from_secs(1));
            lane
        });
        let begun = begun.take(30).filter(|lane| *lane == Lane::Background);
        assert_eq!(begun.count(), expected);
    }
    // Time of the other class does not count.
    let mut shares = Shares::default();
    shares.pay(Lane::People, Duration::from_secs(100));
    shares.wake(Lane::Bots, &waits(&[Lane::People, Lane::Bots]));
    assert_eq!(shares.least(&both, |_| true), Some(Lane::Background));
    shares.pay(Lane::Background, MILLI);
    assert_eq!(shares.least(&both, |_| true), Some(Lane::Bots));
}

#[test]
fn the_reserve_grows_while_people_wait_and_shrinks_afterwards() {
    let start = Tick::from_nanos(7);
    let at = |millis: u32| start + MILLI * millis;
    let new = Reserve::new(start);
    for (what, low, max_children, waits, looked, expected) in [
        ("one wait", 4, 8, &[0][..], 1, 2),
        ("waits at once", 4, 8, &[0, 50, 199], 200, 2),
        ("waits in steps", 4, 8, &[0, 200, 400], 400, 4),
        ("the half at most", 4, 8, &[0, 200, 400, 600, 800], 800, 4),
        ("a small pool", 4, 2, &[0, 200], 200, 1),
        ("a single low request", 1, 8, &[0, 200], 200, 1),
        ("before it shrinks", 4, 8, &[0, 200], 20_199, 3),
        ("it shrinks", 4, 8, &[0, 200], 20_200, 2),
        ("it has shrunk", 4, 8, &[0, 200], 40_200, 1),
        ("one stays", 4, 8, &[0, 200], 4_000_000, 1),
    ] {
        let reserve = waits
            .iter()
            .fold(new, |reserve, wait| reserve.wanted(low, max_children, at(*wait)));
        assert_eq!(reserve.rest(at(looked)).workers(), expected, "{what}");
    }
}

//! Steers the percentage that workers read, so that the new generation gets the wanted part of the requests.
//!
//! A request in the new generation's turn goes to the old one if no new worker is free at that moment. The percentage
//! compensates: it rises while the measured part is too small, and falls while that part is too large.

use super::compare::Second;

/// The change of the percentage per second, for each missing percent.
const GAIN: f64 = 0.3;
/// The weight of earlier seconds in the measured part decays by this factor each second.
const REMAINS: f64 = 0.65;
/// The measured part includes this many imagined requests, shared as wanted. They limit the effect of chance on a pool with
/// few requests.
const IMAGINED: f64 = 50.0;
/// At most this part of the remaining percentage is added, because a generation outside of its turn delays each request for
/// a moment.
const MOST_ADDED: f64 = 0.6;
const MOST_TIMES: f64 = 4.0;

#[derive(Debug, Clone, PartialEq)]
pub struct Steering {
    wanted: f64,
    exact: f64,
    /// The remainder from rounding.
    rest: f64,
    all: f64,
    new: f64,
}

impl Steering {
    /// Begins with a percentage that workers already read.
    pub fn new(wanted: u8) -> Steering {
        let wanted = f64::from(wanted.min(100));
        Steering {
            wanted,
            exact: wanted,
            rest: 0.0,
            all: 0.0,
            new: 0.0,
        }
    }

    fn most(&self) -> f64 {
        let added = MOST_ADDED * (100.0 - self.wanted);
        (self.wanted + added).min(MOST_TIMES * self.wanted)
    }

    /// Adds the requests of a second. Returns the percentage for the next second.
    pub fn second(&mut self, second: &Second) -> u8 {
        let (mut old, mut new) = (0_u64, 0_u64);
        for pair in second.routes.values() {
            old = old.saturating_add(pair.old.requests);
            new = new.saturating_add(pair.new.requests);
        }
        let (old, new) = (old as f64, new as f64);
        self.all = REMAINS * self.all + old + new;
        self.new = REMAINS * self.new + new;
        let imagined = IMAGINED * self.wanted / 100.0;
        let measured = 100.0 * (self.new + imagined) / (self.all + IMAGINED);
        let next = self.exact + GAIN * (self.wanted - measured);
        self.exact = next.clamp(self.wanted / 2.0, self.most());
        let shown = (self.exact + self.rest).round().clamp(1.0, 99.0);
        self.rest = (self.rest + self.exact - shown).clamp(-1.0, 1.0);
        shown as u8
    }

    /// Whether more turns no longer help, because the new generation has too few workers.
    pub fn needs_workers(&self) -> bool {
        self.exact >= self.most()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::compare::{Counts, Pair};

    fn second(old: f64, new: f64) -> Second {
        let counts = |requests: f64| Counts {
            requests: requests as u64,
            ..Counts::default()
        };
        let mut second = Second::default();
        *second.route("GET /") = Pair {
            old: counts(old),
            new: counts(new),
        };
        second
    }

    /// Returns the mean parts of the first ten seconds and of the next twenty, in percent. `got`: the real part for a shown
    /// percentage.
    fn parts(wanted: u8, requests: f64, got: impl Fn(f64) -> f64) -> (f64, f64, Steering) {
        let mut steering = Steering::new(wanted);
        let mut shown = wanted;
        let (mut owed, mut sums) = (0.0, [0.0; 2]);
        for at in 0..30 {
            let exact = requests * got(f64::from(shown)) / 100.0 + owed;
            owed = exact - exact.floor();
            sums[usize::from(at >= 10)] += exact.floor();
            shown = steering.second(&second(requests - exact.floor(), exact.floor()));
        }
        let percent = |sum: f64, seconds: f64| 100.0 * sum / (seconds * requests);
        (percent(sums[0], 10.0), percent(sums[1], 20.0), steering)
    }

    #[test]
    fn the_part_becomes_what_is_wanted() {
        // One of the generations loses some of its turns, or the new one has no worker for more.
        type Got = fn(f64) -> f64;
        let rows: [(&str, Got, bool); 6] = [
            ("as shown", |shown| shown, true),
            ("two thirds", |shown| shown / 1.5, true),
            ("nine tenths", |shown| shown * 0.9, true),
            ("too many", |shown| 100.0 - (100.0 - shown) * 0.8, false),
            ("saturated", |shown| shown.min(20.0), false),
            ("nothing", |_| 0.0, false),
        ];
        for (name, got, holds) in rows {
            for wanted in [1, 10, 50] {
                for requests in [40.0, 100.0, 2000.0] {
                    let (begin, end, steering) = parts(wanted, requests, got);
                    let expected = f64::from(wanted);
                    let row = format!("{name}, {wanted} %, {requests}/s: {begin:.1} {end:.1} {steering:?}");
                    let found = got(steering.exact);
                    if holds && requests > 50.0 {
                        assert!((end - expected).abs() <= 0.3 + expected * 0.15, "{row}");
                        assert!(begin >= expected * 0.5, "{row}");
                    }
                    assert!(found <= expected * 1.2 || name == "too many", "{row}");
                    let is_bounded = steering.exact >= expected / 2.0 && steering.exact <= 80.0;
                    assert!(is_bounded && steering.exact <= 4.0 * expected, "{row}");
                    let lacks = !holds && got(expected * 2.0) < expected * 0.9;
                    assert!(!lacks || requests < 100.0 || steering.needs_workers(), "{row}");
                }
            }
        }
    }

    #[test]
    fn chance_moves_little_and_lies_nothing_beyond_the_bounds() {
        let mut steering = Steering::new(10);
        for at in 0..600 {
            let is_new = (at * 7 + at / 10) % 10 == 0;
            let sums = match is_new {
                true => second(0.0, 1.0),
                false => second(1.0, 0.0),
            };
            let shown = steering.second(&sums);
            assert!((8..=12).contains(&shown), "{at}: {shown}");
        }
        let lies = [
            second(0.0, f64::MAX),
            second(f64::MAX, 0.0),
            second(f64::MAX, f64::MAX),
        ];
        for wanted in [0, 1, 50, 99, 255] {
            let mut steering = Steering::new(wanted);
            for at in 0..300 {
                let shown = steering.second(&lies[at / 9 % lies.len()]);
                assert!((1..=99).contains(&shown), "{wanted}: {shown}");
            }
        }
    }
}

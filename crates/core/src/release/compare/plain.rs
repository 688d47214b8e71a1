//! Failures that need no bet: for several seconds, most requests fail in the new generation and hardly any in the old one.
//!
//! Bets distrust many requests at once, which one client may send. They may need more time than a short step or a short load
//! gives them.

use super::sums::{Counts, Pair};

/// The required number of requests, by generation.
const ENOUGH_NEW: u64 = 30;
const ENOUGH_OLD: u64 = 10;
/// The required number of failing seconds, and their required part of the seconds with requests. A client's burst fits into
/// one or two seconds.
const SECONDS: u32 = 3;
const OF_SECONDS: (u32, u32) = (3, 4);
/// At least one of this many new requests must fail, and at most one of this many old ones.
const MANY: u64 = 2;
const FEW: u64 = 10;

/// The counts of a step so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Plain {
    pub sums: Pair<Counts>,
    seconds: u32,
    failing: u32,
}

impl Plain {
    pub(super) fn second(&mut self, second: &Pair<Counts>) {
        self.sums.merge(second);
        self.seconds = self.seconds.saturating_add(u32::from(second.new.requests > 0));
        self.failing = self.failing.saturating_add(u32::from(is_worse(second)));
    }

    /// Whether more requests may show that the generation fails.
    pub(super) fn doubts(&self) -> bool {
        self.sums.old.requests >= ENOUGH_OLD && is_worse(&self.sums)
    }

    /// Whether the new generation plainly fails.
    pub(super) fn fails(&self) -> bool {
        let Pair { old, new } = &self.sums;
        let is_enough = new.requests >= ENOUGH_NEW && old.requests >= ENOUGH_OLD;
        let (part, whole) = OF_SECONDS;
        let is_often = self.failing.saturating_mul(whole) >= self.seconds.saturating_mul(part);
        is_enough && self.failing >= SECONDS && is_often && is_worse(&self.sums)
    }
}

/// Workers that died in a step.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Deaths {
    /// Requests, and deaths as failures.
    pub sums: Pair<Counts>,
    /// Seconds with a death of the new generation.
    seconds: u32,
}

impl Deaths {
    pub(super) fn second(&mut self, second: &Pair<Counts>) {
        self.sums.merge(second);
        self.seconds = self.seconds.saturating_add(u32::from(second.new.errors > 0));
    }

    /// Whether workers die again and again in the new generation, and never in the old one.
    pub(super) fn fails(&self) -> bool {
        self.seconds >= SECONDS && self.sums.old.errors == 0
    }

    /// Whether one more death would decide.
    pub(super) fn doubts(&self) -> bool {
        self.seconds + 1 >= SECONDS && self.sums.old.errors == 0
    }
}

fn is_worse(sums: &Pair<Counts>) -> bool {
    let Pair { old, new } = sums;
    new.errors > 0
        && new.errors.saturating_mul(MANY) >= new.requests
        && old.errors.saturating_mul(FEW) <= old.requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_plain_by_table() {
        // By second: requests and failures of the old generation, and of the new one.
        type Row = (&'static str, Vec<[u64; 4]>, bool);
        let rows: [Row; 11] = [
            ("nothing", vec![], false),
            ("all fail", vec![[100, 0, 16, 16]; 3], true),
            ("half fail", vec![[100, 10, 20, 10]; 3], true),
            ("fewer fail", vec![[100, 0, 20, 9]; 30], false),
            ("two seconds", vec![[300, 0, 40, 40]; 2], false),
            ("few requests", vec![[100, 0, 9, 9]; 3], false),
            ("few of the old one", vec![[3, 0, 16, 16]; 3], false),
            ("the old one fails, too", vec![[100, 11, 16, 16]; 9], false),
            (
                "a burst",
                [vec![[50, 0, 10, 0]; 20], vec![[50, 0, 60, 60]; 1]].concat(),
                false,
            ),
            (
                "bursts",
                [vec![[3, 0, 2, 0]; 9], vec![[3, 0, 30, 30]; 4]].concat(),
                false,
            ),
            ("none of the new one fails", vec![[50, 0, 50, 0]; 9], false),
        ];
        for (name, seconds, expected) in rows {
            let mut plain = Plain::default();
            for [old, old_errors, new, new_errors] in seconds {
                let counts = |requests, errors| Counts {
                    requests,
                    errors,
                    ..Counts::default()
                };
                plain.second(&Pair {
                    old: counts(old, old_errors),
                    new: counts(new, new_errors),
                });
            }
            assert_eq!(plain.fails(), expected, "{name}");
        }
    }

    #[test]
    fn a_generation_that_dies_again_and_again_fails() {
        let deaths = |requests, errors| Counts {
            requests,
            errors,
            ..Counts::default()
        };
        // Seconds with a death, deaths of the old generation in each; whether it doubts, and fails.
        for (seconds, old, expected) in [
            (1, 0, [false, false]),
            (2, 0, [true, false]),
            (3, 0, [true, true]),
            (9, 1, [false, false]),
        ] {
            let mut plain = Deaths::default();
            for _ in 0..seconds {
                for new in [1, 0] {
                    plain.second(&Pair {
                        old: deaths(100, old),
                        new: deaths(10, new),
                    });
                }
            }
            assert_eq!([plain.doubts(), plain.fails()], expected, "{seconds}, {old}");
        }
    }
}

//! A small generator of numbers, the same on every machine (splitmix64), and rounds of a test by its seeds.
#![allow(dead_code, reason = "each test uses its part")]

use std::time::Duration;

#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// `0..bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub(crate) fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub(crate) fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1);
        (0..length).map(|_| self.next() as u8).collect()
    }

    /// `low..=high`.
    pub(crate) fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below((high - low + 1) as usize) as u32
    }

    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub(crate) fn millis(&mut self, low: u32, high: u32) -> Duration {
        Duration::from_millis(u64::from(self.between(low, high)))
    }
}

/// Names the round that failed.
struct Round(u64);

impl Drop for Round {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay with FORKYARD_SEED={}", self.0);
        }
    }
}

/// So many rounds of a test, or the one that `FORKYARD_SEED` names.
pub(crate) fn rounds(count: u64, test: impl Fn(&mut Random)) {
    let replayed = std::env::var("FORKYARD_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds = match replayed {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    };
    for seed in seeds {
        let _round = Round(seed);
        test(&mut Random::new(seed));
    }
}

//! A portable random number generator (splitmix64), and helpers for seeded simulations.
#![allow(dead_code, reason = "each test uses its part")]

use std::cell::Cell;
use std::fmt::Debug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
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

struct Round(u64);

impl Drop for Round {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay with FORKYARD_SEED={}", self.0);
        }
    }
}

pub(crate) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The seed in `FORKYARD_SEED`; otherwise the first `FORKYARD_SIM_SEEDS` seeds, or `count`.
pub(crate) fn seeds(count: u64) -> Range<u64> {
    match number("FORKYARD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FORKYARD_SIM_SEEDS").unwrap_or(count),
    }
}

pub(crate) fn rounds(count: u64, test: impl Fn(&mut Random)) {
    for seed in seeds(count) {
        let _round = Round(seed);
        test(&mut Random::new(seed));
    }
}

pub(crate) fn outcome(run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(text
            .or(panic.downcast_ref().copied())
            .unwrap_or("it panics")
            .to_owned())
    })
}

thread_local! {
    static IS_SILENT: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn all_are_noticed<M: Copy + Debug>(
    mutants: impl IntoIterator<Item = M>,
    seeds: u64,
    run: impl Fn(M, u64) -> Result<(), String>,
) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let say = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_SILENT.get() {
                say(panic);
            }
        }));
    });
    for mutant in mutants {
        IS_SILENT.set(true);
        let seed = (0..seeds).find(|seed| run(mutant, *seed).is_err());
        IS_SILENT.set(false);
        eprintln!("{mutant:?}: seed {seed:?}");
        assert!(seed.is_some(), "{mutant:?} is not noticed within {seeds} seeds");
    }
}

pub(crate) fn print_end(journal: &[String]) {
    const MOST_LINES: usize = 150;
    for line in &journal[journal.len().saturating_sub(MOST_LINES)..] {
        eprintln!("{line}");
    }
}

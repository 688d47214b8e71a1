//! Compares the autopilot with the best fixed number: work, the slowest requests, and killed workers.

use super::chance::quantile;
use super::workload::{Container, SECONDS, Workload};
use super::world::{Outcome, Rule, run};
use std::fmt;

const NUMBERS: [usize; 26] = [
    1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048,
];
/// The search ends after this many numbers in a row without a better one.
const WORSE: u32 = 5;

#[derive(Debug)]
pub(super) struct Best {
    pub(super) number: usize,
    work: f64,
    slowest: f64,
}

/// One rule in one container.
#[derive(Debug)]
pub(super) struct Score {
    pub(super) number: f64,
    /// Relative to the best fixed number.
    pub(super) work: f64,
    pub(super) slowest: f64,
    pub(super) killed: u32,
    pub(super) is_steady: bool,
    /// Seconds after a tenfold step until nine tenths of the final answers come.
    pub(super) settled: Option<usize>,
    pub(super) reason: String,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Shares {
    pub(super) pairs: u32,
    pub(super) work: u32,
    pub(super) slowest: u32,
    pub(super) nobody_killed: u32,
    pub(super) all: u32,
    pub(super) killed: u32,
    pub(super) least: f64,
}

/// Sweeps over fixed numbers. Returns `None` if the kernel kills a worker with every number.
pub(super) fn best(workload: &Workload, container: Container, seed: u64) -> Option<Best> {
    let there_is = container.memory - workload.shared;
    let mut best: Option<Best> = None;
    let mut worse = 0;
    for number in NUMBERS
        .into_iter()
        .take_while(|number| *number as f64 * workload.own <= 1.3 * there_is)
    {
        let killed = |seed| run(workload, container, Rule::Fixed(number), seed).killed > 0;
        let outcome = run(workload, container, Rule::Fixed(number), seed);
        let is_tight = number as f64 * workload.own > 0.6 * there_is;
        // A lucky number does not count.
        if outcome.killed > 0 || is_tight && (killed(seed + 1000) || killed(seed + 2000)) {
            break;
        }
        let slowest = quantile(&outcome.took, 0.99);
        let is_better = best.as_ref().is_none_or(|best| {
            outcome.work > 1.01 * best.work
                || outcome.work > 0.995 * best.work && slowest < 0.97 * best.slowest
        });
        if is_better {
            worse = 0;
            best = Some(Best {
                number,
                work: outcome.work,
                slowest,
            });
        } else {
            worse += 1;
        }
        if worse >= WORSE {
            break;
        }
    }
    best
}

pub(super) fn score(workload: &Workload, container: Container, rule: Rule, seed: u64, best: &Best) -> Score {
    let outcome = run(workload, container, rule, seed);
    let tail = &outcome.numbers[outcome.numbers.len() - 30..];
    let middle = quantile(tail, 0.5);
    let swing = quantile(tail, 0.95) - quantile(tail, 0.05);
    Score {
        number: quantile(&outcome.numbers, 0.5),
        work: outcome.work / best.work,
        slowest: quantile(&outcome.took, 0.99) / best.slowest,
        killed: outcome.killed,
        is_steady: swing <= (0.05 * middle).max(1.0),
        settled: settled(&outcome),
        reason: outcome.reason,
    }
}

/// Seconds after second 80.
pub(super) fn settled(outcome: &Outcome) -> Option<usize> {
    let answers = &outcome.answers;
    let mean = |from: usize, to: usize| answers[from..to].iter().sum::<f64>() / (to - from) as f64;
    let last = mean(150, 180.min(SECONDS as usize));
    (0..100).find(|second| mean(80 + second, 83 + second) >= 0.9 * last)
}

impl Score {
    pub(super) fn is_enough(&self) -> bool {
        self.has_work() && self.is_fast() && self.killed == 0
    }

    fn has_work(&self) -> bool {
        self.work >= 0.95
    }

    fn is_fast(&self) -> bool {
        self.slowest <= 1.1
    }
}

impl Shares {
    pub(super) fn add(&mut self, score: &Score) {
        self.least = if self.pairs == 0 {
            score.work
        } else {
            self.least.min(score.work)
        };
        self.pairs += 1;
        self.work += u32::from(score.has_work());
        self.slowest += u32::from(score.is_fast());
        self.nobody_killed += u32::from(score.killed == 0);
        self.all += u32::from(score.is_enough());
        self.killed += score.killed;
    }

    pub(super) fn percent_of_all(&self) -> u32 {
        100 * self.all / self.pairs.max(1)
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |count: u32| 100.0 * f64::from(count) / f64::from(self.pairs.max(1));
        write!(
            f,
            "work {:.0} %, slowest {:.0} %, nobody killed {:.0} %, all {:.0} % of {}; least work {:.0} %, {} killed",
            percent(self.work),
            percent(self.slowest),
            percent(self.nobody_killed),
            percent(self.all),
            self.pairs,
            100.0 * self.least,
            self.killed
        )
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moves = if self.is_steady { ' ' } else { '~' };
        let (work, slowest) = (100.0 * self.work, self.slowest);
        write!(
            f,
            "{:>5.0}{moves} {work:>4.0} % {slowest:>5.2} {:>4}",
            self.number, self.killed
        )
    }
}

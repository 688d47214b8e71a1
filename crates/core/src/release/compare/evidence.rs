//! Evidence that the new generation is worse, as a bet against "it is as good".
//!
//! Requests go to either generation by chance. If both are as good, failures and long times fall on both by that chance, and
//! the mean of a bet on "more fall on the new one" stays at most 1, at any time and for any number of looks. The mean of many
//! bets is such a bet. It exceeds 1000 in one of 1000 good deployments at most (Ville's inequality; Ramdas et al., "Game-theoretic
//! statistics and safe anytime-valid inference", 2023).

use super::sums::{BUCKETS, Counts, Pair, Times};

/// Bets on different sizes of the difference.
const BETS: usize = 3;

/// How many times as likely as in the old generation a failure is.
const TIMES_AS_LIKELY: [f64; BETS] = [3.0, 10.0, 100.0];
/// A difference of this size is no reason to go back.
const TOLERATED: f64 = 1.25;

/// How steeply a bet on times grows with the rank of a request.
const TILTS: [f64; BETS] = [1.0, 2.5, 6.0];
/// Buckets by which the new generation may be slower: a factor of 1.41.
const TOLERATED_BUCKETS: usize = 1;

/// Repeated failures count up to so many times the usual number.
const MOST_REPEATED: f64 = 4.0;

/// The most requests of a window whose draws are computed exactly.
const MOST_EXACT: u64 = 128;

/// The part of failed starts in a good release, and in bad ones.
const GOOD_STARTS: f64 = 0.1;
const BAD_STARTS: [f64; BETS] = [0.3, 0.6, 0.95];

/// The most evidence of one window, so that a burst of one client decides nothing.
const MOST_OF_ERRORS: f64 = 2.0;
const MOST_OF_TIMES: f64 = 5.0;
const MOST_OF_STARTS: f64 = 20.0;

/// Evidence against a difference that is given up for a new bet.
const GIVEN_UP: f64 = 1.0 / 32.0;

/// Logarithms of bets, and the sums behind them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Evidence {
    logs: [f64; BETS],
    /// Bets that were given up. Each next one has a smaller part of the stake, and all parts together are 1.
    given_up: u32,
    pub sums: Pair<Counts>,
}

impl Default for Evidence {
    fn default() -> Evidence {
        Evidence {
            logs: [0.0; BETS],
            given_up: 0,
            sums: Pair::default(),
        }
    }
}

impl Evidence {
    /// Begins a new bet if the present one has lost, because the conditions change.
    pub(super) fn renew(&mut self) {
        if self.mean() < 1.0 {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        *self = Evidence {
            given_up: self.given_up.saturating_add(1),
            ..Evidence::default()
        };
    }

    /// Returns the value of the bet.
    pub(super) fn value(&self) -> f64 {
        let bet = f64::from(self.given_up);
        self.mean() / ((bet + 1.0) * (bet + 2.0))
    }

    /// Returns the value of the present bet alone.
    pub(super) fn mean(&self) -> f64 {
        self.logs.iter().map(|log| log.exp()).sum::<f64>() / BETS as f64
    }

    /// Adds what a window shows.
    pub(super) fn add(&mut self, window: &Pair<Counts>, gains: Option<Gains>) {
        let Some(Gains(gains)) = gains else { return };
        if self.mean() < GIVEN_UP {
            self.give_up();
        }
        for (log, gain) in self.logs.iter_mut().zip(gains) {
            *log = (*log + gain).clamp(-500.0, 500.0);
        }
        self.sums.old.merge(&window.old);
        self.sums.new.merge(&window.new);
    }
}

/// What the bets gain by a window, as logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Gains([f64; BETS]);

impl Gains {
    fn new(gains: [f64; BETS], most: f64) -> Option<Gains> {
        Some(Gains(gains.map(|gain| gain.min(most.ln()))))
    }
}

/// Returns the gains from failures: each falls on the new generation with the part of requests that it has. Fewer failures of
/// the new generation only lower the gains.
pub(super) fn errors(window: &Pair<Counts>) -> Option<Gains> {
    let (old, new) = (window.old.requests as f64, window.new.requests as f64);
    if old == 0.0 || new == 0.0 {
        return None;
    }
    let usual = new * window.old.errors as f64 / old;
    let new_failures = (window.new.evident as f64).max(MOST_REPEATED * usual);
    let new_failures = new_failures.min(window.new.errors as f64);
    let failures = window.old.errors as f64 + new_failures;
    let part = new / (old + new);
    let gains = TIMES_AS_LIKELY.map(|times| {
        let factor = (1.0 + part * (TOLERATED - 1.0)) / (1.0 + part * (times - 1.0));
        new_failures * (times / TOLERATED).ln() + failures * factor.ln()
    });
    Gains::new(gains, MOST_OF_ERRORS / part)
}

/// Returns the gains from times: each request has its rank among all, and the new generation has a random draw of the ranks.
pub(super) fn times(window: &Pair<Counts>) -> Option<Gains> {
    let old = slower(&window.old.times);
    let new = &window.new.times;
    let (drawn, all) = (new.count(), old.count() + new.count());
    if drawn == 0 || drawn == all {
        return None;
    }
    // Ranks from -½ to ½, and how many requests have each.
    let mut ranks = [(0.0, 0); BUCKETS];
    let mut below = 0;
    let mut sum = 0.0;
    for ((place, old), new) in ranks.iter_mut().zip(old.0).zip(new.0) {
        let count = old + new;
        let rank = (below as f64 + count as f64 / 2.0) / all as f64 - 0.5;
        *place = (rank, count);
        below += count;
        sum += new as f64 * rank;
    }
    let gains = TILTS.map(|tilt| {
        let mean = match all {
            ..=MOST_EXACT => exact_draw(&ranks, tilt, drawn as usize).ln(),
            _ => drawn as f64 * one_of(&ranks, tilt, all).ln(),
        };
        tilt * sum - mean
    });
    Gains::new(gains, MOST_OF_TIMES)
}

/// Returns the gains from starts of the new generation. The old one rarely has any.
pub(super) fn starts(starts: u64, failed: u64) -> Option<Gains> {
    let (good, failed) = (starts.saturating_sub(failed) as f64, failed as f64);
    let gains = BAD_STARTS
        .map(|bad| failed * (bad / GOOD_STARTS).ln() + good * ((1.0 - bad) / (1.0 - GOOD_STARTS)).ln());
    Gains::new(gains, MOST_OF_STARTS)
}

/// Returns the mean of exp(tilt × sum of ranks) over all draws of so many requests.
fn exact_draw(ranks: &[(f64, u64)], tilt: f64, drawn: usize) -> f64 {
    // By the number of drawn requests, among the requests so far.
    let mut means = vec![0.0; drawn + 1];
    means[0] = 1.0;
    let mut so_far = 0.0;
    for (rank, count) in ranks {
        let weight = (tilt * rank).exp();
        for _ in 0..*count {
            so_far += 1.0;
            for k in (1..=drawn).rev() {
                let part = (k as f64 / so_far).min(1.0);
                means[k] = part * weight * means[k - 1] + (1.0 - part) * means[k];
            }
        }
    }
    means[drawn]
}

/// Returns the mean of exp(tilt × rank) over all requests. Its power bounds the mean of a draw (Hoeffding 1963, theorem 4).
fn one_of(ranks: &[(f64, u64)], tilt: f64, all: u64) -> f64 {
    let sum: f64 = ranks
        .iter()
        .map(|(rank, count)| *count as f64 * (tilt * rank).exp())
        .sum();
    sum / all as f64
}

/// Returns the times as if all requests were as slow as tolerated.
fn slower(times: &Times) -> Times {
    let mut slower = Times::default();
    for (index, count) in times.0.into_iter().enumerate() {
        slower.0[(index + TOLERATED_BUCKETS).min(BUCKETS - 1)] += count;
    }
    slower
}

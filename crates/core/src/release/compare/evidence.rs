//! Evidence that the new generation is worse, computed as a bet against "both are equally good".
//!
//! Chance sends each request to one of the two generations. If both are equally good, failures and long times follow the
//! same chance. Then the mean of a bet on "more of them fall on the new one" is at most 1, at any time and after any number
//! of looks. The mean of many bets is also such a bet. It exceeds 1000 in at most one of 1000 good deployments (Ville's
//! inequality; Ramdas et al., "Game-theoretic statistics and safe anytime-valid inference", 2023).

use super::sums::{BUCKETS, Counts, Pair, Times};

/// The number of bets, each on a different size of the difference.
const BETS: usize = 3;

/// Each bet assumes that a failure is this many times as likely as in the old generation.
const TIMES_AS_LIKELY: [f64; BETS] = [3.0, 10.0, 100.0];
/// A difference up to this factor is no reason for a rollback.
const TOLERATED: f64 = 1.25;

/// How steeply a bet on times grows with the rank of a request.
const TILTS: [f64; BETS] = [1.0, 2.5, 6.0];
/// The new generation may be slower by this many buckets, a factor of 1.41.
const TOLERATED_BUCKETS: usize = 1;

/// Repeated failures count up to this multiple of the usual number.
const MOST_REPEATED: f64 = 4.0;

/// Draws are computed exactly for windows of up to this many requests.
const MOST_EXACT: u64 = 128;

/// The assumed part of failed starts in a good release, and in a bad one for each bet.
const GOOD_STARTS: f64 = 0.1;
const BAD_STARTS: [f64; BETS] = [0.3, 0.6, 0.95];

/// The most evidence that one window may add, so that a burst of one client decides nothing.
const MOST_OF_ERRORS: f64 = 2.0;
const MOST_OF_TIMES: f64 = 5.0;
const MOST_OF_STARTS: f64 = 20.0;

/// Below this value a bet is abandoned, and a new one begins.
const GIVEN_UP: f64 = 1.0 / 32.0;

/// The logarithms of the bets, and the sums behind them.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Evidence {
    logs: [f64; BETS],
    /// The number of abandoned bets. Each further bet gets a smaller part of the stake, and all parts add up to 1.
    given_up: u32,
    pub sums: Pair<Counts>,
}

impl Evidence {
    /// Begins a new bet for new conditions, if the present one has lost.
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

    /// Adds the counts of a window and the gains from it.
    pub(super) fn add(&mut self, window: &Pair<Counts>, gains: Option<Gains>) {
        let Some(Gains(gains)) = gains else { return };
        if self.mean() < GIVEN_UP {
            self.give_up();
        }
        for (log, gain) in self.logs.iter_mut().zip(gains) {
            *log = (*log + gain).clamp(-500.0, 500.0);
        }
        self.sums.merge(window);
    }
}

/// The gains of the bets from a window, as logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Gains([f64; BETS]);

impl Gains {
    fn new(gains: [f64; BETS], most: f64) -> Option<Gains> {
        Some(Gains(gains.map(|gain| gain.min(most.ln()))))
    }
}

/// Returns the gains from failures. If both are equally good, each failure falls on the new generation with a probability
/// equal to its part of the requests. Fewer failures of the new generation only lower the gains.
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

/// Returns the gains from times. Each request has a rank among all, and an equally good generation gets a random draw of
/// the ranks.
pub(super) fn times(window: &Pair<Counts>) -> Option<Gains> {
    let old = slower(&window.old.times);
    let new = &window.new.times;
    let (drawn, all) = (new.count(), old.count() + new.count());
    if drawn == 0 || drawn == all {
        return None;
    }
    // Ranks from -½ to ½, and the number of requests with each.
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

/// Returns the gains from starts of the new generation, without the old one, which rarely starts workers.
pub(super) fn starts(starts: u64, failed: u64) -> Option<Gains> {
    let (good, failed) = (starts.saturating_sub(failed) as f64, failed as f64);
    let gains = BAD_STARTS
        .map(|bad| failed * (bad / GOOD_STARTS).ln() + good * ((1.0 - bad) / (1.0 - GOOD_STARTS)).ln());
    Gains::new(gains, MOST_OF_STARTS)
}

/// Returns the mean of exp(tilt × sum of ranks) over all draws of `drawn` requests.
fn exact_draw(ranks: &[(f64, u64)], tilt: f64, drawn: usize) -> f64 {
    // Means by the number of drawn requests, over the requests so far.
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

/// Returns the times, made slower by the tolerated difference.
fn slower(times: &Times) -> Times {
    let mut slower = Times::default();
    for (index, count) in times.0.into_iter().enumerate() {
        slower.0[(index + TOLERATED_BUCKETS).min(BUCKETS - 1)] += count;
    }
    slower
}

//! A row of the table of releases.

use super::kind::Kind;
use super::world::Outcome;

#[derive(Debug, Default)]
pub(super) struct Row {
    pub releases: u64,
    pub back: u64,
    trial_failed: u64,
    not_compared: u64,
    /// Releases with a longer step because of some evidence.
    held: u64,
    /// Releases that did harm and stayed: 30 failures, or 500 requests of a slow route.
    missed: u64,
    failures: Vec<u64>,
    seconds: Vec<u64>,
}

impl Row {
    pub(super) fn add(&mut self, kind: Kind, outcome: &Outcome) {
        self.releases += 1;
        self.back += u64::from(outcome.back.is_some());
        self.trial_failed += u64::from(outcome.trial_failed);
        self.not_compared += u64::from(outcome.not_compared > 0);
        self.held += u64::from(outcome.held);
        let does_harm = outcome.caused >= 30 || (kind == Kind::ThreeTimesSlower && outcome.bad_route >= 500);
        self.missed += u64::from(outcome.back.is_none() && does_harm);
        if let Some((_, second)) = &outcome.back {
            self.seconds.push(*second);
            self.failures.push(outcome.caused);
        }
    }

    pub(super) fn line(&mut self, kind: Kind) -> String {
        format!(
            "{kind:<17?} {:>5} releases, {:>5} back, {:>4} failed the trial, {:>4} not compared, {:>4} held, {:>3} did harm \
             and stayed; after {} s, {} failures",
            self.releases,
            self.back,
            self.trial_failed,
            self.not_compared,
            self.held,
            self.missed,
            spread(&mut self.seconds),
            spread(&mut self.failures)
        )
    }
}

/// Returns the median, 99 % and the most.
pub(super) fn spread(values: &mut [u64]) -> String {
    values.sort_unstable();
    let at = |index: usize| values.get(index).copied().unwrap_or(0);
    let count = values.len();
    format!(
        "{} ({}, {})",
        at(count / 2),
        at(count * 99 / 100),
        at(count.saturating_sub(1))
    )
}

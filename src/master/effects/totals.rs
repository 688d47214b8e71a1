//! What all pools do together, as the scoreboards show it.

use super::Edge;
use crate::scoreboard::layout::{header as word, slot};
use crate::scoreboard::{Stage, census, header};

/// Sums over all pools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::master) struct Totals {
    pub(in crate::master) active: u64,
    pub(in crate::master) idle: u64,
    /// Requests since the pools' present configurations came into force.
    pub(in crate::master) requests: u64,
    pub(in crate::master) slow: u64,
}

impl Edge {
    /// Counts.
    pub(in crate::master) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for generation in self.generations.values() {
            let Some(resources) = &generation.resources else {
                continue;
            };
            let words = resources.board.header();
            totals.slow = totals
                .slow
                .saturating_add(census::word(words, word::SLOW_REQUESTS));
            let mut requests = census::word(words, word::PAST_REQUESTS);
            for &index in generation.seats.keys() {
                let Some(page) = resources.board.slot(index as usize) else {
                    continue;
                };
                if !header::used(words, index as usize) {
                    continue;
                }
                requests = requests.saturating_add(census::word(page, slot::REQUESTS));
                match census::stage(page) {
                    Stage::Accepting => totals.idle += 1,
                    Stage::Creating => {}
                    _ => totals.active += 1,
                }
            }
            totals.requests = totals.requests.saturating_add(requests);
        }
        totals
    }
}

//! The reports of starts that failed: the last few, in memory, for whoever asks.

use crate::spawn::report::Report;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Reports that are kept of one pool.
const MOST_OF_A_POOL: usize = 4;
/// Reports that are kept in all. Each may have some hundred KiB of output and environment.
const MOST: usize = 32;

/// A report, and when and whose it was.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) report: Arc<Report>,
    /// Seconds since 1970.
    pub(super) epoch_s: u64,
    /// The pools whose preloader it was.
    pub(super) pools: Vec<String>,
}

/// The reports, oldest first.
#[derive(Debug, Default)]
pub(super) struct Errors {
    kept: VecDeque<Kept>,
    /// How many there have been of each pool.
    counts: HashMap<String, u64>,
}

impl Errors {
    /// Keeps a report, and forgets one that is too many.
    pub(super) fn keep(&mut self, kept: Kept) {
        for pool in &kept.pools {
            *self.counts.entry(pool.clone()).or_default() += 1;
        }
        let is_alike = |other: &&Kept| other.pools == kept.pools;
        let full = self.kept.iter().filter(is_alike).count() >= MOST_OF_A_POOL;
        let place = match full {
            true => self.kept.iter().position(|other| is_alike(&other)),
            false => (self.kept.len() >= MOST).then_some(0),
        };
        if let Some(place) = place {
            self.kept.remove(place);
        }
        self.kept.push_back(kept);
    }

    /// Keeps a report that a worker tells of, unless there is one by its name: a worker must not speak for others.
    pub(super) fn keep_told(&mut self, kept: Kept) {
        if self.kept.iter().all(|other| other.report.id != kept.report.id) {
            self.keep(kept);
        }
    }

    /// How many there have been of a pool since the daemon was started.
    pub(super) fn count(&self, pool: &str) -> u64 {
        self.counts.get(pool).copied().unwrap_or(0)
    }

    /// The last of a pool.
    pub(super) fn last(&self, pool: &str) -> Option<&Kept> {
        let mut kept = self.kept.iter().rev();
        kept.find(|kept| kept.pools.iter().any(|name| name == pool))
    }

    /// The one with this id; `None`: the last of all.
    pub(super) fn find(&self, id: Option<&str>) -> Option<&Kept> {
        let mut kept = self.kept.iter().rev();
        kept.find(|kept| id.is_none_or(|id| kept.report.id.to_string() == id))
    }
}

//! The reports of starts that failed: the last few, in memory, for the control socket.

use crate::spawn::report::Report;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Reports that are kept of one pool.
const MOST_OF_A_POOL: usize = 4;
/// Reports that are kept in all. Each may have some hundred KiB of output and environment.
const MOST: usize = 32;

/// A report, and when and whose it was.
#[derive(Debug, Clone)]
pub struct Kept {
    pub report: Arc<Report>,
    /// Seconds since 1970.
    pub epoch_s: u64,
    /// The pools whose preloader it was.
    pub pools: Vec<String>,
}

/// The reports, oldest first.
#[derive(Debug, Default)]
pub struct Errors {
    kept: VecDeque<Kept>,
    counts: Counts,
}

/// How many there have been of each pool that the status shows. What else fails, applications of application pools for
/// one, is not counted: there is no end of their names.
#[derive(Debug, Default)]
struct Counts(HashMap<String, u64>);

impl Counts {
    /// There is such a pool. If there was one already, the count goes on.
    fn begin(&mut self, pool: &str) {
        self.0.entry(pool.to_owned()).or_default();
    }

    fn end(&mut self, pool: &str) {
        self.0.remove(pool);
    }

    fn add(&mut self, pool: &str) {
        if let Some(count) = self.0.get_mut(pool) {
            *count += 1;
        }
    }

    fn of(&self, pool: &str) -> u64 {
        self.0.get(pool).copied().unwrap_or(0)
    }
}

impl Errors {
    /// A pool is there: its reports are counted from now on, or still.
    pub fn begin(&mut self, pool: &str) {
        self.counts.begin(pool);
    }

    /// There is no pool of this name any more.
    pub fn end(&mut self, pool: &str) {
        self.counts.end(pool);
    }

    /// Keeps a report, and forgets one that is too many.
    pub fn keep(&mut self, kept: Kept) {
        for pool in &kept.pools {
            self.counts.add(pool);
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
    pub fn keep_told(&mut self, kept: Kept) {
        if self.kept.iter().all(|other| other.report.id != kept.report.id) {
            self.keep(kept);
        }
    }

    /// How many there have been of a pool since it was there, or this program was started.
    pub fn count(&self, pool: &str) -> u64 {
        self.counts.of(pool)
    }

    /// The last of a pool.
    pub fn last(&self, pool: &str) -> Option<&Kept> {
        let mut kept = self.kept.iter().rev();
        kept.find(|kept| kept.pools.iter().any(|name| name == pool))
    }

    /// The one with this id; `None`: the last of all. Only one that may be read.
    pub fn find(&self, id: Option<&str>, may_read: impl Fn(&Kept) -> bool) -> Option<&Kept> {
        let mut kept = self.kept.iter().rev().filter(|kept| may_read(kept));
        kept.find(|kept| id.is_none_or(|id| kept.report.id.to_string() == id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_bounded_by_the_pools_that_are_there() {
        let mut counts = Counts::default();
        counts.begin("www");
        counts.add("www");
        for application in 0..10_000 {
            counts.add(&format!("sites:{application}"));
        }
        assert_eq!(counts.0.len(), 1);
        assert_eq!((counts.of("www"), counts.of("sites:1")), (1, 0));
        // A reload that gives it another address.
        counts.begin("www");
        counts.add("www");
        assert_eq!(counts.of("www"), 2, "it never goes backwards");
        counts.end("www");
        counts.add("www");
        assert!(counts.0.is_empty());
    }
}

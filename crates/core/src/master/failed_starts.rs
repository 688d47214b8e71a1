//! The latest reports of failed starts and of crashes during jobs, for the control socket.

use super::job_crash::JobCrash;
use crate::spawn::report::Report;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The most reports of one pool.
const MOST_OF_A_POOL: usize = 4;
/// The most reports. Each may take some hundred KiB.
const MOST: usize = 32;

/// A report with its time and pools.
#[derive(Debug, Clone)]
pub struct Kept {
    pub report: Arc<Report>,
    /// Seconds since 1970.
    pub epoch_s: u64,
    /// The pools of the preloader.
    pub pools: Vec<String>,
}

/// The reports, oldest first.
#[derive(Debug, Default)]
pub struct Errors {
    kept: VecDeque<Kept>,
    /// Kept apart so that a crashing job does not push out reports of starts.
    crashes: VecDeque<JobCrash>,
    counts: Counts,
}

/// A report that was found.
#[derive(Debug, Clone, Copy)]
pub enum KeptReport<'e> {
    Start(&'e Kept),
    Job(&'e JobCrash),
}

impl KeptReport<'_> {
    /// The user that it belongs to.
    pub fn uid(&self) -> u32 {
        match self {
            KeptReport::Start(kept) => kept.report.plan.account.uid,
            KeptReport::Job(crash) => crash.uid,
        }
    }

    fn is(&self, id: &str) -> bool {
        match self {
            KeptReport::Start(kept) => kept.report.id.to_string() == id,
            KeptReport::Job(crash) => crash.id.to_string() == id,
        }
    }

    fn epoch_s(&self) -> u64 {
        match self {
            KeptReport::Start(kept) => kept.epoch_s,
            KeptReport::Job(crash) => crash.epoch_s,
        }
    }
}

/// Counts by pool. Applications are not counted, because their names are unlimited.
#[derive(Debug, Default)]
struct Counts(HashMap<String, u64>);

impl Counts {
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
    /// Starts counting a pool's reports, or continues.
    pub fn begin(&mut self, pool: &str) {
        self.counts.begin(pool);
    }

    pub fn end(&mut self, pool: &str) {
        self.counts.end(pool);
    }

    /// Keeps a report and drops the oldest if there are too many.
    pub fn keep(&mut self, kept: Kept) {
        for pool in &kept.pools {
            self.counts.add(pool);
        }
        let user = |other: &Kept| other.report.plan.account.uid;
        make_room(&mut self.kept, user(&kept), user, |other| {
            other.pools == kept.pools
        });
        self.kept.push_back(kept);
    }

    /// Keeps a crash report and drops the oldest if there are too many.
    pub fn keep_crash(&mut self, crash: JobCrash) {
        make_room(
            &mut self.crashes,
            crash.uid,
            |other| other.uid,
            |other| other.pool == crash.pool,
        );
        self.crashes.push_back(crash);
    }

    /// Keeps a worker's report unless the id exists: it must not replace others' reports.
    pub fn keep_told(&mut self, kept: Kept) {
        if self.kept.iter().all(|other| other.report.id != kept.report.id) {
            self.keep(kept);
        }
    }

    /// The number of a pool's reports since it exists or the program started.
    pub fn count(&self, pool: &str) -> u64 {
        self.counts.of(pool)
    }

    /// The latest report of a pool.
    pub fn last(&self, pool: &str) -> Option<&Kept> {
        let mut kept = self.kept.iter().rev();
        kept.find(|kept| kept.pools.iter().any(|name| name == pool))
    }

    /// Returns the readable report with this id, from here or `others`; `None`: the latest.
    pub fn find<'e>(
        &'e self,
        id: Option<&str>,
        others: impl Iterator<Item = KeptReport<'e>>,
        may_read: impl Fn(&KeptReport<'_>) -> bool,
    ) -> Option<KeptReport<'e>> {
        let is_it = |found: &KeptReport<'_>| may_read(found) && id.is_none_or(|id| found.is(id));
        let start = self.kept.iter().rev().map(KeptReport::Start).find(is_it);
        let job = self.crashes.iter().rev().map(KeptReport::Job).find(is_it);
        let others = others.filter(is_it);
        others.chain(start).chain(job).max_by_key(KeptReport::epoch_s)
    }
}

/// Drops the oldest report of the same pool, or of the users with the most: a user never loses a report to one who has
/// more.
fn make_room<T>(kept: &mut VecDeque<T>, comes: u32, user: impl Fn(&T) -> u32, is_alike: impl Fn(&T) -> bool) {
    let full = kept.iter().filter(|other| is_alike(other)).count() >= MOST_OF_A_POOL;
    let index = if full {
        kept.iter().position(is_alike)
    } else if kept.len() >= MOST {
        let mut counts = HashMap::from([(comes, 1)]);
        for other in kept.iter() {
            *counts.entry(user(other)).or_default() += 1;
        }
        let most = counts.values().max().copied();
        let is_of_most = |other: &T| counts.get(&user(other)).copied() == most;
        Some(kept.iter().position(is_of_most).unwrap_or(0))
    } else {
        None
    };
    if let Some(index) = index {
        kept.remove(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_of_jobs_are_kept_beside_starts_and_are_their_user_s() {
        use crate::spawn::error::Ended;
        use crate::spawn::report::ErrorId;
        let mut errors = Errors::default();
        let crash = |number: u32, pool: &str, uid| JobCrash {
            id: ErrorId(number),
            epoch_s: number.into(),
            pool: pool.to_owned(),
            uid,
            path: "/jobs/mail/k".into(),
            query: "job=1&attempt=1".into(),
            script: String::new(),
            pid: 1,
            ended: Ended::Code(1),
            after: std::time::Duration::ZERO,
        };
        errors.keep_crash(crash(1, "shop", 33));
        for number in 2..9 {
            errors.keep_crash(crash(number, "www", 34));
        }
        let found = |id: Option<&str>, uid: u32| {
            let found = errors.find(id, std::iter::empty(), |found| found.uid() == uid);
            found.map(|found| found.epoch_s())
        };
        assert_eq!(found(None, 34), Some(8), "the last");
        assert_eq!(found(Some("00000002"), 34), None, "it had to make room");
        assert_eq!(
            found(Some("00000001"), 33),
            Some(1),
            "it did not, for another pool's"
        );
        assert_eq!(found(Some("00000001"), 34), None, "it is another user's");
        assert!(
            errors.last("www").is_none() && errors.count("www") == 0,
            "no start failed"
        );
    }

    #[test]
    fn a_user_with_many_pools_pushes_out_his_own_reports() {
        let mut kept: VecDeque<(u32, u32)> = VecDeque::new();
        let mut keep = |user: u32, pool: u32| {
            make_room(&mut kept, user, |other| other.0, |other| other.1 == pool);
            kept.push_back((user, pool));
            kept.clone()
        };
        keep(1, 0);
        for pool in 1..100 {
            let kept = keep(2, pool);
            assert!(kept.len() <= MOST && kept.contains(&(1, 0)), "{pool}");
        }
        let count = |kept: &VecDeque<(u32, u32)>, user| kept.iter().filter(|one| one.0 == user).count();
        for pool in 100..200 {
            keep(1, pool);
        }
        let kept = keep(2, 200);
        assert_eq!([count(&kept, 1), count(&kept, 2)], [MOST / 2, MOST / 2]);
    }

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
        // A reload with another address.
        counts.begin("www");
        counts.add("www");
        assert_eq!(counts.of("www"), 2, "it never goes backwards");
        counts.end("www");
        counts.add("www");
        assert!(counts.0.is_empty());
    }
}

//! The latest reports of failed starts and of crashes at work, for the control socket.

use super::crash::Crash;
use crate::spawn::report::Report;
use serde::Deserialize;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The most reports of failed starts: of one pool, and of all. Each may take some hundred KiB.
const STARTS: Room = Room {
    of_a_pool: 4,
    all: 32,
};
/// The most reports of crashes. Each takes some KiB.
const CRASHES: Room = Room {
    of_a_pool: 8,
    all: 256,
};

#[derive(Debug, Clone, Copy)]
struct Room {
    of_a_pool: usize,
    all: usize,
}

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
    /// Kept apart so that crashes do not push out reports of starts.
    crashes: VecDeque<Crash>,
    counts: Counts,
}

/// A report that was found.
#[derive(Debug, Clone, Copy)]
pub enum KeptReport<'e> {
    Start(&'e Kept),
    Crash(&'e Crash),
}

impl KeptReport<'_> {
    /// The user that it belongs to.
    pub fn uid(&self) -> u32 {
        match self {
            KeptReport::Start(kept) => kept.report.plan.account.uid,
            KeptReport::Crash(crash) => crash.uid,
        }
    }

    fn is(&self, id: &str) -> bool {
        match self {
            KeptReport::Start(kept) => kept.report.id.to_string() == id,
            KeptReport::Crash(crash) => crash.id.to_string() == id,
        }
    }

    fn epoch_s(&self) -> u64 {
        match self {
            KeptReport::Start(kept) => kept.epoch_s,
            KeptReport::Crash(crash) => crash.epoch_s,
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
        let is_alike = |other: &Kept| other.pools == kept.pools;
        make_room(&mut self.kept, STARTS, user(&kept), user, is_alike, |_, _| false);
        self.kept.push_back(kept);
    }

    /// Keeps a crash report, with the number of earlier ones, and drops one if there are too many.
    pub fn keep_crash(&mut self, mut crash: Crash) {
        let like = self.crashes.iter().rev().find(|other| other.is_like(&crash));
        crash.earlier = like.map_or(0, |like| like.earlier + 1);
        self.add_crash(crash);
    }

    fn add_crash(&mut self, crash: Crash) {
        let is_alike = |other: &Crash| other.pool == crash.pool;
        make_room(
            &mut self.crashes,
            CRASHES,
            crash.uid,
            |other| other.uid,
            is_alike,
            Crash::is_like,
        );
        self.crashes.push_back(crash);
    }

    /// The latest crashes for the next master, the oldest first, in at most `room` bytes of JSON.
    pub fn crashes_left(&self, room: usize) -> Vec<serde_json::Value> {
        let mut left = room;
        let values = self.crashes().map_while(|crash| {
            let value = serde_json::to_value(crash).ok()?;
            left = left.checked_sub(value.to_string().len())?;
            Some(value)
        });
        let mut values: Vec<_> = values.collect();
        values.reverse();
        values
    }

    /// Keeps the crashes from another master. Ignores those of a program that describes them differently.
    pub fn take_crashes(&mut self, left: &[serde_json::Value]) {
        for crash in left.iter().filter_map(|value| Crash::deserialize(value).ok()) {
            self.add_crash(crash);
        }
    }

    /// The kept crashes, the latest first.
    pub fn crashes(&self) -> impl Iterator<Item = &Crash> {
        self.crashes.iter().rev()
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
        let crash = self.crashes.iter().rev().map(KeptReport::Crash).find(is_it);
        let others = others.filter(is_it);
        others.chain(start).chain(crash).max_by_key(KeptReport::epoch_s)
    }
}

/// Drops the oldest report of the same pool, first one with a later equal, or of the users with the most: a user never
/// loses a report to one who has more.
fn make_room<T>(
    kept: &mut VecDeque<T>,
    room: Room,
    comes: u32,
    user: impl Fn(&T) -> u32,
    is_alike: impl Fn(&T) -> bool,
    is_equal: impl Fn(&T, &T) -> bool,
) {
    let full = kept.iter().filter(|other| is_alike(other)).count() >= room.of_a_pool;
    let index = if full {
        let has_later = |(index, one): &(usize, &T)| {
            is_alike(one) && kept.iter().skip(index + 1).any(|later| is_equal(one, later))
        };
        let repeated = kept.iter().enumerate().find(has_later).map(|(index, _)| index);
        repeated.or_else(|| kept.iter().position(is_alike))
    } else if kept.len() >= room.all {
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

    fn crash(number: u32, pool: &str, uid: u32, script: &str) -> Crash {
        use crate::master::crash::tests::crash;
        let mut crash = crash();
        crash.id = crate::spawn::report::ErrorId(number);
        crash.epoch_s = number.into();
        (crash.pool, crash.uid) = (pool.to_owned(), uid);
        crash.work.script = script.to_owned();
        crash
    }

    #[test]
    fn crashes_are_kept_beside_starts_and_are_their_user_s() {
        let mut errors = Errors::default();
        errors.keep_crash(crash(1, "shop", 33, "/a"));
        for number in 2..12 {
            errors.keep_crash(crash(number, "www", 34, "/a"));
        }
        let found = |id: Option<&str>, uid: u32| {
            let found = errors.find(id, std::iter::empty(), |found| found.uid() == uid);
            found.map(|found| found.epoch_s())
        };
        assert_eq!(found(None, 34), Some(11), "the last");
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
    fn a_crash_knows_how_many_were_like_it_and_a_rare_one_outlives_a_frequent_one() {
        let mut errors = Errors::default();
        errors.keep_crash(crash(1, "www", 34, "/rare"));
        for number in 2..102 {
            errors.keep_crash(crash(number, "www", 34, "/often"));
        }
        let kept: Vec<(u64, u64)> = errors.crashes().map(|it| (it.epoch_s, it.earlier)).collect();
        assert_eq!(kept.len(), CRASHES.of_a_pool);
        assert_eq!((kept[0], kept[kept.len() - 1]), ((101, 99), (1, 0)));
        for number in 102..110 {
            errors.keep_crash(crash(number, "www", 34, &format!("/{number}")));
        }
        let oldest = errors.crashes().last().map(|it| it.epoch_s);
        assert_eq!(oldest, Some(102), "each script's once, and the oldest made room");
    }

    #[test]
    fn the_next_master_gets_the_latest_crashes_that_have_room() {
        let mut errors = Errors::default();
        for number in 1..6 {
            errors.keep_crash(crash(number, "www", 34, "/a"));
        }
        let all = errors.crashes_left(usize::MAX);
        let (bytes, last) = (
            all.iter().map(|it| it.to_string().len()),
            all[4].to_string().len(),
        );
        assert_eq!(errors.crashes_left(bytes.sum()).len(), 5);
        assert_eq!(errors.crashes_left(last), all[4..]);
        assert_eq!(errors.crashes_left(last - 1).len(), 0);
        let mut next = Errors::default();
        let foreign = serde_json::json!({ "id": "x" });
        next.take_crashes(&[&[foreign], &all[..]].concat());
        assert!(next.crashes().eq(errors.crashes()));
        next.keep_crash(crash(9, "www", 34, "/a"));
        assert_eq!(next.crashes().next().map(|it| it.earlier), Some(5));
    }

    #[test]
    fn a_user_with_many_pools_pushes_out_his_own_reports() {
        let most = STARTS.all;
        let mut kept: VecDeque<(u32, u32)> = VecDeque::new();
        let mut keep = |user: u32, pool: u32| {
            make_room(
                &mut kept,
                STARTS,
                user,
                |other| other.0,
                |other| other.1 == pool,
                |_, _| false,
            );
            kept.push_back((user, pool));
            kept.clone()
        };
        keep(1, 0);
        for pool in 1..100 {
            let kept = keep(2, pool);
            assert!(kept.len() <= most && kept.contains(&(1, 0)), "{pool}");
        }
        let count = |kept: &VecDeque<(u32, u32)>, user| kept.iter().filter(|one| one.0 == user).count();
        for pool in 100..200 {
            keep(1, pool);
        }
        let kept = keep(2, 200);
        assert_eq!([count(&kept, 1), count(&kept, 2)], [most / 2, most / 2]);
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

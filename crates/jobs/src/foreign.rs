//! Jobs of other processes: of an earlier master's, which ends them in its own time, or of a dead one.
//!
//! A job of a dead process continues in its worker, and no connection leads to it. It is started again only when no
//! worker shows it and none is on its way to one.

use crate::core::{GroupName, Why};
use crate::start::is_there;
use crate::store::ForeignJob;
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Debug, Default)]
pub(crate) struct Foreign {
    jobs: BTreeMap<i64, ForeignJob>,
    asked: BTreeMap<String, BTreeSet<i64>>,
    orders: BTreeMap<i64, Order>,
}

#[derive(Debug)]
struct Order {
    why: Why,
    /// The time of SIGKILL, milliseconds of the monotonic clock.
    force_ms: u64,
}

/// The time between SIGTERM and SIGKILL.
const FORCE_MS: u64 = 2_000;

/// More or fewer running jobs of a group.
pub(crate) type Change = (GroupName, i32);

impl Foreign {
    pub(crate) fn take(&mut self, jobs: Vec<ForeignJob>) -> (Vec<Change>, Vec<i64>) {
        let now: BTreeMap<i64, ForeignJob> = jobs.into_iter().map(|job| (job.start.id, job)).collect();
        let mut changes: HashMap<GroupName, i32> = HashMap::new();
        let mut count = |job: &ForeignJob, by| *changes.entry(job.group()).or_default() += by;
        self.jobs.values().for_each(|job| count(job, -1));
        now.values().for_each(|job| count(job, 1));
        let ended = self
            .jobs
            .keys()
            .filter(|id| !now.contains_key(id))
            .copied()
            .collect();
        self.jobs = now;
        self.orders.retain(|id, _| self.jobs.contains_key(id));
        changes.retain(|_, by| *by != 0);
        (changes.into_iter().collect(), ended)
    }

    pub(crate) fn pressed(&self) -> impl Iterator<Item = (ForeignJob, bool)> {
        let pressed = |job: &ForeignJob| Some((job.clone(), job.ending.press()?));
        self.jobs.values().filter_map(pressed)
    }

    /// Returns the orphans that are cancelled or overdue, and whether their workers must be killed. `timeout_ms`: a
    /// queue's limit. A clock before the start ends no job.
    pub(crate) fn overdue(
        &mut self,
        wall_ms: i64,
        mono_ms: u64,
        timeout_ms: impl Fn(&str) -> Option<u64>,
    ) -> Vec<(ForeignJob, bool)> {
        let orphans = self.jobs.values().filter(|job| !is_there(&job.owner));
        let due = orphans.filter_map(|job| {
            let limit_ms = job.start.timeout_ms.or(timeout_ms(&job.queue))?;
            let limit_ms = limit_ms.saturating_mul(job.start.steps.max(1) as u64);
            let is_over =
                wall_ms.saturating_sub(job.started_ms) >= i64::try_from(limit_ms).unwrap_or(i64::MAX);
            let why = match (job.ending.is_cancelled(), is_over) {
                (true, _) => Why::Cancelled,
                (false, true) => Why::TimedOut,
                (false, false) => return None,
            };
            Some((job.clone(), why))
        });
        let orders = &mut self.orders;
        let order = |(job, why): (ForeignJob, Why)| {
            let force_ms = mono_ms.saturating_add(FORCE_MS);
            let order = orders.entry(job.start.id).or_insert(Order { why, force_ms });
            (job, order.force_ms <= mono_ms)
        };
        due.map(order).collect()
    }

    /// Returns why an orphan's worker was ended, or `None`.
    pub(crate) fn ended_because(&self, id: i64) -> Option<Why> {
        self.orders.get(&id).map(|order| order.why)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(crate) fn has_jobs_of(&self, owner: &str) -> bool {
        self.jobs.values().any(|job| job.owner == owner)
    }

    /// Returns the pools to ask about their orphans, and the orphans without a pool. Marks these pools' orphans as asked.
    /// `pool_of`: a queue's pool.
    pub(crate) fn ask(&mut self, pool_of: impl Fn(&str) -> Option<String>) -> (Vec<String>, Vec<ForeignJob>) {
        let mut by_pool: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
        let mut homeless = Vec::new();
        for job in self.jobs.values().filter(|job| !is_there(&job.owner)) {
            match pool_of(&job.queue) {
                Some(pool) => _ = by_pool.entry(pool).or_default().insert(job.start.id),
                // No pool runs its queue: its workers ended with the old pool.
                None => homeless.push(job.clone()),
            }
        }
        by_pool.retain(|pool, _| !self.asked.contains_key(pool));
        let pools = by_pool.keys().cloned().collect();
        self.asked.extend(by_pool);
        (pools, homeless)
    }

    /// Returns the orphans that have ended, from the queries that a pool's workers show. `abandoned`: connections without a
    /// client. If it exceeds the number of shown orphans, a worker of a killed daemon may have an orphan.
    pub(crate) fn answered(
        &mut self,
        pool: &str,
        queries: &[String],
        is_settled: bool,
        abandoned: u32,
    ) -> Vec<ForeignJob> {
        let asked = self.asked.remove(pool).unwrap_or_default();
        if !is_settled {
            return Vec::new();
        }
        let is_shown = |job: &&ForeignJob| {
            let query = forkyard_protocol::jobs::query(job.start.id, job.start.attempt);
            queries.contains(&query)
        };
        let orphans = || asked.iter().filter_map(|id| self.jobs.get(id));
        let shown = orphans().filter(is_shown).count();
        if abandoned as usize > shown {
            return Vec::new();
        }
        orphans().filter(|job| !is_shown(job)).cloned().collect()
    }

    pub(crate) fn remove(&mut self, id: i64) -> Option<Change> {
        let job = self.jobs.remove(&id)?;
        Some((job.group(), -1))
    }

    pub(crate) fn forget_questions(&mut self) {
        self.asked.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Start;
    use crate::store::Ending;

    fn group() -> GroupName {
        job(0, "").group()
    }

    fn job(id: i64, owner: &str) -> ForeignJob {
        ForeignJob {
            start: Start {
                id,
                attempt: 1,
                ..Start::default()
            },
            owner: owner.into(),
            queue: "q".into(),
            tenant: String::new(),
            kind: "k".into(),
            started_ms: 1_000,
            ending: Ending::default(),
        }
    }

    #[test]
    fn an_orphan_has_ended_when_no_worker_shows_it_and_none_is_on_its_way() {
        let mut foreign = Foreign::default();
        assert_eq!(
            foreign.take(vec![job(1, "dead"), job(2, "dead")]).0,
            [(group(), 2)]
        );
        let pool_of = |_: &str| Some("p".to_owned());
        assert_eq!(foreign.ask(pool_of).0, ["p"]);
        assert!(foreign.ask(pool_of).0.is_empty(), "it is asked once at a time");
        let shown = ["job=1&attempt=1".to_owned()];
        assert!(foreign.answered("p", &shown, false, 0).is_empty());
        foreign.ask(pool_of);
        assert!(
            foreign.answered("p", &shown, true, 2).is_empty(),
            "a worker of another daemon has it"
        );
        foreign.ask(pool_of);
        let ended = foreign.answered("p", &shown, true, 1);
        assert_eq!(ended.iter().map(|job| job.start.id).collect::<Vec<_>>(), [2]);
        assert_eq!(foreign.remove(2), Some((group(), -1)));
        assert_eq!(foreign.take(vec![job(1, "dead")]), (Vec::new(), Vec::new()));
        assert_eq!(foreign.take(Vec::new()).1, [1]);
    }

    #[test]
    fn an_orphan_ends_when_its_time_is_over_or_it_is_cancelled() {
        let mut foreign = Foreign::default();
        let cancelled = ForeignJob {
            ending: Ending::from(1),
            ..job(2, "dead")
        };
        let mut two_steps = job(3, "dead");
        two_steps.start.timeout_ms = Some(20_000);
        two_steps.start.steps = 2;
        foreign.take(vec![job(1, "dead"), cancelled, two_steps, job(4, "dead")]);
        let mut due = |wall_ms, mono_ms| -> Vec<(i64, bool)> {
            let limit = |queue: &str| (queue == "q").then_some(30_000);
            let due = foreign.overdue(wall_ms, mono_ms, limit);
            due.into_iter()
                .map(|(job, is_forced)| (job.start.id, is_forced))
                .collect()
        };
        assert_eq!(due(30_999, 10), [(2, false)]);
        assert_eq!(due(31_000, 20), [(1, false), (2, false), (4, false)]);
        assert_eq!(due(0, 30), [(2, false)]);
        assert_eq!(due(41_000, 2_020), [(1, true), (2, true), (3, false), (4, true)]);
        assert_eq!(foreign.ended_because(1), Some(Why::TimedOut));
        assert_eq!(foreign.ended_because(2), Some(Why::Cancelled));
        foreign.take(vec![job(1, "dead")]);
        assert_eq!(foreign.ended_because(2), None);
        assert_eq!(foreign.ended_because(1), Some(Why::TimedOut));
    }
}

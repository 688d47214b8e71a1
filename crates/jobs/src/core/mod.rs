//! Decides when each job starts and how it ends. A plain value: events and the time go in, actions come out. It counts
//! each group's waiting jobs; the store has the jobs.
//!
//! **Fairness.** A group is the jobs of one queue and tenant. A group with nothing running may take any free worker of
//! its pool; one with running jobs may take one only while more are free than the reserve, a tenth of the workers. Of
//! the groups that may, the one with the fewest running jobs for its queue's weight comes first, and on a tie the least
//! recently served.

mod choice;
mod event;
mod queue;
mod rate;
mod running;
pub mod schedule;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod verdict;

pub use event::{
    Action, Answer, Becomes, Counters, End, Event, GroupName, JobId, Limits, Moment, Outcome, PoolSettings,
    QueueSettings, Start, TaskStatus, Verdict, Why,
};
pub use queue::QueueView;
pub use verdict::verdict;

use queue::{Group, Queue};
use running::RunningJob;
use std::collections::{BTreeMap, HashMap};

/// The pause after a pool was unreachable: the first, and the longest.
const REST_MS: (u64, u64) = (100, 5_000);

#[derive(Debug, Default)]
struct Pool {
    workers: u32,
    running: u32,
    /// The present pause and its end.
    rest_ms: u64,
    rests_until: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Scheduler {
    pools: BTreeMap<String, Pool>,
    queues: BTreeMap<String, Queue>,
    running: HashMap<JobId, RunningJob>,
    served: u64,
    due: Option<i64>,
    is_promoting: bool,
    store_failed: bool,
    is_draining: bool,
}

impl Scheduler {
    pub fn handle(&mut self, event: Event, now: Moment, actions: &mut Vec<Action>) {
        match event {
            Event::Configured(pools, queues) => self.configure(pools, queues),
            Event::Waiting(name, change) => self.group(&name, |group| group.waiting += change),
            Event::Paused { queue, is_paused } => self.queue(&queue).is_paused = is_paused,
            Event::Elsewhere(name, change) => self.count(&name, change),
            Event::Claimed(name, job) => self.claimed(name, job, now, actions),
            Event::Answered { id, attempt, answer } => self.answered(id, attempt, answer, now, actions),
            Event::Cancel(id) => self.abort(id, Why::Cancelled, actions),
            Event::Due(due) => {
                self.due = due;
                self.is_promoting = false;
            }
            Event::StoreFailed => self.store_failed = true,
            Event::StoreWell => self.store_failed = false,
            Event::Drain => self.is_draining = true,
            Event::Time => {}
        }
        self.take_time(now, actions);
        self.fill(now, actions);
    }

    /// The latest time for the next [`Event::Time`], by the wall clock and the monotonic clock.
    pub fn next_deadline(&self) -> (Option<i64>, Option<u64>) {
        let due = self
            .due
            .filter(|_| !self.is_promoting && !self.is_draining && !self.store_failed);
        let timeouts = self.running.values().filter_map(RunningJob::deadline);
        let rests = self.pools.values().filter_map(|pool| pool.rests_until);
        let tokens = self.queues.values().filter_map(Queue::next_token);
        (due, timeouts.chain(rests).chain(tokens).min())
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    pub fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.running.keys().copied()
    }

    pub fn view(&self) -> impl Iterator<Item = (&str, QueueView)> {
        self.queues
            .iter()
            .map(|(name, queue)| (name.as_str(), queue.view()))
    }

    /// A queue without configuration is counted, but nothing of it starts.
    fn queue(&mut self, name: &str) -> &mut Queue {
        if !self.queues.contains_key(name) {
            self.queues.insert(name.to_owned(), Queue::default());
        }
        self.queues.entry(name.to_owned()).or_default()
    }

    fn configure(&mut self, pools: Vec<PoolSettings>, queues: Vec<QueueSettings>) {
        for pool in self.pools.values_mut() {
            (pool.workers, pool.running) = (0, 0);
        }
        for settings in pools {
            self.pools.entry(settings.name).or_default().workers = settings.workers;
        }
        for queue in self.queues.values_mut() {
            queue.settings = None;
        }
        for settings in queues {
            self.queue(&settings.name.clone()).take(settings);
        }
        // A queue may have moved to another pool: its running jobs count there.
        for queue in self.queues.values() {
            let pool = queue
                .settings
                .as_ref()
                .and_then(|it| self.pools.get_mut(&it.pool));
            if let Some(pool) = pool {
                pool.running += queue.running;
            }
        }
        self.pools.retain(|_, pool| pool.workers > 0 || pool.running > 0);
    }

    fn group(&mut self, name: &GroupName, change: impl FnOnce(&mut Group)) {
        let served = self.served;
        self.queue(&name.queue).group(&name.tenant, served, change);
    }

    fn count(&mut self, name: &GroupName, change: i32) {
        self.group(name, |group| {
            group.running = group.running.saturating_add_signed(change)
        });
        let queue = self.queue(&name.queue);
        queue.running = queue.running.saturating_add_signed(change);
        let pool = queue.settings.as_ref().map(|settings| settings.pool.clone());
        if let Some(pool) = pool.and_then(|pool| self.pools.get_mut(&pool)) {
            pool.running = pool.running.saturating_add_signed(change);
        }
    }

    fn take_time(&mut self, now: Moment, actions: &mut Vec<Action>) {
        for pool in self.pools.values_mut() {
            pool.rests_until.take_if(|until| *until <= now.mono_ms);
        }
        let is_due = self.due.is_some_and(|due| due <= now.wall_ms);
        if is_due && !self.is_promoting && !self.is_draining && !self.store_failed {
            self.is_promoting = true;
            actions.push(Action::Promote);
        }
        let is_late =
            |running: &RunningJob| running.deadline().is_some_and(|deadline| deadline <= now.mono_ms);
        let late: Vec<JobId> = (self.running.iter())
            .filter(|(_, running)| is_late(running))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.abort(id, Why::TimedOut, actions);
        }
    }

    /// Claims a job for every free worker that a group may have.
    fn fill(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.is_draining || self.store_failed {
            return;
        }
        for queue in self.queues.values_mut() {
            queue.refill(now.mono_ms);
        }
        let pools: Vec<String> = self.pools.keys().cloned().collect();
        for pool in pools {
            while let Some(name) = self.choose(&pool) {
                self.served += 1;
                let served = self.served;
                self.queue(&name.queue).spend(now.mono_ms);
                self.group(&name, |group| {
                    group.waiting -= 1;
                    group.served = served;
                });
                self.count(&name, 1);
                actions.push(Action::Claim(name));
            }
        }
    }

    #[cfg(test)]
    fn invariants(&self) {
        for (name, pool) in &self.pools {
            let of_pool = |queue: &&Queue| queue.settings.as_ref().is_some_and(|it| it.pool == *name);
            let sum: u32 = self
                .queues
                .values()
                .filter(of_pool)
                .map(|queue| queue.running)
                .sum();
            assert_eq!(sum, pool.running, "pool {name}");
        }
        self.queues.values().for_each(Queue::invariants);
    }
}

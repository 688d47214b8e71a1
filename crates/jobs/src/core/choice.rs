//! Chooses the group that gets a pool's next free worker.

use super::{GroupName, Scheduler};
use std::cmp::Ordering;

impl Scheduler {
    /// Returns the next queue and tenant, or `None` if no worker is free or no group may have one.
    pub(super) fn choose(&self, name: &str) -> Option<GroupName> {
        let pool = self.pools.get(name).filter(|pool| pool.rests_until.is_none())?;
        let free = pool.workers.checked_sub(pool.running).filter(|free| *free > 0)?;
        let mut best: Option<Candidate<'_>> = None;
        for (queue, entry) in &self.queues {
            let settings = entry.settings.as_ref().filter(|settings| settings.pool == name);
            let Some((settings, (running, served, tenant))) = settings.zip(entry.next(free, pool.workers))
            else {
                continue;
            };
            let candidate = Candidate {
                queue,
                tenant,
                running,
                weight: settings.weight,
                served,
            };
            if best
                .as_ref()
                .is_none_or(|best| candidate.order(best) == Ordering::Less)
            {
                best = Some(candidate);
            }
        }
        best.map(|best| GroupName::new(best.queue, best.tenant))
    }
}

#[derive(Debug)]
struct Candidate<'s> {
    queue: &'s str,
    tenant: &'s str,
    running: u32,
    weight: u32,
    served: u64,
}

impl Candidate<'_> {
    /// The fewest running jobs per weight first, then the least recently served.
    fn order(&self, other: &Candidate<'_>) -> Ordering {
        let own = u64::from(self.running) * u64::from(other.weight);
        let others = u64::from(other.running) * u64::from(self.weight);
        own.cmp(&others).then(self.served.cmp(&other.served))
    }
}

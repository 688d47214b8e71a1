//! A queue, its groups, and their order.

use super::event::QueueSettings;
use super::rate::Bucket;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) waiting: i64,
    pub(super) running: u32,
    pub(super) served: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// `None`: not configured, so nothing of it starts.
    pub(super) settings: Option<QueueSettings>,
    pub(super) is_paused: bool,
    pub(super) running: u32,
    groups: BTreeMap<String, Group>,
    /// Groups with waiting jobs: the fewest running first, then the least recently served.
    order: BTreeSet<(u32, u64, String)>,
    bucket: Option<Bucket>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueView {
    pub waiting: u64,
    pub running: u32,
    /// Tenants with waiting or running jobs.
    pub groups: usize,
    pub is_paused: bool,
    pub is_configured: bool,
}

impl Queue {
    pub(super) fn take(&mut self, settings: QueueSettings) {
        self.bucket = settings.rate.map(|(jobs, per_ms)| match self.bucket {
            Some(bucket) => bucket.adjusted(jobs, per_ms),
            None => Bucket::new(jobs, per_ms),
        });
        self.settings = Some(settings);
    }

    pub(super) fn group(&mut self, tenant: &str, served: u64, change: impl FnOnce(&mut Group)) {
        let new = Group {
            served,
            ..Group::default()
        };
        let before = self.groups.get(tenant).copied();
        let mut group = before.unwrap_or(new);
        if let Some(before) = before.filter(|group| group.waiting > 0) {
            self.order
                .remove(&(before.running, before.served, tenant.to_owned()));
        }
        change(&mut group);
        if group.waiting > 0 {
            self.order
                .insert((group.running, group.served, tenant.to_owned()));
        }
        if group.waiting == 0 && group.running == 0 {
            self.groups.remove(tenant);
        } else {
            self.groups.insert(tenant.to_owned(), group);
        }
    }

    /// The next group, with its running jobs and its last turn. `free`: the idle workers among the pool's `workers`.
    pub(super) fn next(&self, free: u32, workers: u32) -> Option<(u32, u64, &str)> {
        let settings = self.settings.as_ref()?;
        let has_token = self.bucket.is_none_or(|bucket| bucket.has_token());
        if self.is_paused || self.running >= settings.max_running || !has_token {
            return None;
        }
        let (running, served, tenant) = self.order.first()?;
        let reserve = if settings.reserve { reserve(workers) } else { 0 };
        let may_take = *running == 0 || free > reserve;
        may_take.then_some((*running, *served, tenant.as_str()))
    }

    pub(super) fn refill(&mut self, now_ms: u64) {
        if let Some(bucket) = &mut self.bucket {
            bucket.refill(now_ms);
        }
    }

    pub(super) fn spend(&mut self, now_ms: u64) {
        if let Some(bucket) = &mut self.bucket {
            bucket.refill(now_ms);
            bucket.spend();
        }
    }

    pub(super) fn next_token(&self) -> Option<u64> {
        let waits = !self.order.is_empty() && !self.is_paused && self.settings.is_some();
        self.bucket.filter(|_| waits)?.next_token()
    }

    pub(super) fn view(&self) -> QueueView {
        let waiting: i64 = self.groups.values().map(|group| group.waiting.max(0)).sum();
        QueueView {
            waiting: waiting.unsigned_abs(),
            running: self.running,
            groups: self.groups.len(),
            is_paused: self.is_paused,
            is_configured: self.settings.is_some(),
        }
    }

    #[cfg(test)]
    pub(super) fn groups(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.groups.iter().map(|(tenant, group)| (tenant.as_str(), group))
    }

    #[cfg(test)]
    pub(super) fn invariants(&self) {
        let running: u32 = self.groups.values().map(|group| group.running).sum();
        assert_eq!(running, self.running);
        let waiting = self.groups.values().filter(|group| group.waiting > 0).count();
        assert_eq!(waiting, self.order.len());
        for (running, served, tenant) in &self.order {
            let group = &self.groups[tenant];
            assert_eq!((group.running, group.served), (*running, *served), "{tenant}");
        }
    }
}

pub(super) fn reserve(workers: u32) -> u32 {
    if workers < 4 { 0 } else { workers.div_ceil(10) }
}

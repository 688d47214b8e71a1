//! `process.max`: the limit on all workers. Refused generations queue; when a worker exits, the first gets a fork
//! grant, for one worker if others wait. The capacity is reserved for it until it uses the grant or needs none. So a
//! busy pool that replaces its own workers can't starve others.

use super::event::GenerationId;
use std::collections::{BTreeSet, VecDeque};

#[derive(Debug, Default)]
pub(super) struct Quota {
    max: Option<u32>,
    line: VecDeque<GenerationId>,
    grants: BTreeSet<GenerationId>,
    /// Whether the log reported the limit.
    pub(super) said: bool,
}

impl Quota {
    pub(super) fn set_max(&mut self, max: Option<u32>) {
        self.max = max;
    }

    pub(super) fn admits(&self, generation: GenerationId, made: u32, total: usize) -> bool {
        let Some(max) = self.max else { return true };
        let has_grant = self.grants.contains(&generation);
        if has_grant && made > 0 && !self.line.is_empty() {
            return false;
        }
        let kept = self.grants.len() - usize::from(has_grant);
        total + kept < max as usize
    }

    /// Queues a refused generation. Returns the limit if it has to be logged.
    pub(super) fn wait(&mut self, generation: GenerationId) -> Option<u32> {
        if !self.waits(generation) {
            self.line.push_back(generation);
        }
        self.say()
    }

    pub(super) fn wait_first(&mut self, generation: GenerationId) {
        self.line.retain(|waiting| *waiting != generation);
        self.line.push_front(generation);
    }

    fn say(&mut self) -> Option<u32> {
        if std::mem::replace(&mut self.said, true) {
            None
        } else {
            self.max
        }
    }

    /// Grants a fork to the first in the queue if there is free capacity.
    pub(super) fn grant_fork(&mut self, total: usize) -> Option<GenerationId> {
        if let Some(max) = self.max {
            if total + self.grants.len() >= max as usize {
                return None;
            }
        }
        let generation = self.line.pop_front()?;
        self.grants.insert(generation);
        Some(generation)
    }

    pub(super) fn end_grant(&mut self, generation: GenerationId) {
        self.grants.remove(&generation);
    }

    pub(super) fn has_grant(&self, generation: GenerationId) -> bool {
        self.grants.contains(&generation)
    }

    pub(super) fn waits(&self, generation: GenerationId) -> bool {
        self.line.contains(&generation)
    }

    pub(super) fn forget(&mut self, generation: GenerationId) {
        self.grants.remove(&generation);
        self.line.retain(|waiting| *waiting != generation);
    }

    pub(super) fn line(&self) -> impl Iterator<Item = GenerationId> {
        self.line.iter().copied()
    }

    pub(super) fn waiting(&self) -> usize {
        self.line.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: GenerationId = GenerationId(1);
    const B: GenerationId = GenerationId(2);

    fn full() -> Quota {
        let mut quota = Quota::default();
        quota.set_max(Some(2));
        quota
    }

    #[test]
    fn capacity_is_kept_for_the_pool_that_waited_longest() {
        let mut quota = full();
        assert!(!quota.admits(A, 0, 2));
        assert_eq!(quota.wait(A), Some(2));
        assert_eq!(quota.wait(B), None, "said once");
        assert_eq!(quota.grant_fork(2), None);
        assert_eq!(quota.grant_fork(1), Some(A));
        assert_eq!(quota.grant_fork(1), None, "the one place is A's");
        assert!(quota.admits(A, 0, 1) && !quota.admits(B, 0, 1));
        quota.end_grant(A);
        assert!(quota.admits(B, 0, 1));
    }

    #[test]
    fn a_turn_is_worth_one_worker_while_others_wait() {
        let mut quota = full();
        quota.wait(A);
        quota.wait(B);
        quota.grant_fork(0);
        assert!(quota.admits(A, 0, 0) && !quota.admits(A, 1, 1));
        quota.forget(B);
        assert!(quota.admits(A, 1, 1));
    }

    #[test]
    fn without_a_cap_no_pool_waits() {
        assert!(Quota::default().admits(A, 9, 1_000_000));
    }
}

//! `process.max`: the cap on workers over all pools, and which pool has the fork grant when it is reached.
//!
//! A generation that is refused waits in a line. When a worker of any pool ends, the first in the line gets a fork
//! grant: the capacity is kept for it until it has used it or has no use for it. So a busy pool that replaces its own
//! workers can't starve the others. With others in the line a fork grant is worth one worker.

use super::event::GenerationId;
use std::collections::{BTreeSet, VecDeque};

#[derive(Debug, Default)]
pub(super) struct Quota {
    max: Option<u32>,
    line: VecDeque<GenerationId>,
    grants: BTreeSet<GenerationId>,
    /// The log already says that the cap is reached.
    said: bool,
}

impl Quota {
    pub(super) fn set_max(&mut self, max: Option<u32>) {
        self.max = max;
    }

    /// Whether this generation may make a worker now, `made` having been made in this step and `total` being there.
    pub(super) fn admits(&self, generation: GenerationId, made: u32, total: usize) -> bool {
        let Some(max) = self.max else { return true };
        let has_grant = self.grants.contains(&generation);
        if has_grant && made > 0 && !self.line.is_empty() {
            return false;
        }
        let kept = self.grants.len() - usize::from(has_grant);
        total + kept < max as usize
    }

    /// Puts a refused generation at the end of the line. The cap's number, the first time that this is worth saying.
    pub(super) fn wait(&mut self, generation: GenerationId) -> Option<u32> {
        if !self.waits(generation) {
            self.line.push_back(generation);
        }
        self.say()
    }

    /// Puts it first: room is being made for it.
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

    /// A worker was made: reaching the cap again is worth saying again.
    pub(super) fn relent(&mut self) {
        self.said = false;
    }

    /// Gives the first in the line its fork grant, if there is free capacity.
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

    /// The generation has used its fork grant, or has no use for it.
    pub(super) fn end_grant(&mut self, generation: GenerationId) {
        self.grants.remove(&generation);
    }

    pub(super) fn has_grant(&self, generation: GenerationId) -> bool {
        self.grants.contains(&generation)
    }

    pub(super) fn waits(&self, generation: GenerationId) -> bool {
        self.line.contains(&generation)
    }

    /// The generation makes no workers any more.
    pub(super) fn forget(&mut self, generation: GenerationId) {
        self.grants.remove(&generation);
        self.line.retain(|waiting| *waiting != generation);
    }

    /// Those that wait.
    pub(super) fn line(&self) -> impl Iterator<Item = GenerationId> {
        self.line.iter().copied()
    }

    /// How many wait: the bound of a round of grants.
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

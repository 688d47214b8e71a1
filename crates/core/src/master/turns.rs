//! Two generations share the requests of a pool. A coming generation with a share gets this part of the requests, and
//! takes over only at 100 %.
//!
//! `apply_pool` begins a share, `Event::Share` changes the percentage, and `take_over_if_warm` shows a higher one
//! once the generation has the workers for it. `serve` and `end_generation` end the share.
//!
//! The percentage rises by at most [`GROWTH`]. After each rise the old generation of a static pool keeps only the workers
//! for its own part, so both together have about as many workers as one alone. Other process managers follow the need, with
//! few idle workers.

use super::action::{Action, Fact};
use super::event::{GenerationId, PoolId};
use super::generation::GenerationState;
use super::manager::{Manager, Step};
use super::policy;
use super::timers::Timer;
use crate::config::ProcessManager;

/// The largest rise of the shown percentage at a time.
const GROWTH: u8 = 10;

/// The part of a pool's requests that its coming generation gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// The generation that gets the remaining requests.
    pub old: GenerationId,
    /// The old generation's workers when the share began.
    pub before: u32,
    /// In percent; 100: the generation takes over once it is warm.
    pub wanted: u8,
    /// The percentage that the workers of both generations read.
    pub shown: u8,
    pub is_told: bool,
}

impl Share {
    pub(super) fn new(old: GenerationId, before: u32, percent: u8) -> Share {
        Share {
            old,
            before,
            wanted: percent,
            shown: percent,
            is_told: false,
        }
    }

    /// Returns the percentage that is shown next, once the generation has the workers for it.
    fn next(&self) -> u8 {
        self.wanted.min(self.shown.saturating_add(GROWTH))
    }

    /// Returns how many of the workers of a whole generation it needs for the next percentage.
    pub(super) fn part(&self, whole: u32) -> u32 {
        match self.next() {
            100 => whole,
            percent => {
                let part = (u64::from(whole) * u64::from(percent)).div_ceil(100);
                u32::try_from(part).unwrap_or(whole).max(1)
            }
        }
    }

    /// Returns how many workers of a whole generation the old one keeps for the remaining requests.
    fn remainder(&self, whole: u32) -> u32 {
        let hundredfold = u64::from(whole) * u64::from(100 - self.shown);
        u32::try_from((hundredfold + 50) / 100).unwrap_or(whole).max(1)
    }
}

impl Manager {
    /// Begins the share of a generation that has no worker yet.
    pub(super) fn begin_share(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(share) = self.generations.get(&id).and_then(|it| it.share) else {
            return;
        };
        step.act(Action::Share {
            old: share.old,
            new: id,
            percent: Some(share.shown),
        });
        self.keep_one(share.old, step);
        // Its idle workers have less time from now on.
        self.timers.clear(Timer::Shrink(share.old));
        self.watch_for_surplus(share.old, step);
    }

    /// Changes the part of a pool's requests that the coming generation gets.
    pub(super) fn share(&mut self, pool_id: PoolId, percent: u8, step: &mut Step<'_>) {
        let Some(pool) = self.pools.get(&pool_id) else {
            return;
        };
        let (Some(old), Some(id)) = (pool.serving, pool.coming) else {
            return;
        };
        let running = self.worker_counts(old).kept;
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let manager = generation.policy.manager();
        let Some(share) = &mut generation.share else {
            return;
        };
        share.wanted = percent.min(100);
        let share = *share;
        if !share.is_told {
            // The first worker comes first (`tell_shares`).
            return;
        }
        let state = match (generation.state, manager) {
            (GenerationState::Warming(_), ProcessManager::Ondemand { .. }) => None,
            (GenerationState::Warming(_), _) => {
                let running = running.max(share.before);
                let whole = policy::warm(manager, running, running);
                Some(GenerationState::Warming(share.part(whole)))
            }
            _ => return,
        };
        let state = match state {
            Some(state) => state,
            None => GenerationState::Measuring(self.take_snapshot(old, step)),
        };
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.state = state;
        }
        self.touched.insert(id);
        self.warm_up(id, step);
    }

    /// Shows the next percentage to a generation that has the workers for it. Returns whether the generation goes on to
    /// share.
    pub(super) fn shares_on(&mut self, id: GenerationId, step: &mut Step<'_>) -> bool {
        let Some(generation) = self.generations.get_mut(&id) else {
            return false;
        };
        let pool = generation.pool;
        let Some(share) = generation.share.as_mut().filter(|share| share.next() < 100) else {
            return false;
        };
        let (before, next) = (share.shown, share.next());
        share.shown = next;
        let share = *share;
        if share.shown != before {
            step.act(Action::Share {
                old: share.old,
                new: id,
                percent: Some(share.shown),
            });
        }
        self.limit_old(share, step);
        if share.shown != share.wanted {
            self.share(pool, share.wanted, step);
        }
        true
    }

    /// Has workers of an old static generation leave that the remaining requests don't need.
    fn limit_old(&mut self, share: Share, step: &mut Step<'_>) {
        let kept = self.worker_counts(share.old).kept;
        let Some(old) = self.generations.get_mut(&share.old) else {
            return;
        };
        let ProcessManager::Static { max_children } = old.policy.manager() else {
            return;
        };
        let ceiling = share.remainder(max_children);
        let before = old.ceiling.replace(ceiling);
        if kept > ceiling {
            if old.trim_on.is_some() {
                return;
            }
            let number = self.take_snapshot(share.old, step);
            if let Some(old) = self.generations.get_mut(&share.old) {
                old.trim_on = Some(number);
            }
        } else if before.is_some_and(|before| before < ceiling) {
            self.freed(share.old, step);
        }
    }

    /// Reports once that a generation with a share has a worker.
    pub(super) fn tell_shares(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let has_worker = self.worker_counts(id).up > 0;
        let Some(share) = self.generations.get_mut(&id).and_then(|it| it.share.as_mut()) else {
            return;
        };
        if has_worker && !std::mem::replace(&mut share.is_told, true) {
            let (wanted, is_raised) = (share.wanted, share.shown != share.wanted);
            step.note(Fact::Shares(id));
            self.trial_over(id, step);
            if let Some(pool) = self.pool_of(id).filter(|_| is_raised) {
                self.share(pool, wanted, step);
            }
        }
    }

    /// Ends a generation's share, if any: no request has a turn any more.
    pub(super) fn end_share(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(share) = self.generations.get_mut(&id).and_then(|it| it.share.take()) else {
            return;
        };
        step.act(Action::Share {
            old: share.old,
            new: id,
            percent: None,
        });
    }

    /// Whether a coming generation gets a part of the pool's requests.
    pub(super) fn is_shared(&self, pool: PoolId) -> bool {
        let coming = self.pools.get(&pool).and_then(|pool| pool.coming);
        let coming = coming.and_then(|coming| self.generations.get(&coming));
        coming.is_some_and(|coming| coming.share.is_some())
    }

    /// Forks a worker of a serving generation without one, or it would miss its turns.
    pub(super) fn keep_one(&mut self, id: GenerationId, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let pool = generation.pool;
        let serves = generation.state == GenerationState::Serving;
        if serves && self.is_shared(pool) && self.worker_counts(id).kept == 0 {
            self.fork_workers(id, 1, step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_workers_is_at_least_one() {
        let part = |percent, whole| Share::new(GenerationId(1), 0, percent).part(whole);
        for (percent, whole, expected) in [
            (0, 10, 1),
            (1, 10, 1),
            (10, 10, 1),
            (11, 10, 2),
            (50, 9, 5),
            (50, 1, 1),
            (99, 10, 10),
            (100, 10, 10),
            (100, 0, 0),
            (50, u32::MAX, 1 << 31),
        ] {
            assert_eq!(part(percent, whole), expected, "{percent} % of {whole}");
        }
    }

    #[test]
    fn both_together_have_a_tenth_and_two_workers_more_than_one_at_most() {
        for whole in [1, 2, 3, 4, 5, 8, 9, 40, 400] {
            let mut share = Share::new(GenerationId(1), 0, 1);
            let mut steps = Vec::new();
            for wanted in [10, 50, 100] {
                share.wanted = wanted;
                while share.shown != wanted {
                    let both = share.part(whole) + share.remainder(whole);
                    assert!(
                        (whole..=whole + whole / 10 + 2).contains(&both),
                        "{both} of {whole} at {share:?}"
                    );
                    share.shown = share.next();
                    steps.push(share.shown);
                }
            }
            assert_eq!(steps, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
        }
    }
}

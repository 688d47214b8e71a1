//! Invariants that hold after every event.

use super::action::Force;
use super::choice;
use super::dynamic::Spare;
use super::event::{GenerationId, PoolId};
use super::fork::Block;
use super::generation::{Generation, GenerationState};
use super::manager::Manager;
use super::ondemand::Source;
use super::pool::Pool;
use super::refork::Refork;
use super::timers::Timer;
use crate::life::Life;

impl Manager {
    /// Panics if records disagree, or if something waits for an event that can't come.
    pub fn invariants(&self) {
        assert!(self.children.is_consistent(), "the workers are counted right");
        assert!(self.touched.is_empty(), "every consequence is drawn");
        for (id, generation) in self.generations.iter() {
            self.check_generation(*id, generation);
        }
        for (id, pool) in &self.pools {
            self.check_pool(*id, pool);
        }
        for timer in self.timers.iter() {
            let lives = match timer {
                Timer::Accept(pool) => self.pools.contains_key(&pool),
                Timer::Worker(worker) => self.children.worker(worker).is_some(),
                Timer::Grant(id)
                | Timer::Backoff(id)
                | Timer::Shrink(id)
                | Timer::Expiry(id)
                | Timer::Preloader(id)
                | Timer::Answer(id)
                | Timer::NextMold(id)
                | Timer::Rest(id) => self.generations.contains_key(&id),
                Timer::Killed => !self.generations.is_empty(),
            };
            assert!(lives, "{timer:?} is for something that is there");
        }
    }

    fn check_generation(&self, id: GenerationId, generation: &Generation) {
        let counts = self.worker_counts(id);
        assert_eq!(
            counts.all,
            generation.slots.taken(),
            "{id:?}: one slot for each worker"
        );
        let pool = self
            .pools
            .get(&generation.pool)
            .expect("a generation's pool is there");
        if let Some(share) = generation.share {
            let is_right = pool.coming == Some(id) && pool.serving == Some(share.old);
            assert!(
                is_right,
                "{id:?}: a coming generation shares with the serving one"
            );
        }
        match generation.state {
            GenerationState::Serving => {
                assert_eq!(pool.serving, Some(id));
                assert!(
                    generation.ceiling.is_none() || pool.coming.is_some(),
                    "{id:?}: the trial is not over"
                );
            }
            GenerationState::Measuring(_) | GenerationState::Warming(_) => assert_eq!(pool.coming, Some(id)),
            GenerationState::Superseded => assert!(
                pool.by_order && pool.serving != Some(id),
                "{id:?}: another serves"
            ),
            GenerationState::Leaving => assert_eq!(counts.kept, 0, "{id:?}: every worker has its signal"),
        }
        if !generation.orders.is_empty() {
            assert_eq!(
                generation.state,
                GenerationState::Serving,
                "{id:?}: orders wait where they are filled"
            );
            let block = generation.block.expect("something keeps orders waiting");
            self.check_block(id, generation, block);
        }
        if pool.by_order && generation.state == GenerationState::Serving {
            let is_used =
                !generation.orders.is_empty() || counts.all > 0 || generation.preloader != Life::Absent;
            let has_others = self
                .generations
                .of(&generation.pool)
                .any(|(other, _)| other != id);
            assert!(is_used || has_others, "{id:?}: it is there for something");
        }
        if let Spare::Closed(block) = generation.spare {
            self.check_block(id, generation, block);
        }
        self.check_refork(id, generation);
        if counts.asked > 0 && generation.policy.preloader.is_some() && generation.preloader == Life::Ready {
            assert!(
                self.timers.is_set(Timer::Answer(id)),
                "{id:?}: an answer is waited for, not for ever"
            );
        }
    }

    fn check_refork(&self, id: GenerationId, generation: &Generation) {
        let counts = self.worker_counts(id);
        let holds = match generation.refork {
            Refork::Off | Refork::Waiting | Refork::Replacing => true,
            Refork::Promoting => match generation.next_mold {
                Life::Starting => self.timers.is_set(Timer::NextMold(id)),
                Life::Failing => true,
                Life::Absent | Life::Ready | Life::Stopping(_) => false,
            },
            Refork::Arrived => generation.next_mold == Life::Ready && counts.asked > 0,
            Refork::Resting => self.timers.is_set(Timer::Rest(id)),
        };
        assert!(
            holds,
            "{id:?}: {:?} with {:?}",
            generation.refork, generation.next_mold
        );
        if generation.state == GenerationState::Leaving {
            assert_eq!(generation.refork, Refork::Off, "{id:?}: it is leaving");
        }
        if let Life::Stopping(Force::Ask | Force::Terminate) = generation.next_mold {
            assert!(
                self.timers.is_set(Timer::NextMold(id)),
                "{id:?}: it gets a stronger signal"
            );
        }
    }

    fn check_pool(&self, id: PoolId, pool: &Pool) {
        match pool.source {
            Source::Unused | Source::Watched => {}
            Source::Asking => {
                assert!(!pool.inquiry.is_over(), "{id:?}: an answer will come");
                let takers: Vec<GenerationId> = pool.takers().collect();
                let known = pool
                    .inquiry
                    .generations()
                    .all(|generation| takers.contains(&generation));
                assert!(known, "{id:?}: from those who take work");
            }
            Source::Told => assert!(self.timers.is_set(Timer::Accept(id)), "{id:?}: its time ends"),
            Source::Blocked(block) => {
                let serving = pool.serving.expect("a blocked pool serves");
                let generation = self.generations.get(&serving).expect("it is there");
                self.check_block(serving, generation, block);
            }
        }
    }

    fn check_block(&self, id: GenerationId, generation: &Generation, block: Block) {
        let ends = match block {
            Block::Full => {
                let all = self.worker_counts(id).all;
                generation.slots.all_taken() || choice::room(generation.policy.choice, all) == Some(0)
            }
            Block::Ceiling => {
                let pool = self.pools.get(&generation.pool);
                generation.ceiling.is_some() && pool.is_some_and(|pool| pool.coming.is_some())
            }
            Block::ProcessMax => self.quota.waits(id),
            Block::Backoff => self.timers.is_set(Timer::Backoff(id)),
            Block::Preloader => match generation.preloader {
                Life::Starting | Life::Stopping(_) | Life::Failing => true,
                Life::Ready => generation.refork == Refork::Arrived && self.worker_counts(id).asked > 0,
                Life::Absent => false,
            },
        };
        assert!(ends, "{id:?}: {block:?} ends some time");
    }
}

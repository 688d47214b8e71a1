//! One configuration of one pool.
//!
//! ```text
//!  Measuring ──▶ Warming ──▶ Serving ──▶ Leaving ──▶ dropped
//!      └────────────┴──────────────────────▲
//! ```
//!
//! The first generation of a pool serves at once. A later one first learns how many workers it is to have up (Measuring:
//! the old one's census is on its way), then makes them (Warming) while the old one goes on serving and growing, and then
//! takes over. Where workers are ordered the next one serves at once, and the old one is Superseded until its workers
//! were dismissed. One that is overtaken by a newer configuration before it serves leaves without having served.

use super::action::{Figures, Notify};
use super::budget::Budget;
use super::event::{Policy, PoolId};
use super::ordered::Order;
use super::overdue;
use super::refork::Refork;
use super::slots::Slots;
use super::source::Block;
use super::spare::Spare;
use super::standing::Start;
use super::watchdog::Watchdog;
use crate::config::ProcessManager;
use crate::life::Life;
use crate::life::backoff::Backoff;
use crate::tick::Tick;
use std::collections::VecDeque;
use std::time::Duration;

/// Where a generation is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// This census of the serving generation will show how many workers it is to have.
    Measuring(CensusNumber),
    /// It is to have so many workers up, then it serves.
    Warming(u32),
    /// It serves, and grows as needed.
    Serving,
    /// Of ordered workers: another makes them now. Those that it has stay until they are dismissed.
    Superseded,
    /// Its workers finish and go.
    Leaving,
}

/// The number of a census of one generation: answers come in the order of the questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct CensusNumber(pub u64);

/// One generation.
#[derive(Debug)]
pub(super) struct Generation {
    pub pool: PoolId,
    pub policy: Policy,
    pub stage: Stage,
    pub slots: Slots,
    pub backoff: Backoff,
    /// For those that crash at work.
    pub budget: Budget,
    pub preloader: Life,
    /// How its last start came out.
    pub start: Start,
    /// The preloader that is there, or was last, was ready at some time.
    pub came_up: bool,
    /// The one that is to take its place, or has given it up.
    pub second: Life,
    pub refork: Refork,
    /// How many of its preloaders were made from workers and made workers themselves.
    pub line: u64,
    /// How many in a row came to nothing.
    pub promotions_failed: u32,
    pub spare: Spare,
    pub watchdog: Watchdog,
    /// What its header says.
    pub notify: Notify,
    pub figures: Figures,
    /// What stood in the way when workers were last wanted.
    pub block: Option<Block>,
    /// See `policy::Load`.
    pub owed: u32,
    /// Orders that have no worker yet, oldest first.
    pub orders: VecDeque<Order>,
    pub asked: CensusNumber,
    pub answered: CensusNumber,
    /// The census on which each of these decides.
    pub spare_on: CensusNumber,
    pub shrink_on: Option<CensusNumber>,
    /// While Warming: the census of the serving generation that shows whom to retire to make room.
    pub room_on: Option<CensusNumber>,
    /// The log already says that `max_children` is reached, or that the pool is busy.
    pub said_full: bool,
    pub said_busy: bool,
}

impl Generation {
    pub(super) fn new(pool: PoolId, policy: Policy, stage: Stage) -> Generation {
        Generation {
            pool,
            policy,
            stage,
            slots: Slots::new(policy.pm.max_children()),
            backoff: Backoff::default(),
            budget: Budget::new(policy.pm.max_children()),
            preloader: Life::Absent,
            start: Start::default(),
            came_up: false,
            second: Life::Absent,
            // Workers that were ordered go when they are dismissed, and not for the sake of a new preloader.
            refork: if policy.preloader.is_some_and(|preloader| preloader.reforks)
                && !matches!(policy.pm, ProcessManager::Ordered { .. })
            {
                Refork::Waiting
            } else {
                Refork::Off
            },
            line: 0,
            promotions_failed: 0,
            spare: Spare::Unused,
            watchdog: if overdue::Limits::of(&policy).soonest().is_some() {
                Watchdog::Armed
            } else {
                Watchdog::Off
            },
            notify: Notify::default(),
            figures: Figures::default(),
            block: None,
            owed: 0,
            orders: VecDeque::new(),
            asked: CensusNumber::default(),
            answered: CensusNumber::default(),
            spare_on: CensusNumber::default(),
            shrink_on: None,
            room_on: None,
            said_full: false,
            said_busy: false,
        }
    }

    /// What its workers are to tell, for its own sake; `source_asks`: and for that of its pool's source.
    pub(super) fn wants_told(&self, source_asks: bool) -> Notify {
        let takes_work = match self.stage {
            Stage::Warming(_) | Stage::Serving => true,
            Stage::Measuring(_) | Stage::Superseded | Stage::Leaving => false,
        };
        let idle_below = match self.policy.pm {
            ProcessManager::Dynamic {
                min_spare_servers, ..
            } if self.spare.wants_telling() => min_spare_servers,
            ProcessManager::Dynamic { .. }
            | ProcessManager::Static { .. }
            | ProcessManager::Ondemand { .. }
            | ProcessManager::Ordered { .. } => 0,
        };
        Notify {
            always: (source_asks && takes_work) || self.watchdog.wants_telling(),
            idle_below,
        }
    }

    /// How long it may make no worker.
    pub(super) fn held_back(&self, now: Tick) -> Option<Duration> {
        self.backoff.wait(now).max(self.budget.wait(now))
    }

    /// Whether it may make workers: it has no preloader, or one that is ready and is not about to give up its place.
    pub(super) fn can_fork(&self) -> bool {
        self.policy.preloader.is_none() || (self.preloader == Life::Ready && self.refork != Refork::Arrived)
    }
}

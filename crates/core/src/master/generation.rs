//! One configuration of one pool.
//!
//! ```text
//!  Measuring ──▶ Warming ──▶ Serving ──────────────▶ Leaving ──▶ dropped
//!      │            │           │                       ▲ ▲          ▲
//!      │            │           └──▶ Superseded ────────┘ │          │
//!      └────────────┴───────────────────│─────────────────┘          │
//!                                       └────────────────────────────┘
//! ```
//!
//! The first generation of a pool serves at once. A later one first learns how many workers it is to have up (Measuring:
//! the old one's snapshot is on its way), then makes them (Warming) while the old one goes on serving and growing, and then
//! takes over. Where workers are ordered the next one serves at once, and the old one is Superseded until its workers
//! were dismissed. One that is overtaken by a newer configuration before it serves leaves without having served.

use super::action::{Figures, WakeOnAccept};
use super::budget::Budget;
use super::dynamic::Spare;
use super::event::{Policy, PoolId};
use super::fork::Block;
use super::overdue;
use super::refork::Refork;
use super::slots::Slots;
use super::spawn_requests::Queued;
use super::unavailable::{FailedProcess, FailedStart};
use super::watchdog::Watchdog;
use crate::config::ProcessManager;
use crate::indexed::Keyed;
use crate::life::Life;
use crate::life::backoff::Backoff;
use crate::tick::Tick;
use std::collections::VecDeque;
use std::time::Duration;

/// Where a generation is between its start and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GenerationState {
    /// This snapshot of the serving generation will show how many workers it is to have.
    Measuring(SnapshotNumber),
    /// It is to have so many workers up, then it serves.
    Warming(u32),
    /// It serves, and grows as needed.
    Serving,
    /// A newer generation makes the ordered workers now. Those that this one has stay until they are dismissed.
    Superseded,
    /// Its workers finish and go.
    Leaving,
}

/// The number of a snapshot of one generation: answers come in the order of the questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct SnapshotNumber(pub u64);

/// One generation.
#[derive(Debug)]
pub(super) struct Generation {
    pub pool: PoolId,
    pub policy: Policy,
    pub state: GenerationState,
    pub slots: Slots,
    pub backoff: Backoff,
    /// For those that crash at work.
    pub budget: Budget,
    pub preloader: Life,
    /// The last failure to start its preloader or a worker, until a later start succeeds.
    pub failed_start: Option<FailedStart>,
    /// The preloader that is there, or was last, was ready at some time.
    pub came_up: bool,
    /// The preloader that is made of a worker: it comes up beside the present one, and then the two change places. What is here
    /// afterwards is the former one, until it has left.
    pub next_mold: Life,
    pub refork: Refork,
    /// How often a preloader that was made of a worker has taken the place of the one before it. A worker's `line` is this number
    /// when it was forked: one of a lower number is of an older preloader, and is replaced.
    pub line: u64,
    /// How many reforks in a row have failed.
    pub promotions_failed: u32,
    pub spare: Spare,
    pub watchdog: Watchdog,
    /// What its header says.
    pub notify: WakeOnAccept,
    pub figures: Figures,
    /// What stood in the way when workers were last wanted.
    pub block: Option<Block>,
    /// See `policy::Load`.
    pub to_replace: u32,
    /// While the next one is on trial: it makes no more workers than this, as each would start the code that is on trial.
    pub ceiling: Option<u32>,
    /// Orders that have no worker yet, oldest first.
    pub orders: VecDeque<Queued>,
    pub asked: SnapshotNumber,
    pub answered: SnapshotNumber,
    /// The snapshot on which each of these decides.
    pub spare_on: SnapshotNumber,
    pub shrink_on: Option<SnapshotNumber>,
    /// While Warming: the snapshot of the serving generation that shows whom to retire to make room.
    pub room_on: Option<SnapshotNumber>,
    /// `Fact::Up` is told.
    pub told_up: bool,
    /// `Fact::Waits` is told.
    pub told_waits: bool,
    /// The log already says that `max_children` is reached, or that the pool is busy.
    pub said_full: bool,
    pub said_busy: bool,
}

impl Keyed for Generation {
    type Key = PoolId;

    fn key(&self) -> &PoolId {
        &self.pool
    }
}

impl Generation {
    pub(super) fn new(pool: PoolId, policy: Policy, state: GenerationState) -> Generation {
        Generation {
            pool,
            policy,
            state,
            slots: Slots::new(policy.pm.max_children()),
            backoff: Backoff::default(),
            budget: Budget::new(policy.pm.max_children()),
            preloader: Life::Absent,
            failed_start: None,
            came_up: false,
            next_mold: Life::Absent,
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
            notify: WakeOnAccept::default(),
            figures: Figures::default(),
            block: None,
            to_replace: 0,
            ceiling: None,
            orders: VecDeque::new(),
            asked: SnapshotNumber::default(),
            answered: SnapshotNumber::default(),
            spare_on: SnapshotNumber::default(),
            shrink_on: None,
            room_on: None,
            told_up: false,
            told_waits: false,
            said_full: false,
            said_busy: false,
        }
    }

    /// What its workers are to tell, for its own sake; `source_asks`: and for that of its pool's source.
    pub(super) fn wants_told(&self, source_asks: bool) -> WakeOnAccept {
        let takes_work = match self.state {
            GenerationState::Warming(_) | GenerationState::Serving => true,
            GenerationState::Measuring(_) | GenerationState::Superseded | GenerationState::Leaving => false,
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
        WakeOnAccept {
            always: (source_asks && takes_work) || self.watchdog.wants_telling(),
            idle_below,
        }
    }

    /// Its preloader is ready. Whether the workers can start shows later.
    pub(super) fn preloader_came_up(&mut self) {
        self.came_up = true;
        self.failed_start
            .take_if(|failed| failed.process == FailedProcess::Preloader);
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

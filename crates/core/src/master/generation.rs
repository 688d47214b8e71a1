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
//! A pool's first generation serves at once. A later one waits for a snapshot of the old one (Measuring), forks as many
//! workers (Warming), and takes over; with a share of the requests (`turns`) it is measured again at each step. With ordered workers it serves at once, and the old one is Superseded until its
//! workers are dismissed. A newer configuration may make it leave before it serves.

use super::action::{Figures, WakeOnAccept};
use super::budget::Budget;
use super::dynamic::Spare;
use super::event::{Policy, PoolId};
use super::fork::Block;
use super::overdue;
use super::refork::Refork;
use super::slots::Slots;
use super::spawn_requests::Queued;
use super::turns::Share;
use super::unavailable::{FailedProcess, FailedStart};
use super::watchdog::Watchdog;
use crate::config::ProcessManager;
use crate::life::Life;
use crate::life::backoff::Backoff;
use forkyard_base::indexed::Keyed;
use forkyard_base::tick::Tick;
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum GenerationState {
    /// Waits for this snapshot, which shows how many workers to fork.
    Measuring(SnapshotNumber),
    /// Needs this many workers up before it serves.
    Warming(u32),
    #[default]
    Serving,
    /// A newer generation gets the spawn requests; existing workers stay until dismissed.
    Superseded,
    /// Its workers finish and exit.
    Leaving,
}

/// The number of a snapshot request; answers keep the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct SnapshotNumber(pub u64);

#[derive(Debug, Default)]
pub(super) struct Generation {
    pub pool: PoolId,
    /// Its `choice` changes while the generation lives.
    pub policy: Policy,
    pub state: GenerationState,
    pub slots: Slots,
    pub backoff: Backoff,
    pub budget: Budget,
    pub preloader: Life,
    /// The latest start failure, until a start succeeds.
    pub failed_start: Option<FailedStart>,
    /// Whether the present or last preloader was ever ready.
    pub came_up: bool,
    /// The preloader forked from a worker; after the swap the former one.
    pub next_mold: Life,
    pub refork: Refork,
    /// The number of reforks so far. Workers with a lower `line` are replaced.
    pub line: u64,
    /// Reforks failed in a row.
    pub promotions_failed: u32,
    pub spare: Spare,
    pub watchdog: Watchdog,
    pub notify: WakeOnAccept,
    pub figures: Figures,
    /// The obstacle to the last fork.
    pub block: Option<Block>,
    pub to_replace: u32,
    /// The most workers while the next generation is on trial, as each loads the new code, or has a share of the requests.
    pub ceiling: Option<u32>,
    /// While coming: the part of the pool's requests that it gets.
    pub share: Option<Share>,
    /// Spawn requests without a worker, oldest first.
    pub orders: VecDeque<Queued>,
    pub asked: SnapshotNumber,
    pub answered: SnapshotNumber,
    pub spare_on: SnapshotNumber,
    pub shrink_on: Option<SnapshotNumber>,
    /// The snapshot that shows which workers are beyond the autopilot's choice or the ceiling.
    pub trim_on: Option<SnapshotNumber>,
    /// While Warming: the snapshot that shows which workers of the old generation to retire.
    pub room_on: Option<SnapshotNumber>,
    pub told_up: bool,
    pub told_waits: bool,
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
        // Ordered workers leave when dismissed, not for a refork.
        let reforks = policy.preloader.is_some_and(|preloader| preloader.reforks)
            && !matches!(policy.pm, ProcessManager::Ordered { .. });
        let is_timed = overdue::Limits::of(&policy).soonest().is_some();
        Generation {
            pool,
            policy,
            state,
            slots: Slots::new(policy.pm.max_children()),
            budget: Budget::new(policy.pm.max_children()),
            refork: if reforks { Refork::Waiting } else { Refork::Off },
            watchdog: if is_timed { Watchdog::Armed } else { Watchdog::Off },
            ..Generation::default()
        }
    }

    /// When workers must notify the master. `source_asks`: the pool's source needs it.
    pub(super) fn wants_told(&self, source_asks: bool) -> WakeOnAccept {
        let takes_work = match self.state {
            GenerationState::Warming(_) | GenerationState::Serving => true,
            GenerationState::Measuring(_) => self.share.is_some(),
            GenerationState::Superseded | GenerationState::Leaving => false,
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

    /// Records that the preloader is ready. Whether workers can start is still open.
    pub(super) fn preloader_came_up(&mut self) {
        self.came_up = true;
        self.failed_start
            .take_if(|failed| failed.process == FailedProcess::Preloader);
    }

    pub(super) fn held_back(&self, now: Tick) -> Option<Duration> {
        self.backoff.wait(now).max(self.budget.wait(now))
    }

    pub(super) fn can_fork(&self) -> bool {
        self.policy.preloader.is_none() || (self.preloader == Life::Ready && self.refork != Refork::Arrived)
    }
}

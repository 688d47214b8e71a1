//! One application: its instances, its waiting requests, and the state of its code.

use super::action::Trouble;
use super::event::{InstanceId, SessionId};
use super::index::Keys;
use super::options::Options;
use super::restart::Known;
use crate::life::backoff::Backoff;
use forkyard_base::tick::Tick;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

/// The id of an application; never reused, even if the name is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct AppId(pub u64);

#[derive(Debug, Default)]
pub(super) struct Application {
    pub name: Arc<str>,
    pub group: Option<Arc<str>>,
    pub options: Options,
    /// The most instances it may have outside of the reserve, except for its minimum.
    pub share: u32,
    /// A rolling restart has taken a place beyond `share`, which must be given back first.
    pub is_over: bool,
    /// It was added explicitly and stays without instances.
    pub registered: bool,
    pub removed: bool,
    pub instances: BTreeSet<InstanceId>,
    /// Serving instances without sessions, by last use.
    pub idle: BTreeSet<(u64, InstanceId)>,
    /// Serving instances with sessions, by [`super::instance::Instance::load`].
    pub busy: BTreeSet<(u32, InstanceId)>,
    pub spawning: BTreeSet<InstanceId>,
    /// The number of instances that do out-of-band work, and the instances that asked for it.
    pub working: u32,
    pub work_wanted: BTreeSet<InstanceId>,
    /// Instances to disable once another one serves.
    pub disable_after: BTreeSet<InstanceId>,
    pub waiters: BTreeSet<SessionId>,
    /// Sessions in private queues.
    pub queued: u32,
    /// Whether the log has reported a full queue.
    pub said_full: bool,
    pub known: Known,
    pub restarts: u32,
    /// Sessions since the last restart.
    pub begun: u32,
    pub rolling: Option<Rolling>,
    /// The new code can't start; only old instances serve.
    pub resisting: bool,
    /// The delay and cause of the last failure, and its end.
    pub delays: Backoff,
    pub trouble: Option<Trouble>,
    pub backoff: Option<Tick>,
    pub keys: Keys,
}

#[derive(Debug, Default)]
pub(super) struct Rolling {
    /// Instances with old code.
    pub old: BTreeSet<InstanceId>,
    /// The instance that is starting as a replacement.
    pub spare: Option<InstanceId>,
}

impl Application {
    pub(super) fn new(name: Arc<str>, options: Options, share: u32) -> Application {
        Application {
            name,
            options,
            share,
            ..Application::default()
        }
    }

    pub(super) fn serving(&self) -> u32 {
        length(self.idle.len() + self.busy.len())
    }

    pub(super) fn size(&self) -> u32 {
        length(self.instances.len())
    }

    /// Whether it can give up an instance. The last old instance stays if it can't be replaced.
    pub(super) fn may_lose(&self) -> bool {
        !self.removed && self.serving() > self.options.minimum().max(u32::from(self.resisting))
    }

    pub(super) fn max_instances(&self) -> u32 {
        self.options.limit().min(self.share.max(self.options.minimum()))
    }

    pub(super) fn room(&self) -> u32 {
        let blocked = self.removed || self.backoff.is_some() || (self.resisting && self.serving() > 0);
        if blocked {
            return 0;
        }
        self.max_instances().saturating_sub(self.size())
    }

    /// The instances needed for waiting requests and for the minimum, within `room`.
    pub(super) fn wanted(&self) -> (u32, u32) {
        let room = self.room();
        let spawning = length(self.spawning.len());
        let needed = length(self.waiters.len()).div_ceil(self.options.at_once());
        let present = self.serving() + spawning + self.working;
        let missing = self.options.minimum().saturating_sub(present);
        (needed.saturating_sub(spawning).min(room), missing.min(room))
    }

    /// The instance used last, or the one with the fewest sessions. `alone`: only one without sessions.
    pub(super) fn free(&self, alone: bool) -> Option<InstanceId> {
        if let Some((_, id)) = self.idle.last() {
            return Some(*id);
        }
        if alone {
            return None;
        }
        let (sessions, id) = self.busy.first()?;
        (*sessions < self.options.at_once()).then_some(*id)
    }

    /// Whether to start another instance while all are busy.
    pub(super) fn spreads(&self) -> bool {
        let is_at_work = !self.busy.is_empty() && (self.idle.is_empty() || self.options.shares_program);
        let present = self.serving() + length(self.spawning.len()) + self.working;
        let most = self.options.spread.map_or(1, NonZeroU32::get);
        is_at_work && self.waiters.is_empty() && self.spawning.is_empty() && present < most && self.room() > 0
    }

    pub(super) fn is_backing_off(&self) -> bool {
        self.serving() == 0 && self.spawning.is_empty() && self.working == 0 && self.backoff.is_some()
    }

    pub(super) fn is_over(&self) -> bool {
        let needed = self.registered || self.options.minimum() > 0 || self.trouble.is_some();
        self.instances.is_empty() && self.waiters.is_empty() && (self.removed || !needed)
    }
}

pub(super) fn length(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

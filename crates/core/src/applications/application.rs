//! One application: its instances, its waiters, and what is known of its code.

use super::action::Trouble;
use super::event::{InstanceId, SessionId};
use super::index::Keys;
use super::options::Options;
use super::restart::Known;
use crate::life::backoff::Backoff;
use crate::tick::Tick;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

/// An application in the pool. Never used twice, so that what is left of a removed one is not taken for a new one of its
/// name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct AppId(pub u64);

/// An application.
#[derive(Debug)]
pub(super) struct Application {
    pub name: Arc<str>,
    pub group: Option<Arc<str>>,
    pub options: Options,
    /// Most instances that one application may have beside the reserve, but for its minimum.
    pub share: u32,
    /// A rolling restart of it has begun an instance beyond its `share`, in a place of the reserve or in one more than `max`. It is
    /// to give a place back before it gets another.
    pub is_over: bool,
    /// It was added, not begun by a request, and stays without instances.
    pub registered: bool,
    /// It was removed: no request can ask for it any more.
    pub removed: bool,
    /// All instances, whatever they do.
    pub instances: BTreeSet<InstanceId>,
    /// Those that serve and have no session, by their last use.
    pub idle: BTreeSet<(u64, InstanceId)>,
    /// Those that serve and have sessions, by [`super::instance::Instance::load`].
    pub busy: BTreeSet<(u32, InstanceId)>,
    pub spawning: BTreeSet<InstanceId>,
    /// How many instances do out-of-band work, and which want to.
    pub working: u32,
    pub work_wanted: BTreeSet<InstanceId>,
    /// Those to be disabled as soon as another one serves.
    pub disable_after: BTreeSet<InstanceId>,
    /// The requests that wait, oldest first.
    pub waiters: BTreeSet<SessionId>,
    /// Sessions in private queues.
    pub queued: u32,
    /// The queue was full, and the log says so.
    pub said_full: bool,
    pub known: Known,
    /// How often it was restarted.
    pub restarts: u32,
    /// Sessions since then.
    pub begun: u32,
    /// A rolling restart that is not over.
    pub rolling: Option<Rolling>,
    /// The new code could not be started: the old instances are all there is.
    pub resisting: bool,
    /// What grows with each failure, the last failure since one has come up, and until when nothing is started because of it.
    pub delays: Backoff,
    pub trouble: Option<Trouble>,
    pub backoff: Option<Tick>,
    /// Where the pool's indexes have it.
    pub keys: Keys,
}

/// A rolling restart.
#[derive(Debug, Default)]
pub(super) struct Rolling {
    /// Instances with old code.
    pub old: BTreeSet<InstanceId>,
    /// The instance that is being started to replace one of them.
    pub spare: Option<InstanceId>,
}

impl Application {
    pub(super) fn new(name: Arc<str>, options: Options, share: u32) -> Application {
        Application {
            name,
            group: None,
            options,
            share,
            is_over: false,
            registered: false,
            removed: false,
            instances: BTreeSet::new(),
            idle: BTreeSet::new(),
            busy: BTreeSet::new(),
            spawning: BTreeSet::new(),
            working: 0,
            work_wanted: BTreeSet::new(),
            disable_after: BTreeSet::new(),
            waiters: BTreeSet::new(),
            queued: 0,
            said_full: false,
            known: Known::default(),
            restarts: 0,
            begun: 0,
            rolling: None,
            resisting: false,
            delays: Backoff::default(),
            trouble: None,
            backoff: None,
            keys: Keys::default(),
        }
    }

    /// Instances that are given sessions.
    pub(super) fn serving(&self) -> u32 {
        length(self.idle.len() + self.busy.len())
    }

    pub(super) fn size(&self) -> u32 {
        length(self.instances.len())
    }

    /// Whether others may take one of its places: it has more than it is to keep. Of old instances that can't be replaced
    /// the last is kept.
    pub(super) fn may_lose(&self) -> bool {
        !self.removed && self.serving() > self.options.minimum().max(u32::from(self.resisting))
    }

    /// Most instances that it may have, but for a spare one.
    pub(super) fn max_instances(&self) -> u32 {
        self.options.limit().min(self.share.max(self.options.minimum()))
    }

    /// How many more it may have by its own limit and state.
    pub(super) fn room(&self) -> u32 {
        let blocked = self.removed || self.backoff.is_some() || (self.resisting && self.serving() > 0);
        if blocked {
            return 0;
        }
        self.max_instances().saturating_sub(self.size())
    }

    /// How many instances are wanted for the requests that wait, and how many to keep the minimum; both within `room`.
    pub(super) fn wanted(&self) -> (u32, u32) {
        let room = self.room();
        let spawning = length(self.spawning.len());
        let needed = length(self.waiters.len()).div_ceil(self.options.at_once());
        let present = self.serving() + spawning + self.working;
        let missing = self.options.minimum().saturating_sub(present);
        (needed.saturating_sub(spawning).min(room), missing.min(room))
    }

    /// The instance for the next session, as long as that need not wait in it: the one that was used last, or, if each
    /// has sessions, the one with the fewest. `alone`: no other session may be on it.
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

    /// Whether another instance is to share the work of those that are all busy. The processes of a program are there from its
    /// beginning, and each has a place as long as one of them is busy.
    pub(super) fn spreads(&self) -> bool {
        let is_at_work = !self.busy.is_empty() && (self.idle.is_empty() || self.options.shares_program);
        let present = self.serving() + length(self.spawning.len()) + self.working;
        let most = self.options.spread.map_or(1, NonZeroU32::get);
        is_at_work && self.waiters.is_empty() && self.spawning.is_empty() && present < most && self.room() > 0
    }

    /// Nothing can serve, nothing will, and nothing may be started for a while.
    pub(super) fn is_backing_off(&self) -> bool {
        self.serving() == 0 && self.spawning.is_empty() && self.working == 0 && self.backoff.is_some()
    }

    /// There is no reason to remember it.
    pub(super) fn is_over(&self) -> bool {
        let needed = self.registered || self.options.minimum() > 0 || self.trouble.is_some();
        self.instances.is_empty() && self.waiters.is_empty() && (self.removed || !needed)
    }
}

/// A count as `u32`. There are never more of these things than processes or connections.
pub(super) fn length(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

//! One process of an application.

use super::application::AppId;
use super::event::SessionId;
use super::instance_state::InstanceState;
use forkyard_base::tick::Tick;
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Instance {
    pub app: AppId,
    /// The user it was started for.
    pub user: u32,
    pub state: InstanceState,
    /// The application's restart count when it was started.
    pub restarts: u32,
    /// Sessions that it may work on, oldest first: at most `concurrency`.
    pub running: BTreeSet<SessionId>,
    /// The session that has it exclusively.
    pub lease: Option<SessionId>,
    /// It has sessions and can't take up more.
    pub held_up: bool,
    pub queued: BTreeSet<SessionId>,
    /// The session it was adopted with.
    pub adopted: Option<SessionId>,
    /// Sessions started, and sessions that ended well.
    pub begun: u32,
    pub processed: u32,
    /// A rising number that records its last use.
    pub used: u64,
    pub used_at: Tick,
}

impl Instance {
    pub(super) fn new(app: AppId, restarts: u32, user: u32, now: Tick) -> Instance {
        Instance {
            app,
            user,
            restarts,
            used_at: now,
            ..Instance::default()
        }
    }

    pub(super) fn is_taken_over(&self) -> bool {
        self.adopted
            .is_some_and(|session| self.running.contains(&session))
    }

    pub(super) fn busyness(&self) -> u32 {
        u32::try_from(self.running.len() + self.queued.len()).unwrap_or(u32::MAX)
    }

    /// Sort key of busy instances: its sessions, or the highest number if it takes no more.
    pub(super) fn load(&self) -> u32 {
        match self.lease.is_some() || self.held_up {
            true => u32::MAX,
            false => self.busyness(),
        }
    }
}

//! One process of an application.

use super::application::AppId;
use super::event::SessionId;
use super::instance_state::InstanceState;
use crate::tick::Tick;
use std::collections::BTreeSet;

/// An instance.
#[derive(Debug)]
pub(super) struct Instance {
    pub app: AppId,
    /// For whom it was begun.
    pub user: u32,
    pub state: InstanceState,
    /// How often the application had been restarted when it was begun.
    pub restarts: u32,
    /// Sessions that it may work on, oldest first: at most `concurrency`.
    pub running: BTreeSet<SessionId>,
    /// One of them that has it for itself.
    pub lease: Option<SessionId>,
    /// It has sessions, and does not get round to taking up more.
    pub held_up: bool,
    /// Its private queue: sessions that it has not begun.
    pub queued: BTreeSet<SessionId>,
    /// The session that it was taken over with from an earlier pool, and may still have.
    pub adopted: Option<SessionId>,
    /// Sessions ever begun and ever ended well.
    pub begun: u32,
    pub processed: u32,
    /// When it was last given a session or had one end, as a number that only rises.
    pub used: u64,
    /// The same as a time.
    pub used_at: Tick,
}

impl Instance {
    pub(super) fn new(app: AppId, restarts: u32, user: u32, now: Tick) -> Instance {
        Instance {
            app,
            user,
            state: InstanceState::Spawning,
            restarts,
            running: BTreeSet::new(),
            lease: None,
            held_up: false,
            queued: BTreeSet::new(),
            adopted: None,
            begun: 0,
            processed: 0,
            used: 0,
            used_at: now,
        }
    }

    /// What it does may be something that the earlier pool had asked for.
    pub(super) fn is_taken_over(&self) -> bool {
        self.adopted
            .is_some_and(|session| self.running.contains(&session))
    }

    pub(super) fn busyness(&self) -> u32 {
        u32::try_from(self.running.len() + self.queued.len()).unwrap_or(u32::MAX)
    }

    /// The key by which it is chosen among those with sessions: their number, or the highest number where it must not
    /// get more.
    pub(super) fn load(&self) -> u32 {
        match self.lease.is_some() || self.held_up {
            true => u32::MAX,
            false => self.busyness(),
        }
    }
}

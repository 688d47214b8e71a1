//! One process of an application.

use super::application::AppId;
use super::event::Ticket;
use super::life::Life;
use crate::tick::Tick;
use std::collections::BTreeSet;

/// An instance.
#[derive(Debug)]
pub(super) struct Instance {
    pub app: AppId,
    pub life: Life,
    /// How often the application had been restarted when it was begun.
    pub generation: u32,
    /// Sessions that it may work on, oldest first: at most `concurrency`.
    pub running: BTreeSet<Ticket>,
    /// Its private queue: sessions that it has not begun.
    pub queued: BTreeSet<Ticket>,
    /// The session that it was taken over with from an earlier book, and may still have.
    pub adopted: Option<Ticket>,
    /// Sessions ever begun and ever ended well.
    pub begun: u32,
    pub processed: u32,
    /// When it was last given a session or had one end, as a number that only rises.
    pub used: u64,
    /// The same as a time.
    pub used_at: Tick,
}

impl Instance {
    pub(super) fn new(app: AppId, generation: u32, now: Tick) -> Instance {
        Instance {
            app,
            life: Life::Spawning,
            generation,
            running: BTreeSet::new(),
            queued: BTreeSet::new(),
            adopted: None,
            begun: 0,
            processed: 0,
            used: 0,
            used_at: now,
        }
    }

    /// What it does may be something that the earlier book had asked for.
    pub(super) fn is_taken_over(&self) -> bool {
        self.adopted
            .is_some_and(|session| self.running.contains(&session))
    }

    pub(super) fn busyness(&self) -> u32 {
        u32::try_from(self.running.len() + self.queued.len()).unwrap_or(u32::MAX)
    }
}

//! What workers are given: of one pool, or of several that share the process.

use crate::config::sharing;
use crate::logs::Log;
use crate::sys::{self, title};
use crate::worker::Kit;
use std::collections::BTreeMap;

/// The number of the only kit of a process that is not shared.
const ONLY: u64 = 0;

/// The kits by their generations' numbers.
#[derive(Debug)]
pub(super) struct Kits {
    is_shared: bool,
    by_generation: BTreeMap<u64, Kit>,
}

impl Kits {
    /// With the first one. `generation`: its number, if the process is shared.
    pub(super) fn new(kit: Kit, generation: Option<u64>) -> Kits {
        let kits = Kits {
            is_shared: generation.is_some(),
            by_generation: BTreeMap::from([(generation.unwrap_or(ONLY), kit)]),
        };
        kits.show();
        kits
    }

    /// Whether pools share the process.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Takes up another one; `false`: the process is not shared.
    pub(super) fn adopt(&mut self, generation: u64, kit: Kit) -> bool {
        if !self.is_shared {
            return false;
        }
        self.by_generation.insert(generation, kit);
        self.listen_to_first();
        self.show();
        true
    }

    /// Closes all that belongs to a generation.
    pub(super) fn forget(&mut self, generation: u64) {
        self.by_generation.remove(&generation);
        self.listen_to_first();
        self.show();
    }

    /// Whether there is such a generation here.
    pub(super) fn has(&self, generation: Option<u64>) -> bool {
        self.by_generation.contains_key(&generation.unwrap_or(ONLY))
    }

    /// In a worker: its kit. The others are closed; so is the channel for log lines, which may be another pool's.
    pub(super) fn take(mut self, generation: Option<u64>) -> Option<Kit> {
        let kit = self.by_generation.remove(&generation.unwrap_or(ONLY))?;
        if self.is_shared {
            log_over(&kit);
        }
        Some(kit)
    }

    /// The process' own log lines are those of its first pool, which may have changed.
    fn listen_to_first(&self) {
        if let Some(kit) = self.by_generation.values().next() {
            log_over(kit);
        }
    }

    fn show(&self) {
        let pools = || self.by_generation.values().map(|kit| &kit.settings.pool);
        if let Some(kit) = self.by_generation.values().next() {
            let first = &kit.settings.pool;
            let mut sorted: Vec<_> = pools().collect();
            sorted.sort_by(|a, b| a.name.cmp(&b.name));
            title::set(&format!("{}: preloader {}", first.title, sharing::label(sorted)));
        }
    }
}

fn log_over(kit: &Kit) {
    match kit.messages.try_clone() {
        Ok(channel) => Log::install().turn_to_master(channel),
        Err(error) => log::error!("{}", sys::Error::from_io("dup", "", &error)),
    }
}

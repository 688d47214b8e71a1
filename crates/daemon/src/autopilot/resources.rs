//! The room of a pool's workers: processors and memory.

use crate::context::generation::Generation;
use crate::context::pools::Pools;
use forkyard_config::Resources;
use forkyard_core::autopilot::Machine;
use forkyard_core::master::event::GenerationId;
use forkyard_sys::process::{open_statm, resident_bytes, shared_resident_bytes};

/// A pool's machine, and how much of its memory is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Room {
    pub(super) machine: Machine,
    /// Memory that the pool's workers share, in bytes.
    pub(super) shared: u64,
    /// Memory of everything else within the limit, in bytes.
    pub(super) others: u64,
    /// Memory in use within the limit, in bytes.
    pub(super) used: u64,
}

impl Pools {
    /// Returns the room of a generation's workers.
    pub(super) fn room(&self, id: GenerationId, generation: &Generation, resources: &Resources) -> Room {
        let (machine, is_alone) = resources.of_pool(&generation.settings.pool);
        let (shared, private) = (self.shared_memory(id, generation), private_memory(generation));
        let own = shared.saturating_add(private);
        let (others, used) = match is_alone {
            true => (0, own),
            false => (resources.used.saturating_sub(own), resources.used.max(own)),
        };
        Room {
            machine,
            shared,
            others,
            used,
        }
    }

    /// Returns the memory that workers share: the preloader's, or one worker's memory of files and shared mappings.
    fn shared_memory(&self, id: GenerationId, generation: &Generation) -> u64 {
        let workers = generation.slots.values();
        let mut pids = workers.filter_map(|worker| self.workers.get(worker)?.pid);
        let bytes = match self.preloader_pid(id) {
            Some(preloader) => open_statm(Some(preloader)).and_then(|statm| resident_bytes(&statm)),
            None => pids.find_map(|pid| shared_resident_bytes(&open_statm(Some(pid))?)),
        };
        bytes.unwrap_or(0)
    }
}

impl Generation {
    /// Returns the memory that the worker in a slot measured as its own, in bytes; 0 if unknown. Untrusted.
    pub(in super::super) fn own_memory(&self, slot: u32) -> u64 {
        let board = self.resources.as_ref().map(|resources| &resources.board);
        let counters = board.and_then(|board| board.counters(slot as usize));
        counters.map_or(0, |counters| counters.own_memory())
    }
}

/// Returns the memory of all workers; one without a measurement has as much as the mean.
fn private_memory(generation: &Generation) -> u64 {
    let measured = generation.slots.keys().map(|slot| generation.own_memory(*slot));
    let measured: Vec<u64> = measured.filter(|bytes| *bytes > 0).collect();
    // Workers may write any number.
    let sum = measured
        .iter()
        .fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    let mean = sum.checked_div(measured.len() as u64).unwrap_or(0);
    mean.saturating_mul(generation.slots.len() as u64)
}

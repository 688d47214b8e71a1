//! Workers of old generations that may still take a connection.

use crate::context::generation::Generation;
use crate::context::pools::Pools;
use forkyard_base::tick::Tick;
use forkyard_core::master::event::WorkerId;
use forkyard_scoreboard::{RequestStage, slot_reader};
use forkyard_sys::clock;
use std::time::Duration;

/// The longest wait for a worker that is idle after its signal to finish: the pool's code can make accept(2) block
/// (O_NONBLOCK belongs to the socket, which all processes share).
pub(crate) const LAST_CONNECTION: Duration = Duration::from_secs(5);

pub(crate) fn waiting_workers<'p>(
    pools: &'p Pools,
    generation: &'p Generation,
) -> impl Iterator<Item = (WorkerId, Option<Tick>)> + 'p {
    let waits = |slot: u32| {
        let page = generation.page(slot);
        page.is_some_and(|page| slot_reader::stage(page) == RequestStage::Accepting)
    };
    let waiting = generation.slots.iter().filter(move |(slot, _)| waits(**slot));
    waiting.map(|(_, id)| {
        let worker = pools.workers.get(id);
        (*id, worker.and_then(|worker| worker.told).map(|(_, when)| when))
    })
}

/// Whether workers of a generation may still take connections.
pub(crate) fn takes_up(pools: &Pools, generation: &Generation) -> bool {
    let now = clock::now();
    let is_late = |told: Option<Tick>| told.is_some_and(|told| now.since(told) >= LAST_CONNECTION);
    waiting_workers(pools, generation).any(|(_, told)| !is_late(told))
}

//! The figures for the autopilot of a pool, and its choice ([`forkyard_core::autopilot`]).
//!
//! ```text
//!           more than half of max_children are busy, or all and connections wait
//!   Quiet ────────────────────────────────────────▶ Looking, once a second
//!     ▲                                                │
//!     └────────────────────────────────────────────────┘
//!        half or fewer are busy and nothing waits, three times in a row
//! ```
//!
//! In Quiet there is no timer, and workers take no samples: one that sees many busy workers reports.

mod reading;
mod resources;

use super::context::Context;
use super::generation::Generation;
use super::pools::{Pools, RunningPool};
use forkyard_base::tick::Tick;
use forkyard_config::Resources;
use forkyard_core::autopilot::{Autopilot, Second};
use forkyard_core::master::event::{GenerationId, PoolId};
use forkyard_protocol::control::Advice;
use forkyard_scoreboard::header::Wish;
use forkyard_scoreboard::{RequestStage, slot_reader};
use reading::Reading;
use resources::Room;
use std::collections::HashMap;
use std::time::Duration;

/// The time between two looks at a busy pool.
const LOOK: Duration = Duration::from_secs(1);
/// So many looks at a pool that is not busy make it quiet.
const CALM: u8 = 3;
/// The machine's memory counts as short if processes waited for it for this part of the time.
const STALLED: f64 = 0.1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watch {
    Quiet,
    Looking { calm: u8, due: Tick },
}

/// A pool's autopilot.
#[derive(Debug)]
struct Flight {
    pilot: Autopilot,
    watch: Watch,
    before: Option<Reading>,
    /// It has seen the pool for at least a second.
    has_looked: bool,
}

/// The autopilots of pools that have been busy, by the pool's name: they live on through reloads.
#[derive(Debug, Default)]
pub(in crate::master) struct Autopilots {
    flights: HashMap<String, Flight>,
    /// The last known time of waits for memory, in microseconds, and when it was read.
    stall: Option<(u64, Tick)>,
}

impl Autopilots {
    pub(super) fn deadline(&self) -> Option<Tick> {
        let due = self.flights.values().filter_map(|flight| match flight.watch {
            Watch::Looking { due, .. } => Some(due),
            Watch::Quiet => None,
        });
        due.min()
    }

    /// Whether processes of the machine waited long for memory since the last call.
    fn pressure(&mut self, resources: &Resources, now: Tick) -> bool {
        let before = self.stall;
        self.stall = resources.memory_stall.map(|stall| (stall, now));
        let Some(((now_us, _), (then_us, then))) = self.stall.zip(before) else {
            return false;
        };
        let passed = now.since(then).as_secs_f64();
        let waited = Duration::from_micros(now_us.saturating_sub(then_us)).as_secs_f64();
        passed < 2.0 * LOOK.as_secs_f64() && waited > passed * STALLED
    }
}

/// The autopilot's needs from the workers of a quiet pool with this many places. A single worker is often busy: it
/// reports only a queue.
pub(super) fn quiet_wish(places: u32) -> Wish {
    Wish {
        busy_above: Some((places / 2).max(1)),
        samples: false,
    }
}

impl Context {
    /// A worker of this generation has reported many busy workers, and may be wrong.
    pub(super) fn grew_busy(&mut self, id: GenerationId, now: Tick) {
        let Some((pool, generation)) = self.pools.flown_generation(id) else {
            return;
        };
        let name = pool.name.clone();
        let flight = self.autopilots.flights.get(&name);
        if flight.is_some_and(|flight| flight.watch != Watch::Quiet) {
            return;
        }
        generation.set_wish(Wish {
            busy_above: None,
            samples: true,
        });
        let reading = generation.reading_for_autopilot(id, now);
        let resources = forkyard_config::resources();
        let pilot = || {
            let room = self.pools.room(id, generation, &resources);
            Autopilot::start(&room.machine, room.shared)
        };
        let mut flight = self.autopilots.flights.remove(&name).unwrap_or_else(|| Flight {
            pilot: pilot(),
            watch: Watch::Quiet,
            before: None,
            has_looked: false,
        });
        flight.before = Some(reading);
        flight.watch = Watch::Looking {
            calm: 0,
            due: now + LOOK,
        };
        self.autopilots.flights.insert(name, flight);
    }

    /// Looks at busy pools, if it is time.
    pub(super) fn poll_autopilots(&mut self, now: Tick) {
        if self.autopilots.deadline().is_none_or(|due| due > now) {
            return;
        }
        let resources = forkyard_config::resources();
        let pressure = self.autopilots.pressure(&resources, now);
        let mut flights = std::mem::take(&mut self.autopilots.flights);
        flights.retain(|name, flight| self.pools.fly(name, flight, &resources, pressure, now));
        self.autopilots.flights = flights;
    }

    /// Returns the autopilot's choice for a pool; `None` for pools without such a number.
    pub(super) fn advice(&self, id: PoolId, resources: &Resources) -> Option<Advice> {
        let pool = self.pools.by_id.get(&id)?;
        let (_, generation) = self.pools.flown_generation(pool.serving?)?;
        let most = generation.settings.pool.pm.max_children();
        let flight = self.autopilots.flights.get(&pool.name);
        let begun;
        let decision = match flight {
            Some(flight) => flight.pilot.decision(),
            None => {
                let room = self.pools.room(pool.serving?, generation, resources);
                begun = Autopilot::start(&room.machine, room.shared);
                begun.decision()
            }
        };
        Some(Advice {
            max_children: most,
            chosen: decision.most,
            because: decision.reason.to_string(),
            has_looked: flight.is_some_and(|flight| flight.has_looked),
        })
    }
}

impl Pools {
    /// Returns a serving generation whose number of workers an autopilot can choose, and its pool.
    fn flown_generation(&self, id: GenerationId) -> Option<(&RunningPool, &Generation)> {
        let generation = self.generations.get(&id)?;
        let pool = self.by_id.get(&generation.pool)?;
        let is_flown = pool.listener.is_some() && pool.serving == Some(id);
        let is_flown = is_flown && !generation.is_ordered() && !generation.has_applications();
        is_flown.then_some((pool, generation))
    }

    /// Looks at a pool. Returns `false` if it is gone.
    fn fly(&self, name: &str, flight: &mut Flight, resources: &Resources, pressure: bool, now: Tick) -> bool {
        let mut ids = self.pools_named(name).into_iter();
        let Some(serving) = ids.find_map(|id| self.by_id.get(&id)?.serving) else {
            return false;
        };
        let (Watch::Looking { calm, due }, Some((pool, generation))) =
            (flight.watch, self.flown_generation(serving))
        else {
            return true;
        };
        if due > now {
            return true;
        }
        let places = generation.settings.pool.pm.max_children();
        let reading = generation.reading_for_autopilot(serving, now);
        let (live, busy) = self.count_for_autopilot(pool, generation);
        let waiting = pool.queued(false).unwrap_or(0);
        let is_calm = busy <= places / 2 && waiting == 0;
        let calm = if is_calm { calm + 1 } else { 0 };
        let work = flight.before.take().and_then(|before| reading.since(&before));
        if let Some(work) = work {
            let Room {
                machine,
                shared,
                others,
                used,
            } = self.room(serving, generation, resources);
            flight.has_looked = true;
            let has_queue = waiting > 0 || work.waited > 0.0;
            flight.pilot.second(&Second {
                elapsed: work.elapsed,
                machine,
                shared,
                others,
                current: used,
                pressure,
                live,
                busy,
                waiting,
                full: if has_queue { work.saturated } else { 0.0 },
                done: work.done,
                run: work.run,
                queued: work.queued,
                held: work.held,
                routes: work.routes,
                private: work.private,
            });
        }
        if calm >= CALM {
            flight.watch = Watch::Quiet;
            generation.set_wish(quiet_wish(places));
        } else {
            flight.before = Some(reading);
            flight.watch = Watch::Looking {
                calm,
                due: now + LOOK,
            };
            // The generation may be new.
            generation.set_wish(Wish {
                busy_above: None,
                samples: true,
            });
        }
        true
    }

    /// Counts a pool's workers, with those that leave, and the busy ones of the generation that serves.
    fn count_for_autopilot(&self, pool: &RunningPool, generation: &Generation) -> (u32, u32) {
        let generations = pool.serving.and_then(|id| self.generations.get(&id));
        let id = generations.map_or(generation.pool, |it| it.pool);
        let live: usize = self.generations.of(&id).map(|(_, it)| it.slots.len()).sum();
        let busy = generation.pages().filter(|(_, _, page)| {
            !matches!(
                slot_reader::stage(page),
                RequestStage::Accepting | RequestStage::Creating
            )
        });
        (
            u32::try_from(live).unwrap_or(u32::MAX),
            u32::try_from(busy.count()).unwrap_or(u32::MAX),
        )
    }
}

impl Generation {
    fn reading_for_autopilot(&self, id: GenerationId, now: Tick) -> Reading {
        let mut reading = Reading {
            at: now,
            generation: id,
            ..Reading::default()
        };
        let Some(resources) = &self.resources else {
            return reading;
        };
        let board = &resources.board;
        if let Some(gate) = board.gate() {
            (reading.saturated_ns, reading.queue_ns) = (gate.saturated_ns(now), gate.queue_ns());
        }
        let slots = (0..self.settings.slots).filter_map(|slot| Some((slot, board.counters(slot as usize)?)));
        reading.slots = slots.map(|(slot, counters)| (slot, counters.sums())).collect();
        reading
    }
}

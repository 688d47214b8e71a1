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

use crate::context::Context;
use crate::context::generation::{Generation, quiet_wish};
use crate::context::pools::{Pools, RunningPool};
use forkyard_base::tick::Tick;
use forkyard_config::{Pool, ProcessManager, Resources};
use forkyard_core::autopilot::{Autopilot, Decision, Learnt, Reason, Second};
use forkyard_core::master::event::{Choice, Event, GenerationId, PoolId};
use forkyard_protocol::control::Advice;
use forkyard_protocol::handover::document::SavedAutopilot;
use forkyard_scoreboard::header::Wish;
use forkyard_scoreboard::{RequestStage, slot_reader};
use forkyard_sys::clock;
use reading::Reading;
use resources::Room;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::Arc;
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

/// The workers' part while the autopilot looks.
const LOOKING: Wish = Wish {
    busy_above: None,
    samples: true,
};
/// The form of the figures in a document for the next master.
const FORM: u32 = 1;

/// The autopilots of pools that have been busy, by the pool's name: they live on through reloads.
#[derive(Debug, Default)]
pub(crate) struct Autopilots {
    flights: HashMap<String, Flight>,
    /// The figures of the previous master, by pool.
    left: HashMap<String, Learnt>,
    /// The last known time of waits for memory, in microseconds, and when it was read.
    stall: Option<(u64, Tick)>,
}

impl Autopilots {
    pub(crate) fn deadline(&self) -> Option<Tick> {
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

impl Autopilots {
    /// A worker of this generation has reported many busy workers, and may be wrong.
    pub(crate) fn grew_busy(&mut self, context: &Context, id: GenerationId, now: Tick) {
        let Some((pool, generation)) = context.pools.flown_generation(id) else {
            return;
        };
        let name = pool.name.clone();
        let flight = self.flights.get(&name);
        if flight.is_some_and(|flight| flight.watch != Watch::Quiet) {
            return;
        }
        generation.set_wish(LOOKING);
        let settings = generation.settings.pool.clone();
        let flight = self.flight(&settings);
        // The first second has requests without samples.
        flight.before = None;
        flight.watch = Watch::Looking {
            calm: 0,
            due: now + LOOK,
        };
    }

    /// Looks at busy pools, if it is time.
    pub(crate) fn poll(&mut self, context: &mut Context, now: Tick) {
        if self.deadline().is_none_or(|due| due > now) {
            return;
        }
        let resources = forkyard_config::resources();
        let pressure = self.pressure(&resources, now);
        let mut flights = std::mem::take(&mut self.flights);
        let mut chosen = Vec::new();
        flights.retain(|name, flight| {
            let serving = context.pools.serving_named(name);
            let Some(id) = serving else {
                return !context.pools.pools_named(name).is_empty();
            };
            if let Some(choice) = context.pools.fly(id, flight, (&resources, pressure), now) {
                chosen.push((id, choice, flight.pilot.decision().reason.to_string()));
            }
            true
        });
        self.flights = flights;
        for (id, choice, because) in chosen {
            choose(context, id, choice, &because);
        }
    }

    /// Returns the choice for a new generation of a pool; `None`: its number is the operator's.
    pub(crate) fn first_choice(&mut self, pool: &Arc<Pool>) -> Option<Choice> {
        if !pool.load.has_autopilot {
            let lanes = pool.load.lanes.as_ref().filter(|lanes| lanes.extra > 0)?;
            let number = pool.pm.max_children() - lanes.extra;
            return Some(Choice {
                most: number + lanes.reserve.unwrap_or(1).min(lanes.extra),
                may_fork: true,
            });
        }
        let flight = self.flight(pool);
        let most = flight.pilot.decision().most;
        Some(Choice {
            most: most.clamp(1, pool.pm.max_children()),
            may_fork: true,
        })
    }

    /// Returns the autopilot's choice for a pool; `None` for pools without such a number.
    pub(crate) fn advice(&self, context: &Context, id: PoolId, resources: &Resources) -> Option<Advice> {
        let pool = context.pools.by_id.get(&id)?;
        let (_, generation) = context.pools.flown_generation(pool.serving?)?;
        let flight = self.flights.get(&pool.name);
        let begun;
        let decision = match flight {
            Some(flight) => flight.pilot.decision(),
            None => {
                begun = Autopilot::start(&resources.of_pool(&generation.settings.pool).0, 0);
                begun.decision()
            }
        };
        let settings = &generation.settings.pool;
        let most = if settings.load.has_autopilot {
            settings.pm.max_children()
        } else {
            u32::MAX
        };
        Some(Advice {
            max_children: match settings.load.has_autopilot {
                true => generation.most_workers(),
                false => generation.number(),
            },
            chosen: decision.most.min(most),
            because: decision.reason.to_string(),
            has_looked: flight.is_some_and(|flight| flight.has_looked),
            is_followed: settings.load.has_autopilot,
        })
    }

    /// Returns a pool's autopilot, which begins if there is none.
    fn flight(&mut self, pool: &Arc<Pool>) -> &mut Flight {
        let Autopilots { flights, left, .. } = self;
        flights.entry(pool.name.clone()).or_insert_with(|| {
            let (machine, _) = forkyard_config::resources().of_pool(pool);
            let learnt = left.remove(&pool.name);
            Flight {
                has_looked: learnt.is_some(),
                pilot: match learnt {
                    Some(learnt) => Autopilot::resume(learnt, &machine),
                    None => Autopilot::start(&machine, 0),
                },
                watch: Watch::Quiet,
                before: None,
            }
        })
    }

    /// Returns the figures of all autopilots, for the next master.
    pub(crate) fn learnt(&self) -> Vec<SavedAutopilot> {
        let looked = self.flights.iter().filter(|(_, flight)| flight.has_looked);
        let saved = looked.filter_map(|(pool, flight)| {
            Some(SavedAutopilot {
                pool: pool.clone(),
                form: FORM,
                learnt: serde_json::to_value(flight.pilot.learnt()).ok()?,
            })
        });
        saved.collect()
    }

    /// Takes the figures of another master over, if they have the form of this program.
    pub(crate) fn take(&mut self, saved: &[SavedAutopilot]) {
        let readable = saved.iter().filter(|saved| saved.form == FORM);
        let learnt = readable.filter_map(|saved| {
            let learnt = Learnt::deserialize(&saved.learnt).ok()?;
            Some((saved.pool.clone(), learnt))
        });
        self.left = learnt.collect();
    }
}

/// Has the core follow a choice, and logs a number that changes by a tenth.
fn choose(context: &mut Context, id: GenerationId, choice: Choice, because: &str) {
    let Some(generation) = context.pools.generations.get_mut(&id) else {
        return;
    };
    let (places, name) = (generation.settings.slots, generation.settings.pool.name.clone());
    let Some(before) = generation.choice.replace(choice) else {
        return;
    };
    if let Some(gate) = generation.resources.as_ref().and_then(|it| it.board.gate()) {
        gate.limit_to(choice.most.min(places) as usize, clock::now());
    }
    context.services.tell(Event::Chosen(id, choice));
    if !generation.settings.pool.load.has_autopilot {
        return;
    }
    let logged = generation.logged_choice.unwrap_or(before.most);
    if choice.most.abs_diff(logged) * 10 >= logged.max(1) && choice.most != logged {
        generation.logged_choice = Some(choice.most);
        log::info!("[pool {name}] max_children auto = {}: {because}", choice.most);
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

    /// Whether the autopilot chooses the number of a pool's workers.
    pub(crate) fn has_autopilot(&self, id: PoolId) -> bool {
        let serving = self.by_id.get(&id).and_then(|pool| pool.serving);
        let generation = serving.and_then(|id| self.generations.get(&id));
        generation.is_some_and(|generation| generation.settings.pool.load.has_autopilot)
    }

    fn serving_named(&self, name: &str) -> Option<GenerationId> {
        let mut ids = self.pools_named(name).into_iter();
        ids.find_map(|id| self.by_id.get(&id)?.serving)
    }

    /// Looks at a pool, if it is time. Returns the choice if the autopilot has another one and chooses its number.
    fn fly(
        &self,
        id: GenerationId,
        flight: &mut Flight,
        (resources, pressure): (&Resources, bool),
        now: Tick,
    ) -> Option<Choice> {
        let Watch::Looking { calm, due } = flight.watch else {
            return None;
        };
        if due > now {
            return None;
        }
        let Some((pool, generation)) = self.flown_generation(id) else {
            flight.watch = Watch::Quiet;
            return None;
        };
        let places = generation.most_workers();
        let reading = generation.reading_for_autopilot(id, now);
        let (live, busy) = self.count_for_autopilot(generation);
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
            } = self.room(id, generation, resources);
            flight.has_looked = true;
            // Low requests wait although workers are idle.
            let has_parked = pool.has_parked();
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
                full: match (has_parked, has_queue) {
                    (true, _) => 1.0,
                    (false, true) => work.saturated,
                    (false, false) => 0.0,
                },
                done: work.done,
                run: work.run,
                queued: work.queued,
                held: work.held,
                routes: work.routes,
                private: work.private,
            });
        }
        let is_over = calm >= CALM;
        let mut choice = generation.next_choice(flight.pilot.decision(), now);
        if is_over {
            // Nobody looks when there is room again.
            choice = choice.map(|choice| Choice {
                may_fork: true,
                ..choice
            });
            flight.watch = Watch::Quiet;
            generation.set_wish(quiet_wish(choice.map_or(places, |choice| choice.most)));
        } else {
            flight.before = Some(reading);
            flight.watch = Watch::Looking {
                calm,
                due: now + LOOK,
            };
            // The generation may be new.
            generation.set_wish(LOOKING);
        }
        choice.filter(|_| generation.choice != choice)
    }

    /// Counts a pool's workers, with those that leave, and the busy ones of the generation that serves.
    fn count_for_autopilot(&self, generation: &Generation) -> (u32, u32) {
        let live: usize = self
            .generations
            .of(&generation.pool)
            .map(|(_, it)| it.slots.len())
            .sum();
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
    /// Returns `max_children`: the operator's number, or the autopilot's.
    pub(crate) fn most_workers(&self) -> u32 {
        let most = self.settings.pool.pm.max_children();
        self.choice.map_or(most, |choice| choice.most.min(most))
    }

    /// Returns the operator's `max_children`.
    fn number(&self) -> u32 {
        let pool = &self.settings.pool;
        let extra = pool.load.lanes.as_ref().map_or(0, |lanes| lanes.extra);
        pool.pm.max_children().saturating_sub(extra).max(1)
    }

    /// Returns the choice that follows from a decision; `None`: the number is the operator's, without workers for lanes on
    /// top.
    fn next_choice(&self, decision: &Decision, now: Tick) -> Option<Choice> {
        let before = self.choice?;
        let is_memory = matches!(decision.reason, Reason::Memory { .. } | Reason::Pressure);
        let extra = if is_memory { 0 } else { self.lane_extra(now) };
        if !self.settings.pool.load.has_autopilot {
            let number = self.number();
            return Some(Choice {
                most: match (is_memory, decision.may_fork) {
                    (true, _) => decision.most.clamp(number, before.most.max(number)),
                    (false, true) => number + extra,
                    (false, false) => before.most,
                },
                may_fork: true,
            });
        }
        let most = decision.most.saturating_add(extra);
        let most = most.clamp(1, self.settings.pool.pm.max_children());
        let is_static = matches!(self.settings.pool.pm, ProcessManager::Static { .. });
        Some(Choice {
            most: match (is_static, is_memory) {
                (false, _) => most,
                // A static pool gets another number at a reload; only memory can't wait.
                (true, true) => most.min(before.most),
                (true, false) => before.most,
            },
            may_fork: decision.may_fork,
        })
    }

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

//! Processes that workers leave behind. [`forkyard_core::master::departed`] decides which end; the rest are counted, and end
//! with the pool.

use crate::context::Context;
use crate::context::pools::Pools;
use crate::context::processes::Who;
use forkyard_base::tick::Tick;
use forkyard_config::Leaves;
use forkyard_core::master::departed::end_with_worker;
use forkyard_core::master::event::{Ended, WorkerId};
use forkyard_scoreboard::slot_reader;
use forkyard_sys::clock;
use forkyard_sys::session::{self, Leader};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The number of leaders that are remembered before a check whether they have left anything.
const LOOK_AT: usize = 64;
/// How long a count is valid: each is a pass over /proc.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kin {
    Group,
    Session,
}

#[derive(Debug)]
struct Departed {
    leader: Leader,
    kin: Kin,
    pool: String,
    ends: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Orphans {
    left: BTreeMap<Leader, String>,
    /// The number remembered until the next look.
    room: usize,
    counted: Option<(Tick, HashMap<String, u32>)>,
    /// Leaders of sessions to end: one pass over /proc finds the processes of all.
    doomed: Vec<Leader>,
    pub(crate) daemon_stops: bool,
}

impl Orphans {
    /// Ends or remembers the processes that a worker leaves behind. Call it before the worker is reaped, while its
    /// number is still its own.
    pub(crate) fn part_from(&mut self, context: &Context, pid: i32, exit: Ended) {
        let Some(Who::Worker(worker)) = context.processes.by_pid.get(&pid) else {
            return;
        };
        let Some(departed) = departed(&context.pools, *worker, pid, exit, self.daemon_stops) else {
            return;
        };
        match (departed.ends, departed.kin) {
            (true, Kin::Group) => session::kill_group(pid),
            (true, Kin::Session) => self.doomed.push(departed.leader),
            (false, _) => {
                self.left.insert(departed.leader, departed.pool);
            }
        }
    }

    /// For a worker that another process reaps: its number alone proves nothing.
    pub(crate) fn part_from_foreign(&mut self, pools: &Pools, id: WorkerId) {
        let Some(leader) = pools.workers.get(&id).and_then(|worker| worker.leader) else {
            return;
        };
        let Some(departed) = departed(pools, id, leader.pid, Ended::Unknown, self.daemon_stops) else {
            return;
        };
        if departed.ends {
            session::kill_rest(&[leader]);
        } else {
            self.left.insert(leader, departed.pool);
        }
    }

    pub(crate) fn settle(&mut self) {
        session::kill_rest(&std::mem::take(&mut self.doomed));
        if self.left.len() > self.room.max(LOOK_AT) {
            self.look();
            // Twice the present number, so that looks stay rare.
            self.room = self.left.len() * 2;
        }
    }

    pub(crate) fn end_of(&mut self, pool: &str) {
        let own = self.left.iter().filter(|(_, of)| *of == pool);
        let own: Vec<Leader> = own.map(|(leader, _)| *leader).collect();
        session::kill_rest(&own);
        self.left.retain(|_, of| of != pool);
    }

    pub(crate) fn end(&mut self) {
        let all: Vec<Leader> = std::mem::take(&mut self.left).into_keys().collect();
        session::kill_rest(&all);
    }

    pub(crate) fn count(&mut self) -> HashMap<String, u32> {
        let now = clock::now();
        let known = self.counted.as_ref();
        if let Some((_, counts)) = known.filter(|(when, _)| now.since(*when) < FRESH) {
            return counts.clone();
        }
        let counts = self.look();
        self.counted = Some((now, counts.clone()));
        counts
    }

    fn look(&mut self) -> HashMap<String, u32> {
        let leaders: Vec<Leader> = self.left.keys().copied().collect();
        let members = session::members(&leaders);
        let mut counts: HashMap<String, u32> = HashMap::new();
        for (_, leader) in &members {
            if let Some(pool) = self.left.get(leader) {
                *counts.entry(pool.clone()).or_default() += 1;
            }
        }
        self.left
            .retain(|leader, _| members.iter().any(|(_, of)| of == leader));
        counts
    }
}

/// The facts about an ended worker. `None`: the runtime leaves such processes alone, or starts none.
fn departed(pools: &Pools, id: WorkerId, pid: i32, exit: Ended, daemon_stops: bool) -> Option<Departed> {
    let worker = pools.workers.get(&id)?;
    let generation = pools.generations.get(&worker.generation)?;
    // A FastCGI program and its children end with the worker.
    let (kin, is_cut_off) = match generation.settings.pool.application.traits().leaves {
        Leaves::Group => (Kin::Group, false),
        Leaves::Session => (Kin::Session, false),
        Leaves::Program => (Kin::Session, exit != Ended::Code(0)),
        Leaves::Nothing => return None,
    };
    let leader = worker.leader.or_else(|| Leader::of(pid))?;
    let page = generation.page(worker.slot);
    let said = page.and_then(|page| slot_reader::leaving(page).0);
    let told = worker.told.map(|(told, _)| told);
    let pool = pools.shown_with(generation).to_owned();
    let pool_stops = daemon_stops || pools.pools_named(&pool).is_empty();
    Some(Departed {
        ends: is_cut_off || end_with_worker(told, said, pool_stops),
        leader,
        kin,
        pool,
    })
}

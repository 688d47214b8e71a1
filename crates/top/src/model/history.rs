//! What earlier frames have seen.

use super::processes;
use super::why::Sights;
use crate::readings::{Readings, Sight};
use crate::why::{Cause, Finding};
use std::collections::{BTreeMap, VecDeque};

/// The frames that a line of a pool's busy workers shows.
pub(crate) const FRAMES: usize = 8;
/// How long a look at a pool's process counts, in seconds.
const SIGHTS_COUNT: f64 = 30.0;

#[derive(Debug, Default)]
pub(super) struct History {
    /// The part of a pool's workers that was busy, by frame.
    busy: BTreeMap<String, VecDeque<f64>>,
    sights: VecDeque<Seen>,
    /// The last sight of each process, with its request.
    last: BTreeMap<i32, (u64, Finding)>,
    is_denied: bool,
}

#[derive(Debug)]
struct Seen {
    at: f64,
    pool: String,
    /// The route of the process's request, if it is known.
    route: Option<String>,
    cause: Cause,
}

impl History {
    pub(super) fn push(&mut self, now: &Readings) {
        let pools = &now.status.pools;
        self.busy
            .retain(|name, _| pools.iter().any(|pool| pool.name == *name));
        for pool in pools {
            let (busy, all) = (processes::busy(pool), pool.limits.max_children);
            let line = self.busy.entry(pool.name.clone()).or_default();
            line.push_back((f64::from(busy) / f64::from(all.max(1))).clamp(0.0, 1.0));
            line.drain(..line.len().saturating_sub(FRAMES));
        }
        self.sights.retain(|seen| now.at - seen.at < SIGHTS_COUNT);
        let busy: BTreeMap<i32, u64> = processes::all(&now.status)
            .into_iter()
            .filter(|process| process.is_busy)
            .filter_map(|process| Some((process.pid?, process.requests)))
            .collect();
        self.last
            .retain(|pid, (requests, _)| busy.get(pid) == Some(requests));
        let workers = pools.iter().flat_map(|pool| &pool.generations);
        let workers = workers.flat_map(|generation| &generation.workers);
        let routes: BTreeMap<i32, &str> = workers
            .filter_map(|worker| Some((worker.pid?, worker.route.as_deref()?)))
            .collect();
        let denied = now
            .looks
            .iter()
            .filter(|look| look.sight == Sight::Denied)
            .count();
        if !now.looks.is_empty() {
            self.is_denied = denied == now.looks.len();
        }
        for look in &now.looks {
            let Sight::Seen(finding) = &look.sight else {
                continue;
            };
            if let Some(requests) = busy.get(&look.pid) {
                self.last.insert(look.pid, (*requests, finding.clone()));
            }
            self.sights.push_back(Seen {
                at: now.at,
                pool: look.pool.clone(),
                route: routes.get(&look.pid).map(|route| (*route).to_owned()),
                cause: finding.cause,
            });
        }
    }

    pub(super) fn busy(&self, pool: &str) -> Vec<f64> {
        let line = self.busy.get(pool);
        line.map(|line| line.iter().copied().collect())
            .unwrap_or_default()
    }

    /// Returns the observed waits of a pool's processes.
    pub(super) fn sights(&self, pool: &str) -> Sights {
        self.sights_of(|seen| seen.pool == pool)
    }

    /// Returns the observed waits of a pool's processes, in requests of a route.
    pub(super) fn sights_of_route(&self, pool: &str, route: &str) -> Sights {
        self.sights_of(|seen| seen.pool == pool && seen.route.as_deref() == Some(route))
    }

    fn sights_of(&self, is_meant: impl Fn(&Seen) -> bool) -> Sights {
        let mut counts: BTreeMap<Cause, u32> = BTreeMap::new();
        let meant = self.sights.iter().filter(|seen| is_meant(seen));
        for seen in meant.filter(|seen| seen.cause != Cause::Computing) {
            *counts.entry(seen.cause).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    /// Returns the last finding about a process in its present request.
    pub(super) fn last(&self, pid: i32) -> Option<&Finding> {
        self.last.get(&pid).map(|(_, finding)| finding)
    }

    /// Whether this user may look at no process.
    pub(super) fn is_denied(&self) -> bool {
        self.is_denied
    }
}

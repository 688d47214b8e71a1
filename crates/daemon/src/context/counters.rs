//! The pools' counters, which outlive their generations.

use super::generation::Generation;
use super::pools::Pools;
use forkyard_core::master::event::{Ended, GenerationId, PoolId, WorkerId};
use forkyard_core::master::exit_causes::cause;
use forkyard_protocol::counters::{ExitCause, PoolCounters};
use forkyard_rewind::Unrewindable;
use forkyard_scoreboard::minutes::minute_of;
use forkyard_scoreboard::{refusals, slot_reader};
use forkyard_sys::clock;
use std::collections::HashMap;

/// Counters by pool name. Applications count for their application pool, because their names are unbounded.
#[derive(Debug, Default)]
pub(crate) struct AllCounters(HashMap<String, PoolCounters>);

impl AllCounters {
    pub(crate) fn begin(&mut self, pool: &str, from: PoolCounters) {
        self.0.entry(pool.to_owned()).or_insert(from);
    }

    pub(crate) fn end(&mut self, pool: &str) {
        self.0.remove(pool);
    }

    fn knows(&self, pool: &str) -> bool {
        self.0.contains_key(pool)
    }
}

impl Pools {
    pub(crate) fn past(&self, pool: &str) -> PoolCounters {
        self.counters.0.get(pool).cloned().unwrap_or_default()
    }

    /// The pool name under which a generation is counted. An application's pool is named after its application pool,
    /// with a colon in between.
    pub(crate) fn shown_with<'e>(&self, generation: &'e Generation) -> &'e str {
        let own = generation.settings.pool.name.as_str();
        let mut name = own;
        while !self.counters.knows(name) {
            match name.rsplit_once(':') {
                Some((before, _)) => name = before,
                None => return own,
            }
        }
        name
    }

    pub(crate) fn counted_by_ordered(&self) -> HashMap<&str, PoolCounters> {
        let mut all: HashMap<&str, PoolCounters> = HashMap::new();
        let ordered = self.generations.iter().filter(|(_, it)| it.is_ordered());
        let ordered: Vec<_> = ordered.collect();
        if ordered.is_empty() {
            return all;
        }
        let uses = self.cpu_of_workers();
        for (id, generation) in ordered {
            let mut counts = generation.reading().counts;
            counts.gone_cpu_us = uses.get(id).copied().unwrap_or(0);
            counts.numbers = generation.numbers(clock::now());
            all.entry(self.shown_with(generation)).or_default().add(&counts);
        }
        all
    }

    pub(crate) fn counted_with(&self, generation: &Generation) -> Vec<PoolId> {
        let shown = self.shown_with(generation).to_owned();
        let shown = self.by_id.of(&shown).map(|(id, _)| id);
        std::iter::once(generation.pool).chain(shown).collect()
    }

    fn tally_of(&mut self, id: GenerationId) -> Option<&mut PoolCounters> {
        let name = self.shown_with(self.generations.get(&id)?).to_owned();
        self.counters.0.get_mut(&name)
    }

    /// Changes the counters of a worker's pool.
    pub(crate) fn count(&mut self, id: WorkerId, change: impl FnOnce(&mut PoolCounters)) {
        let generation = self.workers.get(&id).map(|worker| worker.generation);
        if let Some(counters) = generation.and_then(|id| self.tally_of(id)) {
            change(counters);
        }
    }

    /// Changes the counters of a pool.
    pub(crate) fn count_pool(&mut self, id: PoolId, change: impl FnOnce(&mut PoolCounters)) {
        let name = self.by_id.get(&id).map(|pool| pool.name.clone());
        if let Some(counters) = name.and_then(|name| self.counters.0.get_mut(&name)) {
            change(counters);
        }
    }

    pub(crate) fn count_exit(&mut self, id: WorkerId, exit: Ended) {
        let worker = self.workers.get(&id);
        let told = worker.and_then(|worker| worker.told);
        let said = worker.and_then(|worker| {
            let page = self.page(worker)?;
            Some((slot_reader::leaving(page), refusals::of_slot(page)))
        });
        let ((said, reason), refused) = said.unwrap_or_default();
        let (cause, code) = cause(told.map(|(told, _)| told), exit, said);
        let reason = reason.filter(|_| cause == ExitCause::NotPutBack);
        let reason = reason.and_then(|reason| Unrewindable::NAMES.get(usize::from(reason)).copied());
        self.count(id, |counters| {
            counters.count_exit(cause, code, reason);
            counters.add_refusals(&refused);
        });
    }

    pub(crate) fn take_over_counts(&mut self, id: GenerationId) {
        let now = clock::now();
        let counted = self.generations.get(&id).map(|it| {
            let mut numbers = it.numbers(now);
            numbers.history.coarsen(minute_of(now));
            PoolCounters {
                numbers,
                lanes: it.lane_numbers().map(Box::new),
                ..it.reading().counts
            }
        });
        if let (Some(counted), Some(counters)) = (counted, self.tally_of(id)) {
            counters.add(&counted);
            counters.numbers.history.coarsen(minute_of(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_s_tally_goes_on_when_it_begins_again() {
        let mut tallies = AllCounters::default();
        tallies.begin("www", PoolCounters::default());
        if let Some(counters) = tallies.0.get_mut("www") {
            counters.requests = 3;
        }
        tallies.begin("www", PoolCounters::default());
        assert_eq!(tallies.0["www"].requests, 3);
        tallies.end("www");
        assert!(!tallies.knows("www"));
    }
}

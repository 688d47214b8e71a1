//! Keeps the pools' tallies: what ends is counted here, and what a generation has counted is taken over when it ends.

use super::Pools;
use super::generation::Generation;
use crate::master::event::{Exit, GenerationId, WorkerId};
use crate::master::tallies::cause;
use crate::scoreboard::tally::Tally;
use std::collections::HashMap;

/// The tallies by the names of the pools that the status shows. What else has generations, applications of application pools,
/// is counted with the pool that it belongs to: there is no end of their names.
#[derive(Debug, Default)]
pub(super) struct Tallies(HashMap<String, Tally>);

impl Tallies {
    /// There is such a pool. If there was one already, its tally goes on.
    pub(super) fn begin(&mut self, pool: &str, from: Tally) {
        self.0.entry(pool.to_owned()).or_insert(from);
    }

    /// There is no pool of this name any more.
    pub(super) fn end(&mut self, pool: &str) {
        self.0.remove(pool);
    }

    /// Whether a pool is counted under its own name.
    fn knows(&self, pool: &str) -> bool {
        self.0.contains_key(pool)
    }
}

impl Pools {
    /// What a pool has counted, without its generations that are there.
    pub(super) fn past(&self, pool: &str) -> Tally {
        self.tallies.0.get(pool).cloned().unwrap_or_default()
    }

    /// The name of the pool that the status shows a generation's numbers with. An application's pool is named after the one that
    /// it belongs to, with a colon between.
    pub(super) fn shown_with<'e>(&self, generation: &'e Generation) -> &'e str {
        let own = generation.settings.pool.name.as_str();
        let mut name = own;
        while !self.tallies.knows(name) {
            match name.rsplit_once(':') {
                Some((before, _)) => name = before,
                None => return own,
            }
        }
        name
    }

    /// What generations have counted that end with this master.
    pub(super) fn counted_by_ordered(&self) -> HashMap<&str, Tally> {
        let mut all: HashMap<&str, Tally> = HashMap::new();
        let ordered = self.generations.iter().filter(|(_, it)| it.is_ordered());
        let ordered: Vec<_> = ordered.collect();
        if ordered.is_empty() {
            return all;
        }
        let uses = self.cpu_of_workers();
        for (id, generation) in ordered {
            let mut counts = generation.reading().counts;
            counts.gone_cpu_us = uses.get(id).copied().unwrap_or(0);
            all.entry(self.shown_with(generation)).or_default().add(&counts);
        }
        all
    }

    fn tally_of(&mut self, id: GenerationId) -> Option<&mut Tally> {
        let name = self.shown_with(self.generations.get(&id)?).to_owned();
        self.tallies.0.get_mut(&name)
    }

    fn tally_of_worker(&mut self, id: WorkerId) -> Option<&mut Tally> {
        let generation = self.workers.get(&id)?.generation;
        self.tally_of(generation)
    }

    /// A worker was made.
    pub(super) fn count_start(&mut self, id: WorkerId) {
        if let Some(tally) = self.tally_of_worker(id) {
            tally.starts += 1;
        }
    }

    /// A worker has used so much processor time when it ended.
    pub(super) fn count_cpu(&mut self, id: WorkerId, micros: u64) {
        if let Some(tally) = self.tally_of_worker(id) {
            tally.gone_cpu_us = tally.gone_cpu_us.saturating_add(micros);
        }
    }

    /// A request took too long.
    pub(super) fn count_terminated(&mut self, id: WorkerId) {
        if let Some(tally) = self.tally_of_worker(id) {
            tally.terminated += 1;
        }
    }

    /// A worker has ended.
    pub(super) fn count_exit(&mut self, id: WorkerId, exit: Exit) {
        let told = self.workers.get(&id).and_then(|worker| worker.told);
        let (cause, code) = cause(told.map(|(told, _)| told), exit);
        if let Some(tally) = self.tally_of_worker(id) {
            tally.count_exit(cause, code);
        }
    }

    /// A generation is about to be forgotten.
    pub(super) fn take_over_counts(&mut self, id: GenerationId) {
        let counted = self.generations.get(&id).map(|it| it.reading().counts);
        if let (Some(counted), Some(tally)) = (counted, self.tally_of(id)) {
            tally.add(&counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_s_tally_goes_on_when_it_begins_again() {
        let mut tallies = Tallies::default();
        tallies.begin("www", Tally::default());
        if let Some(tally) = tallies.0.get_mut("www") {
            tally.requests = 3;
        }
        tallies.begin("www", Tally::default());
        assert_eq!(tallies.0["www"].requests, 3);
        tallies.end("www");
        assert!(!tallies.knows("www"));
    }
}

//! What is left to a next master: the document, and the descriptors by name.

use super::{Executor, WorkerProcess};
use crate::estate::document::{Document, Generation, Pool, Stopping, VERSION, Worker};
use crate::estate::names;
use crate::master::event::WorkerId;
use crate::master::manager::Manager;
use crate::sys::process;
use std::os::fd::{AsFd, BorrowedFd};

impl Executor {
    /// The document as of now.
    pub(in crate::master) fn document(&self, manager: &Manager, stopping: Option<Stopping>) -> Document {
        let ending = self.pools.counted_by_ordered();
        let mut pools: Vec<Pool> = self
            .pools
            .by_id
            .iter()
            // What was ordered ends with this master.
            .filter_map(|(id, pool)| {
                let listener = pool.listener.as_ref()?;
                Some(Pool {
                    id: id.0,
                    name: pool.name.clone(),
                    address: listener.address.clone(),
                    file: listener.file(),
                    serving: manager.serving(*id).map(|generation| generation.0),
                    has_queue: pool.queue.is_some(),
                    tally: {
                        let mut tally = self.pools.past(&pool.name);
                        if let Some(ending) = ending.get(pool.name.as_str()) {
                            tally.add(ending);
                        }
                        tally
                    },
                })
            })
            .collect();
        pools.sort_by_key(|pool| pool.id);
        let mut generations: Vec<Generation> = self
            .pools
            .generations
            .iter()
            .filter(|(_, generation)| generation.resources.is_some() && !generation.is_ordered())
            .map(|(id, generation)| Generation {
                id: id.0,
                pool: generation.pool.0,
                name: generation.settings.pool.name.clone(),
                started: generation.settings.started,
                slots: generation.settings.slots,
                workers: Vec::new(),
                programs: self.helpers.programs_left(*id),
                places: generation
                    .share
                    .as_ref()
                    .map_or(0, |share| u32::try_from(share.processes()).unwrap_or_default()),
            })
            .collect();
        generations.sort_by_key(|generation| generation.id);
        for (id, worker) in &self.pools.workers {
            let at = generations.binary_search_by_key(&worker.generation.0, |generation| generation.id);
            if let (Ok(at), Some(entry)) = (at, entry(*id, worker)) {
                generations[at].workers.push(entry);
            }
        }
        Document {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            master: std::process::id() as i32,
            stopping,
            descriptor_limit: self.context.descriptor_limit,
            last_pool: self.pools.last_pool,
            last_generation: self.pools.last_generation,
            pools,
            generations,
        }
    }

    /// Every descriptor that a next master needs, by name.
    pub(in crate::master) fn descriptors(&self) -> Vec<(String, BorrowedFd<'_>)> {
        let mut all = Vec::new();
        for (id, pool) in &self.pools.by_id {
            let Some(listener) = &pool.listener else {
                continue;
            };
            all.push((names::listener(id.0), &listener.socket));
            if let Some((out, into)) = &pool.queue {
                all.extend(names::queue(id.0).into_iter().zip([out, into]));
            }
        }
        for (id, reporter) in &self.helpers.reporters {
            all.push((names::status(id.0), &reporter.listener.socket));
        }
        for (id, generation) in self.pools.generations.iter().filter(|(_, it)| !it.is_ordered()) {
            if let Some(resources) = &generation.resources {
                let descriptors = resources.descriptors();
                all.extend(names::of_generation(id.0).into_iter().zip(descriptors));
                if let Some(reports) = &resources.reports {
                    let (out, into) = reports.ends();
                    all.extend(names::reports(id.0).into_iter().zip([out, into]));
                }
            }
        }
        for (id, generation) in &self.pools.generations {
            let share = generation.share.iter();
            all.extend(share.map(|share| (names::program_table(id.0), share.memory())));
            all.extend(self.helpers.program_ends(*id));
        }
        for (id, worker) in self
            .pools
            .workers
            .iter()
            .filter(|(_, worker)| worker.channel.is_none())
        {
            all.extend(worker.retire.iter().map(|retire| (names::retire(id.0), retire)));
            let outputs = worker.output.iter().map(|(lines, _)| lines.pipe());
            all.extend(names::output(id.0).into_iter().zip(outputs));
        }
        all.into_iter().map(|(name, fd)| (name, fd.as_fd())).collect()
    }
}

/// What the document says of a worker; nothing of one that does not exist yet, or no more.
fn entry(id: WorkerId, worker: &WorkerProcess) -> Option<Worker> {
    let pid = worker.pid?;
    if worker.start_time.get().is_none() {
        worker.start_time.set(process::start_time(pid));
    }
    Some(Worker {
        id: id.0,
        slot: worker.slot,
        pid,
        start_time: worker.start_time.get()?,
        begun: worker.begun.as_nanos(),
        up: worker.up,
        told: worker.told.map(|(told, when)| (told, when.as_nanos())),
        output: !worker.output.is_empty(),
    })
}

//! Output of a pool's processes that can't be written yet: entries that may continue, and logs without room.

use crate::context::Context;
use crate::context::app_log::Outlet;
use crate::context::lines::Lines;
use crate::context::pools::Pools;
use crate::context::sources::Source;
use crate::preloaders::Preloaders;
use crate::preloaders::output::{outlet_of_preloader, own};
use crate::programs::{Programs, push_line};
use crate::workers::worker_output::{self, note};
use forkyard_base::tick::Tick;
use forkyard_core::master::event::GenerationId;

impl Context {
    pub(crate) fn has_room(&mut self, preloaders: &Preloaders, source: Source) -> bool {
        let Context { pools, services, .. } = self;
        let id = match source {
            Source::Output(worker, _) => pools.workers.get(&worker).map(|worker| worker.generation),
            Source::PreloaderOutput(pid) => preloaders
                .by_pid
                .get(&pid)
                .and_then(|preloader| own(&pools.generations, preloader)),
            Source::ProgramOutput(id, _) => Some(id),
            _ => None,
        };
        let Some(id) = id else { return true };
        let log = pools.app_log(id);
        log.is_none_or(|log| {
            log.has_room_for(pools.generation_name(id), &mut services.sources, id, Some(source))
        })
    }

    pub(crate) fn room_in_app_log(&mut self, id: GenerationId, now: Tick) {
        let Some(log) = self.pools.app_log(id) else {
            return;
        };
        let held = log.release(&mut self.services.sources);
        self.services.again.extend(held);
        self.services.sources.hold_entry(Some(now));
    }

    pub(crate) fn poll_entries(&mut self, preloaders: &mut Preloaders, programs: &mut Programs, now: Tick) {
        if self.services.sources.take_entries_due(now).is_none() {
            return;
        }
        let log = self.services.log;
        let Pools {
            generations, workers, ..
        } = &mut self.pools;
        let sources = &mut self.services.sources;
        let mut next = None;
        let mut end = |lines: &mut Lines,
                       id: Option<GenerationId>,
                       outlet: &Outlet<'_>,
                       besides: &mut dyn FnMut(&[u8])| {
            match lines.due() {
                Some(due) if due <= now => {
                    let held = outlet.file.zip(id);
                    if held.is_none_or(|(file, id)| file.has_room_for(outlet.speaker.pool, sources, id, None))
                    {
                        lines.end_entry(|entry| {
                            outlet.write(entry);
                            besides(entry);
                        });
                    }
                }
                due => next = next.into_iter().chain(due).min(),
            }
        };
        for worker in workers.values_mut() {
            let id = worker.generation;
            let Some(generation) = generations.get(&id) else {
                continue;
            };
            let pid = worker_output::pid(generation, worker);
            let (last_output, is_up) = (&mut worker.last_output, worker.up);
            for (lines, stream) in &mut worker.output {
                let outlet = generation.outlet(log, "child", pid, stream);
                end(lines, Some(id), &outlet, &mut |entry| {
                    note(last_output, is_up, entry);
                });
            }
        }
        for preloader in preloaders.by_pid.values_mut() {
            let id = own(generations, preloader);
            let outlet = outlet_of_preloader(log, generations, preloader);
            if let Some(output) = &mut preloader.output {
                let mut entries = Vec::new();
                end(output, id, &outlet, &mut |entry| {
                    entries.extend_from_slice(entry);
                });
                preloader.note_output(&entries);
            }
        }
        for (id, program) in &mut programs.running {
            let Some(generation) = generations.get(id) else {
                continue;
            };
            for (pid, output, words) in program.outputs() {
                let outlet = generation.outlet(log, "process", pid, "");
                end(output, Some(*id), &outlet, &mut |entry| push_line(words, entry));
            }
        }
        self.services.sources.hold_entry(next);
    }
}

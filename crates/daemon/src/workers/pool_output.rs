//! The output of a pool's processes: into the daemon's log, or into a file of their user.

use super::worker_output::note;
use crate::context::Context;
use crate::context::generation::Generation;
use crate::context::pools::Pools;
use crate::context::sources::{Source, Sources};
use crate::master::frontend::FPM_TITLE;
use crate::output::app_log::{AppLog, Outlet, open, owner};
use crate::output::lines::Lines;
use crate::preloaders::Preloaders;
use crate::preloaders::preloader::Preloader;
use crate::programs::Programs;
use forkyard_base::indexed::Indexed;
use forkyard_base::tick::Tick;
use forkyard_config::sharing;
use forkyard_core::master::event::GenerationId;
use forkyard_host::logs::{Log, LogError, Speaker};
use std::fs::File;

impl Generation {
    /// Opens the application's log, or opens it again; returns whether it has one.
    pub(crate) fn open_app_log(&mut self) -> Result<bool, LogError> {
        if let Some(file) = open(&self.settings)? {
            match &mut self.app_log {
                Some(log) => log.file.turn_to(file),
                None => self.app_log = Some(AppLog::new(file, owner(&self.settings).0)),
            }
        }
        Ok(self.app_log.is_some())
    }

    pub(crate) fn try_open_app_log(&mut self) {
        if let Err(error) = self.open_app_log() {
            let instead = match self.app_log {
                Some(_) => "the old file is written on",
                None => "its output goes to the daemon's log",
            };
            log::error!("[pool {}] app_log: {error}; {instead}", self.settings.pool.name);
        }
    }

    pub(crate) fn open_logs(&mut self, slow: Option<File>) {
        self.take_slow_log(slow);
        self.try_open_app_log();
    }

    /// Closes the socket to the log's writer while no process writes; returns the sources that waited for room.
    pub(crate) fn rest_app_log(&self, sources: &mut Sources) -> Vec<Source> {
        let Some(log) = &self.app_log else {
            return Vec::new();
        };
        log.file.rest();
        log.release(sources)
    }

    /// Whether a multi-line entry is logged as one; php-fpm logs each line.
    pub(crate) fn logs_entries(&self) -> bool {
        let pool = &self.settings.pool;
        pool.title != FPM_TITLE && (pool.logs.decorate_workers_output || self.app_log.is_some())
    }
}

impl Pools {
    /// Opens the applications' logs again. Returns `None` if there are none, otherwise whether all succeeded.
    pub(crate) fn reopen_app_logs(&mut self) -> Option<bool> {
        self.reopen("app_log: ", Generation::open_app_log)
    }

    /// Opens the workers' access logs again. Returns `None` if there are none, otherwise whether all succeeded.
    pub(crate) fn reopen_access_logs(&mut self) -> Option<bool> {
        self.reopen("", Generation::reopen_access_log)
    }

    fn reopen(
        &mut self,
        key: &str,
        open: impl Fn(&mut Generation) -> Result<bool, LogError>,
    ) -> Option<bool> {
        let mut outcome = None;
        for generation in self.generations.values_mut() {
            match open(generation) {
                Ok(false) => {}
                Ok(true) => outcome = outcome.or(Some(true)),
                Err(error) => {
                    log::error!("[pool {}] {key}{error}", generation.settings.pool.name);
                    outcome = Some(false);
                }
            }
        }
        outcome
    }

    fn app_log(&self, id: GenerationId) -> Option<&AppLog> {
        self.generations.get(&id)?.app_log.as_ref()
    }

    pub(crate) fn close_app_logs(&mut self) {
        for generation in self.generations.values_mut() {
            generation.app_log = None;
        }
    }

    pub(crate) fn logs_entries(&self, id: GenerationId) -> bool {
        self.generations.get(&id).is_some_and(Generation::logs_entries)
    }
}

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
            let pid = super::worker_output::pid(generation, worker);
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
            for (pid, output) in program.outputs() {
                let outlet = generation.outlet(log, "process", pid, "");
                end(output, Some(*id), &outlet, &mut |_| {});
            }
        }
        self.services.sources.hold_entry(next);
    }
}

impl Generation {
    pub(crate) fn outlet<'g>(
        &'g self,
        log: &'static Log,
        kind: &'g str,
        pid: i32,
        stream: &'g str,
    ) -> Outlet<'g> {
        let pool = &self.settings.pool;
        Outlet {
            log,
            file: self.app_log.as_ref(),
            speaker: Speaker {
                pool: &pool.name,
                kind,
                pid,
                stream,
                decorate: pool.logs.decorate_workers_output,
            },
        }
    }
}

pub(crate) fn outlet_of_preloader<'g>(
    log: &'static Log,
    generations: &'g Indexed<GenerationId, Generation>,
    preloader: &Preloader,
) -> Outlet<'g> {
    let own = own(generations, preloader).and_then(|id| generations.get(&id));
    Outlet {
        log,
        file: own.and_then(|it| it.app_log.as_ref()),
        speaker: Speaker {
            pool: name_of_preloader(generations, preloader),
            kind: "preloader",
            pid: preloader.pid,
            stream: "",
            decorate: true,
        },
    }
}

/// Its pool's name in the log.
pub(crate) fn name_of_preloader<'g>(
    generations: &'g Indexed<GenerationId, Generation>,
    preloader: &Preloader,
) -> &'g str {
    if preloader.is_zygote() {
        return sharing::ZYGOTE;
    }
    let own = own(generations, preloader).and_then(|id| generations.get(&id));
    own.map_or("", |it| it.settings.pool.name.as_str())
}

/// The latest generation of a preloader; `None` for a zygote.
fn own(generations: &Indexed<GenerationId, Generation>, preloader: &Preloader) -> Option<GenerationId> {
    let members = (!preloader.is_zygote()).then(|| preloader.members.all())?;
    members.filter(|id| generations.contains_key(id)).last()
}

//! Where what a pool's processes write goes: to the daemon's log, or to a file that is their user's.

use super::generation::Generation;
use super::output::Lines;
use super::preloader::Preloader;
use super::worker_output::note;
use super::{Executor, GenerationId, Pools};
use crate::config::sharing;
use crate::indexed::Indexed;
use crate::logs::{Log, LogError, Speaker};
use crate::master::frontend::FPM_TITLE;
use crate::sys::file::{open_in_time, open_log_for, open_owned_log};
use crate::sys::identity;
use crate::tick::Tick;
use crate::worker::Settings;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Bytes of a line in a log of its own before it is wrapped.
const LINE_BYTES: usize = 4096;

/// Where the lines go that one process writes to its standard output and error.
#[derive(Debug)]
pub(super) struct Outlet<'a> {
    pub(super) log: &'static Log,
    /// The application's own log.
    pub(super) file: Option<&'a File>,
    pub(super) speaker: Speaker<'a>,
}

impl Outlet<'_> {
    /// Most bytes of a line; a longer one is wrapped.
    pub(super) fn room(&self) -> usize {
        match self.file {
            Some(_) => LINE_BYTES,
            None => self.log.room(&self.speaker),
        }
    }

    /// Writes a line, or several that belong together.
    pub(super) fn write(&self, entry: &[u8]) {
        let Some(mut file) = self.file else {
            return self.log.write_output(&self.speaker, entry);
        };
        // A full disk must not stop the daemon; what can't be written is lost, as it is for the application itself.
        let _ = file.write_all(&[entry, b"\n"].concat());
    }
}

/// Opens the log of what a pool's processes write, if it has one of its own.
pub(super) fn open(settings: &Settings) -> Result<Option<File>, LogError> {
    let opened = try_open(settings);
    opened
        .map(|(path, file)| file.map_err(|error| LogError::new(path, error)))
        .transpose()
}

/// Whether it can be opened. One that is not opened in time is no error: a tenant could keep the others from a reload by that.
pub(super) fn check(settings: &Settings) -> Result<(), LogError> {
    match try_open(settings) {
        Some((path, Err(error))) if error.kind() != io::ErrorKind::TimedOut => {
            Err(LogError::new(path, error))
        }
        Some(_) | None => Ok(()),
    }
}

fn try_open(settings: &Settings) -> Option<(&Path, io::Result<File>)> {
    let pool = &settings.pool;
    // Each application has a file of its own where the setting is a template.
    let log = pool.app_log.as_ref().filter(|_| pool.applications.is_none())?;
    let (uid, gid) = match &settings.identity {
        Some(identity) => (identity.uid, identity.gid),
        None => (identity::own_user(), nix::unistd::Gid::effective().as_raw()),
    };
    let open = if log.is_owners {
        open_owned_log
    } else {
        open_log_for
    };
    let file = open_in_time(&format!("user {uid}"), || open(&log.path, uid, gid));
    Some((log.path.as_path(), file))
}

impl Generation {
    /// Opens its application's log, or opens it anew. True: it has one.
    pub(super) fn open_app_log(&mut self) -> Result<bool, LogError> {
        if let Some(file) = open(&self.settings)? {
            self.app_log = Some(file);
        }
        Ok(self.app_log.is_some())
    }

    /// The same; if it can't be opened, what was there before goes on.
    pub(super) fn try_open_app_log(&mut self) {
        if let Err(error) = self.open_app_log() {
            let instead = match self.app_log {
                Some(_) => "the old file is written on",
                None => "what it writes is in the daemon's log",
            };
            log::error!("[pool {}] app_log: {error}; {instead}", self.settings.pool.name);
        }
    }

    /// Whether lines that belong together are logged as one: not where php-fpm logs each by itself.
    pub(super) fn logs_entries(&self) -> bool {
        let pool = &self.settings.pool;
        pool.title != FPM_TITLE && (pool.decorate_workers_output || self.app_log.is_some())
    }
}

impl Pools {
    /// Opens the applications' logs anew. `None`: there are none; else whether all of them could be.
    pub(in crate::master) fn reopen_app_logs(&mut self) -> Option<bool> {
        let mut outcome = None;
        for generation in self.generations.values_mut() {
            match generation.open_app_log() {
                Ok(false) => {}
                Ok(true) => outcome = outcome.or(Some(true)),
                Err(error) => {
                    log::error!("[pool {}] app_log: {error}", generation.settings.pool.name);
                    outcome = Some(false);
                }
            }
        }
        outcome
    }

    /// Whether a generation's output is logged in entries.
    pub(super) fn logs_entries(&self, id: GenerationId) -> bool {
        self.generations.get(&id).is_some_and(Generation::logs_entries)
    }
}

impl Executor {
    /// Writes the entries to which nothing was added for a while.
    pub(in crate::master) fn poll_entries(&mut self, now: Tick) {
        if self.context.sources.take_entries_due(now).is_none() {
            return;
        }
        let log = self.context.log;
        let Pools {
            generations, workers, ..
        } = &mut self.pools;
        let mut next = None;
        let mut end =
            |lines: &mut Lines, outlet: &Outlet<'_>, besides: &mut dyn FnMut(&[u8])| match lines.due() {
                Some(due) if due <= now => lines.end_entry(|entry| {
                    outlet.write(entry);
                    besides(entry);
                }),
                due => next = next.into_iter().chain(due).min(),
            };
        for worker in workers.values_mut() {
            let Some(generation) = generations.get(&worker.generation) else {
                continue;
            };
            let pid = super::worker_output::pid(generation, worker);
            let (first_output, is_up) = (&mut worker.first_output, worker.up);
            for (lines, stream) in &mut worker.output {
                end(
                    lines,
                    &generation.outlet(log, "child", pid, stream),
                    &mut |entry| {
                        note(first_output, is_up, entry);
                    },
                );
            }
        }
        for preloader in self.helpers.preloaders.values_mut() {
            let (name, file) = whose(generations, preloader);
            if let Some(output) = &mut preloader.output {
                let mut entries = Vec::new();
                let outlet = outlet_of_preloader(log, &name, file, preloader.pid);
                end(output, &outlet, &mut |entry| entries.extend_from_slice(entry));
                preloader.note_output(&entries);
            }
        }
        for (id, program) in &mut self.helpers.programs {
            let Some(generation) = generations.get(id) else {
                continue;
            };
            for (pid, output) in program.outputs() {
                end(output, &generation.outlet(log, "process", pid, ""), &mut |_| {});
            }
        }
        self.context.sources.hold_entry(next);
    }
}

impl Generation {
    /// Where one of its processes writes to.
    pub(super) fn outlet<'g>(
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
                decorate: pool.decorate_workers_output,
            },
        }
    }
}

/// Where the lines of a preloader go.
pub(super) fn outlet_of_preloader<'a>(
    log: &'static Log,
    name: &'a str,
    file: Option<&'a File>,
    pid: i32,
) -> Outlet<'a> {
    Outlet {
        log,
        file,
        speaker: Speaker {
            pool: name,
            kind: "preloader",
            pid,
            stream: "",
            decorate: true,
        },
    }
}

/// Whose a preloader is, and that pool's log.
pub(super) fn whose<'g>(
    generations: &'g Indexed<GenerationId, Generation>,
    preloader: &Preloader,
) -> (String, Option<&'g File>) {
    if preloader.is_zygote() {
        return (sharing::ZYGOTE.to_owned(), None);
    }
    let own = preloader
        .members
        .all()
        .filter_map(|id| generations.get(&id))
        .last();
    let name = own.map(|it| it.settings.pool.name.clone());
    (name.unwrap_or_default(), own.and_then(|it| it.app_log.as_ref()))
}

//! The output of a pool's processes: into the daemon's log, or into a file of their user.

use super::context::Context;
use super::generation::Generation;
use super::output::Lines;
use super::pools::Pools;
use super::preloader::Preloader;
use super::preloaders::Preloaders;
use super::programs::Programs;
use super::sources::{Source, Sources};
use super::worker_output::note;
use crate::master::frontend::FPM_TITLE;
use forkyard_base::indexed::Indexed;
use forkyard_base::tick::Tick;
use forkyard_config::sharing;
use forkyard_core::master::event::GenerationId;
use forkyard_host::logs::{Log, LogError, Speaker};
use forkyard_sys::file::{open_in_time, open_log_for, open_owned_log};
use forkyard_sys::identity;
use forkyard_sys::process::{Appender, MOST_APPENDED};
use forkyard_worker::Settings;
use mio::Interest;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

const LINE_BYTES: usize = 4096;

/// Bytes that are appended at once; more than an entry.
const PIECE_BYTES: usize = MOST_APPENDED / 2;

/// The output file of a pool's processes, which their user owns. The user can hold the file's lock; then their output
/// is not read.
#[derive(Debug)]
pub(super) struct AppLog {
    file: Appender,
    lines: RefCell<Vec<u8>>,
    has_lost: Cell<bool>,
    held: RefCell<Held>,
}

#[derive(Debug, Default)]
struct Held {
    socket: Option<Rc<OwnedFd>>,
    sources: Vec<Source>,
}

impl AppLog {
    fn new(file: File, whose: u32) -> AppLog {
        AppLog {
            file: Appender::new(file, whose),
            lines: RefCell::default(),
            has_lost: Cell::new(false),
            held: RefCell::default(),
        }
    }

    fn write(&self, entry: &[u8], pool: &str) {
        let is_full = {
            let mut lines = self.lines.borrow_mut();
            lines.extend_from_slice(entry);
            lines.push(b'\n');
            lines.len() >= PIECE_BYTES
        };
        if is_full {
            self.flush(pool);
        }
    }

    fn flush(&self, pool: &str) {
        let lines = self.lines.take();
        if lines.is_empty() {
            return;
        }
        // A full disk must not stop the daemon: the output is lost.
        let result = self.file.append(&lines);
        let lost = [io::ErrorKind::WouldBlock, io::ErrorKind::BrokenPipe];
        let is_lost = result.is_err_and(|error| lost.contains(&error.kind()));
        if is_lost && !self.has_lost.replace(true) {
            log::warn!(
                "[pool {pool}] app_log: a process's last output is lost, because the file is not written to in \
                 time"
            );
        }
    }

    fn has_room_for(
        &self,
        pool: &str,
        sources: &mut Sources,
        id: GenerationId,
        source: Option<Source>,
    ) -> bool {
        if self.file.is_ready() {
            self.has_lost.set(false);
            return true;
        }
        let mut held = self.held.borrow_mut();
        if held.socket.is_none() {
            held.socket = self.file.socket();
            let room = Source::AppLogRoom(id);
            let watched = held.socket.as_ref();
            let watched = watched.map(|socket| sources.watch_for(socket, room, Interest::WRITABLE));
            if let Some(Err(error)) = watched {
                log::error!("[pool {pool}] app_log: {error}");
                held.socket = None;
                return true;
            }
        }
        let is_new = source.filter(|source| !held.sources.contains(source));
        held.sources.extend(is_new);
        false
    }

    /// There may be room; returns the sources that waited for it.
    pub(super) fn release(&self, sources: &mut Sources) -> Vec<Source> {
        let held = self.held.take();
        if let Some(socket) = held.socket {
            sources.forget(&socket);
        }
        held.sources
    }
}

#[derive(Debug)]
pub(super) struct Outlet<'a> {
    pub(super) log: &'static Log,
    pub(super) file: Option<&'a AppLog>,
    pub(super) speaker: Speaker<'a>,
}

impl Outlet<'_> {
    /// The longest line in bytes; a longer one is wrapped.
    pub(super) fn room(&self) -> usize {
        match self.file {
            Some(_) => LINE_BYTES,
            None => self.log.room(&self.speaker),
        }
    }

    pub(super) fn write(&self, entry: &[u8]) {
        match self.file {
            Some(file) => file.write(entry, self.speaker.pool),
            None => self.log.write_output(&self.speaker, entry),
        }
    }
}

impl Drop for Outlet<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file {
            file.flush(self.speaker.pool);
        }
    }
}

fn open(settings: &Settings) -> Result<Option<File>, LogError> {
    let opened = try_open(settings);
    opened
        .map(|(path, file)| file.map_err(|error| LogError::new(path, error)))
        .transpose()
}

/// Whether the file can be opened. A timeout is no error, because a tenant could block the others' reload with it.
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
    // With a template, each application has its own file.
    let log = pool
        .logs
        .app_log
        .as_ref()
        .filter(|_| pool.applications.is_none())?;
    let (uid, gid) = owner(settings);
    let open = if log.is_owners {
        open_owned_log
    } else {
        open_log_for
    };
    let file = open_in_time(&format!("user {uid}"), || open(&log.path, uid, gid));
    Some((log.path.as_path(), file))
}

pub(super) fn owner(settings: &Settings) -> (u32, u32) {
    match &settings.identity {
        Some(identity) => (identity.uid, identity.gid),
        None => (identity::own_user(), nix::unistd::Gid::effective().as_raw()),
    }
}

impl Generation {
    /// Opens the application's log, or opens it again; returns whether it has one.
    pub(super) fn open_app_log(&mut self) -> Result<bool, LogError> {
        if let Some(file) = open(&self.settings)? {
            match &mut self.app_log {
                Some(log) => log.file.turn_to(file),
                None => self.app_log = Some(AppLog::new(file, owner(&self.settings).0)),
            }
        }
        Ok(self.app_log.is_some())
    }

    pub(super) fn try_open_app_log(&mut self) {
        if let Err(error) = self.open_app_log() {
            let instead = match self.app_log {
                Some(_) => "the old file is written on",
                None => "its output goes to the daemon's log",
            };
            log::error!("[pool {}] app_log: {error}; {instead}", self.settings.pool.name);
        }
    }

    pub(super) fn open_logs(&mut self, slow: Option<File>) {
        self.take_slow_log(slow);
        self.try_open_app_log();
    }

    /// Closes the socket to the log's writer while no process writes; returns the sources that waited for room.
    pub(super) fn rest_app_log(&self, sources: &mut Sources) -> Vec<Source> {
        let Some(log) = &self.app_log else {
            return Vec::new();
        };
        log.file.rest();
        log.release(sources)
    }

    /// Whether a multi-line entry is logged as one; php-fpm logs each line.
    pub(super) fn logs_entries(&self) -> bool {
        let pool = &self.settings.pool;
        pool.title != FPM_TITLE && (pool.logs.decorate_workers_output || self.app_log.is_some())
    }
}

impl Pools {
    /// Opens the applications' logs again. Returns `None` if there are none, otherwise whether all succeeded.
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

    fn app_log(&self, id: GenerationId) -> Option<&AppLog> {
        self.generations.get(&id)?.app_log.as_ref()
    }

    pub(in crate::master) fn close_app_logs(&mut self) {
        for generation in self.generations.values_mut() {
            generation.app_log = None;
        }
    }

    pub(super) fn logs_entries(&self, id: GenerationId) -> bool {
        self.generations.get(&id).is_some_and(Generation::logs_entries)
    }
}

impl Context {
    pub(super) fn has_room(&mut self, preloaders: &Preloaders, source: Source) -> bool {
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

    pub(super) fn room_in_app_log(&mut self, id: GenerationId, now: Tick) {
        let Some(log) = self.pools.app_log(id) else {
            return;
        };
        let held = log.release(&mut self.services.sources);
        self.services.again.extend(held);
        self.services.sources.hold_entry(Some(now));
    }

    pub(in crate::master) fn poll_entries(
        &mut self,
        preloaders: &mut Preloaders,
        programs: &mut Programs,
        now: Tick,
    ) {
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
            let (first_output, is_up) = (&mut worker.first_output, worker.up);
            for (lines, stream) in &mut worker.output {
                let outlet = generation.outlet(log, "child", pid, stream);
                end(lines, Some(id), &outlet, &mut |entry| {
                    note(first_output, is_up, entry);
                });
            }
        }
        for preloader in preloaders.by_pid.values_mut() {
            let id = own(generations, preloader);
            let (name, file) = whose(generations, preloader);
            if let Some(output) = &mut preloader.output {
                let mut entries = Vec::new();
                let outlet = outlet_of_preloader(log, &name, file, preloader.pid);
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
                decorate: pool.logs.decorate_workers_output,
            },
        }
    }
}

pub(super) fn outlet_of_preloader<'a>(
    log: &'static Log,
    name: &'a str,
    file: Option<&'a AppLog>,
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

pub(super) fn whose<'g>(
    generations: &'g Indexed<GenerationId, Generation>,
    preloader: &Preloader,
) -> (String, Option<&'g AppLog>) {
    if preloader.is_zygote() {
        return (sharing::ZYGOTE.to_owned(), None);
    }
    let own = own(generations, preloader).and_then(|id| generations.get(&id));
    let name = own.map(|it| it.settings.pool.name.clone());
    (name.unwrap_or_default(), own.and_then(|it| it.app_log.as_ref()))
}

/// The latest generation of a preloader; `None` for a zygote.
fn own(generations: &Indexed<GenerationId, Generation>, preloader: &Preloader) -> Option<GenerationId> {
    let members = (!preloader.is_zygote()).then(|| preloader.members.all())?;
    members.filter(|id| generations.contains_key(id)).last()
}

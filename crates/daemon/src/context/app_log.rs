//! A file for the output of a pool's processes, which their user owns.

use super::sources::{Source, Sources};
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
pub(crate) struct AppLog {
    pub(crate) file: Appender,
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
    pub(crate) fn new(file: File, whose: u32) -> AppLog {
        AppLog {
            file: Appender::new(file, whose),
            lines: RefCell::default(),
            has_lost: Cell::new(false),
            held: RefCell::default(),
        }
    }

    pub(crate) fn write(&self, entry: &[u8], pool: &str) {
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

    pub(crate) fn flush(&self, pool: &str) {
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

    pub(crate) fn has_room_for(
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
    pub(crate) fn release(&self, sources: &mut Sources) -> Vec<Source> {
        let held = self.held.take();
        if let Some(socket) = held.socket {
            sources.forget(&socket);
        }
        held.sources
    }
}

#[derive(Debug)]
pub(crate) struct Outlet<'a> {
    pub(crate) log: &'static Log,
    pub(crate) file: Option<&'a AppLog>,
    pub(crate) speaker: Speaker<'a>,
}

impl Outlet<'_> {
    /// The longest line in bytes; a longer one is wrapped.
    pub(crate) fn room(&self) -> usize {
        match self.file {
            Some(_) => LINE_BYTES,
            None => self.log.room(&self.speaker),
        }
    }

    pub(crate) fn write(&self, entry: &[u8]) {
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

pub(crate) fn open(settings: &Settings) -> Result<Option<File>, LogError> {
    let Some((path, file)) = try_open(settings) else {
        return Ok(None);
    };
    file.map(Some).map_err(|error| LogError::new(path, error))
}

/// Whether the file can be opened. A timeout is no error, because a tenant could block the others' reload with it.
pub(crate) fn check(settings: &Settings) -> Result<(), LogError> {
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
    let log = pool.logs.app_log.as_ref();
    let log = log.filter(|_| pool.applications.is_none())?;
    let (uid, gid) = owner(settings);
    let open = match log.is_owners {
        true => open_owned_log,
        false => open_log_for,
    };
    let file = open_in_time(&format!("user {uid}"), || open(&log.path, uid, gid));
    Some((log.path.as_path(), file))
}

pub(crate) fn owner(settings: &Settings) -> (u32, u32) {
    match &settings.identity {
        Some(identity) => (identity.uid, identity.gid),
        None => (identity::own_user(), nix::unistd::Gid::effective().as_raw()),
    }
}

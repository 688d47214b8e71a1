//! The output of a pool's processes: into the daemon's log, or into a file of their user.

use crate::FPM_TITLE;
use crate::context::app_log::{AppLog, Outlet, open, owner};
use crate::context::generation::Generation;
use crate::context::pools::Pools;
use crate::context::sources::{Source, Sources};
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
    /// Opens the applications' logs again. Returns whether there are any, or the failures.
    pub(crate) fn reopen_app_logs(&mut self) -> Result<bool, Vec<String>> {
        self.reopen("app_log: ", Generation::open_app_log)
    }

    /// Opens the workers' access logs again. Returns whether there are any, or the failures.
    pub(crate) fn reopen_access_logs(&mut self) -> Result<bool, Vec<String>> {
        self.reopen("", Generation::reopen_access_log)
    }

    fn reopen(
        &mut self,
        key: &str,
        open: impl Fn(&mut Generation) -> Result<bool, LogError>,
    ) -> Result<bool, Vec<String>> {
        let (mut is_any, mut failures) = (false, Vec::new());
        for generation in self.generations.values_mut() {
            match open(generation) {
                Ok(is_there) => is_any |= is_there,
                Err(error) => {
                    let failure = format!("[pool {}] {key}{error}", generation.settings.pool.name);
                    log::error!("{failure}");
                    failures.push(failure);
                }
            }
        }
        match failures.is_empty() {
            true => Ok(is_any),
            false => Err(failures),
        }
    }

    pub(crate) fn app_log(&self, id: GenerationId) -> Option<&AppLog> {
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

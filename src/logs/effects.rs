//! Opens, writes and reopens the log.

use super::line::format;
use crate::config::{LogLevel, LogTarget};
use crate::sys::clock;
use log::{Level, LevelFilter, Metadata, Record};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The log can't be opened.
#[derive(Debug)]
pub struct LogError {
    path: PathBuf,
    source: io::Error,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to open error_log {}: {}", self.path.display(), self.source)
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The daemon's log. There is one in a process.
#[derive(Debug)]
pub struct Log {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    target: LogTarget,
    file: Option<File>,
    level: LogLevel,
}

static LOG: OnceLock<Log> = OnceLock::new();

impl Log {
    /// The process' log: standard error, from NOTICE up, until [`Log::direct`] says otherwise. Installs it as the
    /// destination of the `log` crate's records.
    pub fn install() -> &'static Log {
        let log = LOG.get_or_init(|| {
            let state = State { target: LogTarget::Stderr, file: None, level: LogLevel::Notice };
            Log { state: Mutex::new(state) }
        });
        if log::set_logger(log).is_ok() {
            log::set_max_level(LevelFilter::Debug);
        }
        log
    }

    /// Sends the log elsewhere. On failure it goes on where it was.
    pub fn direct(&self, target: &LogTarget, level: LogLevel) -> Result<(), LogError> {
        let file = open(target)?;
        let mut state = self.lock();
        *state = State { target: target.clone(), file, level };
        Ok(())
    }

    /// Opens a file anew, after it was moved away. On failure the log goes on in the old one.
    pub fn reopen(&self) -> Result<(), LogError> {
        let mut state = self.lock();
        state.file = open(&state.target)?;
        Ok(())
    }

    /// Writes a line with one system call.
    pub fn write(&self, level: LogLevel, text: &str) {
        let mut state = self.lock();
        if level < state.level {
            return;
        }
        let line = format(clock::epoch_seconds(), clock::utc_offset_seconds(), level, text);
        // A log that can't be written to must not stop the daemon, and there is nowhere to say so.
        let _ = match &mut state.file {
            Some(file) => file.write_all(line.as_bytes()),
            None => io::stderr().write_all(line.as_bytes()),
        };
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(target: &LogTarget) -> Result<Option<File>, LogError> {
    match target {
        LogTarget::Stderr => Ok(None),
        LogTarget::File(path) => open_file(path).map(Some),
    }
}

fn open_file(path: &Path) -> Result<File, LogError> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    file.map_err(|source| LogError { path: path.to_owned(), source })
}

impl log::Log for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let level = match record.level() {
            Level::Error => LogLevel::Error,
            Level::Warn => LogLevel::Warning,
            Level::Info => LogLevel::Notice,
            Level::Debug | Level::Trace => LogLevel::Debug,
        };
        self.write(level, &record.args().to_string());
    }

    fn flush(&self) {}
}

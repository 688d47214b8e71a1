//! Opens, writes and reopens the log.

use super::line::format;
use crate::config::{LogLevel, LogTarget};
use crate::sys::file::open_log;
use crate::sys::{clock, socket};
use log::{Level, LevelFilter, Metadata, Record};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
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
        write!(
            f,
            "failed to open error_log {}: {}",
            self.path.display(),
            self.source
        )
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
    sink: Sink,
    level: LogLevel,
}

#[derive(Debug)]
enum Sink {
    Stderr,
    File(File),
    /// The master, which writes the line with the pool's name.
    Master(OwnedFd),
}

/// Bytes of one message to the master; longer ones are cut.
const MESSAGE_BYTES: usize = 2048;

static LOG: OnceLock<Log> = OnceLock::new();

impl Log {
    /// The process' log: standard error, from NOTICE up, until [`Log::direct`] says otherwise. Installs it as the
    /// destination of the `log` crate's records.
    pub fn install() -> &'static Log {
        let log = LOG.get_or_init(|| {
            let state = State {
                target: LogTarget::Stderr,
                sink: Sink::Stderr,
                level: LogLevel::Notice,
            };
            Log {
                state: Mutex::new(state),
            }
        });
        if log::set_logger(log).is_ok() {
            log::set_max_level(LevelFilter::Debug);
        }
        log
    }

    /// Sends the log elsewhere. On failure it goes on where it was.
    pub fn direct(&self, target: &LogTarget, level: LogLevel) -> Result<(), LogError> {
        let sink = open(target)?;
        *self.lock() = State {
            target: target.clone(),
            sink,
            level,
        };
        Ok(())
    }

    /// From now on this process is a worker or a preloader: what it has to say goes to the master. What was open
    /// before is forgotten and not closed, since its descriptor may be something else's by now.
    pub fn send_to_master(&self, channel: OwnedFd) {
        let mut state = self.lock();
        std::mem::forget(std::mem::replace(&mut state.sink, Sink::Master(channel)));
    }

    /// Opens a file anew, after it was moved away. On failure the log goes on in the old one.
    pub fn reopen(&self) -> Result<(), LogError> {
        let mut state = self.lock();
        state.sink = open(&state.target)?;
        Ok(())
    }

    /// Writes a line with one system call.
    pub fn write(&self, level: LogLevel, text: &str) {
        let mut state = self.lock();
        if level < state.level {
            return;
        }
        let line = || format(clock::epoch_seconds(), clock::utc_offset_seconds(), level, text);
        // A log that can't be written to must not stop the daemon, and there is nowhere to say so.
        let _ = match &mut state.sink {
            Sink::Stderr => io::stderr().write_all(line().as_bytes()),
            Sink::File(file) => file.write_all(line().as_bytes()),
            Sink::Master(channel) => {
                let _ = socket::send(channel.as_fd(), &message(level, text));
                Ok(())
            }
        };
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(target: &LogTarget) -> Result<Sink, LogError> {
    match target {
        LogTarget::Stderr => Ok(Sink::Stderr),
        LogTarget::File(path) => open_file(path).map(Sink::File),
    }
}

fn open_file(path: &Path) -> Result<File, LogError> {
    open_log(path).map_err(|source| LogError {
        path: path.to_owned(),
        source,
    })
}

const LEVELS: [LogLevel; 5] = [
    LogLevel::Debug,
    LogLevel::Notice,
    LogLevel::Warning,
    LogLevel::Error,
    LogLevel::Alert,
];

/// A line for the master: the level's digit, the text, a newline.
fn message(level: LogLevel, text: &str) -> Vec<u8> {
    let digit = LEVELS.iter().position(|l| *l == level).unwrap_or(0) as u8 + b'1';
    let mut line = vec![digit];
    line.extend(text.bytes().map(|byte| if byte == b'\n' { b' ' } else { byte }));
    line.truncate(MESSAGE_BYTES - 1);
    line.push(b'\n');
    line
}

/// Takes a line apart that a worker, or somebody in its place, sent.
pub fn parse_message(line: &[u8]) -> (LogLevel, String) {
    let level = line
        .first()
        .and_then(|digit| LEVELS.get(usize::from(digit.wrapping_sub(b'1'))));
    match level {
        Some(level) => (*level, String::from_utf8_lossy(&line[1..]).into_owned()),
        None => (LogLevel::Warning, String::from_utf8_lossy(line).into_owned()),
    }
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

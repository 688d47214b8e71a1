//! Opens, writes and reopens the log.

use super::diagnostics;
use super::gathered::{Cause, Gathered};
use super::line::{self, About, shown};
use forkyard_base::remedy;
use forkyard_base::tick::Tick;
use forkyard_config::{Config, Global, LogFormat, LogLevel, LogTarget};
use forkyard_sys::file::{OwnStream, open_log};
use forkyard_sys::{clock, socket};
use log::{Level, LevelFilter, Metadata, Record};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The log can't be opened.
#[derive(Debug, thiserror::Error)]
#[error("failed to open {path}: {source}")]
pub struct LogError {
    path: PathBuf,
    source: io::Error,
}

impl LogError {
    /// Creates an error about the log at `path`.
    pub fn new(path: &Path, source: io::Error) -> LogError {
        LogError {
            path: path.to_owned(),
            source,
        }
    }

    /// A hint, to end a sentence.
    pub fn remedy(&self) -> String {
        remedy::of_file(&self.path, self.source.kind())
    }
}

/// The process's log.
#[derive(Debug)]
pub struct Log {
    state: Mutex<LogState>,
    diagnostics: Option<env_logger::Logger>,
}

#[derive(Debug)]
struct LogState {
    target: LogTarget,
    sink: Sink,
    is_open: bool,
    level: LogLevel,
    format: LogFormat,
    limit: usize,
    gathered: Option<Gathered>,
}

#[derive(Debug)]
enum Sink {
    Stderr,
    File(File),
    /// A socket that never blocks.
    Syslog(UnixDatagram, PathBuf),
    /// Adds the pool's name.
    Master(OwnedFd),
}

/// The worker that wrote the output.
#[derive(Debug, Clone, Copy)]
pub struct Speaker<'a> {
    pub pool: &'a str,
    /// `child`, `process` or `preloader`.
    pub kind: &'a str,
    pub pid: i32,
    /// `stdout` or `stderr`; empty for both.
    pub stream: &'a str,
    /// Prefix the output with these fields.
    pub decorate: bool,
}

/// Longer messages are truncated.
const MESSAGE_BYTES: usize = 2048;
/// php-fpm's default for `log_limit`.
const LIMIT_BYTES: usize = 1024;
const LEAST_ROOM: usize = 64;
const SYSLOG_SOCKET: &str = "/dev/log";
const SYSLOG_VARIABLE: &str = "FORKYARD_SYSLOG_SOCKET";

static LOG: OnceLock<Log> = OnceLock::new();

impl Log {
    /// Installs the log for the `log` crate: standard error from NOTICE up, until [`Log::direct`] changes it.
    pub fn install() -> &'static Log {
        let log = LOG.get_or_init(|| {
            let state = LogState {
                target: LogTarget::Stderr,
                sink: Sink::Stderr,
                is_open: false,
                level: LogLevel::Notice,
                format: LogFormat::Text,
                limit: LIMIT_BYTES,
                gathered: None,
            };
            Log {
                state: Mutex::new(state),
                diagnostics: diagnostics::wanted(),
            }
        });
        if log::set_logger(log).is_ok() {
            let wanted = log.diagnostics.as_ref().map(env_logger::Logger::filter);
            log::set_max_level(wanted.unwrap_or(LevelFilter::Debug).max(LevelFilter::Debug));
        }
        log
    }

    /// Changes destination and level. On failure nothing changes.
    ///
    /// # Errors
    /// The log can't be opened.
    pub fn direct(&self, target: &LogTarget, level: LogLevel) -> Result<(), LogError> {
        let sink = open(target)?;
        let mut state = self.lock();
        state.target = target.clone();
        state.sink = sink;
        state.is_open = true;
        state.level = level;
        Ok(())
    }

    /// Applies a configuration's destination and format. On failure nothing changes.
    ///
    /// # Errors
    /// The log can't be opened.
    pub fn follow(&self, global: &Global) -> Result<(), LogError> {
        self.direct(&global.error_log, global.log_level)?;
        self.write_as(global.log_format);
        self.lock().limit = global.log_limit;
        Ok(())
    }

    /// Sets the lowest severity that is written.
    pub fn say_from(&self, level: LogLevel) {
        self.lock().level = level;
    }

    /// Sets the line format.
    pub fn write_as(&self, format: LogFormat) {
        self.lock().format = format;
    }

    /// Sends the log to the master. Forgets the old destination without closing it, because its descriptor may have
    /// been reused.
    pub fn send_to_master(&self, channel: OwnedFd) {
        let mut state = self.lock();
        std::mem::forget(std::mem::replace(&mut state.sink, Sink::Master(channel)));
        state.gathered = None;
        state.is_open = true;
    }

    /// Switches a worker or preloader to another channel and closes the old one.
    pub fn turn_to_master(&self, channel: OwnedFd) {
        self.lock().sink = Sink::Master(channel);
    }

    /// Reopens a file that was moved away. On failure the old one stays in use.
    ///
    /// # Errors
    /// The log can't be opened.
    pub fn reopen(&self) -> Result<(), LogError> {
        let mut state = self.lock();
        state.sink = open(&state.target)?;
        Ok(())
    }

    /// Starts rate limiting lines that pools cause; call [`Log::end_gathered`] to log the summaries.
    pub fn gather(&self) {
        self.lock().gathered = Some(Gathered::default());
    }

    /// When to call [`Log::end_gathered`].
    pub fn gathered_deadline(&self) -> Option<Tick> {
        self.lock().gathered.as_ref().and_then(Gathered::next_deadline)
    }

    /// Logs the summaries of past minutes.
    pub fn end_gathered(&self, now: Tick) {
        let told = self.lock().gathered.as_mut().map(|gathered| gathered.end(now));
        for (level, line) in told.unwrap_or_default() {
            self.write(level, &line);
        }
    }

    /// Writes a message from a pool's process.
    pub fn write_of_pool(&self, level: LogLevel, pool: &str, text: &str) {
        let line = format!("[pool {pool}] {text}");
        if !self.is_gathered(level, pool, || Cause::of_words(text), &line) {
            self.write(level, &line);
        }
    }

    fn is_gathered(&self, level: LogLevel, pool: &str, cause: impl FnOnce() -> Cause, line: &str) -> bool {
        let mut state = self.lock();
        if level < state.level {
            return false;
        }
        let gathered = state.gathered.as_mut();
        gathered.is_some_and(|gathered| !gathered.add(pool, cause(), level, line, clock::now()))
    }

    /// Writes a line with one system call.
    pub fn write(&self, level: LogLevel, text: &str) {
        self.write_from(level, None, text);
    }

    fn write_from(&self, level: LogLevel, origin: Option<(&str, u32)>, text: &str) {
        let mut state = self.lock();
        if level < state.level {
            return;
        }
        let about = state.about(level, origin);
        let line = match (&state.sink, state.format) {
            (Sink::Master(channel), _) => {
                let _ = socket::send(channel.as_fd(), &message(level, text));
                return;
            }
            (Sink::Syslog(..), _) => shown(text.as_bytes()),
            (_, LogFormat::Text) => format!("{}{}\n", line::prefix(&about), shown(text.as_bytes())),
            (_, LogFormat::Json) => {
                let (pool, text) = line::split_pool(text);
                line::json(&about, pool, None, text)
            }
        };
        state.put(&about, true, line.as_bytes());
    }

    /// Bytes of worker output that fit into one line.
    pub fn room(&self, speaker: &Speaker<'_>) -> usize {
        let state = self.lock();
        let around = match state.format {
            LogFormat::Text if speaker.decorate => {
                let prefix = line::prefix(&state.about(LogLevel::Warning, Some(SAID)));
                prefix.len() + introduction(speaker).len() + "\"\n".len()
            }
            LogFormat::Text | LogFormat::Json => 1,
        };
        state.limit.saturating_sub(around).max(LEAST_ROOM)
    }

    /// Writes worker output: a line of at most [`Log::room`] bytes, or several lines as one entry.
    /// `catch_workers_output`, not the level, controls it, as in php-fpm.
    pub fn write_output(&self, speaker: &Speaker<'_>, words: &[u8]) {
        let end = words.iter().rposition(|byte| *byte != b'\n');
        let Some(words) = end.map(|last| &words[..=last]) else {
            return;
        };
        let room = self.room(speaker);
        let mut state = self.lock();
        let about = state.about(LogLevel::Warning, Some(SAID));
        let is_syslog = matches!(state.sink, Sink::Syslog(..));
        let is_json = state.format == LogFormat::Json && !is_syslog;
        // JSON lines always name the worker, so that output can't pass for a daemon's line.
        if !speaker.decorate && !is_json {
            let mut line = words.to_vec();
            if !is_syslog {
                line.push(b'\n');
            }
            return state.put(&about, false, &line);
        }
        if is_json {
            let said = Some((
                speaker.pid,
                Some(speaker.stream).filter(|stream| !stream.is_empty()),
            ));
            let text = String::from_utf8_lossy(words);
            let line = line::json(&about, Some(speaker.pool), said, &text);
            return state.put(&about, true, line.as_bytes());
        }
        let introduction = introduction(speaker);
        let entry = |text: String| match is_syslog {
            true => text,
            false => format!("{}{text}\n", line::prefix(&about)),
        };
        if words.contains(&b'\n') {
            // So that continuation lines can't pass for daemon lines.
            let lines: Vec<String> = words.split(|byte| *byte == b'\n').map(shown).collect();
            let line = entry(format!("{introduction}{}\"", lines.join("\n\t")));
            return state.put(&about, true, line.as_bytes());
        }
        // Escaping may lengthen the text to several lines.
        for piece in line::pieces(&shown(words), room) {
            let line = entry(format!("{introduction}{piece}\""));
            state.put(&about, true, line.as_bytes());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const SAID: (&str, u32) = ("write_output", line!());

fn introduction(speaker: &Speaker<'_>) -> String {
    let Speaker {
        pool,
        kind,
        pid,
        stream,
        ..
    } = speaker;
    match stream.is_empty() {
        true => format!("[pool {pool}] {kind} {pid} said: \""),
        false => format!("[pool {pool}] {kind} {pid} said into {stream}: \""),
    }
}

impl LogState {
    fn about<'a>(&self, level: LogLevel, origin: Option<(&'a str, u32)>) -> About<'a> {
        About {
            micros: clock::epoch_micros(),
            utc_offset: clock::utc_offset_seconds(),
            level,
            pid: std::process::id(),
            origin: origin.filter(|_| self.level == LogLevel::Debug),
        }
    }

    /// Ignores errors: a broken log must not stop the daemon.
    fn put(&mut self, about: &About<'_>, names_level: bool, line: &[u8]) {
        let _ = match &mut self.sink {
            Sink::Stderr => io::stderr().write_all(line),
            Sink::File(file) => file.write_all(line),
            Sink::Syslog(socket, path) => {
                let LogTarget::Syslog { ident, facility } = &self.target else {
                    return;
                };
                let text = String::from_utf8_lossy(line);
                let datagram = line::syslog(about, *facility, ident, names_level, &text);
                match socket.send_to(datagram.as_bytes(), path) {
                    Ok(_) => Ok(()),
                    // Syslog or the reader is gone. Somebody may still read standard error.
                    Err(_) => {
                        let prefix = match names_level {
                            true => line::prefix(about),
                            false => String::new(),
                        };
                        io::stderr().write_all(format!("{prefix}{text}\n").as_bytes())
                    }
                }
            }
            Sink::Master(_) => Ok(()),
        };
    }
}

fn open(target: &LogTarget) -> Result<Sink, LogError> {
    match target {
        LogTarget::Stderr => Ok(Sink::Stderr),
        LogTarget::File(path) => open_file(path).map(|file| Sink::File(file.into())),
        LogTarget::Syslog { .. } => {
            let path = std::env::var_os(SYSLOG_VARIABLE).unwrap_or_else(|| SYSLOG_SOCKET.into());
            let path = PathBuf::from(path);
            let socket = UnixDatagram::unbound()
                .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
                .map_err(|error| LogError::new(&path, error))?;
            Ok(Sink::Syslog(socket, path))
        }
    }
}

/// Returns the standard stream that the daemon's log uses.
pub fn stream_of(target: &LogTarget) -> Option<OwnStream> {
    match target {
        LogTarget::Stderr => Some(OwnStream::Error),
        LogTarget::File(path) => OwnStream::of_log(path),
        LogTarget::Syslog { .. } => None,
    }
}

/// Returns the standard streams that a configuration's logs use.
pub fn streams_of(config: &Config) -> Vec<OwnStream> {
    let logs = config.pools.iter().flat_map(|pool| {
        let access = pool.logs.access.as_ref().map(|access| &access.path);
        let slow = pool.logs.slow_log.as_ref().map(|slow| &slow.path);
        let app = pool.logs.app_log.as_ref().map(|app| &app.path);
        access.into_iter().chain(slow).chain(app)
    });
    stream_of(&config.global.error_log)
        .into_iter()
        .chain(logs.filter_map(|path| OwnStream::of_log(path)))
        .collect()
}

/// Opens a log for appending; creates it with access for its owner only. Doesn't block on a FIFO.
///
/// # Errors
/// The log can't be opened.
pub fn open_file(path: &Path) -> Result<OwnedFd, LogError> {
    open_log(path)
        .map(OwnedFd::from)
        .map_err(|source| LogError::new(path, source))
}

const LEVELS: [LogLevel; 5] = [
    LogLevel::Debug,
    LogLevel::Notice,
    LogLevel::Warning,
    LogLevel::Error,
    LogLevel::Alert,
];

/// Level digit, text, newline.
fn message(level: LogLevel, text: &str) -> Vec<u8> {
    let digit = LEVELS.iter().position(|l| *l == level).unwrap_or(0) as u8 + b'1';
    let mut line = vec![digit];
    line.extend(text.bytes().map(|byte| if byte == b'\n' { b' ' } else { byte }));
    line.truncate(MESSAGE_BYTES - 1);
    line.push(b'\n');
    line
}

/// Parses a message from a worker.
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
        let diagnostics = self.diagnostics.as_ref().filter(|own| own.matches(record));
        if let Some(own) = diagnostics.filter(|_| !self.lock().is_open) {
            return own.log(record);
        }
        let level = match record.level() {
            Level::Error => LogLevel::Error,
            Level::Warn => LogLevel::Warning,
            Level::Info => LogLevel::Notice,
            Level::Debug | Level::Trace => LogLevel::Debug,
        };
        let function = record.module_path().and_then(|path| path.rsplit("::").next());
        let origin = (function.unwrap_or("log"), record.line().unwrap_or(0));
        let text = record.args().to_string();
        let pool = line::split_pool(&text).0.filter(|_| level >= LogLevel::Warning);
        let place = || Cause::Place(origin.0.to_owned(), origin.1);
        if !pool.is_some_and(|pool| self.is_gathered(level, pool, place, &text)) {
            self.write_from(level, Some(origin), &text);
        }
    }

    fn flush(&self) {}
}

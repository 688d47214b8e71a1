//! Opens, writes and reopens the log.

use super::diagnostics;
use super::gathered::{Cause, Gathered};
use super::line::{self, About, shown};
use crate::config::{Config, Global, LogFormat, LogLevel, LogTarget};
use crate::remedy;
use crate::sys::file::{OwnStream, open_log};
use crate::sys::{clock, socket};
use forkyard_base::tick::Tick;
use log::{Level, LevelFilter, Metadata, Record};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The log can't be opened.
#[derive(Debug)]
pub struct LogError {
    path: PathBuf,
    source: io::Error,
}

impl LogError {
    /// An error about the log at `path`.
    pub fn new(path: &Path, source: io::Error) -> LogError {
        LogError {
            path: path.to_owned(),
            source,
        }
    }

    /// What to do about it, as the end of a sentence.
    pub fn remedy(&self) -> String {
        remedy::of_file(&self.path, self.source.kind())
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to open {}: {}", self.path.display(), self.source)
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
    state: Mutex<LogState>,
    /// Takes records that are wanted until the log is open.
    diagnostics: Option<env_logger::Logger>,
}

#[derive(Debug)]
struct LogState {
    target: LogTarget,
    sink: Sink,
    /// It is where a configuration or the master wants it.
    is_open: bool,
    level: LogLevel,
    format: LogFormat,
    /// Bytes of a line of caught output.
    limit: usize,
    /// In a master: the lines that pools cause.
    gathered: Option<Gathered>,
}

#[derive(Debug)]
enum Sink {
    Stderr,
    File(File),
    /// The system's log; a socket that never blocks.
    Syslog(UnixDatagram, PathBuf),
    /// The master, which writes the line with the pool's name.
    Master(OwnedFd),
}

/// The worker whose output is caught.
#[derive(Debug, Clone, Copy)]
pub struct Speaker<'a> {
    pub pool: &'a str,
    /// What it is: `child`, `process` or `preloader`.
    pub kind: &'a str,
    pub pid: i32,
    /// `stdout` or `stderr`; empty: both in one.
    pub stream: &'a str,
    /// Say all this before its words.
    pub decorate: bool,
}

/// Bytes of one message to the master; longer ones are cut.
const MESSAGE_BYTES: usize = 2048;
/// php-fpm's default for `log_limit`.
const LIMIT_BYTES: usize = 1024;
/// Words of a worker get at least this much of a line, however long the pool's name is.
const LEAST_ROOM: usize = 64;
/// Where syslog listens, and the variable that says otherwise.
const SYSLOG_SOCKET: &str = "/dev/log";
const SYSLOG_VARIABLE: &str = "FORKYARD_SYSLOG_SOCKET";

static LOG: OnceLock<Log> = OnceLock::new();

impl Log {
    /// The process' log: standard error, from NOTICE up, until [`Log::direct`] says otherwise. Installs it as the
    /// destination of the `log` crate's records.
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

    /// Sends the log elsewhere. On failure it goes on where it was.
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

    /// Sends the log to where a configuration wants it, in its format. On failure nothing changes.
    ///
    /// # Errors
    /// The log can't be opened.
    pub fn follow(&self, global: &Global) -> Result<(), LogError> {
        self.direct(&global.error_log, global.log_level)?;
        self.write_as(global.log_format);
        self.lock().limit = global.log_limit;
        Ok(())
    }

    /// Says what is at least as severe as this.
    pub fn say_from(&self, level: LogLevel) {
        self.lock().level = level;
    }

    /// Writes lines in this form from now on.
    pub fn write_as(&self, format: LogFormat) {
        self.lock().format = format;
    }

    /// From now on this process is a worker or a preloader: what it has to say goes to the master. What was open
    /// before is forgotten and not closed, since its descriptor may be something else's by now.
    pub fn send_to_master(&self, channel: OwnedFd) {
        let mut state = self.lock();
        std::mem::forget(std::mem::replace(&mut state.sink, Sink::Master(channel)));
        state.gathered = None;
        state.is_open = true;
    }

    /// In a worker or a preloader: goes on over another channel to the master, and closes the one before.
    pub fn turn_to_master(&self, channel: OwnedFd) {
        self.lock().sink = Sink::Master(channel);
    }

    /// Opens a file anew, after it was moved away. On failure the log goes on in the old one.
    ///
    /// # Errors
    /// The log can't be opened.
    pub fn reopen(&self) -> Result<(), LogError> {
        let mut state = self.lock();
        state.sink = open(&state.target)?;
        Ok(())
    }

    /// Gathers what pools cause from now on: [`Log::end_gathered`] tells it.
    pub fn gather(&self) {
        self.lock().gathered = Some(Gathered::default());
    }

    /// When [`Log::end_gathered`] is to be called.
    pub fn gathered_deadline(&self) -> Option<Tick> {
        self.lock().gathered.as_ref().and_then(Gathered::next_deadline)
    }

    /// Tells what was gathered in minutes that are over.
    pub fn end_gathered(&self, now: Tick) {
        let told = self.lock().gathered.as_mut().map(|gathered| gathered.end(now));
        for (level, line) in told.unwrap_or_default() {
            self.write(level, &line);
        }
    }

    /// Writes what a process of a pool's says for the log.
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

    /// Bytes of a worker's words that fit into one line.
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

    /// Writes what a worker said: a line of at most [`Log::room`] bytes, or several as one entry, with newlines between them.
    /// The log's level does not matter: whether output is logged is `catch_workers_output`, as in php-fpm.
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
        // A line of JSON always says whose words they are: read as a whole, it can't be taken for another's.
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
        if words.contains(&b'\n') {
            // A line that begins with white space can't be taken for one of the daemon's.
            let lines: Vec<String> = words.split(|byte| *byte == b'\n').map(shown).collect();
            let text = format!("{introduction}{}\"", lines.join("\n\t"));
            let line = if is_syslog {
                text
            } else {
                format!("{}{text}\n", line::prefix(&about))
            };
            return state.put(&about, true, line.as_bytes());
        }
        // What has to be shown otherwise may need more lines than one.
        for piece in line::pieces(&shown(words), room) {
            let line = if is_syslog {
                format!("{introduction}{piece}\"")
            } else {
                format!("{}{introduction}{piece}\"\n", line::prefix(&about))
            };
            state.put(&about, true, line.as_bytes());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where caught output enters the log.
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

    /// Writes a line with one system call. A log that can't be written to must not stop the daemon, and there is
    /// nowhere to say so.
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
                    // No process listens, or none reads: standard error may still be seen.
                    Err(_) => {
                        let prefix = if names_level {
                            line::prefix(about)
                        } else {
                            String::new()
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
            let socket = UnixDatagram::unbound().and_then(|socket| {
                socket.set_nonblocking(true)?;
                Ok(socket)
            });
            socket
                .map(|socket| Sink::Syslog(socket, path.clone()))
                .map_err(|source| LogError { path, source })
        }
    }
}

/// The standard stream of this process that the daemon's log goes to.
pub fn stream_of(target: &LogTarget) -> Option<OwnStream> {
    match target {
        LogTarget::Stderr => Some(OwnStream::Error),
        LogTarget::File(path) => OwnStream::of_log(path),
        LogTarget::Syslog { .. } => None,
    }
}

/// The standard streams of this process that the logs of a configuration go to.
pub fn streams_of(config: &Config) -> Vec<OwnStream> {
    let logs = config.pools.iter().flat_map(|pool| {
        let access = pool.access.as_ref().map(|access| &access.path);
        let slow = pool.slow_log.as_ref().map(|slow| &slow.path);
        let app = pool.app_log.as_ref().map(|app| &app.path);
        access.into_iter().chain(slow).chain(app)
    });
    stream_of(&config.global.error_log)
        .into_iter()
        .chain(logs.filter_map(|path| OwnStream::of_log(path)))
        .collect()
}

/// Opens a log to append to, and makes it if need be, for its owner alone. A pipe is not waited for.
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

/// A line for the master: the level's digit, the text, a newline.
fn message(level: LogLevel, text: &str) -> Vec<u8> {
    let digit = LEVELS.iter().position(|l| *l == level).unwrap_or(0) as u8 + b'1';
    let mut line = vec![digit];
    line.extend(text.bytes().map(|byte| if byte == b'\n' { b' ' } else { byte }));
    line.truncate(MESSAGE_BYTES - 1);
    line.push(b'\n');
    line
}

/// Takes a line apart that a worker, or another process in its place, sent.
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

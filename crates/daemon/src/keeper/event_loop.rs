//! The keeper's event loop.

use super::core::{Core, KeeperAction, KeeperEvent};
use super::shelf::{MOST, Shelf};
use forkyard_config::{LogFormat, LogLevel, LogTarget};
use forkyard_host::logs::{Log, stream_of};
use forkyard_protocol::handover::frame;
use forkyard_protocol::handover::names::CONFIG;
use forkyard_protocol::keeper::Message;
use forkyard_sys::file::OwnStream;
use forkyard_sys::notify::{self, Notifier, Receiver};
use forkyard_sys::process::{self, Ended, Launcher, Program};
use forkyard_sys::{self as sys, Error, clock, fd, inherited, memfile, signal, title};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::sys::signal::Signal;
use serde::Deserialize;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook_mio::v1_0::Signals;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;

const SIGNALS: Token = Token(0);
const MESSAGES: Token = Token(1);
/// Limit for the variable with descriptor names: the kernel allows 128 KiB (execve(2), MAX_ARG_STRLEN).
const NAMES_BYTES: usize = 120 << 10;

/// The keeper's settings.
#[derive(Debug)]
pub struct KeeperSettings {
    /// The master's program.
    pub program: PathBuf,
    /// The master's arguments, starting with the program's name.
    pub arguments: Vec<OsString>,
    /// Notifies the launching process when a master is ready.
    pub launcher: Option<Launcher>,
}

/// Runs a master until it exits by itself or the keeper is stopped. Returns the exit code.
///
/// The process has one thread.
///
/// # Errors
/// A system call failed before the first master was started.
pub fn run(settings: KeeperSettings) -> sys::Result<u8> {
    let limit = fd::raise_descriptor_limit().ok();
    process::become_subreaper()?;
    signal::ignore_pipe();
    let above = Notifier::from_environment();
    let mut shelf = Shelf::default();
    for (name, socket) in inherited::from_service_manager(|_, _| true) {
        shelf.keep(&name, socket);
    }
    process::forget_variables(&["NOTIFY_SOCKET", "WATCHDOG_PID", "FDSTORE"]);
    process::forget_variables(&inherited::VARIABLES);
    let receiver = Receiver::open()?;
    let poll = Poll::new().map_err(|e| Error::from_io("epoll_create1", "", &e))?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGHUP, SIGCHLD])
        .map_err(|e| Error::from_io("sigaction", "", &e))?;
    let registered = poll
        .registry()
        .register(&mut signals, SIGNALS, Interest::READABLE)
        .and_then(|()| {
            let socket = receiver.as_fd().as_raw_fd();
            poll.registry()
                .register(&mut SourceFd(&socket), MESSAGES, Interest::READABLE)
        });
    registered.map_err(|e| Error::from_io("epoll_ctl", "", &e))?;
    title::set("forkyard: keeper");
    let mut keeper = Keeper {
        poll,
        signals,
        receiver,
        above,
        shelf,
        limit,
        settings,
        core: Core::new(clock::now()),
        master: None,
        exit: None,
        kept_streams: vec![OwnStream::Error],
    };
    keeper.start();
    keeper.serve()
}

struct Keeper {
    poll: Poll,
    signals: Signals,
    receiver: Receiver,
    above: Option<Notifier>,
    shelf: Shelf<OwnedFd>,
    limit: Option<(u64, u64)>,
    settings: KeeperSettings,
    core: Core,
    master: Option<i32>,
    exit: Option<u8>,
    kept_streams: Vec<OwnStream>,
}

impl Keeper {
    fn serve(&mut self) -> sys::Result<u8> {
        let mut events = Events::with_capacity(8);
        loop {
            if let Some(code) = self.exit {
                return Ok(code);
            }
            let left = self.core.deadline().map(|due| due.since(clock::now()));
            // epoll_wait counts milliseconds. Round up so that the deadline has passed when it returns.
            let timeout = left.map(|left| {
                Duration::from_millis(u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX))
            });
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::from_io("epoll_wait", "", &error)),
            }
            // Process the last messages of a master before its exit.
            self.hear();
            self.take_signals();
            if self.core.deadline().is_some_and(|due| due <= clock::now()) {
                self.tell(KeeperEvent::Deadline, None);
            }
        }
    }

    fn tell(&mut self, event: KeeperEvent, signal: Option<Signal>) {
        match self.core.handle(event, clock::now()) {
            KeeperAction::Nothing => {}
            KeeperAction::Start => self.start(),
            KeeperAction::Wait(wait) => log::warn!("another master is started in {} s", wait.as_secs_f64()),
            KeeperAction::Forward => self.forward(signal),
            KeeperAction::Leave(code) => self.exit = Some(code),
        }
    }

    fn take_signals(&mut self) {
        let pending: Vec<i32> = self.signals.pending().collect();
        for number in pending {
            let signal = Signal::try_from(number).ok();
            match number {
                SIGCHLD => self.reap(),
                SIGTERM | SIGINT | SIGQUIT => self.tell(KeeperEvent::Stop, signal),
                SIGUSR1 => {
                    if let Err(error) = Log::install().reopen() {
                        log::error!("{error}");
                    }
                    self.forward(signal);
                }
                // The next master reads everything again, so the signal can be dropped.
                _ => self.forward(signal),
            }
        }
    }

    fn forward(&self, signal: Option<Signal>) {
        if let (Some(master), Some(signal)) = (self.master, signal) {
            if let Err(error) = process::send_signal(master, signal) {
                log::error!("{error}");
            }
        }
    }

    /// Reaps the master and its orphaned workers.
    fn reap(&mut self) {
        while let Some((pid, ended)) = process::reap() {
            if Some(pid) != self.master {
                continue;
            }
            self.hear();
            self.master = None;
            let code = match ended {
                Ended::Code(code) => {
                    if code != 0 {
                        log::error!("the master (pid {pid}) ended with code {code}");
                    }
                    Some(u8::try_from(code).unwrap_or(u8::MAX))
                }
                Ended::Unknown => None,
                Ended::Signal { number, .. } => {
                    let name = Signal::try_from(number).map_or("unknown", Signal::as_str);
                    log::error!("the master (pid {pid}) ended on signal {number} ({name})");
                    None
                }
            };
            self.tell(KeeperEvent::Ended(code), None);
        }
    }

    /// Receives messages, and accepts only the master's.
    fn hear(&mut self) {
        while let Some(letter) = self.receiver.receive() {
            if letter.sender != self.master {
                continue;
            }
            let message = Message::parse(&letter.text);
            let name = message.name.as_deref();
            if let Some(name) = name.filter(|_| message.forgets) {
                self.shelf.forget(name);
            }
            if let Some(name) = name.filter(|_| message.keeps) {
                for descriptor in letter.descriptors {
                    if name == CONFIG {
                        self.kept_streams = follow_log(descriptor.as_fd());
                    }
                    if !self.shelf.keep(name, descriptor) {
                        log::warn!("there is no room for more than {MOST} descriptors");
                    }
                }
            }
            if message.is_ready {
                self.tell(KeeperEvent::Ready, None);
                if let Some(launcher) = self.settings.launcher.take() {
                    // The launcher may wait until these streams are closed. Later masters inherit the keeper's streams.
                    if let Err(error) = fd::let_go_of_standard_streams(&self.kept_streams) {
                        log::warn!("the standard streams stay open: {error}");
                    }
                    launcher.report(0);
                }
            }
            if let Some(above) = self.above.as_ref().filter(|_| !message.rest.is_empty()) {
                above.tell(&message.rest);
            }
        }
    }

    fn start(&mut self) {
        match self.try_start() {
            Ok(pid) => self.master = Some(pid),
            Err(error) => {
                log::error!("can't start a master: {error}");
                self.tell(KeeperEvent::NotStarted, None);
            }
        }
    }

    fn try_start(&self) -> sys::Result<i32> {
        let (input, output, errors) = (io::stdin(), io::stdout(), io::stderr());
        let mut descriptors = Vec::new();
        for (stream, number) in [(input.as_fd(), 0), (output.as_fd(), 1), (errors.as_fd(), 2)] {
            // A closed stream is /dev/null for the master.
            descriptors.extend(fd::copy(stream).ok().map(|stream| (stream, number)));
        }
        let mut names = Vec::new();
        let mut room = NAMES_BYTES;
        for ((name, fd), number) in self.shelf.iter().zip(inherited::FIRST..) {
            let Some(left) = room.checked_sub(name.len() + 1) else {
                log::warn!("there is no room for the names of all descriptors: some are not passed on");
                break;
            };
            room = left;
            descriptors.push((fd::copy(fd)?, number as RawFd));
            names.push(name);
        }
        let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let mut set = |name: &str, value: OsString| environment.push((name.into(), value));
        set(notify::VARIABLES[0], self.receiver.address());
        set("FDSTORE", MOST.to_string().into());
        if self.settings.launcher.is_some() {
            set(inherited::BACKGROUND, "1".into());
        }
        set(inherited::KEEPER, std::process::id().to_string().into());
        set("LISTEN_FDS", names.len().to_string().into());
        set("LISTEN_FDNAMES", names.join(":").into());
        let KeeperSettings {
            program, arguments, ..
        } = &self.settings;
        let mut program = Program::new(program, arguments, environment, descriptors);
        program.descriptor_limit = self.limit;
        // Block signals: a forwarded signal may arrive before the master has handlers.
        process::start_blocked(&program)
    }
}

/// The log settings of a configuration. The rest may be of another version.
#[derive(Deserialize)]
struct Kept {
    global: KeptGlobal,
}

#[derive(Deserialize)]
struct KeptGlobal {
    error_log: LogTarget,
    log_level: LogLevel,
    log_format: LogFormat,
}

/// Directs the keeper's log to the master's log; on failure the target stays. Returns the standard stream in use, or
/// standard error if it is unknown.
fn follow_log(config: BorrowedFd<'_>) -> Vec<OwnStream> {
    let followed = memfile::read(config, frame::MOST_BYTES)
        .map_err(|error| error.to_string())
        .and_then(|bytes| {
            let (_, body) = frame::decode(&bytes).map_err(|error| error.to_string())?;
            let kept: Kept = serde_json::from_slice(body).map_err(|error| error.to_string())?;
            let KeptGlobal {
                error_log,
                log_level,
                log_format,
            } = kept.global;
            let log = Log::install();
            log.direct(&error_log, log_level)
                .map_err(|error| error.to_string())?;
            log.write_as(log_format);
            Ok(stream_of(&error_log).into_iter().collect())
        });
    followed.unwrap_or_else(|problem| {
        log::warn!("the keeper does not follow the master's log: {problem}");
        vec![OwnStream::Error]
    })
}

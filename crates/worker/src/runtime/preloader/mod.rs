//! The half of a preloader that knows no runtime: the master's lines, and what it sends with them.
//!
//! A preloader is a process that has an application ready and forks a worker from itself whenever the master asks.
//! forkyard-php is one; programs in other languages are by the C ABI ([`crate::abi`]).

mod socket;

pub use socket::{Message, Socket};

use crate::logs::Log;
use crate::runtime::php::protocol::{Answer, Command};
use crate::sys;
use crate::worker::{self, Kit, KitError, Seat, Settings};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Why a preloader can't go on.
#[derive(Debug)]
pub enum Error {
    /// The master's line is not understood.
    Line(serde_json::Error),
    /// The first line is not `begin`, or a later one is.
    Order,
    /// The message has the wrong descriptors.
    Kit(KitError),
    /// A system call failed.
    System(sys::Error),
    /// The process could not become what its pool says.
    Settle(worker::SettleError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Line(error) => write!(f, "line from the master: {error}"),
            Error::Order => f.write_str("line from the master: not the time for it"),
            Error::Kit(error) => write!(f, "message from the master: {error}"),
            Error::System(error) => error.fmt(f),
            Error::Settle(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<sys::Error> for Error {
    fn from(error: sys::Error) -> Error {
        Error::System(error)
    }
}

impl From<worker::SettleError> for Error {
    fn from(error: worker::SettleError) -> Error {
        Error::Settle(error)
    }
}

/// A worker that the master wants.
#[derive(Debug)]
pub struct Wanted {
    /// The master's number for it.
    pub worker: u64,
    /// What is its own.
    pub seat: Seat,
}

/// A preloader that the master has begun.
#[derive(Debug)]
pub struct Preloader {
    socket: Socket,
    /// What its workers share.
    pub kit: Kit,
    /// /dev/null, which a chroot has not.
    pub null: OwnedFd,
}

impl Preloader {
    /// Takes the master's first line; `None`: the master is gone. From then on the log goes to the master.
    ///
    /// # Errors
    /// The line is none; the master is told.
    pub fn begin(mut socket: Socket) -> Result<Option<Preloader>, Error> {
        let Some(message) = socket.receive()? else {
            return Ok(None);
        };
        let begun = begin(message).and_then(|kit| {
            let messages = kit.messages.try_clone();
            let messages = messages.map_err(|error| sys::Error::from_io("dup", "", &error))?;
            Log::install().send_to_master(messages);
            Ok((kit, sys::fd::null()?))
        });
        match begun {
            Ok((kit, null)) => Ok(Some(Preloader { socket, kit, null })),
            Err(error) => {
                socket.answer(&failure(None, &error.to_string()));
                Err(error)
            }
        }
    }

    /// The same for a copy of a worker, which has the master's log and has settled already.
    ///
    /// # Errors
    /// As [`Preloader::begin`].
    pub fn begin_promoted(mut socket: Socket, null: OwnedFd) -> Result<Option<Preloader>, Error> {
        let Some(message) = socket.receive()? else {
            return Ok(None);
        };
        match begin(message) {
            Ok(kit) => Ok(Some(Preloader { socket, kit, null })),
            Err(error) => {
                socket.answer(&failure(None, &error.to_string()));
                Err(error)
            }
        }
    }

    /// Becomes what the pool says: limits, directories, user, environment. Before the application runs any code.
    ///
    /// # Errors
    /// The step that failed.
    pub fn settle(&self) -> Result<(), Error> {
        worker::settle(&self.kit.settings)?;
        worker::settle_environment(&self.kit.settings);
        Ok(())
    }

    /// What is left of [`Preloader::settle`] in a program that was started by a process which had settled: what exec(2)
    /// has undone.
    ///
    /// # Errors
    /// The step that failed.
    pub fn settle_again(&self) -> Result<(), Error> {
        if !self.kit.settings.pool.process_dumpable && self.kit.settings.identity.is_some() {
            sys::identity::forbid_dumps()?;
        }
        worker::settle_environment(&self.kit.settings);
        Ok(())
    }

    /// The application is loaded; `version` is its runtime's.
    pub fn ready(&self, version: &str) {
        self.socket.answer(&Answer::Ready {
            version: version.to_owned(),
            extensions: None,
            loaded: Vec::new(),
            powered_by: None,
            // It has loaded the application, and does not look whether that was changed.
            is_code_fixed: true,
            stack: None,
        });
    }

    /// The application can't be loaded.
    pub fn failed(&self, message: &str) {
        self.socket.answer(&failure(None, message));
    }

    /// Waits until a worker is wanted; `None`: the preloader is to end.
    ///
    /// # Errors
    /// The connection to the master is broken.
    pub fn wait(&mut self) -> Result<Option<Wanted>, Error> {
        loop {
            let Some(message) = self.socket.receive()? else {
                return Ok(None);
            };
            match wanted(message) {
                Ok(wanted) => return Ok(Some(wanted)),
                Err((worker, error)) => self.socket.answer(&failure(worker, &error.to_string())),
            }
        }
    }

    /// The worker exists.
    pub fn made(&self, worker: u64, pid: i32) {
        self.socket.answer(&Answer::Ok { worker, pid });
    }

    /// It could not be made.
    pub fn not_made(&self, worker: u64, message: &str) {
        self.socket.answer(&failure(Some(worker), message));
    }

    /// /dev/null, opened before the process settled.
    pub fn null(&self) -> BorrowedFd<'_> {
        self.null.as_fd()
    }

    /// In a worker: what it takes along.
    pub fn into_kit(self) -> (Kit, OwnedFd) {
        (self.kit, self.null)
    }
}

fn failure(worker: Option<u64>, message: &str) -> Answer {
    Answer::Error {
        worker,
        message: message.to_owned(),
    }
}

fn begin(message: Message) -> Result<Kit, Error> {
    let command: Command<Settings> = serde_json::from_slice(&message.line).map_err(Error::Line)?;
    match command {
        Command::Begin { kit, .. } => Kit::assemble(kit, message.descriptors).map_err(Error::Kit),
        Command::Spawn { .. }
        | Command::Scripts { .. }
        | Command::Warm { .. }
        | Command::Adopt { .. }
        | Command::Forget { .. } => Err(Error::Order),
    }
}

fn wanted(message: Message) -> Result<Wanted, (Option<u64>, Error)> {
    let command: Command<serde::de::IgnoredAny> =
        serde_json::from_slice(&message.line).map_err(|error| (None, Error::Line(error)))?;
    let Command::Spawn {
        worker,
        slot,
        is_routed,
        ..
    } = command
    else {
        return Err((None, Error::Order));
    };
    match Seat::assemble(slot, is_routed, message.descriptors) {
        Ok(seat) => Ok(Wanted { worker, seat }),
        Err(error) => Err((Some(worker), Error::Kit(error))),
    }
}

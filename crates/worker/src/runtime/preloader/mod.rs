//! A preloader but for its runtime: the master's lines, what it sends with them, and the loop in which they are obeyed.
//!
//! A preloader is a process that has an application ready and forks a worker from itself whenever the master asks.
//! forkyard-php is one; programs in other languages are by the C ABI ([`crate::abi`]). Each of them waits for the next worker
//! that is wanted ([`Preloader::wait`]) and forks it by itself; [`CodeCache`] is all that is asked of it besides.

mod kits;
mod socket;

pub use socket::{Message, Socket};

use crate::config::sharing;
use crate::logs::Log;
use crate::runtime::php::protocol::{Answer, Command, WARM_PATIENCE};
use crate::spawn::error::Category;
use crate::spawn::setupper::{Complaint, Notes};
use crate::spawn::step::Step;
use crate::sys::{self, clock, title};
use crate::worker::{self, Kit, KitError, Seat, Settings};
use kits::Kits;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

/// What a runtime keeps of code that its workers ran. A runtime that keeps none has `()`.
pub trait CodeCache {
    /// The scripts that were run most, the most first.
    fn most_run(&mut self, _most: u32) -> Vec<String> {
        Vec::new()
    }

    /// Compiles scripts before the first worker is made; runs none.
    fn compile(&mut self, _scripts: &[String]) {}
}

impl CodeCache for () {}

/// Why a preloader can't go on.
#[derive(Debug)]
pub enum Error {
    /// The master's line is not understood.
    Line(serde_json::Error),
    /// The first line is not `begin`, or a later one is.
    Order,
    /// A worker of a generation that the process does not know.
    Generation,
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
            Error::Generation => f.write_str("line from the master: no such generation"),
            Error::Kit(error) => write!(f, "message from the master: {error}"),
            Error::System(error) => error.fmt(f),
            Error::Settle(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// The step of the start that fails by it, and what kind of error it is.
    pub fn blames(&self) -> (Step, Category) {
        match self {
            Error::Line(_) | Error::Order | Error::Generation | Error::Kit(_) => {
                (Step::SubprocessWrapperPreparation, Category::Internal)
            }
            Error::System(_) => (Step::SubprocessWrapperPreparation, Category::OperatingSystem),
            Error::Settle(_) => (Step::SubprocessSetupperBeforeShell, Category::OperatingSystem),
        }
    }

    /// What to do about it.
    pub fn solution(&self) -> &'static str {
        match self {
            Error::Line(_) | Error::Order | Error::Generation | Error::Kit(_) => {
                "The programs of forkyard have to be of one version: install all of them anew."
            }
            Error::System(_) => {
                "Check that the machine has memory and descriptors to spare, and the service's limits."
            }
            Error::Settle(_) => {
                "Correct the pool's setting that is named: its user, directories, limits, or what confines it."
            }
        }
    }
}

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
    worker: u64,
    /// Of a process that pools share, the generation that it belongs to.
    generation: Option<u64>,
    /// What is its own.
    pub seat: Seat,
}

/// A preloader that the master has begun.
#[derive(Debug)]
pub struct Preloader {
    socket: Socket,
    /// What it is made from: its pool, or what the pools that share it have in common.
    pub settings: Settings,
    kits: Kits,
    /// /dev/null, which a chroot has not.
    null: OwnedFd,
    /// The master will name scripts to compile.
    warms_up: bool,
    /// Lines that came while those were waited for.
    early: VecDeque<Message>,
}

impl Preloader {
    /// Takes the master's first line; `None`: the master is gone. From then on the log goes to the master.
    ///
    /// # Errors
    /// The line is none; the master is told, and the work directory.
    pub fn begin(socket: Socket, notes: Option<&Notes>) -> Result<Option<Preloader>, Error> {
        Preloader::begin_with(socket, notes, |kit| {
            let messages = kit.messages.try_clone();
            let messages = messages.map_err(|error| sys::Error::from_io("dup", "", &error))?;
            Log::install().send_to_master(messages);
            sys::fd::null()
        })
    }

    /// The same for a copy of a worker, which has the master's log and has settled already.
    ///
    /// # Errors
    /// As [`Preloader::begin`].
    pub fn begin_promoted(socket: Socket, null: OwnedFd) -> Result<Option<Preloader>, Error> {
        Preloader::begin_with(socket, None, |_| Ok(null))
    }

    fn begin_with(
        mut socket: Socket,
        notes: Option<&Notes>,
        open_null: impl FnOnce(&Kit) -> sys::Result<OwnedFd>,
    ) -> Result<Option<Preloader>, Error> {
        let Some(message) = socket.receive()? else {
            return Ok(None);
        };
        let begun = begun(message).and_then(|begun| Ok((open_null(&begun.kit)?, begun)));
        let (null, begun) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let summary = error.to_string();
                if let Some(notes) = notes {
                    let (step, category) = error.blames();
                    let complaint = Complaint {
                        summary: &summary,
                        solution: Some(error.solution()),
                        ..Complaint::default()
                    };
                    notes.fail(step, category, &complaint);
                }
                socket.answer(&failure(None, summary));
                return Err(error);
            }
        };
        let mut settings = begun.kit.settings.clone();
        if begun.shared.is_some() {
            settings.pool = sharing::common(&settings.pool);
        }
        Ok(Some(Preloader {
            socket,
            settings,
            kits: Kits::new(begun.kit, begun.shared),
            null,
            warms_up: begun.warms_up,
            early: VecDeque::new(),
        }))
    }

    /// Becomes what the pool says: limits, directories, user, environment. Before the application runs any code.
    ///
    /// # Errors
    /// The step that failed.
    pub fn settle(&self) -> Result<(), Error> {
        worker::settle(&self.settings)?;
        worker::settle_environment(&self.settings);
        Ok(())
    }

    /// What is left of [`Preloader::settle`] in a program that was started by a process which had settled: what exec(2)
    /// has undone.
    ///
    /// # Errors
    /// The step that failed.
    pub fn settle_again(&self) -> Result<(), Error> {
        if !self.settings.pool.process_dumpable && self.settings.identity.is_some() {
            sys::identity::forbid_dumps()?;
        }
        worker::settle_environment(&self.settings);
        Ok(())
    }

    /// Compiles the scripts that the master names, if it said that it would. It may name none, or too late: then there is
    /// nothing to be done.
    ///
    /// # Errors
    /// The connection to the master is broken.
    pub fn warm_up(&mut self, cache: &mut dyn CodeCache) -> Result<(), Error> {
        let end = clock::now() + WARM_PATIENCE;
        while self.warms_up {
            let Some(message) = self.socket.receive_within(end.since(clock::now()))? else {
                break;
            };
            match serde_json::from_slice(&message.line) {
                Ok(Command::<serde::de::IgnoredAny>::Warm { scripts }) => {
                    cache.compile(&scripts);
                    break;
                }
                _ => self.early.push_back(message),
            }
        }
        Ok(())
    }

    /// The application is loaded: the answer to the master's first line.
    pub fn ready(&self, answer: &Answer) {
        self.socket.answer(answer);
    }

    /// The application can't be loaded.
    pub fn failed(&self, message: &str) {
        self.socket.answer(&failure(None, message));
    }

    /// Waits until a worker is wanted, and obeys the master in all else; `None`: the preloader is to end.
    ///
    /// # Errors
    /// The connection to the master is broken.
    pub fn wait(&mut self, cache: &mut dyn CodeCache) -> Result<Option<Wanted>, Error> {
        loop {
            let message = match self.early.pop_front() {
                Some(message) => message,
                None => match self.socket.receive()? {
                    Some(message) => message,
                    None => return Ok(None),
                },
            };
            let answer = match self.obey(message, cache) {
                Ok(Obeyed::Wanted(wanted)) => return Ok(Some(wanted)),
                Ok(Obeyed::Answer(answer)) => answer,
                Ok(Obeyed::Nothing) => continue,
                Err((worker, error)) => failure(worker, error.to_string()),
            };
            self.socket.answer(&answer);
        }
    }

    fn obey(&mut self, message: Message, cache: &mut dyn CodeCache) -> Result<Obeyed, (Option<u64>, Error)> {
        let command: Command<Settings> =
            serde_json::from_slice(&message.line).map_err(|error| (None, Error::Line(error)))?;
        match command {
            Command::Spawn {
                worker,
                slot,
                is_routed,
                generation,
            } => {
                let seat = Seat::assemble(slot, is_routed, message.descriptors)
                    .map_err(|error| (Some(worker), Error::Kit(error)))?;
                if !self.kits.has(generation) {
                    return Err((Some(worker), Error::Generation));
                }
                Ok(Obeyed::Wanted(Wanted {
                    worker,
                    generation,
                    seat,
                }))
            }
            Command::Adopt { generation, kit } => {
                let kit =
                    Kit::assemble(kit, message.descriptors).map_err(|error| (None, Error::Kit(error)))?;
                match self.kits.adopt(generation, kit) {
                    true => Ok(Obeyed::Nothing),
                    false => Err((None, Error::Order)),
                }
            }
            Command::Forget { generation } => {
                self.kits.forget(generation);
                Ok(Obeyed::Answer(Answer::Forgotten { generation }))
            }
            Command::Scripts { most } => Ok(Obeyed::Answer(Answer::Scripts {
                scripts: cache.most_run(most),
            })),
            // It comes after its time: workers are wanted now.
            Command::Warm { .. } => Ok(Obeyed::Nothing),
            Command::Begin { .. } => Err((None, Error::Order)),
        }
    }

    /// The worker exists.
    pub fn made(&self, wanted: &Wanted, pid: i32) {
        let worker = wanted.worker;
        self.socket.answer(&Answer::Ok { worker, pid });
    }

    /// It could not be made.
    pub fn not_made(&self, wanted: &Wanted, message: &str) {
        self.socket.answer(&failure(Some(wanted.worker), message));
    }

    /// Whether pools share the process: a worker has yet to take on what is its own pool's.
    pub fn is_shared(&self) -> bool {
        self.kits.is_shared()
    }

    /// In a worker, before code of the application runs there: what it writes is its own and no longer the preloader's.
    ///
    /// # Errors
    /// `dup2`.
    pub fn settle_output(&self, wanted: &Wanted) -> Result<(), sys::Error> {
        worker::settle_output(&wanted.seat, self.null.as_fd())
    }

    /// In a worker: what it takes along; all else is closed. `None`: the log says why it can't.
    pub fn seated(self, wanted: Wanted) -> Option<(Kit, Seat)> {
        let kit = self.kits.take(wanted.generation)?;
        let pool = &kit.settings.pool;
        title::set(&format!("{}: pool {}", pool.title, pool.name));
        if let Err(error) = worker::settle_output(&wanted.seat, self.null.as_fd()) {
            log::error!("worker failed to initialize: {error}");
            return None;
        }
        Some((kit, wanted.seat))
    }
}

/// What a line of the master's led to.
enum Obeyed {
    Wanted(Wanted),
    Answer(Answer),
    Nothing,
}

fn failure(worker: Option<u64>, message: impl Into<String>) -> Answer {
    Answer::Error {
        worker,
        message: message.into(),
    }
}

/// The master's first line.
struct Begun {
    kit: Kit,
    warms_up: bool,
    shared: Option<u64>,
}

fn begun(message: Message) -> Result<Begun, Error> {
    let command: Command<Settings> = serde_json::from_slice(&message.line).map_err(Error::Line)?;
    let Command::Begin {
        kit,
        warms_up,
        shared,
    } = command
    else {
        return Err(Error::Order);
    };
    Ok(Begun {
        kit: Kit::assemble(kit, message.descriptors).map_err(Error::Kit)?,
        warms_up,
        shared,
    })
}

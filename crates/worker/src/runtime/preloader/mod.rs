//! A preloader but for its runtime: the master's lines, what it sends with them, and the loop in which they are obeyed.
//!
//! A preloader is a process that has an application ready and forks a worker from itself whenever the master asks.
//! forkyard-php is one; programs in other languages are by the C ABI ([`crate::abi`]). Each of them waits for the next worker
//! that is wanted ([`Preloader::wait`]) and forks it by itself; [`CodeCache`] is all that is asked of it besides.

mod connections;
mod parcel;
mod socket;
mod watch;

pub use connections::left_open;
pub use parcel::Parcel;
pub use socket::{Message, Socket};

use crate::config::PathPattern;
use crate::config::sharing;
use crate::logs::Log;
use crate::master::pool_restart::RestartReason;
use crate::runtime::php::protocol::{self, Answer, Command, WARM_TIMEOUT};
use crate::spawn::error::Category;
use crate::spawn::setupper::{Notes, SetupComplaint};
use crate::spawn::step::Step;
use crate::sys::{self, clock, title};
use crate::worker::{self, ContextError, GenerationContext, Settings, WorkerContext};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use watch::Watch;

/// What a runtime keeps of code that its workers ran. A runtime that keeps none has `()`.
pub trait CodeCache {
    /// Writes the paths of the scripts that ran most to a pipe, the most first, each with a NUL after it. `parcel`: in a
    /// zygote, those of this generation.
    fn name_scripts(&mut self, _most: u32, _to: OwnedFd, _parcel: Option<Parcel>) {}

    /// Compiles the scripts whose paths come from the last of the descriptors, and runs none. `parcel`: in a zygote, for this
    /// generation; the other descriptors stay open until it is done.
    fn compile(&mut self, _descriptors: Vec<OwnedFd>, _parcel: Option<Parcel>) {}
}

impl CodeCache for () {}

/// Why a preloader can't go on.
#[derive(Debug)]
pub enum Error {
    /// The master's line is not understood.
    Line(serde_json::Error),
    /// The first line is not `begin`, or a later one is.
    Untimely,
    /// The message has the wrong descriptors.
    Context(ContextError),
    /// A system call failed.
    System(sys::Error),
    /// The process could not become what its pool says.
    ProcessSettings(worker::ProcessSettingsError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Line(error) => write!(f, "line from the master: {error}"),
            Error::Untimely => f.write_str("line from the master: not the time for it"),
            Error::Context(error) => write!(f, "message from the master: {error}"),
            Error::System(error) => error.fmt(f),
            Error::ProcessSettings(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// The step of the start that fails by it, and what kind of error it is.
    pub fn blames(&self) -> (Step, Category) {
        match self {
            Error::Line(_) | Error::Untimely | Error::Context(_) => {
                (Step::SubprocessWrapperPreparation, Category::Internal)
            }
            Error::System(_) => (Step::SubprocessWrapperPreparation, Category::OperatingSystem),
            Error::ProcessSettings(_) => (Step::SubprocessSetupperBeforeShell, Category::OperatingSystem),
        }
    }

    /// What to do about it.
    pub fn solution(&self) -> &'static str {
        match self {
            Error::Line(_) | Error::Untimely | Error::Context(_) => {
                "The programs of forkyard have to be of one version: install all of them anew."
            }
            Error::System(_) => {
                "Check that the machine has memory and descriptors to spare, and the service's limits."
            }
            Error::ProcessSettings(_) => {
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

impl From<worker::ProcessSettingsError> for Error {
    fn from(error: worker::ProcessSettingsError) -> Error {
        Error::ProcessSettings(error)
    }
}

/// A worker that the master wants.
#[derive(Debug)]
pub struct WorkerOrder {
    /// The master's number for it.
    worker: u64,
    /// What is its own.
    pub own: WorkerContext,
    /// What a zygote passes on to it.
    parcel: Option<Parcel>,
}

impl WorkerOrder {
    /// In a worker of a zygote: the memory that is its pool's own.
    pub fn take_memory(&mut self) -> Option<OwnedFd> {
        self.parcel.as_mut()?.take_memory()
    }
}

/// A preloader that the master has begun.
#[derive(Debug)]
pub struct Preloader {
    socket: Socket,
    /// What it is made from: its pool, or what the pools of a zygote have in common.
    pub settings: Settings,
    /// What its workers get; `None`: it is a zygote, and makes workers of any pool and user.
    context: Option<GenerationContext>,
    /// /dev/null: a chroot may lack it.
    null: OwnedFd,
    /// The master will name scripts to compile.
    warms_up: bool,
    /// Several pools will have workers of it.
    is_for_many: bool,
    /// Lines that came while those were waited for.
    early: VecDeque<Message>,
    /// Files whose change the master is told of.
    watch: Option<Box<Watch>>,
}

impl Preloader {
    /// Takes the master's first line; `None`: the master is gone. From then on the log goes to the master.
    ///
    /// # Errors
    /// The line is none; the master is told, and the work directory.
    pub fn begin(socket: Socket, notes: Option<&Notes>) -> Result<Option<Preloader>, Error> {
        Preloader::begin_with(socket, notes, |context| {
            // What a zygote has to say, it says on standard error.
            let Some(context) = context else {
                Log::install();
                return sys::fd::null();
            };
            let messages = context.messages.try_clone();
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
        open_null: impl FnOnce(Option<&GenerationContext>) -> sys::Result<OwnedFd>,
    ) -> Result<Option<Preloader>, Error> {
        let Some(message) = socket.receive()? else {
            return Ok(None);
        };
        let begun = begun(message).and_then(|begun| Ok((open_null(begun.context.as_ref())?, begun)));
        let (null, begun) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let summary = error.to_string();
                if let Some(notes) = notes {
                    let (step, category) = error.blames();
                    let complaint = SetupComplaint {
                        summary: &summary,
                        solution: Some(error.solution()),
                        ..SetupComplaint::default()
                    };
                    notes.fail(step, category, &complaint);
                }
                socket.answer(&failure(None, summary));
                return Err(error);
            }
        };
        Ok(Some(Preloader::new(socket, null, begun)))
    }

    /// For a process that has begun as another program: with the settings and the context's descriptors that it had there.
    ///
    /// # Errors
    /// They do not belong together, or a system call failed.
    pub fn begin_anew(
        socket: Socket,
        settings: Settings,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Preloader, Error> {
        let context = GenerationContext::assemble(settings.clone(), descriptors).map_err(Error::Context)?;
        let messages = context.messages.try_clone();
        let messages = messages.map_err(|error| sys::Error::from_io("dup", "", &error))?;
        Log::install().send_to_master(messages);
        let begun = Begun {
            settings,
            context: Some(context),
            warms_up: false,
            is_for_many: false,
        };
        Ok(Preloader::new(socket, sys::fd::null()?, begun))
    }

    fn new(socket: Socket, null: OwnedFd, begun: Begun) -> Preloader {
        let settings = begun.settings;
        let name = sharing::label(&settings.pool);
        title::set(&format!("{}: preloader {name}", settings.pool.title));
        Preloader {
            socket,
            settings,
            context: begun.context,
            null,
            warms_up: begun.warms_up,
            is_for_many: begun.is_for_many,
            early: VecDeque::new(),
            watch: None,
        }
    }

    /// The descriptors of its context, in the order in which [`Preloader::begin_anew`] takes them.
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.context
            .as_ref()
            .map_or_else(Vec::new, GenerationContext::descriptors)
    }

    /// Waits until the master says something, which stays unread; `false`: it is gone.
    ///
    /// # Errors
    /// The connection to the master is broken.
    pub fn expect(&mut self) -> Result<bool, Error> {
        Ok(!self.early.is_empty() || self.socket.expect()?)
    }

    /// Becomes what the pool says: limits, directories, user, environment. Before the application runs any code.
    ///
    /// # Errors
    /// The step that failed.
    pub fn apply_process_settings(&self) -> Result<(), Error> {
        worker::apply_process_settings(&self.settings)?;
        worker::apply_environment(&self.settings);
        Ok(())
    }

    /// What is left of [`Preloader::apply_process_settings`] in a program that was started by a process which had settled: what exec(2)
    /// has undone.
    ///
    /// # Errors
    /// The step that failed.
    pub fn apply_process_settings_again(&self) -> Result<(), Error> {
        if !self.settings.pool.process_dumpable && self.settings.identity.is_some() {
            sys::identity::forbid_dumps()?;
        }
        worker::apply_environment(&self.settings);
        Ok(())
    }

    /// Compiles the scripts that the old workers ran most, if the master has announced them. If they come too late, does
    /// nothing.
    ///
    /// # Errors
    /// The connection to the master is broken.
    pub fn warm_up(&mut self, cache: &mut dyn CodeCache) -> Result<(), Error> {
        let end = clock::now() + WARM_TIMEOUT;
        while self.warms_up {
            let Some(message) = self.socket.receive_within(end.since(clock::now()))? else {
                break;
            };
            match serde_json::from_slice(&message.line) {
                Ok(Command::<serde::de::IgnoredAny>::Warm { .. }) => {
                    cache.compile(message.descriptors, None);
                    break;
                }
                _ => self.early.push_back(message),
            }
        }
        Ok(())
    }

    /// When a file changes from now on that one of these matches, the master is asked to let the pool begin anew.
    pub fn watch(&mut self, patterns: &[PathPattern]) {
        self.watch = Watch::begin(patterns);
    }

    /// The application is loaded: the answer to the master's first line.
    pub fn ready(&self, answer: &Answer) {
        self.socket.answer(answer);
    }

    /// The same of a zygote, with the memory that each pool has to have of its own.
    pub fn ready_with(&self, answer: &Answer, memory: Option<BorrowedFd<'_>>) {
        self.socket.answer_with(answer, memory);
    }

    /// The application can't be loaded.
    pub fn failed(&self, message: &str) {
        self.socket.answer(&failure(None, message));
    }

    /// Waits until a worker is wanted, and obeys the master in all else; `None`: the preloader is to end.
    ///
    /// # Errors
    /// The connection to the master is broken.
    pub fn wait(&mut self, cache: &mut dyn CodeCache) -> Result<Option<WorkerOrder>, Error> {
        loop {
            let message = match self.early.pop_front() {
                Some(message) => message,
                None => match self.receive()? {
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

    /// The next line. Looks after the files that are watched meanwhile.
    fn receive(&mut self) -> Result<Option<Message>, Error> {
        while let (Some(watch), Some(context)) = (&mut self.watch, &self.context) {
            if let Some(changed) = watch.poll(clock::now()) {
                worker::tell_restart(context, RestartReason::Watched, changed);
            }
            if self.socket.wait_beside(watch.as_fd(), watch.deadline())? {
                break;
            }
        }
        Ok(self.socket.receive()?)
    }

    fn obey(&mut self, message: Message, cache: &mut dyn CodeCache) -> Result<Obeyed, (Option<u64>, Error)> {
        let command: Command<Settings> =
            serde_json::from_slice(&message.line).map_err(|error| (None, Error::Line(error)))?;
        match command {
            Command::Spawn {
                worker,
                slot,
                is_routed,
                parcel,
            } => {
                let wrong = |error| (Some(worker), error);
                let (parcel, descriptors) = self.unpack(parcel, message.descriptors).map_err(wrong)?;
                let own = WorkerContext::assemble(slot, is_routed, descriptors)
                    .map_err(|error| wrong(Error::Context(error)))?;
                Ok(Obeyed::Wanted(WorkerOrder { worker, own, parcel }))
            }
            // A zygote has nothing of it: that what came before is done is what the master wants to hear.
            Command::Forget { generation } => Ok(Obeyed::Answer(Answer::Forgotten { generation })),
            Command::Scripts { most, parcel } => {
                let unpacked = self.unpack(parcel, message.descriptors);
                let (parcel, mut descriptors) = unpacked.map_err(|error| (None, error))?;
                if let Some(to) = descriptors.pop() {
                    cache.name_scripts(most, to, parcel);
                }
                Ok(Obeyed::Nothing)
            }
            // Too late: this preloader is ready, and workers are wanted now.
            Command::Warm { parcel: None } => Ok(Obeyed::Nothing),
            Command::Warm { parcel } => {
                let unpacked = self.unpack(parcel, message.descriptors);
                let (parcel, descriptors) = unpacked.map_err(|error| (None, error))?;
                cache.compile(descriptors, parcel);
                Ok(Obeyed::Nothing)
            }
            Command::Begin { .. } => Err((None, Error::Untimely)),
        }
    }

    /// Splits what came with a command into the generation's part, which only a zygote gets, and the rest.
    fn unpack(
        &self,
        parcel: Option<protocol::Parcel>,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<(Option<Parcel>, Vec<OwnedFd>), Error> {
        if self.is_zygote() != parcel.is_some() {
            return Err(Error::Untimely);
        }
        let parcel = parcel.map(|parcel| Parcel::split_off(parcel, &mut descriptors));
        Ok((parcel.transpose().map_err(Error::Context)?, descriptors))
    }

    /// The worker exists.
    pub fn made(&self, wanted: &WorkerOrder, pid: i32) {
        let worker = wanted.worker;
        self.socket.answer(&Answer::Ok { worker, pid });
    }

    /// It could not be made.
    pub fn not_made(&self, wanted: &WorkerOrder, message: &str) {
        self.socket.answer(&failure(Some(wanted.worker), message));
    }

    /// Whether it makes workers of any pool and user: a worker still takes on all settings of its pool.
    pub fn is_zygote(&self) -> bool {
        self.context.is_none()
    }

    /// Of a zygote: whether it was started for several pools.
    pub fn is_for_many(&self) -> bool {
        self.is_for_many
    }

    /// In a worker, before code of the application runs there: what it writes is its own and no longer the preloader's, and so is
    /// what it starts ([`worker::begin_group`]).
    ///
    /// # Errors
    /// `dup2`, `setpgid`.
    pub fn settle(&self, wanted: &WorkerOrder) -> Result<(), sys::Error> {
        worker::begin_group(&self.settings.pool)?;
        worker::redirect_output(&wanted.own, self.null.as_fd())
    }

    /// In a worker: what it takes along; all else is closed. `None`: the log says why it can't.
    pub fn into_contexts(self, wanted: WorkerOrder) -> Option<(GenerationContext, WorkerContext)> {
        let context = match wanted.parcel {
            Some(parcel) => match parcel.open() {
                Ok(context) => context,
                Err(error) => {
                    log::error!("worker failed to initialize: {error}");
                    return None;
                }
            },
            None => self.context?,
        };
        let pool = &context.settings.pool;
        title::set(&format!("{}: pool {}", pool.title, pool.name));
        let settled =
            worker::begin_group(pool).and_then(|()| worker::redirect_output(&wanted.own, self.null.as_fd()));
        if let Err(error) = settled {
            log::error!("worker failed to initialize: {error}");
            return None;
        }
        Some((context, wanted.own))
    }
}

/// What a line of the master's led to.
enum Obeyed {
    Wanted(WorkerOrder),
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
    settings: Settings,
    /// `None`: it is to be a zygote.
    context: Option<GenerationContext>,
    warms_up: bool,
    is_for_many: bool,
}

fn begun(message: Message) -> Result<Begun, Error> {
    let command: Command<Settings> = serde_json::from_slice(&message.line).map_err(Error::Line)?;
    let Command::Begin {
        context,
        warms_up,
        is_zygote,
        is_for_many,
    } = command
    else {
        return Err(Error::Untimely);
    };
    Ok(Begun {
        settings: context.clone(),
        context: match is_zygote {
            true => None,
            false => Some(GenerationContext::assemble(context, message.descriptors).map_err(Error::Context)?),
        },
        warms_up,
        is_for_many,
    })
}

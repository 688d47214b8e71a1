//! The part of a preloader that all runtimes share: the protocol with the master and its command loop.
//!
//! A preloader loads an application and forks a worker whenever the master asks. forkyard-php is one; other languages
//! use the C ABI ([`crate::abi`]). A runtime waits for the next worker ([`Preloader::wait`]), forks it itself and
//! implements [`CodeCache`].

mod connections;
mod parcel;
mod socket;
mod watch;

pub use connections::left_open;
pub use parcel::Parcel;
pub use socket::{Message, Socket};

use crate::php::protocol::{self, Answer, Command, WARM_TIMEOUT};
use forkyard_config::{PathPattern, sharing};
use forkyard_host::logs::Log;
use forkyard_protocol::accept_notify::RestartReason;
use forkyard_spawn::error::Category;
use forkyard_spawn::setupper::{Notes, SetupComplaint};
use forkyard_spawn::step::Step;
use forkyard_sys::{self as sys, clock, title};
use forkyard_worker::{ContextError, GenerationContext, Settings, WorkerContext};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use watch::Watch;

/// A runtime's cache of compiled code. Runtimes without a cache use `()`.
pub trait CodeCache {
    /// Writes the paths of the most-used scripts to a pipe, most used first, each followed by NUL. `parcel`: the
    /// generation whose cache is read, in a zygote.
    fn name_scripts(&mut self, _most: u32, _to: OwnedFd, _parcel: Option<Parcel>) {}

    /// Writes the state of the caches to a pipe. `parcel`: the generation with these caches, in a zygote.
    fn write_state(&mut self, _to: OwnedFd, _parcel: Option<Parcel>) {}

    /// Compiles scripts without running them, and reads their paths from the last descriptor. The other descriptors
    /// stay
    /// open until the scripts are compiled. `parcel`: the generation, in a zygote.
    fn compile(&mut self, _descriptors: Vec<OwnedFd>, _parcel: Option<Parcel>) {}
}

impl CodeCache for () {}

/// Why a preloader can't continue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The master's line is invalid.
    #[error("line from the master: {0}")]
    Line(serde_json::Error),
    /// The first line is not `begin`, or a later line is.
    #[error("line from the master: not the time for it")]
    Untimely,
    /// The message has the wrong descriptors.
    #[error("message from the master: {0}")]
    Context(ContextError),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] sys::Error),
    /// The pool's process settings could not be applied.
    #[error(transparent)]
    ProcessSettings(#[from] forkyard_worker::ProcessSettingsError),
}

impl Error {
    /// The failed step of the start, and the category of the error.
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
                "All programs of forkyard must have the same version: install them together."
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

/// A request for a worker.
#[derive(Debug)]
pub struct WorkerOrder {
    worker: u64,
    /// The worker's own context.
    pub own: WorkerContext,
    parcel: Option<Parcel>,
}

impl WorkerOrder {
    /// The pool's own memory, in a worker of a zygote.
    pub fn take_memory(&mut self) -> Option<OwnedFd> {
        self.parcel.as_mut()?.take_memory()
    }
}

/// A preloader whose master has sent `begin`.
#[derive(Debug)]
pub struct Preloader {
    socket: Socket,
    /// The settings of the pool, or those that a zygote's pools have in common.
    pub settings: Settings,
    /// The workers' context; `None` in a zygote, which serves any pool and user.
    context: Option<GenerationContext>,
    null: OwnedFd,
    warms_up: bool,
    is_for_many: bool,
    early: VecDeque<Message>,
    watch: Option<Box<Watch>>,
}

impl Preloader {
    /// Reads the master's first line and then sends log lines to the master. `None` if the master is gone.
    ///
    /// # Errors
    /// The line is invalid; this is reported to the master and in the notes.
    pub fn begin(socket: Socket, notes: Option<&Notes>) -> Result<Option<Preloader>, Error> {
        Preloader::begin_with(socket, notes, |context| {
            let Some(context) = context else {
                Log::install();
                return sys::fd::null();
            };
            Log::install().send_to_master(sys::fd::copy(&context.messages)?);
            sys::fd::null()
        })
    }

    /// [`Preloader::begin`] in a copy of a worker, which already has the log and process settings.
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

    /// Restores a preloader after exec(2), from its settings and the context's descriptors.
    ///
    /// # Errors
    /// The settings don't match the descriptors, or a system call failed.
    pub fn begin_anew(
        socket: Socket,
        settings: Settings,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Preloader, Error> {
        let context = GenerationContext::assemble(settings.clone(), descriptors).map_err(Error::Context)?;
        Log::install().send_to_master(sys::fd::copy(&context.messages)?);
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

    /// The context's descriptors, in the order of [`Preloader::begin_anew`].
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.context
            .as_ref()
            .map_or_else(Vec::new, GenerationContext::descriptors)
    }

    /// Waits for a command, without reading it. Returns false if the master is gone.
    ///
    /// # Errors
    /// The connection to the master is broken.
    pub fn expect(&mut self) -> Result<bool, Error> {
        Ok(!self.early.is_empty() || self.socket.expect()?)
    }

    /// Applies the pool's limits, directories, user and environment. Call it before any application code runs.
    ///
    /// # Errors
    /// A step failed; the error names it.
    pub fn apply_process_settings(&self) -> Result<(), Error> {
        forkyard_worker::apply_process_settings(&self.settings)?;
        forkyard_worker::apply_environment(&self.settings);
        Ok(())
    }

    /// Repeats the part of [`Preloader::apply_process_settings`] that exec(2) has reset.
    ///
    /// # Errors
    /// A step failed; the error names it.
    pub fn apply_process_settings_again(&self) -> Result<(), Error> {
        if !self.settings.pool.setup.process_dumpable && self.settings.identity.is_some() {
            sys::identity::forbid_dumps()?;
        }
        forkyard_worker::apply_environment(&self.settings);
        Ok(())
    }

    /// Compiles the scripts that the old workers ran most, if the master has announced them and sends them in time.
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

    /// Watches files: if one that matches changes, the preloader asks the master for a new generation.
    pub fn watch(&mut self, patterns: &[PathPattern]) {
        self.watch = Watch::begin(patterns);
    }

    /// Answers the master's first line: the application is loaded.
    pub fn ready(&self, answer: &Answer) {
        self.socket.answer(answer);
    }

    /// [`Preloader::ready`] of a zygote, with the memory that each pool needs a copy of.
    pub fn ready_with(&self, answer: &Answer, memory: Option<BorrowedFd<'_>>) {
        self.socket.answer_with(answer, memory);
    }

    /// Reports that the application can't be loaded.
    pub fn failed(&self, message: &str) {
        self.socket.answer(&failure(None, message));
    }

    /// Handles commands until a worker is wanted. `None`: exit.
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

    fn receive(&mut self) -> Result<Option<Message>, Error> {
        while let (Some(watch), Some(context)) = (&mut self.watch, &self.context) {
            if let Some(changed) = watch.poll(clock::now()) {
                forkyard_worker::tell_restart(context, RestartReason::Watched, changed);
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
            // A zygote keeps no state for a generation; the answer confirms that earlier commands are done.
            Command::Forget { generation } => Ok(Obeyed::Answer(Answer::Forgotten { generation })),
            Command::Scripts { most, parcel } => {
                let unpacked = self.unpack(parcel, message.descriptors);
                let (parcel, mut descriptors) = unpacked.map_err(|error| (None, error))?;
                if let Some(to) = descriptors.pop() {
                    cache.name_scripts(most, to, parcel);
                }
                Ok(Obeyed::Nothing)
            }
            Command::CacheState { parcel } => {
                let unpacked = self.unpack(parcel, message.descriptors);
                let (parcel, mut descriptors) = unpacked.map_err(|error| (None, error))?;
                if let Some(to) = descriptors.pop() {
                    cache.write_state(to, parcel);
                }
                Ok(Obeyed::Nothing)
            }
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

    /// Reports a new worker.
    pub fn made(&self, wanted: &WorkerOrder, pid: i32) {
        let worker = wanted.worker;
        self.socket.answer(&Answer::Ok { worker, pid });
    }

    /// Reports that a fork failed.
    pub fn not_made(&self, wanted: &WorkerOrder, message: &str) {
        self.socket.answer(&failure(Some(wanted.worker), message));
    }

    /// Whether this preloader forks workers of any pool and user. These workers apply all settings of their pool
    /// themselves.
    pub fn is_zygote(&self) -> bool {
        self.context.is_none()
    }

    /// Whether a zygote was started for several pools.
    pub fn is_for_many(&self) -> bool {
        self.is_for_many
    }

    /// Separates a worker's output and process group from the preloader's ([`forkyard_worker::begin_group`]). Call it before
    /// application code runs.
    ///
    /// # Errors
    /// `dup2`, `setpgid`.
    pub fn settle(&self, wanted: &WorkerOrder) -> Result<(), sys::Error> {
        forkyard_worker::begin_group(&self.settings.pool)?;
        forkyard_worker::redirect_output(&wanted.own, self.null.as_fd())
    }

    /// Returns the contexts of a new worker and closes everything else. `None`: an error, which has been logged.
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
        let settled = forkyard_worker::begin_group(pool)
            .and_then(|()| forkyard_worker::redirect_output(&wanted.own, self.null.as_fd()));
        if let Err(error) = settled {
            log::error!("worker failed to initialize: {error}");
            return None;
        }
        Some((context, wanted.own))
    }
}

enum Obeyed {
    Wanted(WorkerOrder),
    Answer(Answer),
    Nothing,
}

pub(crate) fn failure(worker: Option<u64>, message: impl Into<String>) -> Answer {
    Answer::Error {
        worker,
        message: message.into(),
    }
}

struct Begun {
    settings: Settings,
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

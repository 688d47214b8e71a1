//! The loop's sources and their tokens.

use super::helper_id::HelperId;
use forkyard_base::tick::Tick;
use forkyard_core::master::event::{GenerationId, PoolId, WorkerId};
use forkyard_sys::Error;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ControlSocket {
    /// For root and the daemon's user.
    Main,
    /// For owners of applications. Its requests never delay the main socket's.
    Owners,
}

impl ControlSocket {
    pub(crate) fn mode(self) -> u32 {
        match self {
            ControlSocket::Main => 0o600,
            ControlSocket::Owners => 0o666,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Work(PoolId),
    ChildAccept(GenerationId),
    Messages(GenerationId),
    Reports(GenerationId),
    /// A worker's standard output (0) or error (1).
    Output(WorkerId, usize),
    Preloader(i32),
    PreloaderOutput(i32),
    Second(GenerationId),
    ProgramOutput(GenerationId, usize),
    AppLogRoom(GenerationId),
    Foreign(WorkerId),
    Rehearsal,
    Control(ControlSocket),
    ControlSession(u64),
    Status(PoolId),
    HelperChannel(HelperId),
    HelperMessages(HelperId),
    WarmUp(GenerationId),
    /// The report of the process that reads a generation's caches.
    CacheState(GenerationId),
    Directories,
    Spawner(Token),
}

pub(crate) const SIGNALS: Token = Token(0);

/// The spawning kit's first token. Lower ones are assigned one by one and never reused.
pub(crate) const FIRST_OF_SPAWNER: usize = usize::MAX / 2;

#[derive(Debug)]
pub(crate) struct Sources {
    registry: Registry,
    by_token: HashMap<usize, Source>,
    by_descriptor: HashMap<RawFd, usize>,
    last: usize,
    /// When held lines are due.
    entries_due: Option<Tick>,
}

impl Sources {
    pub(crate) fn new(registry: Registry) -> Sources {
        Sources {
            registry,
            by_token: HashMap::new(),
            by_descriptor: HashMap::new(),
            last: 0,
            entries_due: None,
        }
    }

    /// Lines are held until `due`.
    pub(crate) fn hold_entry(&mut self, due: Option<Tick>) {
        self.entries_due = self.entries_due.into_iter().chain(due).min();
    }

    pub(crate) fn entries_deadline(&self) -> Option<Tick> {
        self.entries_due
    }

    pub(crate) fn take_entries_due(&mut self, now: Tick) -> Option<Tick> {
        self.entries_due.take_if(|due| *due <= now)
    }

    /// Watches a pool's descriptor; logs an error.
    pub(crate) fn watch_of_pool(&mut self, pool: &str, fd: &impl AsFd, source: Source) {
        if let Err(error) = self.watch(fd, source) {
            log::error!("[pool {pool}] {error}");
        }
    }

    /// Watches a descriptor. mio is edge-triggered; a ready one gives an event at once.
    pub(crate) fn watch(&mut self, fd: &impl AsFd, source: Source) -> Result<(), Error> {
        self.watch_for(fd, source, Interest::READABLE)
    }

    /// Also reports that there is room to write.
    pub(crate) fn watch_both(&mut self, fd: &impl AsFd, source: Source) -> Result<(), Error> {
        self.watch_for(fd, source, Interest::READABLE | Interest::WRITABLE)
    }

    pub(crate) fn watch_for(
        &mut self,
        fd: &impl AsFd,
        source: Source,
        interest: Interest,
    ) -> Result<(), Error> {
        self.last += 1;
        let token = self.last;
        let raw = fd.as_fd().as_raw_fd();
        self.registry
            .register(&mut SourceFd(&raw), Token(token), interest)
            .map_err(|e| Error::from_io("epoll_ctl", format!("{source:?}"), &e))?;
        self.by_token.insert(token, source);
        self.by_descriptor.insert(raw, token);
        Ok(())
    }

    /// Stops watching a descriptor, which must still be open. An unwatched one is no error.
    pub(crate) fn forget(&mut self, fd: &impl AsFd) {
        let raw = fd.as_fd().as_raw_fd();
        if let Some(token) = self.by_descriptor.remove(&raw) {
            self.by_token.remove(&token);
            let _ = self.registry.deregister(&mut SourceFd(&raw));
        }
    }

    /// A token's source; `None` if it is no longer watched.
    pub(crate) fn source(&self, token: Token) -> Option<Source> {
        if token.0 >= FIRST_OF_SPAWNER {
            return Some(Source::Spawner(token));
        }
        self.by_token.get(&token.0).copied()
    }
}

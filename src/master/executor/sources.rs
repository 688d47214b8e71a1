//! What the master's loop watches, and what each token stands for.

use super::super::event::{GenerationId, PoolId, WorkerId};
use super::applications::Which;
use super::control::ControlSocket;
use crate::sys::Error;
use crate::tick::Tick;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// What a token stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::master) enum Source {
    /// A pool's listening socket or hand-off queue.
    Work(PoolId),
    /// A generation's accept-notify pipe.
    ChildAccept(GenerationId),
    /// A generation's messages.
    Messages(GenerationId),
    /// What a generation's workers tell of starts that failed.
    Reports(GenerationId),
    /// A worker's standard output (0) or error (1).
    Output(WorkerId, usize),
    /// The channel of the preloader with this pid.
    Preloader(i32),
    /// What the preloader with this pid writes to its standard output and error.
    PreloaderOutput(i32),
    /// The channel of a generation's next mold whose process is not known yet.
    Second(GenerationId),
    /// What a process of a generation's program writes, by its place.
    ProgramOutput(GenerationId, usize),
    /// Room in a generation's application log.
    AppLogRoom(GenerationId),
    /// A worker that is another process's child.
    Foreign(WorkerId),
    /// What the new program says while it tries whether it could take over.
    Rehearsal,
    /// A control socket.
    Control(ControlSocket),
    /// A conversation over a control socket.
    ControlSession(u64),
    /// The address of a pool's status.
    Status(PoolId),
    /// What an application pool's router says.
    Router(PoolId),
    /// What its inspector has seen.
    Inspector(PoolId),
    /// What one of the two says for the log.
    HelperMessages(PoolId, Which),
    /// What the process that keeps background jobs says.
    Jobs,
    /// What it says for the log.
    JobsMessages,
    /// The end of a generation's warm-up.
    WarmUp(GenerationId),
    /// The directories of pools' files.
    Directories,
    /// Something of a process that is being started.
    Spawner(Token),
}

/// The token of the signal pipe.
pub(in crate::master) const SIGNALS: Token = Token(0);

/// The first of the spawning kit's tokens. Those below are given out one by one and never used twice.
pub(super) const FIRST_OF_SPAWNER: usize = usize::MAX / 2;

/// All descriptors that the master watches.
#[derive(Debug)]
pub(in crate::master) struct Sources {
    registry: Registry,
    by_token: HashMap<usize, Source>,
    by_descriptor: HashMap<RawFd, usize>,
    last: usize,
    /// When lines that were read are written that are held until nothing more belongs to them.
    entries_due: Option<Tick>,
}

impl Sources {
    /// Watches nothing yet.
    pub(super) fn new(registry: Registry) -> Sources {
        Sources {
            registry,
            by_token: HashMap::new(),
            by_descriptor: HashMap::new(),
            last: 0,
            entries_due: None,
        }
    }

    /// Notes that lines are held until then.
    pub(super) fn hold_entry(&mut self, due: Option<Tick>) {
        self.entries_due = self.entries_due.into_iter().chain(due).min();
    }

    /// When [`super::Executor::poll_entries`] is to be called next.
    pub(super) fn entries_deadline(&self) -> Option<Tick> {
        self.entries_due
    }

    /// The same if it is not later than `now`; then nothing is held any more.
    pub(super) fn take_entries_due(&mut self, now: Tick) -> Option<Tick> {
        self.entries_due.take_if(|due| *due <= now)
    }

    /// Watches a descriptor. mio is edge-triggered; registering one that is ready gives an event at once.
    pub(super) fn watch(&mut self, fd: &impl AsFd, source: Source) -> Result<(), Error> {
        self.watch_for(fd, source, Interest::READABLE)
    }

    /// Watches a descriptor for more than reading.
    pub(super) fn watch_for(
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

    /// Stops watching a descriptor, which is still open. One that is not watched is no error.
    pub(super) fn forget(&mut self, fd: &impl AsFd) {
        let raw = fd.as_fd().as_raw_fd();
        if let Some(token) = self.by_descriptor.remove(&raw) {
            self.by_token.remove(&token);
            let _ = self.registry.deregister(&mut SourceFd(&raw));
        }
    }

    /// What a token stands for; `None`: it is not watched any more.
    pub(super) fn source(&self, token: Token) -> Option<Source> {
        if token.0 >= FIRST_OF_SPAWNER {
            return Some(Source::Spawner(token));
        }
        self.by_token.get(&token.0).copied()
    }
}

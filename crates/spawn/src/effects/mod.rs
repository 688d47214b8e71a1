//! Performs the machine's actions and reports results as events. Nothing here blocks: pipes, FIFOs and sockets are
//! non-blocking and registered with the caller's mio loop.

mod family;
mod live;
mod looks;
mod lookup;
mod memory;
mod own_socket;
mod parting;
mod ports;
mod remains;
mod start;
mod steps;

use super::action::JourneyAction;
use super::capture::Capture;
use super::error::{Ended, Fault};
use super::event::{JourneyEvent, JourneyId};
use super::handshake::response::Complaint;
use super::workdir::{self, Base, WorkDirectory};
use forkyard_sys::guarded::Guarded;
use forkyard_sys::{self as sys, identity};
use live::Live;
use looks::Lookers;
pub use lookup::{account, own_account};
pub use memory::oom_kills;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use ports::Ports;
pub use remains::{Remains, SocketFile};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Context {
    pub spawn_dir: PathBuf,
    /// Create a base directory there for this process, and remove dead daemons' base directories.
    pub has_base: bool,
    /// The program that contains the env setupper.
    pub program: PathBuf,
    /// Inherited environment variables.
    pub environment: Vec<(OsString, OsString)>,
    pub descriptor_limit: Option<(u64, u64)>,
    /// The first and last assignable port.
    pub ports: (u16, u16),
    pub first_token: usize,
}

pub const PORTS: (u16, u16) = (5000, 65_535);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    Output,
    Exit,
    Finish,
    Ping,
    Look,
}

const KINDS: usize = 8;

/// A process that is up, owned by the caller.
#[derive(Debug)]
pub struct Process {
    pub pid: i32,
    /// A pidfd; readable after the exit.
    pub handle: OwnedFd,
    /// Standard input. Closing it asks the process to exit.
    pub input: Option<OwnedFd>,
    /// Standard output and error; non-blocking.
    pub output: Option<Guarded>,
    pub written: Capture,
    /// The exit, if the caller already reaped the process ([`Effects::reaped`]).
    pub gone: Option<Ended>,
    /// Processes and sockets to remove after the exit.
    pub remains: Remains,
}

/// Receives the output of processes.
pub type Sink = Box<dyn FnMut(JourneyId, &[u8])>;

pub struct Effects {
    context: Context,
    base: Option<Base>,
    registry: Registry,
    live: BTreeMap<JourneyId, Live>,
    ports: Ports,
    events: VecDeque<(JourneyId, JourneyEvent)>,
    sink: Sink,
    lookers: Lookers,
    litter: Vec<(WorkDirectory, u32)>,
}

impl std::fmt::Debug for Effects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Effects")
            .field("live", &self.live)
            .finish_non_exhaustive()
    }
}

impl Effects {
    pub fn new(context: Context, registry: Registry, sink: Sink) -> Effects {
        let ports = Ports::new(context.ports);
        let mut made = Effects {
            context,
            base: None,
            registry,
            live: BTreeMap::new(),
            ports,
            events: VecDeque::new(),
            sink,
            lookers: Lookers::default(),
            litter: Vec::new(),
        };
        if made.context.has_base {
            made.make_base();
            let parent = made.context.spawn_dir.clone();
            made.lookers.clear(identity::own_user(), &[], || {
                workdir::sweep(&parent);
                own_socket::sweep(&parent);
            });
        }
        made
    }

    /// On failure, work directories are created directly in the parent.
    fn make_base(&mut self) {
        self.base = match Base::make(&self.context.spawn_dir) {
            Ok(base) => Some(base),
            Err(error) => {
                log::warn!("a directory for work directories can't be made: {error}");
                None
            }
        };
    }

    fn work_place(&mut self) -> &std::path::Path {
        // A cleaner of temporary files may have removed it.
        let is_there = self.base.as_ref().is_some_and(|base| base.path().exists());
        if self.context.has_base && !is_there {
            self.make_base();
        }
        let own = self.base.as_ref().map(Base::path);
        own.unwrap_or(&self.context.spawn_dir)
    }

    pub fn remove_base(&mut self) {
        if let Some(base) = self.base.take() {
            self.lookers
                .clear(identity::own_user(), &[base.lock()], || base.remove());
        }
    }

    pub fn next_event(&mut self) -> Option<(JourneyId, JourneyEvent)> {
        self.events.pop_front()
    }

    /// Performs an action. Its result is an event, now or later.
    pub fn perform(&mut self, id: JourneyId, action: JourneyAction) {
        match action {
            JourneyAction::Prepare { plan, route } => {
                self.live.insert(id, Live::new(plan, route));
                self.prepare(id);
            }
            JourneyAction::PrepareAgain => {
                if let Some(old) = self.live.remove(&id) {
                    let (plan, route) = (Arc::clone(&old.plan), old.route);
                    self.give_up(old, &[]);
                    self.live.insert(id, Live::new(plan, route));
                    self.prepare(id);
                }
            }
            JourneyAction::Fork => self.fork(id),
            JourneyAction::Ping => self.ping(id),
            JourneyAction::Load => self.load(id),
            JourneyAction::Kill => self.kill(id),
            JourneyAction::Sweep => self.sweep(id),
            JourneyAction::EndHandshake => self.end_handshake(id),
            JourneyAction::Discard { sockets } => {
                if let Some(live) = self.live.remove(&id) {
                    self.give_up(live, &sockets);
                }
            }
        }
    }

    /// Handles a ready descriptor. Returns whether the token belongs to the kit.
    pub fn ready(&mut self, token: Token) -> bool {
        let Some((id, watched)) = self.read_token(token) else {
            return false;
        };
        if self.live.contains_key(&id) {
            match watched {
                Watched::Output => self.read_output(id),
                Watched::Exit => self.exited(id),
                Watched::Finish => self.read_finish(id),
                Watched::Ping => self.pinged(id),
                Watched::Look => self.looked(id),
            }
        }
        true
    }

    /// Handles a child reaped by the caller. Returns whether the child belongs to the kit.
    pub fn reaped(&mut self, pid: i32, ended: Ended) -> bool {
        if self.lookers.reaped(pid) {
            return true;
        }
        let mut live = self.live.iter_mut();
        let found = live.find(|(_, live)| live.pid == Some(pid) && !live.reaped);
        let Some((id, live)) = found else { return false };
        live.reaped = true;
        live.gone = Some(ended);
        live.ended = Some(ended);
        let id = *id;
        self.exited(id);
        true
    }

    /// Takes a process that is up. The caller must reap it.
    pub fn take(&mut self, id: JourneyId) -> Option<Process> {
        let mut live = self.live.remove(&id)?;
        self.unwatch(&mut live);
        if let Some(port) = live.port {
            self.ports.release(port);
        }
        // The socket file's removal now also removes the directory.
        live.own = None;
        Some(Process {
            pid: live.pid?,
            handle: live.process.take()?,
            input: live.input.take(),
            output: live.output.take(),
            written: live.capture,
            gone: live.gone,
            remains: Remains::new(live.pid?, live.own_mark).with_sockets(live.sockets),
        })
    }

    /// Sets extra descriptors of a journey's process and their numbers. Call between the prepare and fork actions.
    pub fn give(&mut self, id: JourneyId, descriptors: Vec<(OwnedFd, RawFd)>) {
        if let Some(live) = self.live.get_mut(&id) {
            live.descriptors = descriptors;
        }
    }

    pub fn pid(&self, id: JourneyId) -> Option<i32> {
        self.live.get(&id)?.pid
    }

    pub fn knows(&self, pid: i32) -> bool {
        self.live.values().any(|live| live.pid == Some(pid))
    }

    /// Handles a readiness report outside the work directory.
    pub fn is_up(&mut self, id: JourneyId) {
        self.tell(id, JourneyEvent::Finish(Some(b'1')));
    }

    /// Handles a failure report outside the work directory.
    pub fn failed(&mut self, id: JourneyId, summary: &str) {
        let complaint = Complaint {
            summary: Some(summary.as_bytes().to_vec()),
            ..Complaint::default()
        };
        self.tell(id, JourneyEvent::Told(Box::new(complaint)));
    }

    /// Kills all starting processes and removes their work directories, before this program executes another. If that
    /// fails, the journeys fail as if their processes were killed.
    pub fn abandon(&mut self) {
        self.clear_up();
        let ids: Vec<JourneyId> = self.live.keys().copied().collect();
        for id in ids {
            let directory = self.live.get_mut(&id).and_then(|live| live.directory.take());
            if let Some(directory) = directory {
                self.kill(id);
                let uid = self.live.get(&id).map_or(0, |live| live.plan.account.uid);
                self.remove(directory, uid);
            }
        }
    }

    fn token(&self, id: JourneyId, watched: Watched) -> Token {
        let number = usize::try_from(id.0).unwrap_or(usize::MAX / KINDS);
        Token(self.context.first_token + number * KINDS + watched as usize)
    }

    fn read_token(&self, token: Token) -> Option<(JourneyId, Watched)> {
        let number = token.0.checked_sub(self.context.first_token)?;
        let all = [
            Watched::Output,
            Watched::Exit,
            Watched::Finish,
            Watched::Ping,
            Watched::Look,
        ];
        let watched = *all.get(number % KINDS)?;
        Some((JourneyId((number / KINDS) as u64), watched))
    }

    fn watch(&self, fd: &OwnedFd, id: JourneyId, watched: Watched) -> sys::Result<()> {
        let token = self.token(id, watched);
        let done = self
            .registry
            .register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE);
        done.map_err(|error| sys::Error::from_io("epoll_ctl", "", &error))
    }

    fn tell(&mut self, id: JourneyId, event: JourneyEvent) {
        self.events.push_back((id, event));
    }
}

pub fn fault(error: &sys::Error) -> Fault {
    Fault {
        text: error.to_string(),
        errno: error.errno as i32,
    }
}

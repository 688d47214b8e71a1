//! The sockets of a configuration: open, missing, or unreachable and to be bound again.

use crate::context::pools::{Pools, RunningPool};
use crate::context::{Context, InForce};
use crate::helpers::reporter::Reporters;
use forkyard_config::Pool;
use forkyard_core::master::event::PoolId;
use forkyard_host::listen::{ListenError, Listener, ListenerState, bind};
use forkyard_protocol::handover::names::QueueKind;
use forkyard_sys::fd::{MAX_PASSED, send_with, set_nonblocking};
use forkyard_sys::process::{self, Finding};
use forkyard_sys::socket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The first byte in the hand-off queue: its connections are unused.
const SILENT: [u8; 1] = [0];
/// The most connections taken from an unreachable socket, if its backlog does not limit them.
const MOST_PASSED_ON: usize = 65_536;

#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) known: Option<PoolId>,
    pub(crate) own: Option<Listener>,
    pub(crate) status: Option<Listener>,
    pub(crate) http: Option<Listener>,
    /// The status socket was open and can't be reached.
    pub(crate) status_lost: bool,
    /// The pool with the old socket, which can't be reached.
    pub(crate) lost: Option<PoolId>,
    /// Why an unreachable socket could not be bound again.
    pub(crate) problem: Option<String>,
}

/// Why connections that waited at an old socket are lost.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("they can't be accepted in time")]
    Late,
    /// The child's error.
    #[error("{0}")]
    Failed(String),
}

impl Sockets {
    pub(crate) fn remove_files(&self) {
        let opened = [&self.own, &self.status, &self.http].into_iter().flatten();
        opened.for_each(Listener::remove_file);
    }
}

impl Context {
    /// Opens the missing sockets of a pool. After an error none stays open.
    pub(crate) fn open_sockets(
        &mut self,
        reporters: &Reporters,
        pool: &Pool,
    ) -> Result<Sockets, ListenError> {
        let mut sockets = Sockets {
            known: self.pools.pool_listening_as(pool),
            own: None,
            status: None,
            http: None,
            status_lost: false,
            lost: None,
            problem: None,
        };
        match self.pools.socket_state_of(sockets.known) {
            Some(ListenerState::Open) => {}
            Some(state) => {
                match bind(&pool.listen, &mut self.handover.inherited) {
                    Ok(own) => (sockets.own, sockets.lost) = (Some(own), sockets.known.take()),
                    // Another program owns the file now. The pool serves its connected clients.
                    Err(error) => sockets.problem = Some(problem(state, &error)),
                }
            }
            None if sockets.known.is_none() => {
                sockets.own = Some(bind(&pool.listen, &mut self.handover.inherited)?)
            }
            None => {}
        }
        if let Some(wanted) = &pool.pages.status_listen {
            let open = reporters.at(&self.pools, &pool.name, wanted);
            let listener = open.and_then(|id| reporters.listener(id));
            let path = listener.filter(|it| it.is_ours()).map(Listener::state);
            let is_lost = path.is_some_and(|state| state != ListenerState::Open);
            if open.is_none() || is_lost {
                match (bind(wanted, &mut self.handover.inherited), path) {
                    (Ok(listener), path) => {
                        (sockets.status, sockets.status_lost) = (Some(listener), path.is_some());
                    }
                    (Err(error), Some(path)) => sockets.problem = Some(problem(path, &error)),
                    (Err(error), None) => {
                        sockets.remove_files();
                        return Err(error);
                    }
                }
            }
        }
        if let Some(wanted) = &pool.http_listen {
            let known = sockets.known.or(sockets.lost);
            let known = known.and_then(|id| self.pools.by_id.get(&id));
            let open = known.and_then(|pool| pool.http.as_ref());
            let is_other = open.is_none_or(|open| open.address != wanted.address || is_own_shut_down(open));
            if is_other || sockets.lost.is_some() {
                match bind(wanted, &mut self.handover.inherited) {
                    Ok(listener) => sockets.http = Some(listener),
                    Err(error) => {
                        sockets.remove_files();
                        return Err(error);
                    }
                }
            }
        }
        Ok(sockets)
    }

    /// Moves waiting connections from a pool's unreachable socket to its new one. No more can come. A router accepts
    /// its last ones itself.
    pub(crate) fn empty_socket(&mut self, from: PoolId, to: PoolId, has_router: bool) {
        let name = self.pools.pool_name(to).to_owned();
        let mut passed = 0;
        let is_shut_down = self.pools.socket_state_of(Some(from)) == Some(ListenerState::ShutDown);
        // A socket that was shut down has refused its waiting connections.
        if !has_router && !is_shut_down {
            if let Err(error) = self.open_queue(to, QueueKind::HandOff) {
                log::error!("[pool {name}] connections that wait at the old socket are lost: {error}");
            }
            match self.pools.pass_on(from, to) {
                Ok(count) => passed = count,
                Err(problem) => {
                    log::error!(
                        "[pool {name}] connections that waited at the old socket are lost: {problem}"
                    );
                }
            }
        }
        let waited = match passed {
            0 => String::new(),
            count => format!("; {count} connections that waited go over"),
        };
        let what = if is_shut_down {
            "socket was shut down"
        } else {
            "socket's file was gone"
        };
        log::warn!("[pool {name}] its {what}: it is bound again{waited}");
    }
}

impl Pools {
    pub(crate) fn has_lost_socket(&self, pool: &Pool) -> bool {
        let known = self.pool_listening_as(pool);
        let state = self.socket_state_of(known);
        let http = known.and_then(|id| self.by_id.get(&id)?.http.as_ref());
        http.is_some_and(is_own_shut_down) || state.is_some_and(|state| state != ListenerState::Open)
    }

    fn socket_state_of(&self, pool: Option<PoolId>) -> Option<ListenerState> {
        let listener = self.by_id.get(&pool?)?.listener.as_ref()?;
        listener.is_ours().then(|| listener.state())
    }

    pub(crate) fn pool_listening_as(&self, wanted: &Pool) -> Option<PoolId> {
        let listens = |pool: &RunningPool| {
            let listener = pool.listener.as_ref();
            listener.is_some_and(|listener| listener.address == wanted.listen.address)
        };
        let mut pools = self.by_id.of(&wanted.name);
        pools.find(|(_, pool)| listens(pool)).map(|(id, _)| id)
    }

    pub(crate) fn adjust_listener(&self, in_force: &InForce, id: PoolId, wanted: &Pool) {
        let listener = self.by_id.get(&id).and_then(|pool| pool.listener.as_ref());
        let Some(listener) = listener else { return };
        let before = in_force.pool(&wanted.name);
        let is_unchanged = before.is_some_and(|before| before.listen == wanted.listen);
        // Foreign changes of the file stay, unless no client could connect.
        if is_unchanged && !listener.is_for_root_alone() {
            return;
        }
        if let Err(error) = listener.adjust(&wanted.listen, before.map(|before| &before.listen)) {
            log::error!(
                "[pool {}] the socket keeps its old attributes: {error}",
                wanted.name
            );
        }
    }

    /// A child accepts the connections waiting at the old socket: workers can make accept(2) block, and clients a
    /// close. Returns their number.
    fn pass_on(&self, from: PoolId, to: PoolId) -> Result<usize, Lost> {
        let old = self.by_id.get(&from).and_then(|pool| pool.listener.as_ref());
        let queue = self.by_id.get(&to).and_then(|pool| pool.queues.hand_off());
        let (Some(old), Some((_, queue_in))) = (old, queue) else {
            return Ok(0);
        };
        let kept = [old.socket.as_fd(), queue_in.as_fd()];
        let passed = process::within_a_moment_with(self.pool_name(from), &kept, || {
            let mut passed = 0;
            let mut problem = String::new();
            while passed < MOST_PASSED_ON {
                match pass_some_on(kept[0], kept[1]) {
                    Ok(0) => break,
                    Ok(count) => passed += count,
                    Err(error) => {
                        problem = error.to_string();
                        break;
                    }
                }
            }
            Finding::from([&passed.to_ne_bytes()[..], problem.as_bytes()].concat())
        });
        let passed = passed.ok_or(Lost::Late)?.bytes;
        match passed.split_first_chunk() {
            Some((count, [])) => Ok(usize::from_ne_bytes(*count)),
            Some((_, problem)) => Err(Lost::Failed(String::from_utf8_lossy(problem).into_owned())),
            None => Ok(0),
        }
    }
}

fn pass_some_on(old: BorrowedFd<'_>, queue_in: BorrowedFd<'_>) -> Result<usize, forkyard_sys::Error> {
    set_nonblocking(old, true)?;
    let mut connections: Vec<OwnedFd> = Vec::new();
    while connections.len() < MAX_PASSED {
        match socket::accept(old)? {
            Some(connection) => connections.push(connection),
            None => break,
        }
    }
    if !connections.is_empty() {
        let descriptors: Vec<RawFd> = connections.iter().map(AsRawFd::as_raw_fd).collect();
        send_with(queue_in, &SILENT, &descriptors)?;
    }
    Ok(connections.len())
}

fn is_own_shut_down(listener: &Listener) -> bool {
    listener.is_ours() && listener.state() == ListenerState::ShutDown
}

fn problem(state: ListenerState, error: &ListenError) -> String {
    let what = match state {
        ListenerState::FileTaken => "the path of the pool's private socket leads to another file",
        ListenerState::ShutDown => "the pool's private socket was shut down",
        ListenerState::FileGone | ListenerState::Open => "the file of the pool's private socket is missing",
    };
    format!("{what}, and can't be bound again: {error}")
}

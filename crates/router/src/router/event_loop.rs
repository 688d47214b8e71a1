//! The router's event loop.

use super::acceptor::{Acceptor, LISTENER};
use super::admin_requests::AdminRequests;
use super::client::{Client, Interest};
use super::clients::{CLIENT, Clients};
use super::counters::{Apps, Errors};
use super::groups::Groups;
use super::inspections::{INSPECTOR, Inspections};
use super::instances::{INSTANCE, Instances};
use super::master_link::{HEARTBEAT, MASTER, MasterGone, MasterLink};
use super::memory::BUDGET;
use super::pool_queue::PoolQueue;
use super::refusals::Refused;
use super::sessions::Sessions;
use super::settings::PoolSettings;
use super::sites::Sites;
use super::state::{ClientCause, ClientState};
use forkyard_base::tick::Tick;
use forkyard_core::applications::event::Event;
use forkyard_host::listen::may_connect;
use forkyard_protocol::router::ToMaster;
use forkyard_sys::heap;
use forkyard_sys::timeout::epoll_timeout;
use forkyard_sys::{Error, clock, identity};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollTimeout};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

const EVENTS: usize = 256;
const SPARE_DESCRIPTORS: u64 = 64;
const ROUNDS: usize = 4;
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(30);

/// ```text
///  Serving ── Finish, or the master is gone ──▶ Finishing ── no connection, or the time is over ──▶ exit
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// Accepts no connections. With the time of the exit, if it is limited.
    Finishing(Option<Tick>),
}

pub(super) struct Router {
    pub(super) epoll: Epoll,
    pub(super) buffer: Vec<u8>,
    pub(super) now: Tick,
    pub(super) phase: Phase,
    pub(super) settings: PoolSettings,
    pub(super) master: MasterLink,
    pub(super) acceptor: Acceptor,
    pub(super) clients: Clients,
    pub(super) inspections: Inspections,
    pub(super) groups: Groups,
    pub(super) admin: AdminRequests,
    pub(super) pool: PoolQueue,
    pub(super) instances: Instances,
    pub(super) sessions: Sessions,
    pub(super) apps: Apps,
    pub(super) errors: Errors,
    pub(super) refused: Refused,
    pub(super) sites: Sites,
}

impl Router {
    pub(super) fn new(
        (master, heartbeat): (OwnedFd, Option<OwnedFd>),
        listener: OwnedFd,
        inspector: OwnedFd,
        settings: PoolSettings,
        buffer: Vec<u8>,
    ) -> Result<Router, Error> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|errno| Error::new("epoll_create1", "", errno))?;
        let applications = &settings.applications;
        let soft = identity::most_descriptors()?;
        let taken = SPARE_DESCRIPTORS + 2 * u64::from(applications.max.get());
        let most_clients = usize::try_from(soft.saturating_sub(taken).max(16)).unwrap_or(usize::MAX);
        Ok(Router {
            buffer,
            now: clock::now(),
            phase: Phase::Serving,
            master: MasterLink::new(master, heartbeat, &epoll)?,
            acceptor: Acceptor::new(listener),
            clients: Clients::new(most_clients),
            inspections: Inspections::new(inspector, &epoll)?,
            groups: Groups::default(),
            admin: AdminRequests::default(),
            pool: PoolQueue::new(applications),
            instances: Instances::default(),
            sessions: Sessions::new(),
            apps: Apps::new(applications.forget_after),
            errors: Errors::default(),
            refused: Refused::default(),
            sites: Sites::default(),
            epoll,
            settings,
        })
    }

    pub(super) fn serve(&mut self) -> Result<(), Error> {
        let mut events = vec![EpollEvent::empty(); EVENTS];
        loop {
            self.do_pending()?;
            if self.is_over() {
                self.tell_refused(true);
                self.master.say(&ToMaster::Finished);
                return self.flush();
            }
            let timeout = self.timeout();
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(errno) => return Err(Error::new("epoll_wait", "", errno)),
            };
            self.now = clock::now();
            let events = &events[..count];
            // Handle instances first: they free places for requests.
            for event in events
                .iter()
                .filter(|event| event.data() & (CLIENT | INSTANCE) == INSTANCE)
            {
                self.hear_instance(event.data() & !INSTANCE);
            }
            let mut accepts = false;
            for event in events {
                match event.data() {
                    LISTENER => accepts = true,
                    MASTER => self.hear_master(event.events()),
                    INSPECTOR => self.hear_inspector(),
                    HEARTBEAT => self.master.take_heartbeat(&self.epoll),
                    token if token & CLIENT != 0 => self.called(token & !CLIENT, event.events()),
                    _ => {}
                }
            }
            self.accept(accepts);
            self.expire();
        }
    }

    fn do_pending(&mut self) -> Result<(), Error> {
        self.serve_ready();
        for id in std::mem::take(&mut self.clients.asked) {
            if let Some(client) = self.clients.get(id).filter(|client| client.state().waits()) {
                if let Some(known) = &client.known {
                    self.apps.count(&known.name, |counters| &mut counters.queued);
                }
                self.watch_more(id, Interest::End);
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Error> {
        if let Some(gone) = self.master.flush(&self.epoll)? {
            self.orphaned(gone);
        }
        Ok(())
    }

    /// Continues connections that may have unread input. Those that still have some wait for the next turn.
    fn serve_ready(&mut self) {
        for _ in 0..ROUNDS {
            for id in std::mem::take(&mut self.clients.ready) {
                self.on_ready(id);
            }
            if self.clients.ready.is_empty() {
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        match self.phase {
            Phase::Serving => false,
            Phase::Finishing(limit) => {
                self.clients.len() == 0 || limit.is_some_and(|limit| limit <= self.now)
            }
        }
    }

    fn timeout(&self) -> EpollTimeout {
        if !self.clients.ready.is_empty() {
            return EpollTimeout::ZERO;
        }
        let finish = match self.phase {
            Phase::Serving => None,
            Phase::Finishing(limit) => limit,
        };
        let first = [
            self.pool.core.next_deadline(),
            self.clients.next_deadline(),
            self.instances.next_deadline(),
            self.apps.next_deadline(),
            finish,
            self.acceptor.next_deadline(),
            self.inspections.next_deadline(),
            self.refused.next_deadline(),
        ];
        epoll_timeout(first.into_iter().flatten().min())
    }

    fn expire(&mut self) {
        let now = self.now;
        while let Some(id) = self.clients.take_late(now) {
            self.late(id);
        }
        while let Some(number) = self.instances.ended.take_due(now) {
            self.stop(number, true);
        }
        if self.pool.core.next_deadline().is_some_and(|due| due <= now) {
            self.tell(Event::Deadline);
        }
        self.tell_refused(false);
        self.forget_applications();
        self.inspections.end_lines(self.settings.name(), now);
        self.acceptor.end_pause(&self.epoll, now);
        if self.clients.memory.gives_back() {
            heap::trim();
        }
    }

    pub(super) fn change(&mut self, id: u64, cause: ClientCause) {
        self.clients.change(id, cause, &self.settings.pool, self.now);
    }

    pub(super) fn watch(&mut self, id: u64, watch: Interest) {
        if let Err(errno) = self.clients.watch(id, watch, &self.epoll) {
            log::error!("can't watch a connection: epoll_ctl: {errno}");
            self.close(id);
        }
    }

    /// Watches a connection for at least this.
    pub(super) fn watch_more(&mut self, id: u64, watch: Interest) {
        if self.clients.get(id).is_some_and(|client| client.watch < watch) {
            self.watch(id, watch);
        }
    }

    /// Counts a connection's memory, and closes others if all have too much.
    pub(super) fn count_memory(&mut self, id: u64) {
        self.clients.count_memory(id);
        while let Some((id, is_first)) = self.clients.over_budget() {
            if is_first {
                log::warn!(
                    "[pool {}] connections are closed: their incomplete requests take more than {} MiB",
                    self.settings.name(),
                    BUDGET >> 20
                );
            }
            self.close(id);
        }
    }

    fn accept(&mut self, has_connections: bool) {
        for _ in 0..self.acceptor.turn(has_connections) {
            if self.clients.is_full() {
                match self.clients.first_idle() {
                    Some(id) => self.close(id),
                    // Accepting resumes when a connection closes.
                    None => return self.acceptor.shut(&self.epoll),
                }
            }
            match self.acceptor.next() {
                Ok(Some(socket)) => self.admit(socket),
                Ok(None) => return,
                Err(error) => {
                    let why = format!("can't accept a connection: {error}");
                    return self.acceptor.rest(&why, &self.epoll, self.now);
                }
            }
        }
    }

    /// Accepts all waiting connections before the socket closes, so that each request gets an answer.
    pub(super) fn accept_rest(&mut self) {
        while !self.clients.is_full() {
            match self.acceptor.next() {
                Ok(Some(socket)) => self.admit(socket),
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        if !may_connect(&self.settings.pool.listen.allowed_clients, socket.as_fd()) {
            return;
        }
        if let Some(id) = self.clients.insert(Client::new(socket)) {
            self.clients.limit(id, &self.settings.pool, self.now);
            self.on_ready(id);
        }
    }

    pub(super) fn close(&mut self, id: u64) {
        let Some(client) = self.clients.remove(id, &self.epoll) else {
            return;
        };
        let is_waiting = client.state() == ClientState::Waiting;
        if let Some(session) = client.session.filter(|_| is_waiting) {
            self.give_back(session);
        }
        self.acceptor.open(&self.epoll, self.now);
    }

    /// Stops accepting. The router exits when all requests are done or at the deadline.
    pub(super) fn finish(&mut self, limit: Option<Duration>) {
        self.acceptor.close(&self.epoll);
        self.phase = Phase::Finishing(limit.map(|limit| self.now + limit));
        self.refuse_waiting();
        for id in self.clients.ids() {
            if self.clients.get(id).is_some_and(Client::is_idle) {
                self.close(id);
            }
        }
    }

    pub(super) fn orphaned(&mut self, _: MasterGone) {
        self.finish(Some(ORPHAN_TIMEOUT));
    }
}

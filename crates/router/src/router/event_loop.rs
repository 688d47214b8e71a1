//! The router's event loop.

use super::app_index::AppIndex;
use super::client::{Client, Clients, Interest};
use super::connections::Connections;
use super::counters::{Apps, Errors};
use super::gathered::Gathered;
use super::groups::Groups;
use super::memory::Memory;
use super::start_requests::Waits;
use super::state::{ClientCause, ClientState, Limit};
use crate::applications::event::{Event, SessionId};
use crate::applications::{ApplicationPool, action::Action};
use crate::config::{Applications, Pool};
use crate::listen::{AcceptPause, may_connect};
use crate::sys::identity;
use crate::sys::{Error, clock, socket};
use crate::tick::Tick;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

const EVENTS: usize = 256;
const ACCEPTS: usize = 64;
const SPARE_DESCRIPTORS: u64 = 64;
const ROUNDS: usize = 4;
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

const LISTENER: u64 = 0;
const MASTER: u64 = 1;
pub(super) const INSPECTOR: u64 = 2;
const HEARTBEAT: u64 = 3;
/// The token bit of connections; the rest is the number.
const CLIENT: u64 = 1 << 63;
/// The token bit of instance channels; the rest is the number.
pub(super) const INSTANCE: u64 = 1 << 62;

pub(super) struct Router {
    pub(super) epoll: Epoll,
    pub(super) master: OwnedFd,
    listener: Option<OwnedFd>,
    pub(super) inspector: OwnedFd,
    heartbeat: Option<OwnedFd>,
    pub(super) pool: Pool,
    pub(super) settings: Applications,
    pub(super) one_user: bool,
    pub(super) clients: Clients,
    pub(super) app_index: AppIndex,
    pub(super) groups: Groups,
    pub(super) starts: Vec<Waits>,
    pub(super) app_pool: ApplicationPool,
    pub(super) apps: Apps,
    pub(super) errors: Errors,
    pub(super) instances: HashMap<u64, super::instances::InstanceProcess>,
    pub(super) sessions: HashMap<SessionId, super::instances::Session>,
    pub(super) events: VecDeque<Event>,
    pub(super) actions: Vec<Action>,
    pub(super) is_telling: bool,
    pub(super) next_session: u64,
    pub(super) next_error: u64,
    pub(super) outbox: VecDeque<Vec<u8>>,
    /// The master's socket is full.
    pub(super) is_stuck: bool,
    pub(super) buffer: Vec<u8>,
    pub(super) timers: BTreeSet<(Tick, u64)>,
    pub(super) memory: Memory,
    /// Instances with a closed channel, by kill deadline.
    pub(super) ended: BTreeSet<(Tick, u64)>,
    pub(super) ready: Vec<u64>,
    pub(super) asked: Vec<u64>,
    was_accepting: bool,
    is_open: bool,
    pause: AcceptPause,
    pub(super) shortage_said: Option<Tick>,
    pub(super) gathered: Gathered,
    pub(super) most_clients: usize,
    pub(super) connections: Connections,
    /// Set during shutdown, with the optional deadline.
    pub(super) finishing: Option<Option<Tick>>,
    pub(super) is_orphan: bool,
    pub(super) disabling: HashMap<u64, Vec<u64>>,
    pub(super) running: Vec<(forkyard_protocol::router::Instance, OwnedFd)>,
    pub(super) now: Tick,
    pub(super) accepted: u64,
}

impl Router {
    pub(super) fn new(
        master: OwnedFd,
        listener: OwnedFd,
        inspector: OwnedFd,
        pool: Pool,
        one_user: bool,
        buffer: Vec<u8>,
    ) -> Result<Router, Error> {
        let failed = |errno| Error::new("epoll_create1", "", errno);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        let settings = pool
            .applications
            .clone()
            .ok_or_else(|| Error::new("begin", "the pool has no applications", Errno::EINVAL))?;
        for (fd, token) in [(&master, MASTER), (&inspector, INSPECTOR)] {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, token);
            epoll
                .add(fd, event)
                .map_err(|errno| Error::new("epoll_ctl", "", errno))?;
        }
        let now = clock::now();
        let soft = identity::most_descriptors()?;
        let taken = SPARE_DESCRIPTORS + 2 * u64::from(settings.max.get());
        let most_clients = usize::try_from(soft.saturating_sub(taken).max(16)).unwrap_or(usize::MAX);
        Ok(Router {
            epoll,
            master,
            listener: Some(listener),
            inspector,
            heartbeat: None,
            app_pool: ApplicationPool::new(settings.max, settings.max_spawning)
                .with_reserve(settings.reserve),
            one_user,
            clients: Clients::default(),
            app_index: AppIndex::default(),
            groups: Groups::default(),
            starts: Vec::new(),
            apps: Apps::new(settings.forget_after),
            pool,
            settings: *settings,
            errors: Errors::default(),
            instances: HashMap::new(),
            sessions: HashMap::new(),
            events: VecDeque::new(),
            actions: Vec::new(),
            is_telling: false,
            // Higher than any earlier router's numbers, which workers may still use.
            next_session: clock::epoch_micros(),
            next_error: 0,
            outbox: VecDeque::new(),
            is_stuck: false,
            buffer,
            timers: BTreeSet::new(),
            memory: Memory::default(),
            ended: BTreeSet::new(),
            ready: Vec::new(),
            asked: Vec::new(),
            was_accepting: false,
            is_open: false,
            pause: AcceptPause::default(),
            shortage_said: None,
            gathered: Gathered::default(),
            most_clients,
            connections: Connections::default(),
            finishing: None,
            is_orphan: false,
            disabling: HashMap::new(),
            running: Vec::new(),
            now,
            accepted: 0,
        })
    }

    /// Reads and ignores the master's heartbeat bytes.
    pub(super) fn watch_heartbeat(&mut self, heartbeat: Option<OwnedFd>) -> Result<(), Error> {
        self.heartbeat = heartbeat;
        let Some(heartbeat) = &self.heartbeat else {
            return Ok(());
        };
        let watched = self
            .epoll
            .add(heartbeat, EpollEvent::new(EpollFlags::EPOLLIN, HEARTBEAT));
        watched.map_err(|errno| Error::new("epoll_ctl", "", errno))
    }

    fn take_heartbeat(&mut self) {
        let Some(heartbeat) = self
            .heartbeat
            .take_if(|heartbeat| socket::drain(heartbeat.as_fd()).is_err())
        else {
            return;
        };
        let _ = self.epoll.delete(&heartbeat);
    }

    pub(super) fn serve(&mut self) -> Result<(), Error> {
        let mut events = vec![EpollEvent::empty(); EVENTS];
        loop {
            self.do_pending()?;
            if self.is_over() {
                return self.say_finished();
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
                    HEARTBEAT => self.take_heartbeat(),
                    token if token & CLIENT != 0 => self.called(token & !CLIENT, event.events()),
                    _ => {}
                }
            }
            if accepts {
                self.accept();
            }
            self.was_accepting = accepts;
            self.expire();
        }
    }

    fn do_pending(&mut self) -> Result<(), Error> {
        self.serve_ready();
        for id in std::mem::take(&mut self.asked) {
            if self.clients.get(id).is_some_and(|client| client.state().waits()) {
                self.apps.queued(
                    self.clients
                        .get(id)
                        .and_then(|client| client.known.clone())
                        .as_deref(),
                );
                self.watch_end(id);
            }
        }
        self.flush_outbox()
    }

    /// Continues connections that may have unread input. Those that still have some wait for the next turn.
    fn serve_ready(&mut self) {
        for _ in 0..ROUNDS {
            for id in std::mem::take(&mut self.ready) {
                self.on_ready(id);
            }
            if self.ready.is_empty() {
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        match self.finishing {
            None => false,
            Some(limit) => self.clients.len() == 0 || limit.is_some_and(|limit| limit <= self.now),
        }
    }

    fn timeout(&self) -> EpollTimeout {
        if !self.ready.is_empty() {
            return EpollTimeout::ZERO;
        }
        let first = [
            self.app_pool.next_deadline(),
            self.timers.first().map(|(due, _)| *due),
            self.ended.first().map(|(due, _)| *due),
            self.apps.next_deadline(),
            self.finishing.flatten(),
            self.pause.deadline(),
            self.gathered.next_deadline(),
        ];
        match first.into_iter().flatten().min() {
            None => EpollTimeout::NONE,
            Some(due) => {
                let millis = due.since(clock::now()).as_micros().div_ceil(1000);
                EpollTimeout::try_from(i32::try_from(millis).unwrap_or(i32::MAX)).unwrap_or(EpollTimeout::MAX)
            }
        }
    }

    fn expire(&mut self) {
        let now = self.now;
        while let Some((due, id)) = self.timers.first().copied().filter(|(due, _)| *due <= now) {
            self.timers.remove(&(due, id));
            let Some(client) = self.clients.get(id) else {
                continue;
            };
            client.timer = None;
            match client.expires {
                Some(expires) if expires <= now => self.late(id),
                Some(expires) => self.set_timer(id, expires),
                None => {}
            }
        }
        while let Some((due, number)) = self.ended.first().copied().filter(|(due, _)| *due <= now) {
            self.ended.remove(&(due, number));
            self.kill(number);
        }
        if self.app_pool.next_deadline().is_some_and(|due| due <= now) {
            self.tell(Event::Deadline);
        }
        self.forget_applications();
        if let Some((count, last)) = self.gathered.end(now) {
            log::warn!(
                "[pool {}] {count} more requests' roots in the last minute were none of an application, the last: {last}",
                self.pool.name
            );
        }
        if self.pause.end(now) {
            self.open();
        }
        self.trim_memory();
    }

    pub(super) fn set_timer(&mut self, id: u64, due: Tick) {
        let Some(client) = self.clients.get(id) else {
            return;
        };
        // An early timer is set again, so it need not move with each request.
        if client.timer.is_some_and(|timer| timer <= due) {
            return;
        }
        if let Some(timer) = client.timer.replace(due) {
            self.timers.remove(&(timer, id));
        }
        self.timers.insert((due, id));
    }

    pub(super) fn limit(&mut self, id: u64) {
        let now = self.now;
        let (client_timeout, keepalive) = (
            self.pool.serving.client_timeout,
            self.pool.serving.keepalive_timeout,
        );
        let Some(client) = self.clients.get(id) else {
            return;
        };
        let time = match client.state().limit() {
            Limit::Client => Some(client_timeout),
            Limit::Keepalive => Some(keepalive),
            Limit::Look => Some(LOOK_TIMEOUT),
            Limit::None => None,
        };
        client.expires = time.map(|time| now + time);
        if let Some(expires) = client.expires {
            self.set_timer(id, expires);
        }
    }

    pub(super) fn change(&mut self, id: u64, cause: ClientCause) {
        if self.clients.get(id).is_some_and(|client| client.change(cause)) {
            self.limit(id);
        }
    }

    pub(super) fn watch(&mut self, id: u64, watch: Interest) {
        let Some(client) = self.clients.get(id) else {
            return;
        };
        if client.watch == watch {
            return;
        }
        let flags = EpollFlags::EPOLLET | EpollFlags::EPOLLRDHUP;
        let flags = match watch {
            Interest::None => EpollFlags::EPOLLET,
            Interest::End => flags,
            Interest::Input => flags | EpollFlags::EPOLLIN,
            Interest::Both => flags | EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
        };
        let before = std::mem::replace(&mut client.watch, watch);
        let mut event = EpollEvent::new(flags, CLIENT | id);
        let done = match (before, watch) {
            (Interest::None, _) => self.epoll.add(client.socket(), event),
            (_, Interest::None) => self.epoll.delete(client.socket()),
            _ => self.epoll.modify(client.socket(), &mut event),
        };
        if let Err(errno) = done {
            log::error!("can't watch a connection: epoll_ctl: {errno}");
            self.close(id);
        }
    }

    pub(super) fn watch_end(&mut self, id: u64) {
        if self
            .clients
            .get(id)
            .is_some_and(|client| client.watch == Interest::None)
        {
            self.watch(id, Interest::End);
        }
    }

    pub(super) fn watch_input(&mut self, id: u64) {
        let watch = self.clients.get(id).map(|client| client.watch);
        if matches!(watch, Some(Interest::None | Interest::End)) {
            self.watch(id, Interest::Input);
        }
    }

    pub(super) fn open(&mut self) {
        if self.is_open || self.finishing.is_some() || self.pause.deadline().is_some() {
            return;
        }
        if let Some(listener) = &self.listener {
            let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
            match self.epoll.add(listener, EpollEvent::new(flags, LISTENER)) {
                Ok(()) => self.is_open = true,
                Err(errno) => self.rest(&format!("can't watch the listening socket: epoll_ctl: {errno}")),
            }
        }
    }

    fn rest(&mut self, why: &str) {
        self.shut();
        if self.pause.begin(self.now) {
            log::error!("{why}; trying again");
        }
    }

    fn shut(&mut self) {
        if let Some(listener) = self.listener.as_ref().filter(|_| self.is_open) {
            let _ = self.epoll.delete(listener);
            self.is_open = false;
        }
    }

    fn accept(&mut self) {
        let most = if self.was_accepting { ACCEPTS } else { 1 };
        for _ in 0..most {
            if self.clients.len() >= self.most_clients && !self.close_idle() {
                // Accepting resumes when a connection closes.
                return self.shut();
            }
            let Some(listener) = self.listener.as_ref().filter(|_| self.is_open) else {
                return;
            };
            match socket::accept(listener.as_fd()) {
                Ok(Some(socket)) => self.admit(socket),
                Ok(None) => return,
                Err(error) => return self.rest(&format!("can't accept a connection: {error}")),
            }
        }
    }

    /// Accepts all waiting connections before the socket closes, so that each request gets an answer.
    pub(super) fn accept_rest(&mut self) {
        while self.is_open && self.clients.len() < self.most_clients {
            let listener = self
                .listener
                .as_ref()
                .map(|listener| socket::accept(listener.as_fd()));
            match listener {
                Some(Ok(Some(socket))) => self.admit(socket),
                Some(Ok(None) | Err(_)) | None => return,
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        if !may_connect(&self.pool.listen.allowed_clients, socket.as_fd()) {
            return;
        }
        self.accepted += 1;
        let Some(id) = self.clients.insert(Client::new(socket)) else {
            return;
        };
        self.limit(id);
        self.on_ready(id);
    }

    fn close_idle(&mut self) -> bool {
        let due: Vec<u64> = self.timers.iter().map(|(_, id)| *id).collect();
        for id in due {
            if self.clients.get(id).is_some_and(|client| client.is_idle()) {
                self.close(id);
                return true;
            }
        }
        false
    }

    pub(super) fn close(&mut self, id: u64) {
        self.uncount_user(id);
        let Some(mut client) = self.clients.remove(id) else {
            return;
        };
        self.forget_memory(&client);
        let waits = client.state() == ClientState::Waiting;
        client.change(ClientCause::Over);
        if client.watch != Interest::None {
            // Explicitly, because an instance may hold a copy.
            let _ = self.epoll.delete(client.socket());
        }
        if let Some(timer) = client.timer {
            self.timers.remove(&(timer, id));
        }
        if let Some(session) = client.session.filter(|_| waits) {
            self.give_back(session);
        }
        self.open();
    }

    /// Stops accepting. The router exits when all requests are done or at the deadline.
    pub(super) fn finish(&mut self, limit: Option<Duration>) {
        self.shut();
        self.listener = None;
        self.finishing = Some(limit.map(|limit| self.now + limit));
        self.refuse_waiting();
        for id in self.clients.ids() {
            if self.clients.get(id).is_some_and(|client| client.is_idle()) {
                self.close(id);
            }
        }
    }

    pub(super) fn orphaned(&mut self) {
        if !self.is_orphan {
            self.is_orphan = true;
            let _ = self.epoll.delete(&self.master);
            self.outbox.clear();
            self.finish(Some(ORPHAN_TIMEOUT));
        }
    }

    fn say_finished(&mut self) -> Result<(), Error> {
        self.say(&forkyard_protocol::router::ToMaster::Finished);
        self.flush_outbox()
    }

    pub(super) fn new_session(&mut self) -> SessionId {
        self.next_session += 1;
        SessionId(self.next_session)
    }
}

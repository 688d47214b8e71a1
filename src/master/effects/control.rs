//! The control sockets: who asks, what is asked, and what there is.

use super::errors::Kept;
use super::generation::Generation;
use super::pools::PoolEdge;
use super::sources::Source;
use super::totals::Reading;
use super::{Edge, GenerationId};
use crate::config::{Address, Application, Listen, Pool, ProcessManager};
use crate::control::protocol::{self, Answer, Format, LastError, Request, Status, WorkerLimits};
use crate::control::{Guests, Heard, MOST_GUESTS, MOST_SESSIONS, Session, owners_socket};
use crate::listen::{AcceptPause, ListenError, Listener, Place, bind};
use crate::master::event::PoolId;
use crate::scoreboard::{Stage, census};
use crate::sys::clock::{self, ProcessClock};
use crate::sys::{identity, process, socket};
use crate::tick::Tick;
use crate::worker::{Doing, Sight};
use mio::Interest;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Connections taken at once.
const ACCEPTS: usize = 16;

/// Which control socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::master) enum Door {
    /// The one for root and the daemon's own user.
    Main,
    /// The one for owners of applications. What comes to it makes no queue before the other.
    Owners,
}

impl Door {
    fn mode(self) -> u32 {
        match self {
            Door::Main => 0o600,
            Door::Owners => 0o666,
        }
    }
}

/// The sockets and the conversations over them.
#[derive(Debug, Default)]
pub(super) struct Control {
    listener: Option<Listener>,
    owners_listener: Option<Listener>,
    sessions: HashMap<u64, Session>,
    last: u64,
    asked: VecDeque<(u64, Request)>,
    /// What guests ask for; one is answered in a turn of the loop.
    asked_by_guests: VecDeque<(u64, Request)>,
    /// The users behind conversations that may not ask for everything.
    guests: Guests,
    /// Accepting has failed: when it is tried again.
    pause: AcceptPause,
}

/// What somebody may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::master) enum Rights {
    /// Everything: root and the daemon's own user.
    All,
    /// What concerns this user's own applications.
    Own(u32),
}

impl Control {
    /// Whether a conversation goes on.
    pub(super) fn is_there(&self, id: u64) -> bool {
        self.sessions.contains_key(&id)
    }

    fn listener(&self, door: Door) -> Option<&Listener> {
        match door {
            Door::Main => self.listener.as_ref(),
            Door::Owners => self.owners_listener.as_ref(),
        }
    }

    fn listener_mut(&mut self, door: Door) -> &mut Option<Listener> {
        match door {
            Door::Main => &mut self.listener,
            Door::Owners => &mut self.owners_listener,
        }
    }
}

impl Edge {
    /// Listens at this path from now on, and for owners of applications beside it if there are application pools; `None`:
    /// nowhere. On an error it is as before.
    pub(in crate::master) fn open_control(&mut self, path: Option<&Path>) -> Result<(), ListenError> {
        self.open_door(Door::Main, path)?;
        // Users other than the daemon's own to whom applications belong.
        let is_owned = |pool: &Pool| {
            let of_one = pool.user.is_some() && pool.application.root().is_some();
            pool.applications.is_some() || of_one
        };
        let has_owners = self.config.pools.iter().any(is_owned);
        let owners = path.filter(|_| has_owners).map(owners_socket);
        self.open_door(Door::Owners, owners.as_deref())
    }

    fn open_door(&mut self, door: Door, path: Option<&Path>) -> Result<(), ListenError> {
        let wanted = path.map(|path| Address::Unix(path.to_owned()));
        let mode = door.mode();
        let listener = self.control.listener(door);
        let place = listener.filter(|it| it.is_ours()).map(Listener::place);
        let is_lost = matches!(place, Some(Place::Gone | Place::Taken));
        if is_lost {
            // Those who came before it was gone.
            while self.accept_control(door) {}
        }
        let listener = self.control.listener(door);
        let now = listener.map(|listener| &listener.address);
        let is_same = now.is_some() && now == wanted.as_ref();
        if now == wanted.as_ref() && !is_lost {
            return (listener.zip(wanted)).map_or(Ok(()), |(listener, address)| {
                listener.adjust(&private(address, mode))
            });
        }
        let listener = match wanted {
            Some(address) => Some(bind(&private(address, mode), &mut self.inherited)?),
            None => None,
        };
        if let Some(before) = self.control.listener_mut(door).take() {
            self.sources.forget(&self.registry, &before.socket);
            before.remove_file();
        }
        if let Some(listener) = &listener {
            let watched = self
                .sources
                .watch(&self.registry, &listener.socket, Source::Control(door));
            if let Err(error) = watched {
                log::error!("control: {error}");
            }
        }
        *self.control.listener_mut(door) = listener;
        if is_lost && is_same {
            log::warn!("the control socket's file was gone: it is bound again");
        }
        Ok(())
    }

    /// Removes the sockets' files; at the end.
    pub(in crate::master) fn remove_control_file(&self) {
        let listeners = self.control.listener.iter().chain(&self.control.owners_listener);
        listeners.for_each(Listener::remove_file);
    }

    /// What root or the daemon's own user has asked next.
    pub(in crate::master) fn next_order(&mut self) -> Option<(u64, Request)> {
        self.control.asked.pop_front()
    }

    /// What an owner of applications has asked next and still waits for.
    pub(in crate::master) fn next_order_of_guests(&mut self) -> Option<(u64, Request)> {
        let control = &mut self.control;
        // A conversation that had to make room takes what it asked with it: the queue is no longer than there are places.
        control
            .asked_by_guests
            .retain(|(id, _)| control.sessions.contains_key(id));
        control.asked_by_guests.pop_front()
    }

    /// Whether something is asked.
    pub(in crate::master) fn has_orders(&self) -> bool {
        !self.control.asked.is_empty() || !self.control.asked_by_guests.is_empty()
    }

    /// When the socket is to be tried again whose connections could not be accepted.
    pub(in crate::master) fn control_deadline(&self) -> Option<Tick> {
        self.control.pause.deadline()
    }

    /// Tries again what has failed; the socket is not watched for connections that it told of before.
    pub(in crate::master) fn tend_control(&mut self, now: Tick) {
        // As many as can have queued up; of later ones the socket tells.
        let rounds = MOST_SESSIONS.div_ceil(ACCEPTS) + 1;
        if self.control.pause.end(now) {
            for door in [Door::Main, Door::Owners] {
                let _ = (0..rounds).all(|_| self.accept_control(door));
            }
        }
    }

    /// Takes new conversations. `true`: there may be more.
    pub(super) fn accept_control(&mut self, door: Door) -> bool {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.control.listener(door) else {
                return false;
            };
            match socket::accept(listener.socket.as_fd()) {
                Ok(Some(connection)) => self.begin_session(connection, door),
                Ok(None) => return false,
                Err(error) => {
                    if self.control.pause.begin(clock::now()) {
                        log::error!("control: {error}; trying again");
                    }
                    return false;
                }
            }
        }
        true
    }

    fn begin_session(&mut self, connection: OwnedFd, door: Door) {
        let who = socket::peer_user(connection.as_fd());
        let mut session = Session::new(connection, clock::now());
        let rights = match who {
            Ok(uid) if uid == 0 || uid == identity::own_user() => Some(Rights::All),
            Ok(uid) => Some(Rights::Own(uid)).filter(|_| door == Door::Owners),
            Err(_) => None,
        };
        let Some(rights) = rights else {
            session.refuse("permission denied: root and the daemon's own user may ask");
            session.look(clock::now());
            return;
        };
        if let Some(longest) = self.to_end_for(rights) {
            self.end_session(longest);
        }
        self.control.last += 1;
        let id = self.control.last;
        let both = Interest::READABLE | Interest::WRITABLE;
        let watched =
            self.sources
                .watch_for(&self.registry, session.socket(), Source::ControlSession(id), both);
        match watched {
            Ok(()) => {
                self.control.sessions.insert(id, session);
                if let Rights::Own(uid) = rights {
                    self.control.guests.add(id, uid);
                }
                self.attend_session(id);
            }
            Err(error) => log::error!("control: {error}"),
        }
    }

    /// The conversation that ends so that there is room for another: the one that is silent the longest. One that waits
    /// for its answer only ends if all do. Root's and the daemon's user's end for each other, and never for a guest.
    fn to_end_for(&self, rights: Rights) -> Option<u64> {
        let control = &self.control;
        if let Rights::Own(uid) = rights {
            return control.guests.to_end(uid, |id| {
                let session = control.sessions.get(&id);
                session.map_or((false, Tick::from_nanos(0)), |session| {
                    (session.is_waiting(), session.since)
                })
            });
        }
        let own = || (control.sessions.iter()).filter(|(id, _)| control.guests.user(**id).is_none());
        if own().count() < MOST_SESSIONS {
            return None;
        }
        let holders: Vec<u64> = self.lease_holders();
        own()
            .min_by_key(|(id, session)| {
                let is_needed = session.is_waiting() || holders.contains(id);
                (is_needed, session.since, **id)
            })
            .map(|(id, _)| *id)
    }

    fn end_session(&mut self, id: u64) {
        if let Some(session) = self.control.sessions.remove(&id) {
            self.sources.forget(&self.registry, session.socket());
            self.control.guests.remove(id);
            self.end_leases(id);
        }
    }

    /// What whoever is behind a conversation may ask for.
    pub(in crate::master) fn rights(&self, id: u64) -> Rights {
        self.control.guests.user(id).map_or(Rights::All, Rights::Own)
    }

    /// Goes on with a conversation.
    pub(super) fn attend_session(&mut self, id: u64) {
        let Some(session) = self.control.sessions.get_mut(&id) else {
            return;
        };
        match session.look(clock::now()) {
            Heard::Nothing => {}
            Heard::Request(request) => match self.rights(id) {
                Rights::All => self.control.asked.push_back((id, request)),
                Rights::Own(_) => self.control.asked_by_guests.push_back((id, request)),
            },
            Heard::End => self.end_session(id),
        }
    }

    /// Answers what was asked, if whoever asked is still there.
    pub(in crate::master) fn answer(&mut self, id: u64, answer: &Answer) {
        if let Some(session) = self.control.sessions.get_mut(&id) {
            session.answer(answer);
            self.attend_session(id);
        }
    }

    /// What there is.
    pub(super) fn status(&self, views: &[(String, serde_json::Value)]) -> Status {
        // One look at each scoreboard, whatever pool it counts for.
        let mut readings: HashMap<&str, Reading> = HashMap::new();
        let mut uses = self.cpu_of_workers();
        for (id, generation) in &self.generations {
            let mut reading = generation.reading();
            reading.cpu_us = uses.remove(id).unwrap_or(0);
            let sum = readings.entry(self.shown_with(generation)).or_default();
            sum.add(&reading);
        }
        let mut pools: Vec<protocol::Pool> = self
            .pools
            .iter()
            .filter_map(|(id, pool)| Some((id, pool, pool.listener.as_ref()?)))
            .map(|(id, pool, listener)| {
                let own = self.generations.iter().filter(|(_, g)| g.pool == *id);
                let own: BTreeMap<GenerationId, &Generation> = own.map(|(id, g)| (*id, g)).collect();
                let mut counts = self.past(&pool.name);
                let reading = readings.remove(pool.name.as_str()).unwrap_or_default();
                counts.add(&reading.counts);
                let queue = pool.listen_queue();
                protocol::Pool {
                    name: pool.name.clone(),
                    listen: address(&listener.address),
                    problem: unreachable(listener),
                    queue: queue.map(|queue| queue.current),
                    queue_limit: queue.map(|queue| queue.limit),
                    limits: self.worker_limits(*id, pool),
                    busy: reading.busy,
                    idle: reading.idle,
                    starting: reading.starting,
                    cpu_ms: (counts.gone_cpu_us + reading.cpu_us) / 1000,
                    counts,
                    memory: None,
                    failed_starts: self.errors.count(&pool.name),
                    last_error: self.errors.last(&pool.name).map(|kept| LastError {
                        id: kept.report.id.to_string(),
                        time: kept.epoch_s,
                        summary: kept
                            .report
                            .failure
                            .summary
                            .lines()
                            .next()
                            .unwrap_or_default()
                            .to_owned(),
                        refusing: self.stand_ins.contains_key(id),
                    }),
                    applications: self.applications_status(*id, views),
                    generations: own
                        .iter()
                        .map(|(id, generation)| self.generation_status(*id, generation, pool))
                        .collect(),
                }
            })
            .collect();
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        Status {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: self.config.path.display().to_string(),
            pools,
            skipped: self.config.skipped.clone(),
        }
    }

    /// Processor time of the workers that are there, microseconds.
    pub(super) fn cpu_of_workers(&self) -> HashMap<GenerationId, u64> {
        let mut uses = HashMap::new();
        for worker in self.workers.values() {
            let clock = worker.pid.and_then(ProcessClock::of);
            *uses.entry(worker.generation).or_default() += clock.map_or(0, ProcessClock::micros);
        }
        uses
    }

    /// How many workers a pool may have by the configuration that came last.
    fn worker_limits(&self, id: PoolId, pool: &PoolEdge) -> WorkerLimits {
        if let Some(edge) = self.routers.get(&id) {
            return WorkerLimits {
                max_children: edge.max,
                ..WorkerLimits::default()
            };
        }
        let latest = pool.latest.or(pool.serving);
        let generation = latest.and_then(|latest| self.generations.get(&latest));
        let Some(pm) = generation.map(|generation| generation.settings.pool.pm) else {
            return WorkerLimits::default();
        };
        let (min_spare_servers, max_spare_servers) = match pm {
            ProcessManager::Dynamic {
                min_spare_servers,
                max_spare_servers,
                ..
            } => (Some(min_spare_servers), Some(max_spare_servers)),
            ProcessManager::Static { .. }
            | ProcessManager::Ondemand { .. }
            | ProcessManager::Ordered { .. } => (None, None),
        };
        WorkerLimits {
            max_children: pm.max_children(),
            min_spare_servers,
            max_spare_servers,
        }
    }

    /// Why an application could not be started.
    pub(in crate::master) fn error_report(&self, rights: Rights, id: Option<&str>, format: Format) -> Answer {
        let may_read = |kept: &Kept| match rights {
            Rights::All => true,
            Rights::Own(uid) => kept.report.plan.account.uid == uid,
        };
        let Some(kept) = self.errors.find(id, may_read) else {
            let what = id.map_or_else(|| "of any error".to_owned(), |id| format!("of error {id}"));
            return Answer::refusal(format!("there is no report {what}; only the last few are kept"));
        };
        let report = match format {
            Format::Json => kept.report.json(kept.epoch_s),
            Format::Text => kept.report.text().into(),
            Format::Html => kept.report.html().into(),
        };
        Answer::Report { report }
    }

    fn generation_status(
        &self,
        id: GenerationId,
        generation: &Generation,
        pool: &PoolEdge,
    ) -> protocol::Generation {
        let state = if pool.serving == Some(id) {
            "serving"
        } else if pool.latest == Some(id) {
            "coming"
        } else {
            "leaving"
        };
        let resources = generation.resources.as_ref();
        let mut workers: Vec<protocol::Worker> = generation
            .seats
            .iter()
            .filter_map(|(slot, worker)| {
                let page = resources?.board.slot(*slot as usize)?;
                let entry = census::read(page);
                let pid = self.workers.get(worker).and_then(|worker| worker.pid);
                let text = |index: usize| String::from_utf8_lossy(&entry.texts[index]).into_owned();
                Some(protocol::Worker {
                    slot: *slot,
                    // Its own word for its pid is not taken.
                    pid,
                    stage: entry.stage.name().to_owned(),
                    for_ms: u64::try_from(clock::now().since(entry.since).as_millis()).unwrap_or(u64::MAX),
                    requests: entry.requests,
                    kept: entry.kept,
                    script: text(3),
                    method: text(0),
                    uri: text(1),
                    query: text(2),
                    memory: None,
                    cpu_ms: (pid.and_then(ProcessClock::of)).map_or(0, |clock| clock.micros() / 1000),
                })
            })
            .collect();
        workers.sort_by_key(|worker| worker.slot);
        let mut programs = self.program_status(id);
        programs.extend(self.companions_status(generation));
        protocol::Generation {
            id: id.0,
            state: state.to_owned(),
            pm: generation.settings.pool.pm.name().to_owned(),
            started: generation.settings.started,
            preloader: resources.and_then(|resources| resources.preloader),
            programs,
            workers,
        }
    }

    /// The programs that a generation's workers have started, as far as their word can be taken.
    fn companions_status(&self, generation: &Generation) -> Vec<protocol::Process> {
        let Some(resources) = &generation.resources else {
            return Vec::new();
        };
        let Application::FastCgi(_) = &generation.settings.pool.application else {
            return Vec::new();
        };
        let now = clock::now();
        let seats = generation.seats.iter();
        let mut programs: Vec<protocol::Process> = seats
            .filter_map(|(slot, worker)| {
                let page = resources.board.slot(*slot as usize)?;
                let sight = Sight::read(census::program(page))?;
                let worker = self.workers.get(worker)?.pid?;
                // It may name none but its own children.
                let pid = Some(sight.pid).filter(|pid| *pid > 1 && process::parent(*pid) == Some(worker));
                let is_up = sight.doing == Doing::Up && pid.is_some();
                let is_busy = is_up && !matches!(census::stage(page), Stage::Accepting | Stage::Creating);
                Some(protocol::Process {
                    place: *slot,
                    pid,
                    state: sight.doing.name().to_owned(),
                    uptime_ms: is_up.then(|| protocol::millis(now.since(sight.since))),
                    requests: sight.served,
                    sessions: u64::from(is_busy),
                    restarts: sight.ups.saturating_sub(1),
                    memory: None,
                    cpu_ms: None,
                })
            })
            .collect();
        programs.sort_by_key(|program| program.place);
        programs
    }
}

/// A socket that its owner alone can reach, or, with another mode, others as well.
fn private(address: Address, mode: u32) -> Listen {
    Listen {
        address,
        backlog: MOST_SESSIONS.max(MOST_GUESTS) as i32,
        owner: None,
        group: None,
        mode,
        acl_users: Vec::new(),
        acl_groups: Vec::new(),
        allowed_clients: Vec::new(),
        wrong_clients: Vec::new(),
    }
}

/// Why a socket can't be reached.
fn unreachable(listener: &Listener) -> Option<String> {
    match listener.place() {
        Place::Own => None,
        Place::Gone => Some("it can't be reached: its file is gone; a reload binds the socket again".to_owned()),
        Place::Taken => Some(
            "it can't be reached: the path leads to something else; remove it, and a reload binds the socket again"
                .to_owned(),
        ),
    }
}

fn address(address: &Address) -> String {
    match address {
        Address::Unix(path) => path.display().to_string(),
        Address::Tcp(address) => address.to_string(),
        Address::TcpAny(port) => port.to_string(),
    }
}

//! The control socket: who asks, what is asked, and what there is.

use super::generation::Generation;
use super::pools::PoolEdge;
use super::sources::Source;
use super::{Edge, GenerationId};
use crate::config::{Address, Listen};
use crate::control::protocol::{self, Answer, Format, LastError, Request, Status};
use crate::control::{Heard, MOST_SESSIONS, Session};
use crate::listen::{ListenError, Listener, bind};
use crate::scoreboard::census;
use crate::sys::{clock, identity, socket};
use mio::Interest;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Connections taken at once.
const ACCEPTS: usize = 16;

/// The socket and the conversations over it.
#[derive(Debug, Default)]
pub(super) struct Control {
    listener: Option<Listener>,
    sessions: HashMap<u64, Session>,
    last: u64,
    asked: VecDeque<(u64, Request)>,
}

impl Edge {
    /// Listens at this path from now on; `None`: nowhere. On an error it is as before.
    pub(in crate::master) fn open_control(&mut self, path: Option<&Path>) -> Result<(), ListenError> {
        let wanted = path.map(|path| Address::Unix(path.to_owned()));
        let now = self.control.listener.as_ref().map(|listener| &listener.address);
        if now == wanted.as_ref() {
            return Ok(());
        }
        let listener = match wanted {
            Some(address) => Some(bind(&private(address), &mut self.inherited)?),
            None => None,
        };
        if let Some(before) = self.control.listener.take() {
            self.sources.forget(&self.registry, &before.socket);
            before.remove_file();
        }
        if let Some(listener) = &listener {
            let watched = self
                .sources
                .watch(&self.registry, &listener.socket, Source::Control);
            if let Err(error) = watched {
                log::error!("control: {error}");
            }
        }
        self.control.listener = listener;
        Ok(())
    }

    /// Removes the socket's file; at the end.
    pub(in crate::master) fn remove_control_file(&self) {
        self.control.listener.iter().for_each(Listener::remove_file);
    }

    /// What was asked next.
    pub(in crate::master) fn next_order(&mut self) -> Option<(u64, Request)> {
        self.control.asked.pop_front()
    }

    /// Whether something is asked.
    pub(in crate::master) fn has_orders(&self) -> bool {
        !self.control.asked.is_empty()
    }

    /// Takes new conversations. `true`: there may be more.
    pub(super) fn accept_control(&mut self) -> bool {
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.control.listener else {
                return false;
            };
            match socket::accept(listener.socket.as_fd()) {
                Ok(Some(connection)) => self.begin_session(connection),
                Ok(None) => return false,
                Err(error) => {
                    log::error!("control: {error}");
                    return false;
                }
            }
        }
        true
    }

    fn begin_session(&mut self, connection: OwnedFd) {
        let who = socket::peer_user(connection.as_fd());
        let mut session = Session::new(connection, clock::now());
        let may_ask = who
            .as_ref()
            .is_ok_and(|uid| *uid == 0 || *uid == identity::own_user());
        if !may_ask {
            session.refuse("permission denied: root and the daemon's own user may ask");
            session.look(clock::now());
            return;
        }
        self.make_room_for_session();
        self.control.last += 1;
        let id = self.control.last;
        let both = Interest::READABLE | Interest::WRITABLE;
        let watched =
            self.sources
                .watch_for(&self.registry, session.socket(), Source::ControlSession(id), both);
        match watched {
            Ok(()) => {
                self.control.sessions.insert(id, session);
                self.attend_session(id);
            }
            Err(error) => log::error!("control: {error}"),
        }
    }

    /// Ends the conversation that is silent the longest, so that there is room for another. One that waits for its
    /// answer is only ended if all do.
    fn make_room_for_session(&mut self) {
        if self.control.sessions.len() < MOST_SESSIONS {
            return;
        }
        let sessions = self.control.sessions.iter();
        let longest = sessions
            .min_by_key(|(id, session)| (session.is_waiting(), session.since, **id))
            .map(|(id, _)| *id);
        if let Some(id) = longest {
            self.end_session(id);
        }
    }

    fn end_session(&mut self, id: u64) {
        if let Some(session) = self.control.sessions.remove(&id) {
            self.sources.forget(&self.registry, session.socket());
        }
    }

    /// Goes on with a conversation.
    pub(super) fn attend_session(&mut self, id: u64) {
        let Some(session) = self.control.sessions.get_mut(&id) else {
            return;
        };
        match session.look(clock::now()) {
            Heard::Nothing => {}
            Heard::Request(request) => self.control.asked.push_back((id, request)),
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
    pub(in crate::master) fn status(&self) -> Status {
        let mut pools: Vec<protocol::Pool> = self
            .pools
            .iter()
            .map(|(id, pool)| {
                let own = self.generations.iter().filter(|(_, g)| g.pool == *id);
                let own: BTreeMap<GenerationId, &Generation> = own.map(|(id, g)| (*id, g)).collect();
                protocol::Pool {
                    name: pool.name.clone(),
                    listen: address(&pool.listener.address),
                    queue: pool.queued(),
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
        }
    }

    /// Why an application could not be started.
    pub(in crate::master) fn error_report(&self, id: Option<&str>, format: Format) -> Answer {
        let Some(kept) = self.errors.find(id) else {
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
                Some(protocol::Worker {
                    slot: *slot,
                    // Its own word for its pid is not taken.
                    pid: self.workers.get(worker).and_then(|worker| worker.pid),
                    stage: entry.stage.name().to_owned(),
                    for_ms: u64::try_from(clock::now().since(entry.since).as_millis()).unwrap_or(u64::MAX),
                    requests: entry.requests,
                    kept: entry.kept,
                    script: String::from_utf8_lossy(&entry.texts[3]).into_owned(),
                })
            })
            .collect();
        workers.sort_by_key(|worker| worker.slot);
        protocol::Generation {
            id: id.0,
            state: state.to_owned(),
            pm: generation.settings.pool.pm.name().to_owned(),
            started: generation.settings.started,
            preloader: resources.and_then(|resources| resources.preloader),
            workers,
        }
    }
}

/// A socket that its owner alone can reach.
fn private(address: Address) -> Listen {
    Listen {
        address,
        backlog: MOST_SESSIONS as i32,
        owner: None,
        group: None,
        mode: 0o600,
        acl_users: Vec::new(),
        acl_groups: Vec::new(),
        allowed_clients: Vec::new(),
    }
}

fn address(address: &Address) -> String {
    match address {
        Address::Unix(path) => path.display().to_string(),
        Address::Tcp(address) => address.to_string(),
        Address::TcpAny(port) => port.to_string(),
    }
}

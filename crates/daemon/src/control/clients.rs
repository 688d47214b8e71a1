//! The control sockets: clients and requests.

use crate::applications::Applications;
use crate::context::Context;
use crate::context::effect::Effect;
use crate::context::held_socket::private;
use crate::context::rights::Rights;
use crate::context::sources::{ControlSocket, Source};
use crate::control::{Guests, MOST_SESSIONS, Session, SessionInput};
use forkyard_base::tick::Tick;
use forkyard_config::{Address, Global, Pool};
use forkyard_host::control::owners_socket;
use forkyard_host::listen::{AcceptPause, ListenError, Listener, ListenerState, bind};
use forkyard_protocol::control::{Answer, Request};
use forkyard_sys::{clock, identity, socket};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

const ACCEPTS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Control {
    listeners: BTreeMap<ControlSocket, Listener>,
    sessions: HashMap<u64, Session>,
    last: u64,
    asked: VecDeque<(u64, Request)>,
    /// One is answered per turn of the loop.
    asked_by_guests: VecDeque<(u64, Request)>,
    /// The users of restricted conversations.
    guests: Guests,
    pause: AcceptPause,
}

impl Control {
    /// Listens at the configured path, and for owners next to it if there are application pools. After an error nothing
    /// changes. If the path is only the default, as in a container with a read-only /run, the daemon continues without
    /// the socket.
    pub(crate) fn open(
        &mut self,
        context: &mut Context,
        applications: &Applications,
        global: &Global,
    ) -> Result<(), ListenError> {
        match self.open_at(context, applications, global.control.as_deref()) {
            Err(error @ ListenError::System(_)) if !global.is_control_written => {
                log::warn!(
                    "there is no control socket, and no command is answered: {error}; write control = \"PATH\" in [global], in a \
                     directory that can be written to, or mount one at /run"
                );
                Ok(())
            }
            other => other,
        }
    }

    fn open_at(
        &mut self,
        context: &mut Context,
        applications: &Applications,
        path: Option<&Path>,
    ) -> Result<(), ListenError> {
        self.open_socket(context, applications, ControlSocket::Main, path)?;
        // Owners of applications other than the daemon's user.
        let is_owned = |pool: &Arc<Pool>| {
            let has_directory = pool.application.root().is_some() || pool.release.is_some();
            let of_one = pool.account.user.is_some() && has_directory;
            pool.applications.is_some() || of_one
        };
        let has_owners = context.in_force.config.pools.iter().any(is_owned);
        let owners = path.filter(|_| has_owners).map(owners_socket);
        self.open_socket(context, applications, ControlSocket::Owners, owners.as_deref())
    }

    fn open_socket(
        &mut self,
        context: &mut Context,
        applications: &Applications,
        which: ControlSocket,
        path: Option<&Path>,
    ) -> Result<(), ListenError> {
        let wanted = path.map(|path| Address::Unix(path.to_owned()));
        let mode = which.mode();
        let path = self.listeners.get(&which);
        let path = path.filter(|it| it.is_ours()).map(Listener::state);
        let is_lost = path.is_some_and(|state| state != ListenerState::Open);
        if is_lost {
            // Connections from before the file was lost.
            while self.accept(context, applications, which) {}
        }
        let listener = self.listeners.get(&which);
        let now = listener.map(|listener| &listener.address);
        let is_same = now.is_some() && now == wanted.as_ref();
        if now == wanted.as_ref() && !is_lost {
            return (listener.zip(wanted)).map_or(Ok(()), |(listener, address)| {
                listener.adjust(&private(address, mode), None)
            });
        }
        let bound = wanted.map(|address| bind(&private(address, mode), &mut context.handover.inherited));
        let bound = bound.transpose()?;
        if let Some(before) = self.listeners.remove(&which) {
            context.services.sources.forget(&before.socket);
            before.remove_file();
        }
        if let Some(listener) = bound {
            let sources = &mut context.services.sources;
            if let Err(error) = sources.watch(&listener.socket, Source::Control(which)) {
                log::error!("control: {error}");
            }
            self.listeners.insert(which, listener);
        }
        if is_lost && is_same {
            log::warn!("the control socket's file was gone: it is bound again");
        }
        Ok(())
    }

    /// Accepts again after a pause: the edge-triggered socket does not report earlier connections again.
    pub(crate) fn poll(&mut self, context: &mut Context, applications: &Applications, now: Tick) {
        // At most the backlog; for later ones the socket becomes readable again.
        let rounds = MOST_SESSIONS.div_ceil(ACCEPTS) + 1;
        if self.pause.end(now) {
            for which in [ControlSocket::Main, ControlSocket::Owners] {
                let _ = (0..rounds).all(|_| self.accept(context, applications, which));
            }
        }
    }

    pub(crate) fn answer(&mut self, context: &mut Context, id: u64, answer: &Answer) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.answer(answer);
            self.on_session_ready(context, id);
        }
    }

    /// Accepts conversations. Returns `true` if there may be more.
    pub(crate) fn accept(
        &mut self,
        context: &mut Context,
        applications: &Applications,
        which: ControlSocket,
    ) -> bool {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(&which) else {
                return false;
            };
            match socket::accept(listener.socket.as_fd()) {
                Ok(Some(connection)) => self.begin_session(context, applications, connection, which),
                Ok(None) => return false,
                Err(error) => {
                    if self.pause.begin(clock::now()) {
                        log::error!("control: {error}; trying again");
                    }
                    return false;
                }
            }
        }
        true
    }

    fn begin_session(
        &mut self,
        context: &mut Context,
        applications: &Applications,
        connection: OwnedFd,
        which: ControlSocket,
    ) {
        let who = socket::peer_user(connection.as_fd());
        let mut session = Session::new(connection, clock::now());
        let rights = match who {
            Ok(uid) if uid == 0 || uid == identity::own_user() => Some(Rights::All),
            Ok(uid) => Some(Rights::Own(uid)).filter(|_| which == ControlSocket::Owners),
            Err(_) => None,
        };
        let Some(rights) = rights else {
            session.refuse("permission denied: root and the daemon's own user may ask");
            session.poll(clock::now());
            return;
        };
        if let Some(longest) = self.to_end_for(applications, rights) {
            self.end_session(context, longest);
        }
        self.last += 1;
        let id = self.last;
        let sources = &mut context.services.sources;
        match sources.watch_both(session.socket(), Source::ControlSession(id)) {
            Ok(()) => {
                self.sessions.insert(id, session);
                if let Rights::Own(uid) = rights {
                    self.guests.add(id, uid);
                }
                self.on_session_ready(context, id);
            }
            Err(error) => log::error!("control: {error}"),
        }
    }

    fn end_session(&mut self, context: &mut Context, id: u64) {
        if let Some(session) = self.sessions.remove(&id) {
            context.services.sources.forget(session.socket());
            self.guests.remove(id);
            context.services.cause(Effect::SessionEnded(id));
        }
    }

    pub(crate) fn on_session_ready(&mut self, context: &mut Context, id: u64) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        match session.poll(clock::now()) {
            SessionInput::Nothing => {}
            SessionInput::Request(request) => match self.rights(id) {
                Rights::All => self.asked.push_back((id, request)),
                Rights::Own(_) => self.asked_by_guests.push_back((id, request)),
            },
            SessionInput::End => self.end_session(context, id),
        }
    }

    pub(crate) fn remove_control_file(&self) {
        self.listeners.values().for_each(Listener::remove_file);
    }

    /// The next request of root or the daemon's user.
    pub(crate) fn next_request(&mut self) -> Option<(u64, Request)> {
        self.asked.pop_front()
    }

    /// The next request of an owner who still waits.
    pub(crate) fn next_request_of_guests(&mut self) -> Option<(u64, Request)> {
        // A closed conversation takes its request along, so the queue never exceeds the places.
        let sessions = &self.sessions;
        self.asked_by_guests.retain(|(id, _)| sessions.contains_key(id));
        self.asked_by_guests.pop_front()
    }

    pub(crate) fn has_requests(&self) -> bool {
        !self.asked.is_empty() || !self.asked_by_guests.is_empty()
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.pause.deadline()
    }

    /// The conversation that is closed to make room: the one that is silent for longest. One that waits for its answer
    /// is closed only if all wait. Privileged ones are closed for each other, never for a guest.
    fn to_end_for(&self, applications: &Applications, rights: Rights) -> Option<u64> {
        if let Rights::Own(uid) = rights {
            return self.guests.to_end(uid, |id| {
                let session = self.sessions.get(&id);
                session.map_or((false, Tick::from_nanos(0)), |session| {
                    (session.is_waiting(), session.since)
                })
            });
        }
        let own = || (self.sessions.iter()).filter(|(id, _)| self.guests.user(**id).is_none());
        if own().count() < MOST_SESSIONS {
            return None;
        }
        let holders: Vec<u64> = applications.lease_holders();
        own()
            .min_by_key(|(id, session)| {
                let is_needed = session.is_waiting() || holders.contains(id);
                (is_needed, session.since, **id)
            })
            .map(|(id, _)| *id)
    }

    /// Whether the client of a conversation has left.
    pub(crate) fn has_left(&self, id: u64) -> bool {
        self.sessions.get(&id).is_none_or(Session::has_left)
    }

    /// The rights of a conversation's client.
    pub(crate) fn rights(&self, id: u64) -> Rights {
        self.guests.user(id).map_or(Rights::All, Rights::Own)
    }
}

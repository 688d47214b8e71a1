//! Sessions: who uses an instance, or waits for one.

use forkyard_core::applications::event::SessionId;
use forkyard_sys::clock;
use std::collections::HashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Client(u64),
    /// A `forkyard take`, by its request number, later its lease.
    AdminRequest(u64),
    /// A `forkyard restart` that starts an application, by its request number.
    Starter(u64),
    /// A session without a client of this router. It ends when the instance reports its end.
    Gone,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    pub who: Who,
    pub instance: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Sessions {
    all: HashMap<SessionId, Session>,
    last: u64,
}

impl Sessions {
    pub(super) fn new() -> Sessions {
        Sessions {
            all: HashMap::new(),
            // Higher than any earlier router's numbers, which workers may still use.
            last: clock::epoch_micros(),
        }
    }

    pub(super) fn new_id(&mut self) -> SessionId {
        self.last += 1;
        SessionId(self.last)
    }

    /// Begins a session that waits for an instance.
    pub(super) fn wait(&mut self, who: Who) -> SessionId {
        let id = self.new_id();
        self.all.insert(id, Session { who, instance: None });
        id
    }

    /// Takes up a session of an earlier router.
    pub(super) fn take_up(&mut self, id: SessionId, instance: u64) {
        let (who, instance) = (Who::Gone, Some(instance));
        self.all.insert(id, Session { who, instance });
    }

    /// Gives a session its instance.
    pub(super) fn check_out(&mut self, id: SessionId, instance: u64) -> Option<Who> {
        let session = self.all.get_mut(&id)?;
        session.instance = Some(instance);
        Some(session.who)
    }

    pub(super) fn get(&self, id: SessionId) -> Option<Session> {
        self.all.get(&id).copied()
    }

    /// Separates a session from its client. The instance still works on it.
    pub(super) fn release(&mut self, id: SessionId) {
        if let Some(session) = self.all.get_mut(&id) {
            session.who = Who::Gone;
        }
    }

    pub(super) fn remove(&mut self, id: SessionId) -> Option<Session> {
        self.all.remove(&id)
    }

    pub(super) fn is_lease(&self, id: SessionId) -> bool {
        self.get(id).is_some_and(|session| session.is_lease())
    }

    pub(super) fn leases(&self) -> usize {
        self.all.values().filter(|session| session.is_lease()).count()
    }
}

impl Session {
    fn is_lease(&self) -> bool {
        matches!(self.who, Who::AdminRequest(_)) && self.instance.is_some()
    }
}

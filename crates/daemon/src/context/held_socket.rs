//! A listening socket of one of the daemon's helpers. The master holds it, so that no other process can take the address
//! during a restart.

use super::handover::Handover;
use forkyard_config::{Address, Listen};
use forkyard_host::listen::{ListenError, Listener, ListenerState, bind};

/// How many clients may wait to be accepted.
const BACKLOG: i32 = 16;

#[derive(Debug, Default)]
pub(crate) struct HeldSocket {
    present: Option<Listener>,
    prepared: Option<Prepared>,
}

#[derive(Debug)]
struct Prepared {
    address: Address,
    /// `None`: the present socket already has this address.
    listener: Option<Listener>,
}

impl HeldSocket {
    pub(crate) fn listener(&self) -> Option<&Listener> {
        self.present.as_ref()
    }

    /// Opens the socket that a configuration wants. After an error nothing has changed.
    pub(crate) fn prepare(
        &mut self,
        handover: &mut Handover,
        wanted: Option<&Listen>,
    ) -> Result<(), ListenError> {
        // The daemon's start may prepare twice.
        let before = self.prepared.take();
        let Some(wanted) = wanted else {
            drop_prepared(before);
            return Ok(());
        };
        let (opened, other): (Option<Prepared>, Option<Prepared>) = match before {
            Some(before) if before.address == wanted.address => (Some(before), None),
            before => (None, before),
        };
        drop_prepared(other);
        let is_there = |listener: &Listener| {
            listener.address == wanted.address && listener.state() == ListenerState::Open
        };
        let listener = match opened.and_then(|opened| opened.listener) {
            Some(listener) => Some(listener),
            None if self.present.as_ref().is_some_and(is_there) => None,
            None => Some(bind(wanted, &mut handover.inherited)?),
        };
        self.prepared = Some(Prepared {
            address: wanted.address.clone(),
            listener,
        });
        Ok(())
    }

    pub(crate) fn give_up(&mut self) {
        drop_prepared(self.prepared.take());
    }

    /// Takes the prepared socket, or none, in place of the present one. `name`: for the next master. Returns whether it
    /// is another.
    pub(crate) fn take_up(&mut self, handover: &mut Handover, name: &str) -> bool {
        let (before, prepared) = (self.present.take(), self.prepared.take());
        if prepared.as_ref().is_some_and(|it| it.listener.is_none()) {
            self.present = before;
            return false;
        }
        let was_there = before.is_some();
        if let Some(before) = before {
            handover.unkeep([name.to_owned()]);
            before.remove_file();
        }
        self.present = prepared.and_then(|prepared| prepared.listener);
        if let Some(listener) = &self.present {
            handover.keep([(name.to_owned(), &*listener.socket)]);
        }
        was_there || self.present.is_some()
    }

    pub(crate) fn remove_file(&self) {
        if let Some(listener) = &self.present {
            listener.remove_file();
        }
    }
}

fn drop_prepared(prepared: Option<Prepared>) {
    if let Some(listener) = prepared.and_then(|prepared| prepared.listener) {
        listener.remove_file();
    }
}

/// A socket for its owner alone, unless `mode` allows others.
pub(crate) fn private(address: Address, mode: u32) -> Listen {
    Listen {
        address,
        backlog: BACKLOG,
        owner: None,
        group: None,
        mode,
        acl_users: Vec::new(),
        acl_groups: Vec::new(),
        allowed_clients: Vec::new(),
        wrong_clients: Vec::new(),
    }
}

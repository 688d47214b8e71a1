//! The TCP socket of the jobs. The master holds it, so that no other process can take the port during a restart.

use super::apply_error::ApplyError;
use super::control::private;
use super::handover::Handover;
use forkyard_config::{Address, Config, Secret};
use forkyard_host::listen::{Listener, bind};
use forkyard_host::secret;
use forkyard_protocol::handover::names;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

#[derive(Debug)]
struct Tcp {
    listener: Listener,
    secret: Secret,
}

#[derive(Debug, Default)]
pub(super) struct JobsTcp {
    present: Option<Tcp>,
    prepared: Option<Prepared>,
}

#[derive(Debug)]
struct Prepared {
    address: SocketAddr,
    /// `None`: the present socket already has this address.
    listener: Option<Listener>,
    secret: Secret,
}

impl JobsTcp {
    pub(super) fn socket(&self) -> Option<&OwnedFd> {
        self.present.as_ref().map(|tcp| &*tcp.listener.socket)
    }

    pub(super) fn secret(&self) -> Option<&Secret> {
        self.present.as_ref().map(|tcp| &tcp.secret)
    }

    pub(super) fn give_up(&mut self) {
        self.prepared = None;
    }

    pub(super) fn take_up(&mut self, handover: &mut Handover) -> bool {
        let (before, prepared) = (self.present.take(), self.prepared.take());
        let goes_on = prepared.as_ref().is_some_and(|it| it.listener.is_none());
        if before.is_some() && !goes_on {
            handover.unkeep([names::JOBS.to_owned()]);
        }
        let Some(Prepared { listener, secret, .. }) = prepared else {
            return before.is_some();
        };
        if let Some(listener) = &listener {
            handover.keep([(names::JOBS.to_owned(), &*listener.socket)]);
        }
        let is_changed = listener.is_some() || before.as_ref().is_none_or(|it| it.secret != secret);
        let listener = listener.or(before.map(|before| before.listener));
        self.present = listener.map(|listener| Tcp { listener, secret });
        is_changed
    }

    pub(super) fn prepare(&mut self, handover: &mut Handover, config: &Config) -> Result<(), ApplyError> {
        let Some(wanted) = config.jobs.as_ref().and_then(|jobs| jobs.tcp.as_ref()) else {
            self.prepared = None;
            return Ok(());
        };
        let secret = secret::read(&wanted.secret_file).map_err(ApplyError::Secret)?;
        let address = Address::Tcp(wanted.address);
        // The daemon's start may prepare twice.
        let before = self.prepared.take();
        let opened = before.filter(|before| before.address == wanted.address);
        let is_there = |tcp: &Tcp| tcp.listener.address == address;
        let listener = match opened.and_then(|opened| opened.listener) {
            Some(listener) => Some(listener),
            None if self.present.as_ref().is_some_and(is_there) => None,
            None => {
                let bound = bind(&private(address, 0), &mut handover.inherited);
                Some(bound.map_err(ApplyError::JobsListen)?)
            }
        };
        self.prepared = Some(Prepared {
            address: wanted.address,
            listener,
            secret,
        });
        Ok(())
    }
}

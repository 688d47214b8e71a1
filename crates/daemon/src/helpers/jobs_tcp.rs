//! The TCP socket of the jobs, and its secret.

use crate::context::apply_error::ApplyError;
use crate::context::handover::Handover;
use crate::context::held_socket::HeldSocket;
use crate::context::held_socket::private;
use forkyard_config::{Address, Config, Secret};
use forkyard_host::secret;
use forkyard_protocol::handover::names;
use std::os::fd::OwnedFd;

#[derive(Debug, Default)]
pub(crate) struct JobsTcp {
    held: HeldSocket,
    secret: Option<Secret>,
    prepared: Option<Secret>,
}

impl JobsTcp {
    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        self.held.listener().map(|listener| &*listener.socket)
    }

    pub(crate) fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    pub(crate) fn give_up(&mut self) {
        self.held.give_up();
        self.prepared = None;
    }

    pub(crate) fn take_up(&mut self, handover: &mut Handover) -> bool {
        let before = std::mem::replace(&mut self.secret, self.prepared.take());
        let is_other = before != self.secret;
        self.held.take_up(handover, names::JOBS) || is_other
    }

    pub(crate) fn prepare(&mut self, handover: &mut Handover, config: &Config) -> Result<(), ApplyError> {
        let wanted = config.jobs.as_ref().and_then(|jobs| jobs.tcp.as_ref());
        let secret = wanted.map(|wanted| secret::read(&wanted.secret_file)).transpose();
        self.prepared = secret.map_err(ApplyError::Secret)?;
        let listen = wanted.map(|wanted| private(Address::Tcp(wanted.address), 0));
        self.held
            .prepare(handover, listen.as_ref())
            .map_err(ApplyError::JobsListen)
    }
}

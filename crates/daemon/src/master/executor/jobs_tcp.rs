//! The TCP socket of the jobs, and its secret.

use super::apply_error::ApplyError;
use super::control::private;
use super::handover::Handover;
use super::held_socket::HeldSocket;
use forkyard_config::{Address, Config, Secret};
use forkyard_host::secret;
use forkyard_protocol::handover::names;
use std::os::fd::OwnedFd;

#[derive(Debug, Default)]
pub(super) struct JobsTcp {
    held: HeldSocket,
    secret: Option<Secret>,
    prepared: Option<Secret>,
}

impl JobsTcp {
    pub(super) fn socket(&self) -> Option<&OwnedFd> {
        self.held.listener().map(|listener| &*listener.socket)
    }

    pub(super) fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    pub(super) fn give_up(&mut self) {
        self.held.give_up();
        self.prepared = None;
    }

    pub(super) fn take_up(&mut self, handover: &mut Handover) -> bool {
        let before = std::mem::replace(&mut self.secret, self.prepared.take());
        let is_other = before != self.secret;
        self.held.take_up(handover, names::JOBS) || is_other
    }

    pub(super) fn prepare(&mut self, handover: &mut Handover, config: &Config) -> Result<(), ApplyError> {
        let wanted = config.jobs.as_ref().and_then(|jobs| jobs.tcp.as_ref());
        let secret = wanted.map(|wanted| secret::read(&wanted.secret_file)).transpose();
        self.prepared = secret.map_err(ApplyError::Secret)?;
        let listen = wanted.map(|wanted| private(Address::Tcp(wanted.address), 0));
        self.held
            .prepare(handover, listen.as_ref())
            .map_err(ApplyError::JobsListen)
    }
}

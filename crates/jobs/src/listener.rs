//! A listening socket in the loop. Its events are edge-triggered: all that wait are accepted, in turns with the others.

use forkyard_host::listen::AcceptPause;
use forkyard_sys::{clock, socket};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    pub(crate) is_more_waiting: bool,
}

impl Listener {
    pub(crate) fn watch(socket: OwnedFd, registry: &Registry, token: Token) -> std::io::Result<Listener> {
        let raw = socket.as_raw_fd();
        registry.register(&mut SourceFd(&raw), token, Interest::READABLE)?;
        Ok(Listener {
            socket,
            is_more_waiting: true,
        })
    }

    pub(crate) fn forget(&self, registry: &Registry) {
        let raw = self.socket.as_raw_fd();
        let _ = registry.deregister(&mut SourceFd(&raw));
    }

    /// Accepts one client; `None`: none waits, or none can be accepted now.
    pub(crate) fn accept(&mut self, pause: &mut AcceptPause) -> Option<OwnedFd> {
        let accepted = socket::accept(self.socket.as_fd());
        self.is_more_waiting = matches!(accepted, Ok(Some(_)));
        accepted.unwrap_or_else(|error| {
            if pause.begin(clock::now()) {
                log::error!("jobs: can't accept a connection: {error}; trying again");
            }
            None
        })
    }
}

use super::context::Settings;
use super::service_order::Waiting;
use crate::config;
use crate::sys::socket::{peer_address, shutdown};
use crate::tick::Tick;
use fastcgi::{Limits, Repeated, Responder};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[derive(Debug)]
pub(super) struct Connection {
    /// `None` after closing; the rest is a spare for the next socket.
    socket: Option<OwnedFd>,
    pub(super) responder: Responder,
    /// Its index among the held connections, which are registered with the epoll.
    pub(super) index: Option<usize>,
    pub(super) waiting: Option<Waiting>,
    pub(super) expires: Tick,
    /// Whether anything was read from it.
    pub(super) spoken: bool,
    /// Whether a request has come since it was last held. Other records don't extend its time.
    pub(super) asked: bool,
    /// The router has a copy of the socket.
    pub(super) shared: bool,
    /// Close after this request, even if the client wants to keep it.
    pub(super) last: bool,
    peer: Option<Option<IpAddr>>,
}

impl Connection {
    /// Uses the memory of a spare connection, if there is one.
    pub(super) fn begin(
        spare: Option<Box<Connection>>,
        socket: OwnedFd,
        settings: &Settings,
    ) -> Box<Connection> {
        match spare {
            Some(mut spare) => {
                spare.reuse(socket);
                spare
            }
            None => {
                let limits = &settings.pool.serving.limits;
                Box::new(Connection::new(socket, limits, settings.repeated()))
            }
        }
    }

    pub(super) fn new(socket: OwnedFd, limits: &config::Limits, repeated: Repeated) -> Connection {
        let limits = Limits {
            params_bytes: limits.params_bytes,
            params_count: limits.params_count,
        };
        let mut responder = Responder::new(limits);
        responder.set_repeated(repeated);
        Connection {
            socket: Some(socket),
            responder,
            index: None,
            waiting: None,
            expires: Tick::ZERO,
            spoken: false,
            asked: false,
            shared: false,
            last: false,
            peer: None,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket
            .as_ref()
            .expect("a connection in use has a socket")
            .as_fd()
    }

    pub(super) fn hang_up(&mut self) {
        if let Some(socket) = self.socket.as_ref().filter(|_| self.shared) {
            shutdown(socket.as_fd());
        }
        self.socket = None;
    }

    fn reuse(&mut self, socket: OwnedFd) {
        self.socket = Some(socket);
        self.responder.reset();
        self.index = None;
        self.expires = Tick::ZERO;
        self.waiting = None;
        self.spoken = false;
        self.asked = false;
        self.shared = false;
        self.last = false;
        self.peer = None;
    }

    pub(super) fn peer(&mut self) -> Option<IpAddr> {
        if self.peer.is_none() {
            self.peer = Some(peer_address(self.socket()).ok().flatten());
        }
        self.peer.flatten()
    }

    pub(super) fn keeps(&self) -> bool {
        self.responder.keep() && !self.last
    }

    pub(super) fn is_portable(&self) -> bool {
        self.responder.is_between_requests()
    }
}

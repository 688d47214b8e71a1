use super::context::Settings;
use super::service_order::Waiting;
use fastcgi::{Limits, Repeated, Responder};
use forkyard_base::tick::Tick;
use forkyard_sys::socket::{peer_address, shutdown};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A client's socket.
#[derive(Debug)]
pub(super) struct ClientSocket {
    /// `None` after closing.
    socket: Option<OwnedFd>,
    /// Whether anything was read from it.
    pub(super) spoken: bool,
    /// The router has a copy of it.
    pub(super) shared: bool,
    peer: Option<Option<IpAddr>>,
}

impl ClientSocket {
    pub(super) fn new(socket: OwnedFd) -> ClientSocket {
        ClientSocket {
            socket: Some(socket),
            spoken: false,
            shared: false,
            peer: None,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
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

    pub(super) fn peer(&mut self) -> Option<IpAddr> {
        if self.peer.is_none() {
            self.peer = Some(peer_address(self.fd()).ok().flatten());
        }
        self.peer.flatten()
    }
}

/// A connection of a worker with one request at a time. Closed, it is a spare for the next socket.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: ClientSocket,
    pub(super) responder: Responder,
    /// Its index among the held connections, which are registered with the epoll.
    pub(super) index: Option<usize>,
    pub(super) waiting: Option<Waiting>,
    pub(super) expires: Tick,
    /// Whether a request has come since it was last held. Other records don't extend its time.
    pub(super) asked: bool,
    /// Close after this request, even if the client wants to keep it.
    pub(super) last: bool,
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
            None => Box::new(Connection::new(
                socket,
                settings.wire_limits(),
                settings.repeated(),
            )),
        }
    }

    pub(super) fn new(socket: OwnedFd, limits: Limits, repeated: Repeated) -> Connection {
        let mut responder = Responder::new(limits);
        responder.set_repeated(repeated);
        Connection {
            client: ClientSocket::new(socket),
            responder,
            index: None,
            waiting: None,
            expires: Tick::ZERO,
            asked: false,
            last: false,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.client.fd()
    }

    fn reuse(&mut self, socket: OwnedFd) {
        self.client = ClientSocket::new(socket);
        self.responder.reset();
        self.index = None;
        self.expires = Tick::ZERO;
        self.waiting = None;
        self.asked = false;
        self.last = false;
    }

    pub(super) fn keeps(&self) -> bool {
        self.responder.keep() && !self.last
    }

    pub(super) fn is_portable(&self) -> bool {
        self.responder.is_between_requests()
    }
}

impl Settings {
    /// The limits of a request's parameters.
    pub(super) fn wire_limits(&self) -> Limits {
        let limits = &self.pool.serving.limits;
        Limits {
            params_bytes: limits.params_bytes,
            params_count: limits.params_count,
        }
    }
}

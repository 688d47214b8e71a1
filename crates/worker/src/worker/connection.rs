//! One client connection of a worker.

use super::service_order::Waiting;
use crate::config;
use crate::sys::socket::{peer_address, shutdown};
use crate::tick::Tick;
use fastcgi::{Limits, Repeated, Responder};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A connection and what has been understood of it so far.
#[derive(Debug)]
pub(super) struct Connection {
    /// `None` once it was hung up; a spare waits for its next socket.
    socket: Option<OwnedFd>,
    /// The server's side of the protocol.
    pub(super) responder: Responder,
    /// Its place among the held connections, if it has one: it is then registered with the worker's epoll.
    pub(super) index: Option<usize>,
    /// It is held and has a request that waits.
    pub(super) waiting: Option<Waiting>,
    /// When it is closed if nothing comes.
    pub(super) expires: Tick,
    /// Something was read from it.
    pub(super) spoken: bool,
    /// A request has come since it was held last. Other records give it no more time.
    pub(super) asked: bool,
    /// A router has a copy of the socket.
    pub(super) shared: bool,
    /// The request is its last, whatever the client asked for.
    pub(super) last: bool,
    /// The client's address, once it was asked for.
    peer: Option<Option<IpAddr>>,
}

impl Connection {
    /// A connection on which nothing has been said yet, or nothing of a next request.
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

    /// The socket.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket
            .as_ref()
            .expect("a connection in use has a socket")
            .as_fd()
    }

    /// Closes the socket, for all processes that have it; the rest waits to be reused.
    pub(super) fn hang_up(&mut self) {
        if let Some(socket) = self.socket.as_ref().filter(|_| self.shared) {
            shutdown(socket.as_fd());
        }
        self.socket = None;
    }

    /// Begins anew with another socket.
    pub(super) fn reuse(&mut self, socket: OwnedFd) {
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

    /// The client's address; `None` for a unix socket.
    pub(super) fn peer(&mut self) -> Option<IpAddr> {
        if self.peer.is_none() {
            self.peer = Some(peer_address(self.socket()).ok().flatten());
        }
        self.peer.flatten()
    }

    /// It is kept after the request.
    pub(super) fn keeps(&self) -> bool {
        self.responder.keep() && !self.last
    }

    /// Whether another process could go on with it: nothing of it is known here only.
    pub(super) fn is_portable(&self) -> bool {
        self.responder.is_between_requests()
    }
}

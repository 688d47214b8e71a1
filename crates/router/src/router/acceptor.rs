//! Accepts connections from the listening socket.

use super::shortage::Shortage;
use forkyard_base::tick::Tick;
use forkyard_host::listen::AcceptPause;
use forkyard_sys::{Error, socket};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::os::fd::{AsFd, OwnedFd};

pub(super) const LISTENER: u64 = 0;
const ACCEPTS: usize = 64;

#[derive(Debug)]
pub(super) struct Acceptor {
    /// `None`: closed for good.
    listener: Option<OwnedFd>,
    is_open: bool,
    pause: AcceptPause,
    burst: usize,
    pub(super) shortage: Shortage,
}

impl Acceptor {
    pub(super) fn new(listener: OwnedFd) -> Acceptor {
        Acceptor {
            listener: Some(listener),
            is_open: false,
            pause: AcceptPause::default(),
            burst: 1,
            shortage: Shortage::default(),
        }
    }

    pub(super) fn open(&mut self, epoll: &Epoll, now: Tick) {
        if self.is_open || self.pause.deadline().is_some() {
            return;
        }
        if let Some(listener) = &self.listener {
            let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
            match epoll.add(listener, EpollEvent::new(flags, LISTENER)) {
                Ok(()) => self.is_open = true,
                Err(errno) => {
                    let why = format!("can't watch the listening socket: epoll_ctl: {errno}");
                    self.rest(&why, epoll, now);
                }
            }
        }
    }

    /// Stops accepting, until [`Acceptor::open`].
    pub(super) fn shut(&mut self, epoll: &Epoll) {
        if let Some(listener) = self.listener.as_ref().filter(|_| self.is_open) {
            let _ = epoll.delete(listener);
            self.is_open = false;
        }
    }

    /// Stops accepting for good.
    pub(super) fn close(&mut self, epoll: &Epoll) {
        self.shut(epoll);
        self.listener = None;
    }

    /// Pauses after a failure.
    pub(super) fn rest(&mut self, why: &str, epoll: &Epoll, now: Tick) {
        self.shut(epoll);
        if self.pause.begin(now) {
            log::error!("{why}; trying again");
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.pause.deadline()
    }

    pub(super) fn end_pause(&mut self, epoll: &Epoll, now: Tick) {
        if self.pause.end(now) {
            self.open(epoll, now);
        }
    }

    /// How many connections to accept in this turn of the loop: more if the last turn had some, too.
    pub(super) fn turn(&mut self, has_connections: bool) -> usize {
        let burst = if has_connections { ACCEPTS } else { 1 };
        let before = std::mem::replace(&mut self.burst, burst);
        if has_connections { before } else { 0 }
    }

    /// The next connection, if there is one.
    pub(super) fn next(&self) -> Result<Option<OwnedFd>, Error> {
        match self.listener.as_ref().filter(|_| self.is_open) {
            Some(listener) => socket::accept(listener.as_fd()),
            None => Ok(None),
        }
    }
}

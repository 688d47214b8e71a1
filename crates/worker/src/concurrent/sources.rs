//! The descriptors of a worker that are not connections.

use super::super::turns::TurnQueues;
use super::native::SOURCES;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Epoll data of the sources; connections use their place and serial.
pub(super) const LISTENER: u64 = SOURCES;
pub(super) const QUEUE: u64 = SOURCES | 1;
pub(super) const STOP_PIPE: u64 = SOURCES | 2;
pub(super) const ALARM: u64 = SOURCES | 3;
pub(super) const ROUTER: u64 = SOURCES | 4;
pub(super) const TURN: u64 = SOURCES | 5;

/// Edge-triggered. All workers get the event of a new connection, and the least busy accepts it.
pub(super) const EDGE: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLET);

#[derive(Debug)]
pub(super) struct Sources {
    pub epoll: Arc<Epoll>,
    pub listener: OwnedFd,
    pub http: Option<OwnedFd>,
    /// The hand-off queue.
    pub queue_in: OwnedFd,
    pub queue_out: OwnedFd,
    /// `None`: no other generation shares the pool's requests.
    pub turns: Option<TurnQueues>,
    pub stop_pipe: OwnedFd,
    /// For the access log.
    pub access: Option<OwnedFd>,
    /// The listening socket is watched.
    pub is_listening: bool,
}

impl Sources {
    /// Watches all but the listening sockets. A worker with a router has no hand-off queue.
    pub(super) fn watch(&self, alarm: BorrowedFd<'_>, router: Option<BorrowedFd<'_>>) -> nix::Result<()> {
        let readable = |data| EpollEvent::new(EpollFlags::EPOLLIN, data);
        match router {
            Some(router) => self.epoll.add(router, readable(ROUTER))?,
            None => {
                self.epoll.add(&self.queue_out, EpollEvent::new(EDGE, QUEUE))?;
                if let Some(turns) = &self.turns {
                    self.epoll.add(&turns.own_out, EpollEvent::new(EDGE, TURN))?;
                }
            }
        }
        self.epoll.add(&self.stop_pipe, readable(STOP_PIPE))?;
        self.epoll.add(alarm, readable(ALARM))
    }
}

//! A non-blocking connection in the gateway's epoll, and what the kernel has reported of it.

use crate::queue::Queue;
use forkyard_sys::Error;
use forkyard_sys::socket::{self, Progress};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::os::fd::{AsFd, OwnedFd};

/// EPOLLOUT is watched only after a full buffer: a unix socket would otherwise raise an event at every read of its
/// peer.
const WATCHED: EpollFlags = EpollFlags::EPOLLIN
    .union(EpollFlags::EPOLLRDHUP)
    .union(EpollFlags::EPOLLET);
const WATCHED_WITH_ROOM: EpollFlags = WATCHED.union(EpollFlags::EPOLLOUT);

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) socket: OwnedFd,
    /// Its epoll data, different for each connection.
    pub(super) number: u64,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The kernel reported the end of file, which is still unread.
    has_ended: bool,
    watches_room: bool,
}

impl Stream {
    /// `has_room`: it is connected, and its buffer is empty.
    pub(super) fn watch(
        socket: OwnedFd,
        number: u64,
        has_room: bool,
        epoll: &Epoll,
    ) -> Result<Stream, Error> {
        let flags = if has_room { WATCHED } else { WATCHED_WITH_ROOM };
        let watched = epoll.add(&socket, EpollEvent::new(flags, number));
        watched.map_err(|errno| Error::new("epoll_ctl", "", errno))?;
        Ok(Stream {
            socket,
            number,
            readable: false,
            writable: has_room,
            has_ended: false,
            watches_room: !has_room,
        })
    }

    /// Notes an event. Returns whether there is something to read.
    pub(super) fn see(&mut self, flags: EpollFlags) -> bool {
        let ends = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        let is_told = flags.intersects(EpollFlags::EPOLLIN | ends);
        self.writable |= flags.contains(EpollFlags::EPOLLOUT);
        self.has_ended |= flags.intersects(ends);
        self.readable |= is_told;
        is_told
    }

    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<Progress, Error> {
        let received = socket::receive(self.socket.as_fd(), buffer);
        match received {
            Ok(Progress::WouldBlock) => self.readable = false,
            Ok(Progress::Done(count @ 1..)) => self.readable = count == buffer.len() || self.has_ended,
            Ok(Progress::Done(_)) | Err(_) => {}
        }
        received
    }

    /// Sends as much as there is room for.
    pub(super) fn send(&mut self, queue: &mut Queue, epoll: &Epoll) -> Result<(), Error> {
        while self.writable && !queue.is_empty() {
            match socket::send(self.socket.as_fd(), queue.rest())? {
                Progress::Done(count) => queue.advance(count),
                Progress::WouldBlock => self.watch_room(epoll),
            }
        }
        Ok(())
    }

    fn watch_room(&mut self, epoll: &Epoll) {
        self.writable = false;
        if std::mem::replace(&mut self.watches_room, true) {
            return;
        }
        let mut event = EpollEvent::new(WATCHED_WITH_ROOM, self.number);
        if let Err(errno) = epoll.modify(&self.socket, &mut event) {
            log::error!("a connection can't be watched: epoll_ctl: {errno}");
        }
    }
}

//! The router's end of the socket to the master.

use forkyard_config::Pool;
use forkyard_protocol::router::{ToMaster, ToRouter};
use forkyard_sys::fd::{receive_with, send_with};
use forkyard_sys::{Error, socket};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

pub(super) const MASTER: u64 = 1;
pub(super) const HEARTBEAT: u64 = 3;
const MOST_UNREAD: usize = 16 * 1024;

/// ```text
///  Open ◀── room ── full ──▶ Full
///    └──────── closed ─────────┴──▶ Gone
/// ```
#[derive(Debug, PartialEq, Eq)]
enum LinkState {
    Open,
    /// The socket is full.
    Full,
    /// The master has exited.
    Gone,
}

#[derive(Debug)]
pub(super) struct MasterLink {
    socket: OwnedFd,
    heartbeat: Option<OwnedFd>,
    pub(super) outbox: VecDeque<Vec<u8>>,
    state: LinkState,
}

pub(super) struct MasterGone;

type Received = (ToRouter<Pool>, Vec<OwnedFd>);

impl MasterLink {
    pub(super) fn new(
        socket: OwnedFd,
        heartbeat: Option<OwnedFd>,
        epoll: &Epoll,
    ) -> Result<MasterLink, Error> {
        let sources = heartbeat.iter().map(|heartbeat| (heartbeat, HEARTBEAT));
        for (fd, token) in sources.chain([(&socket, MASTER)]) {
            epoll
                .add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token))
                .map_err(|errno| Error::new("epoll_ctl", "", errno))?;
        }
        Ok(MasterLink {
            socket,
            heartbeat,
            outbox: VecDeque::new(),
            state: LinkState::Open,
        })
    }

    /// Reads and ignores the master's heartbeat bytes.
    pub(super) fn take_heartbeat(&mut self, epoll: &Epoll) {
        let is_over = |heartbeat: &mut OwnedFd| socket::drain(heartbeat.as_fd()).is_err();
        if let Some(heartbeat) = self.heartbeat.take_if(is_over) {
            let _ = epoll.delete(&heartbeat);
        }
    }

    /// Queues a message for [`MasterLink::flush`].
    pub(super) fn say(&mut self, what: &ToMaster) {
        if self.state == LinkState::Gone {
            return;
        }
        match serde_json::to_vec(what) {
            Ok(message) => self.outbox.push_back(message),
            Err(error) => log::error!("can't send to the master: {error}"),
        }
    }

    /// Sends queued messages. Returns `MasterGone` once, if the master has exited.
    ///
    /// # Errors
    /// The master reads nothing, or a system call failed.
    pub(super) fn flush(&mut self, epoll: &Epoll) -> Result<Option<MasterGone>, Error> {
        while let Some(message) = self.outbox.front() {
            match send_with(self.socket.as_fd(), message, &[]) {
                Ok(_) => drop(self.outbox.pop_front()),
                Err(error) if error.errno == Errno::EAGAIN => break,
                Err(error) if matches!(error.errno, Errno::EPIPE | Errno::ECONNRESET) => {
                    return Ok(Some(self.lose(epoll)));
                }
                Err(error) => return Err(error),
            }
        }
        if self.outbox.len() > MOST_UNREAD {
            return Err(Error::new(
                "sendmsg",
                "the master does not listen",
                Errno::ENOBUFS,
            ));
        }
        let (state, flags) = match self.outbox.is_empty() {
            true => (LinkState::Open, EpollFlags::EPOLLIN),
            false => (LinkState::Full, EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT),
        };
        if self.state != LinkState::Gone && self.state != state {
            self.state = state;
            epoll
                .modify(&self.socket, &mut EpollEvent::new(flags, MASTER))
                .map_err(|errno| Error::new("epoll_ctl", "", errno))?;
        }
        Ok(None)
    }

    /// The next message, if there is one.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        epoll: &Epoll,
    ) -> Result<Option<Received>, MasterGone> {
        if self.state == LinkState::Gone {
            return Ok(None);
        }
        let received = match receive_with(self.socket.as_fd(), buffer, false) {
            Ok(received) if received.bytes > 0 => received,
            Err(error) if matches!(error.errno, Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Ok(_) | Err(_) => return Err(self.lose(epoll)),
        };
        match serde_json::from_slice(&buffer[..received.bytes]) {
            Ok(message) => Ok(Some((message, received.descriptors))),
            Err(error) => {
                log::error!("the master's message is not understood: {error}");
                Ok(None)
            }
        }
    }

    fn lose(&mut self, epoll: &Epoll) -> MasterGone {
        self.state = LinkState::Gone;
        let _ = epoll.delete(&self.socket);
        self.outbox.clear();
        MasterGone
    }
}

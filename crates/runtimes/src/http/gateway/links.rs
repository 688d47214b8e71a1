//! Connections to the program's processes: chooses a process and reuses connections.

use super::super::share::Share;
use super::super::table::ProcessEntry;
use super::stream::Stream;
use super::upstream::Taken;
use crate::is_quiet;
use forkyard_base::spread;
use forkyard_config::Address;
use forkyard_sys::peer::{self, OtherEnd};
use forkyard_sys::{Error, socket};
use nix::sys::epoll::{Epoll, EpollFlags};
use slab::Slab;
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

const MOST_KEPT: usize = 128;

#[derive(Debug)]
pub(super) enum Server {
    There(Address),
    Started(Share, usize),
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: Stream,
    process: Option<ProcessEntry>,
    /// The passage that uses it.
    user: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Reuse {
    #[default]
    No,
    Any,
    Quiet,
}

#[derive(Debug)]
pub(super) struct Links {
    server: Server,
    all: Slab<Link>,
    kept: Vec<usize>,
    serial: u32,
    turn: usize,
    most: Option<(u64, u64)>,
    uid: u32,
    has_told_unknown: Cell<bool>,
}

/// How a process answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    Unknown,
    /// It answered in full.
    Whole,
    /// It closed the connection before the end of its answer.
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkState {
    Connecting,
    New,
    /// It had an earlier request.
    Kept,
}

#[derive(Debug)]
pub(super) enum Attempt {
    Link(usize, LinkState),
    Busy,
    Unreachable(Unreachable),
}

/// Why a process can't be reached.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreachable {
    #[error(transparent)]
    System(#[from] Error),
    #[error(
        "user {stranger} listens in the place of the program, which runs as user {uid}; with handshake = \"socket\" no other \
         user can"
    )]
    Stranger { stranger: u32, uid: u32 },
    #[error("connect: it takes too long")]
    TooSlow,
    #[error("it is not up")]
    NotUp,
}

impl Links {
    pub(super) fn new(server: Server, most: Option<(u64, u64)>) -> Links {
        let turn = match &server {
            Server::There(_) => 0,
            Server::Started(_, slot) => *slot,
        };
        Links {
            server,
            all: Slab::new(),
            kept: Vec::new(),
            serial: 0,
            turn,
            most,
            uid: nix::unistd::geteuid().as_raw(),
            has_told_unknown: Cell::new(false),
        }
    }

    /// Chooses a process and connects to it. `Err`: there is none; the report id of a failed start.
    pub(super) fn connect(
        &mut self,
        tried: &[ProcessEntry],
        user: usize,
        reuse: Reuse,
        epoll: &Epoll,
    ) -> Result<(Option<ProcessEntry>, Attempt), Option<u32>> {
        let process = self.choose(tried)?;
        let attempt = self.connect_to(process, user, reuse, epoll);
        Ok((process, attempt.unwrap_or_else(Attempt::Unreachable)))
    }

    fn choose(&mut self, tried: &[ProcessEntry]) -> Result<Option<ProcessEntry>, Option<u32>> {
        let Server::Started(share, slot) = &self.server else {
            return Ok(None);
        };
        let table = share.table();
        self.turn = self.turn.wrapping_add(1);
        let mut left_out = tried.to_vec();
        loop {
            let chosen = table.choose(self.turn, &left_out);
            let chosen = chosen.ok_or_else(|| table.failure())?;
            if table.take(*slot, chosen) {
                return Ok(Some(chosen));
            }
            left_out.push(chosen);
        }
    }

    /// Ends a request's use of a process. `keeps`: its connection can carry another request. Returns true if it was
    /// the process's last request.
    pub(super) fn release(&mut self, taken: Taken, served: Served, keeps: bool) -> bool {
        match taken.link {
            Some(id) if keeps => self.keep(id),
            Some(id) => self.close(id),
            None => {}
        }
        taken.process.is_some_and(|process| self.give(process, served))
    }

    fn give(&self, chosen: ProcessEntry, served: Served) -> bool {
        let Server::Started(share, slot) = &self.server else {
            return false;
        };
        let table = share.table();
        match served {
            Served::Whole => table.finished(chosen),
            Served::Broken => table.broke(chosen),
            Served::Unknown => {}
        }
        table.give(*slot, chosen);
        self.most.is_some_and(|(most, jitter)| {
            // Equal in all workers, different for each process.
            let seed = u64::from(chosen.life) << 32 | u64::from(table.pid(chosen).unsigned_abs());
            table.lives(chosen)
                && table.served(chosen.index) >= most.saturating_add(spread::within(seed, jitter))
        })
    }

    pub(super) fn pid(&self, chosen: Option<ProcessEntry>) -> i32 {
        match (&self.server, chosen) {
            (Server::Started(share, _), Some(chosen)) => share.table().pid(chosen),
            _ => 0,
        }
    }

    fn connect_to(
        &mut self,
        process: Option<ProcessEntry>,
        user: usize,
        reuse: Reuse,
        epoll: &Epoll,
    ) -> Result<Attempt, Unreachable> {
        if reuse != Reuse::No {
            let is_of = |all: &Slab<Link>, id| all.get(id).is_some_and(|link: &Link| link.process == process);
            while let Some(at) = self.kept.iter().rposition(|id| is_of(&self.all, *id)) {
                let id = self.kept.remove(at);
                let link = self.get(id);
                if let Some(link) = link.filter(|link| reuse == Reuse::Any || is_quiet(&link.stream.socket)) {
                    link.user = Some(user);
                    return Ok(Attempt::Link(id, LinkState::Kept));
                }
                self.close(id);
            }
        }
        let address = match (&self.server, process) {
            (Server::There(address), _) => Some(address.clone()),
            (Server::Started(share, _), Some(process)) => share.table().address(process),
            (Server::Started(..), None) => None,
        };
        let (socket, state) = match address {
            Some(Address::Unix(path)) => match socket::connect_unix(&path)? {
                Some(socket) => (socket, LinkState::New),
                None => return Ok(Attempt::Busy),
            },
            Some(Address::Tcp(address)) => (socket::connect_tcp(address)?, LinkState::Connecting),
            Some(Address::TcpAny(port)) => {
                let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
                (socket::connect_tcp(address)?, LinkState::Connecting)
            }
            None => return Err(Error::new("connect", "it is gone", nix::errno::Errno::ENOENT).into()),
        };
        let is_there = state == LinkState::New;
        if is_there {
            self.check_other_end(&socket)?;
        }
        self.serial = self.serial.wrapping_add(1);
        let entry = self.all.vacant_entry();
        let id = entry.key();
        let number = super::LINK | u64::from(self.serial & super::MOST_SERIAL) << 32 | id as u64;
        entry.insert(Link {
            stream: Stream::watch(socket, number, is_there, epoll)?,
            process,
            user: Some(user),
        });
        Ok(Attempt::Link(id, state))
    }

    /// Checks a new connection for errors and for its peer.
    pub(super) fn complete(&self, id: usize) -> Result<(), Unreachable> {
        let Some(link) = self.all.get(id) else {
            return Ok(());
        };
        let socket = &link.stream.socket;
        socket::take_error(socket.as_fd())?;
        self.check_other_end(socket)
    }

    /// After a program was killed, any user may listen on its address, so the peer must be the program's user.
    fn check_other_end(&self, socket: &OwnedFd) -> Result<(), Unreachable> {
        let Server::Started(..) = self.server else {
            return Ok(());
        };
        let Some(end) = peer::other_end(socket.as_fd()) else {
            if !self.has_told_unknown.replace(true) {
                log::warn!(
                    "the kernel does not report the owner of the program that gets the requests: it is on \
                     another machine or in another network namespace, and may be another user's; handshake = \"socket\" is safe"
                );
            }
            return Ok(());
        };
        let uid = self.uid;
        match stranger(end, self.uid) {
            None => Ok(()),
            Some(stranger) => Err(Unreachable::Stranger { stranger, uid }),
        }
    }

    pub(super) fn get(&mut self, id: usize) -> Option<&mut Link> {
        self.all.get_mut(id)
    }

    /// Notes an event. Returns the link's user.
    pub(super) fn see(&mut self, data: u64, flags: EpollFlags) -> Option<usize> {
        let id = (data & 0xffff_ffff) as usize;
        let link = self.get(id).filter(|link| link.stream.number == data)?;
        let is_told = link.stream.see(flags);
        let user = link.user;
        if user.is_none() && is_told {
            self.kept.retain(|kept| *kept != id);
            self.close(id);
        }
        user
    }

    fn keep(&mut self, id: usize) {
        let Some(link) = self.get(id) else { return };
        if link.stream.readable {
            return self.close(id);
        }
        link.user = None;
        if self.kept.len() >= MOST_KEPT {
            let oldest = self.kept.remove(0);
            self.close(oldest);
        }
        self.kept.push(id);
    }

    fn close(&mut self, id: usize) {
        // No other process has the socket, so closing it also unregisters it.
        self.all.try_remove(id);
    }
}

/// The peer's user, if it is not the program's. A program of root may have switched users after listening.
fn stranger(end: OtherEnd, uid: u32) -> Option<u32> {
    let holder = end.holder.filter(|_| uid != 0 || end.listener.is_none());
    [end.listener, holder]
        .into_iter()
        .flatten()
        .find(|user| *user != uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_and_who_has_accepted_has_to_be_the_programs_user() {
        for (listener, holder, uid, wanted) in [
            (Some(33), Some(33), 33, None),
            (Some(33), None, 33, None),
            (None, None, 33, None),
            (Some(1000), None, 33, Some(1000)),
            (Some(33), Some(1000), 33, Some(1000)),
            (None, Some(1000), 33, Some(1000)),
            (Some(1000), Some(0), 33, Some(1000)),
            (None, Some(0), 33, Some(0)),
            (Some(0), Some(33), 0, None),
            (Some(33), Some(33), 0, Some(33)),
            (None, Some(33), 0, Some(33)),
        ] {
            assert_eq!(stranger(OtherEnd { listener, holder }, uid), wanted);
        }
    }
}

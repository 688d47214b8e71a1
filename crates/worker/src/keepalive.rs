//! The connections that a worker holds: keep-alive connections between requests, new connections that have sent
//! nothing, and connections with a request that waits for the worker.
//!
//! A connection belongs to one worker. It stays in the worker's epoll while it has an entry, even while it is served,
//! so that a keep-alive connection is registered only once. Connections for other workers go into the pool's hand-off
//! queue, a socket pair shared by all workers:
//!
//! * if more requests wait than the worker can serve soon: the excess;
//! * if a request runs long: waiting and new requests (`idle_watch`);
//! * before a request: connections that have had no response yet, so that a request that kills its worker affects no
//!   other client;
//! * before the worker exits: all.
//!
//! Each waiting request is a separate message with its arrival time ([`Note`](super::hand_off::Note)), so the queue is
//! ordered and a worker can peek at its first entry. Connections without a request are sent several to a message.

use super::connection::Connection;
use super::hand_off::{Departing, send_all};
use super::service_order::Waiting;
use forkyard_base::tick::Tick;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(super) struct KeepaliveSet {
    entries: Vec<KeepaliveEntry>,
    /// Also read without the set's lock. Only the worker's own thread adds connections, so 0 is exact for it.
    pub(super) idle: Arc<AtomicUsize>,
    /// Idle connections that have sent nothing.
    silent: usize,
    /// Entries without a connection.
    free: Vec<usize>,
    /// No idle connection expires before this time. Each request would pay for finding the exact time.
    expiry: Option<Tick>,
    /// Indices of connections with a waiting request. The worker noticed the first one first.
    waiting: VecDeque<usize>,
}

#[derive(Debug)]
enum KeepaliveEntry {
    Free,
    Idle(Box<Connection>),
    /// Taken out to be served; still registered.
    Serving,
}

impl KeepaliveSet {
    pub(super) fn idle(&self) -> usize {
        self.idle.load(Ordering::Relaxed)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn first(&self) -> Option<Waiting> {
        self.in_line(0)
    }

    pub(super) fn second(&self) -> Option<Waiting> {
        self.in_line(1)
    }

    fn in_line(&self, place: usize) -> Option<Waiting> {
        match self.entries.get(*self.waiting.get(place)?)? {
            KeepaliveEntry::Idle(connection) => connection.waiting,
            KeepaliveEntry::Free | KeepaliveEntry::Serving => None,
        }
    }

    pub(super) fn take_first(&mut self) -> Option<Box<Connection>> {
        let first = *self.waiting.front()?;
        self.take(first)
    }

    pub(super) fn note(&mut self, index: usize, waiting: Waiting) {
        let Some(KeepaliveEntry::Idle(connection)) = self.entries.get_mut(index) else {
            return;
        };
        if connection.waiting.is_some() {
            return;
        }
        connection.waiting = Some(waiting);
        let is_later = |keepalive: &KeepaliveSet, index: &usize| match keepalive.entries.get(*index) {
            Some(KeepaliveEntry::Idle(other)) => {
                other.waiting.is_some_and(|other| other.since > waiting.since)
            }
            _ => false,
        };
        let later = self
            .waiting
            .iter()
            .rev()
            .take_while(|index| is_later(self, index))
            .count();
        self.waiting.insert(self.waiting.len() - later, index);
    }

    pub(super) fn waiting_indices(&self) -> Vec<usize> {
        self.waiting.iter().copied().collect()
    }

    pub(super) fn waiting_behind(&self, count: usize) -> Vec<usize> {
        self.waiting.iter().skip(count).copied().collect()
    }

    pub(super) fn watchable(&self) -> Vec<(usize, RawFd)> {
        self.idle_connections()
            .filter(|(_, c)| c.waiting.is_none() && c.is_portable())
            .map(|(index, c)| (index, c.socket().as_raw_fd()))
            .collect()
    }

    pub(super) fn is_same(&self, index: usize, fd: RawFd) -> bool {
        matches!(self.entries.get(index), Some(KeepaliveEntry::Idle(c)) if c.socket().as_raw_fd() == fd)
    }

    pub(super) fn hold(
        &mut self,
        connection: Box<Connection>,
        epoll: &Epoll,
        first_token: u64,
    ) -> nix::Result<()> {
        let index = match connection.index {
            Some(index) => index,
            None => {
                let index = self.free.last().copied().unwrap_or(self.entries.len());
                let event = EpollEvent::new(
                    EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP,
                    first_token + index as u64,
                );
                epoll.add(connection.socket(), event)?;
                if self.free.pop().is_none() {
                    self.entries.push(KeepaliveEntry::Free);
                }
                index
            }
        };
        self.put(connection, index);
        Ok(())
    }

    fn put(&mut self, mut connection: Box<Connection>, index: usize) {
        connection.index = Some(index);
        self.silent += usize::from(!connection.client.spoken);
        self.expiry = earliest(self.expiry, connection.expires);
        self.entries[index] = KeepaliveEntry::Idle(connection);
        self.idle.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn hold_again(&mut self, connection: Box<Connection>, index: usize) {
        while self.entries.len() <= index {
            self.free.push(self.entries.len());
            self.entries.push(KeepaliveEntry::Free);
        }
        self.free.retain(|free| *free != index);
        self.put(connection, index);
    }

    pub(super) fn take(&mut self, index: usize) -> Option<Box<Connection>> {
        let slot = self.entries.get_mut(index)?;
        match std::mem::replace(slot, KeepaliveEntry::Serving) {
            KeepaliveEntry::Idle(mut connection) => {
                self.idle.fetch_sub(1, Ordering::Relaxed);
                self.silent -= usize::from(!connection.client.spoken);
                if connection.waiting.take().is_some() {
                    self.waiting.retain(|other| *other != index);
                }
                Some(connection)
            }
            other => {
                *slot = other;
                None
            }
        }
    }

    pub(super) fn close(&mut self, connection: &Connection, epoll: &Epoll) {
        if let Some(index) = connection.index {
            // Closing is not enough: a process that a script forked may still have the socket open.
            let _ = epoll.delete(connection.socket());
            self.entries[index] = KeepaliveEntry::Free;
            self.free.push(index);
        }
    }

    /// When to look for expired connections: not later than the first expires.
    pub(super) fn next_expiry(&self) -> Option<Tick> {
        self.expiry.filter(|_| self.idle() > self.waiting())
    }

    #[expect(
        clippy::vec_box,
        reason = "connections stay boxed, so that moving one is cheap"
    )]
    pub(super) fn take_expired(&mut self, now: Tick) -> Vec<Box<Connection>> {
        if self.expiry.is_none_or(|expiry| expiry > now) {
            return Vec::new();
        }
        let (mut due, mut expiry) = (Vec::new(), None);
        for (index, connection) in self.idle_connections() {
            if connection.waiting.is_some() {
                continue;
            }
            if connection.expires <= now {
                due.push(index);
            } else {
                expiry = earliest(expiry, connection.expires);
            }
        }
        self.expiry = expiry;
        due.into_iter().filter_map(|index| self.take(index)).collect()
    }

    pub(super) fn take_oldest(&mut self) -> Option<Box<Connection>> {
        let (index, _) = self
            .idle_connections()
            .filter(|(_, connection)| connection.waiting.is_none())
            .min_by_key(|(_, connection)| connection.expires)?;
        self.take(index)
    }

    pub(super) fn idle_indices(&self) -> Vec<usize> {
        self.idle_connections().map(|(index, _)| index).collect()
    }

    pub(super) fn new_indices(&self) -> Vec<usize> {
        if self.silent == 0 {
            return Vec::new();
        }
        self.idle_connections()
            .filter(|(_, c)| !c.client.spoken)
            .map(|(index, _)| index)
            .collect()
    }

    pub(super) fn idle_connections(&self) -> impl Iterator<Item = (usize, &Connection)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| match entry {
                KeepaliveEntry::Idle(connection) => Some((index, connection.as_ref())),
                KeepaliveEntry::Free | KeepaliveEntry::Serving => None,
            })
    }

    pub(super) fn send_away(&mut self, entries: &[usize], queue_in: BorrowedFd<'_>, epoll: &Epoll) -> usize {
        let connections = entries.iter().filter_map(|&index| match self.entries.get(index) {
            Some(KeepaliveEntry::Idle(connection)) if connection.is_portable() => Some(Departing {
                index,
                socket: connection.socket().as_raw_fd(),
                expires: connection.expires,
                is_spoken: connection.client.spoken,
                waiting: connection.waiting,
            }),
            _ => None,
        });
        let sent = send_all(queue_in, connections.collect());
        for index in &sent {
            if let Some(connection) = self.take(*index) {
                self.close(&connection, epoll);
            }
        }
        sent.len()
    }
}

fn earliest(one: Option<Tick>, other: Tick) -> Option<Tick> {
    Some(one.map_or(other, |one| one.min(other)))
}

#[cfg(test)]
mod tests {
    use super::super::hand_off::tests::waiting;
    use super::super::hand_off::{first_in, receive};
    use super::*;
    use fastcgi::Limits;
    use fastcgi::Repeated;
    use forkyard_sys::fd::socket_pair;
    use nix::sys::epoll::EpollCreateFlags;
    use nix::sys::socket::SockType;
    use std::os::fd::{AsFd, OwnedFd};

    /// A connection, and the client's end of it.
    fn connection(expires: u64) -> (Box<Connection>, OwnedFd) {
        let (ours, theirs) = socket_pair(SockType::Stream).unwrap();
        let limits = Limits {
            params_bytes: 1,
            params_count: 1,
        };
        let mut connection = Box::new(Connection::new(ours, limits, Repeated::Replace));
        connection.expires = Tick::from_nanos(expires);
        (connection, theirs)
    }

    #[test]
    fn requests_are_passed_on_in_order_and_can_be_looked_at() {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let (queue_out, queue_in) = socket_pair(SockType::SeqPacket).unwrap();
        let mut keepalive = KeepaliveSet::default();
        let mut others = Vec::new();
        for _ in 0..4 {
            let (connection, theirs) = connection(0);
            others.push(theirs);
            keepalive.hold(connection, &epoll, 0).unwrap();
        }
        for (index, since) in [(2, 20), (0, 30), (3, 10), (0, 5)] {
            keepalive.note(index, waiting(since));
        }
        assert_eq!(
            keepalive.waiting_indices(),
            [3, 2, 0],
            "noticed once, the earliest first"
        );
        assert_eq!(keepalive.first(), Some(waiting(10)));
        assert_eq!(
            (keepalive.idle(), keepalive.waiting(), keepalive.watchable().len()),
            (4, 3, 1)
        );
        assert_eq!(keepalive.take_first().and_then(|c| c.index), Some(3));
        assert_eq!(keepalive.waiting_behind(1), [0]);
        assert_eq!(
            keepalive.send_away(&keepalive.idle_indices(), queue_in.as_fd(), &epoll),
            3
        );
        assert_eq!((keepalive.idle(), keepalive.waiting()), (0, 0));
        let peeked = first_in(queue_out.as_fd()).unwrap();
        assert_eq!(peeked.waiting, Some(waiting(20)));
        let mut came = Vec::new();
        while let Some((note, connections)) = receive(queue_out.as_fd(), Tick::ZERO) {
            let expires: Vec<_> = connections.map(|(_, expires)| expires).collect();
            assert!(expires.iter().all(Option::is_some), "each has its own time");
            came.push((
                note.waiting.map(|waiting| waiting.since.as_nanos()),
                expires.len(),
            ));
        }
        assert_eq!(came, [(Some(20), 1), (Some(30), 1), (None, 1)]);
        assert!(first_in(queue_out.as_fd()).is_none());
    }

    #[test]
    fn connections_expire_at_their_time_however_they_are_used() {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let mut keepalive = KeepaliveSet::default();
        let mut others = Vec::new();
        let mut hold = |keepalive: &mut KeepaliveSet, expires: u64| {
            let (connection, theirs) = connection(expires);
            others.push(theirs);
            keepalive.hold(connection, &epoll, 0).unwrap();
        };
        for expires in [30, 10, 20, 40] {
            hold(&mut keepalive, expires);
        }
        let expired = |keepalive: &mut KeepaliveSet, now: u64| -> Vec<u64> {
            let expired = keepalive.take_expired(Tick::from_nanos(now));
            for connection in &expired {
                keepalive.close(connection, &epoll);
            }
            expired.iter().map(|c| c.expires.as_nanos()).collect()
        };
        assert_eq!(keepalive.next_expiry(), Some(Tick::from_nanos(10)));
        assert_eq!(expired(&mut keepalive, 9), [0; 0]);
        // A request gives the second connection more time.
        let mut second = keepalive.take(1).unwrap();
        second.expires = Tick::from_nanos(50);
        keepalive.hold(second, &epoll, 0).unwrap();
        assert_eq!(expired(&mut keepalive, 15), [0; 0]);
        assert_eq!(keepalive.next_expiry(), Some(Tick::from_nanos(20)));
        // A connection with a waiting request expires only after the request.
        keepalive.note(2, waiting(16));
        assert_eq!(expired(&mut keepalive, 30), [30]);
        assert_eq!(keepalive.next_expiry(), Some(Tick::from_nanos(40)));
        let third = keepalive.take_first().unwrap();
        keepalive.hold(third, &epoll, 0).unwrap();
        assert_eq!(expired(&mut keepalive, 30), [20]);
        // Places are used again.
        hold(&mut keepalive, 35);
        hold(&mut keepalive, 60);
        assert_eq!((keepalive.entries.len(), keepalive.idle()), (4, 4));
        assert_eq!(expired(&mut keepalive, 100), [60, 50, 35, 40]);
        assert_eq!((keepalive.next_expiry(), keepalive.silent), (None, 0));
    }
}

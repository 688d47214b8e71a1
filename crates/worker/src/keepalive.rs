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
//! Each waiting request is a separate message with its arrival time ([`Note`]), so the queue is ordered and a worker
//! can peek at its first entry. Connections without a request are sent several to a message.

use super::connection::Connection;
use super::service_order::Waiting;
use forkyard_base::tick::Tick;
use forkyard_sys::fd::{MAX_PASSED, receive_with, send_with};
use forkyard_sys::socket::{Progress, peek};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

#[derive(Debug, Default)]
pub(super) struct KeepaliveSet {
    entries: Vec<KeepaliveEntry>,
    idle: usize,
    /// Indices of connections with a waiting request, in the order in which the worker noticed the requests.
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
        self.idle
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
        mut connection: Box<Connection>,
        epoll: &Epoll,
        first_token: u64,
    ) -> nix::Result<()> {
        let index = match connection.index {
            Some(index) => index,
            None => {
                let free = self
                    .entries
                    .iter()
                    .position(|index| matches!(index, KeepaliveEntry::Free));
                let index = free.unwrap_or(self.entries.len());
                let event = EpollEvent::new(
                    EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP,
                    first_token + index as u64,
                );
                epoll.add(connection.socket(), event)?;
                if index == self.entries.len() {
                    self.entries.push(KeepaliveEntry::Free);
                }
                index
            }
        };
        connection.index = Some(index);
        self.entries[index] = KeepaliveEntry::Idle(connection);
        self.idle += 1;
        Ok(())
    }

    pub(super) fn hold_again(&mut self, mut connection: Box<Connection>, index: usize) {
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || KeepaliveEntry::Free);
        }
        connection.index = Some(index);
        self.entries[index] = KeepaliveEntry::Idle(connection);
        self.idle += 1;
    }

    pub(super) fn take(&mut self, index: usize) -> Option<Box<Connection>> {
        let slot = self.entries.get_mut(index)?;
        match std::mem::replace(slot, KeepaliveEntry::Serving) {
            KeepaliveEntry::Idle(mut connection) => {
                self.idle -= 1;
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
        }
    }

    pub(super) fn next_expiry(&self) -> Option<Tick> {
        self.idle_connections()
            .filter(|(_, connection)| connection.waiting.is_none())
            .map(|(_, connection)| connection.expires)
            .min()
    }

    #[expect(
        clippy::vec_box,
        reason = "connections stay boxed, so that moving one is cheap"
    )]
    pub(super) fn take_expired(&mut self, now: Tick) -> Vec<Box<Connection>> {
        let due: Vec<usize> = self
            .idle_connections()
            .filter(|(_, c)| c.expires <= now && c.waiting.is_none())
            .map(|(index, _)| index)
            .collect();
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
        let mut sent = 0;
        let (mut requests, mut spoken, mut silent) = (Vec::new(), Vec::new(), Vec::new());
        for &index in entries {
            match self.entries.get(index) {
                Some(KeepaliveEntry::Idle(connection)) => {
                    match (connection.waiting, connection.client.spoken) {
                        (Some(waiting), is_spoken) => requests.push((waiting, index, is_spoken)),
                        (None, true) => spoken.push(index),
                        (None, false) => silent.push(index),
                    }
                }
                Some(KeepaliveEntry::Free | KeepaliveEntry::Serving) | None => {}
            }
        }
        requests.sort_by_key(|(waiting, ..)| waiting.since);
        for (waiting, index, is_spoken) in requests {
            sent += self.send_group(&[index], is_spoken, Some(waiting), queue_in, epoll);
        }
        for (group, is_spoken) in [(silent, false), (spoken, true)] {
            sent += self.send_group(&group, is_spoken, None, queue_in, epoll);
        }
        sent
    }

    fn send_group(
        &mut self,
        entries: &[usize],
        is_spoken: bool,
        waiting: Option<Waiting>,
        queue_in: BorrowedFd<'_>,
        epoll: &Epoll,
    ) -> usize {
        let mut sent = 0;
        for group in entries.chunks(MAX_PASSED) {
            let portable = group.iter().filter_map(|&index| match self.entries.get(index) {
                Some(KeepaliveEntry::Idle(c)) if c.is_portable() => {
                    Some((index, c.socket().as_raw_fd(), c.expires))
                }
                _ => None,
            });
            let portable: Vec<(usize, RawFd, Tick)> = portable.collect();
            let descriptors: Vec<RawFd> = portable.iter().map(|(_, fd, _)| *fd).collect();
            let note = Note {
                is_spoken,
                waiting,
                expires: portable.iter().map(|(.., expires)| *expires).collect(),
            };
            if descriptors.is_empty() || send_with(queue_in, &note.encode(), &descriptors).is_err() {
                continue;
            }
            for (index, ..) in portable {
                if let Some(connection) = self.take(index) {
                    self.close(&connection, epoll);
                    sent += 1;
                }
            }
        }
        sent
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    /// Whether data has been read from the message's connections.
    pub(super) is_spoken: bool,
    /// The waiting request; the message then has one connection.
    pub(super) waiting: Option<Waiting>,
    /// When each connection expires. Handing it off does not extend its time.
    pub(super) expires: Vec<Tick>,
}

/// Layout of a note: a byte of flags, two numbers if a request waits, and one number for each connection. Other
/// versions may send a shorter or longer note.
const HEAD_BYTES: usize = 17;
const NOTE_BYTES: usize = HEAD_BYTES + 8 * MAX_PASSED;
const IS_SPOKEN: u8 = 1;
const WAITS: u8 = 2;

impl Note {
    pub(super) fn encode(&self) -> Vec<u8> {
        let is_spoken = if self.is_spoken { IS_SPOKEN } else { 0 };
        let waits = if self.waiting.is_some() { WAITS } else { 0 };
        let waiting = self.waiting.map(|it| [it.since.as_nanos(), it.turn]);
        let expires = self.expires.iter().map(|it| it.as_nanos());
        let numbers = waiting.into_iter().flatten().chain(expires);
        let bytes = numbers.flat_map(u64::to_ne_bytes);
        [is_spoken | waits].into_iter().chain(bytes).collect()
    }

    pub(super) fn decode(bytes: &[u8]) -> Note {
        let (bits, numbers) = bytes
            .split_first()
            .map_or((0, bytes), |(bits, rest)| (*bits, rest));
        let number = |eight: &[u8]| Some(u64::from_ne_bytes(eight.try_into().ok()?));
        let mut numbers = numbers.chunks_exact(8).filter_map(number);
        let waiting = (bits & WAITS != 0).then(|| {
            let since = Tick::from_nanos(numbers.next()?);
            let turn = numbers.next()?;
            Some(Waiting { since, turn })
        });
        Note {
            is_spoken: bits & IS_SPOKEN != 0,
            waiting: waiting.flatten(),
            expires: numbers.map(Tick::from_nanos).collect(),
        }
    }
}

pub(super) fn receive(queue_out: BorrowedFd<'_>) -> Option<(Note, Vec<OwnedFd>)> {
    let mut bytes = [0; NOTE_BYTES];
    let received = receive_with(queue_out, &mut bytes, false).ok()?;
    Some((Note::decode(&bytes[..received.bytes]), received.descriptors))
}

pub(super) fn first_in(queue_out: BorrowedFd<'_>) -> Option<Note> {
    let mut bytes = [0; HEAD_BYTES];
    match peek(queue_out, &mut bytes) {
        Ok(Progress::Done(count)) => Some(Note::decode(&bytes[..count])),
        Ok(Progress::WouldBlock) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastcgi::Limits;
    use fastcgi::Repeated;
    use forkyard_sys::fd::socket_pair;
    use nix::sys::epoll::EpollCreateFlags;
    use nix::sys::socket::SockType;
    use std::os::fd::AsFd;

    fn waiting(since: u64) -> Waiting {
        Waiting {
            since: Tick::from_nanos(since),
            turn: since + 1,
        }
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_nonsense_is_none() {
        for is_spoken in [false, true] {
            for waiting in [None, Some(waiting(7))] {
                let note = Note {
                    is_spoken,
                    waiting,
                    expires: (0..MAX_PASSED as u64).map(Tick::from_nanos).collect(),
                };
                assert_eq!(
                    note.encode().len() + if waiting.is_some() { 0 } else { 16 },
                    NOTE_BYTES
                );
                assert_eq!(Note::decode(&note.encode()), note);
                for length in 0..NOTE_BYTES.min(20) {
                    let cut = Note::decode(&note.encode()[..length]);
                    assert!(cut.waiting.is_none() || cut.waiting == waiting);
                }
            }
        }
    }

    #[test]
    fn requests_are_passed_on_in_order_and_can_be_looked_at() {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let (queue_out, queue_in) = socket_pair(SockType::SeqPacket).unwrap();
        let limits = Limits {
            params_bytes: 1,
            params_count: 1,
        };
        let mut keepalive = KeepaliveSet::default();
        let mut others = Vec::new();
        for _ in 0..4 {
            let (ours, theirs) = socket_pair(SockType::Stream).unwrap();
            others.push(theirs);
            let connection = Box::new(Connection::new(ours, limits, Repeated::Replace));
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
        while let Some((note, sockets)) = receive(queue_out.as_fd()) {
            assert_eq!(note.expires.len(), sockets.len(), "each has its own time");
            came.push((
                note.waiting.map(|waiting| waiting.since.as_nanos()),
                sockets.len(),
            ));
        }
        assert_eq!(came, [(Some(20), 1), (Some(30), 1), (None, 1)]);
        assert!(first_in(queue_out.as_fd()).is_none());
    }
}

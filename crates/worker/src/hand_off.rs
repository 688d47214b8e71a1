//! The pool's hand-off queue: its workers pass connections to each other ([`super::keepalive`]).

use super::service_order::Waiting;
use forkyard_base::tick::Tick;
use forkyard_config::Pool;
use forkyard_sys::fd::{MAX_PASSED, receive_with, send_with};
use forkyard_sys::socket::{Progress, peek};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

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
const _: () = assert!(HEAD_BYTES + 8 == forkyard_protocol::lanes::PARKED_BYTES);
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

/// A connection to send, from the place `index` of its worker.
pub(super) struct Departing {
    pub(super) index: usize,
    pub(super) socket: RawFd,
    pub(super) expires: Tick,
    pub(super) is_spoken: bool,
    pub(super) waiting: Option<Waiting>,
}

/// Sends waiting requests, the earliest first, then the other connections. Returns the places of all it has sent.
pub(super) fn send_all(queue_in: BorrowedFd<'_>, mut connections: Vec<Departing>) -> Vec<usize> {
    connections.sort_by_key(|it| match it.waiting {
        Some(waiting) => (false, waiting.since, false),
        None => (true, Tick::ZERO, it.is_spoken),
    });
    let is_alike = |one: &Departing, other: &Departing| {
        one.waiting.is_none() && other.waiting.is_none() && one.is_spoken == other.is_spoken
    };
    let groups = connections.chunk_by(is_alike);
    let mut sent = Vec::new();
    for group in groups.flat_map(|group| group.chunks(MAX_PASSED)) {
        let note = Note {
            is_spoken: group[0].is_spoken,
            waiting: group[0].waiting,
            expires: group.iter().map(|it| it.expires).collect(),
        };
        let sockets: Vec<RawFd> = group.iter().map(|it| it.socket).collect();
        if send_with(queue_in, &note.encode(), &sockets).is_ok() {
            sent.extend(group.iter().map(|it| it.index));
        }
    }
    sent
}

/// The latest expiry of a connection received now.
pub(super) fn latest(pool: &Pool, now: Tick) -> Tick {
    now + pool.serving.client_timeout.max(pool.serving.keepalive_timeout)
}

/// Receives a message: its note, and each connection with its expiry.
pub(super) fn receive(
    queue_out: BorrowedFd<'_>,
    latest: Tick,
) -> Option<(Note, impl Iterator<Item = (OwnedFd, Option<Tick>)> + use<>)> {
    let mut bytes = [0; NOTE_BYTES];
    let received = receive_with(queue_out, &mut bytes, false).ok()?;
    let mut note = Note::decode(&bytes[..received.bytes]);
    let expires = std::mem::take(&mut note.expires).into_iter();
    let mut expires = expires.map(move |expires| expires.min(latest));
    let connections = received.descriptors.into_iter();
    Some((note, connections.map(move |socket| (socket, expires.next()))))
}

pub(super) fn first_in(queue_out: BorrowedFd<'_>) -> Option<Note> {
    let mut bytes = [0; HEAD_BYTES];
    match peek(queue_out, &mut bytes) {
        Ok(Progress::Done(count)) => Some(Note::decode(&bytes[..count])),
        Ok(Progress::WouldBlock) | Err(_) => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn waiting(since: u64) -> Waiting {
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
}

//! Messages between a router and a worker over a `SOCK_SEQPACKET` socket.
//!
//! A message consists of a kind byte, a session number (8 bytes, little-endian) and bytes already read from the
//! connection. The router keeps its descriptor while a worker serves the connection. It can then offer the connection
//! to another instance or close it if the worker exits. A worker shuts down a connection with shutdown(2) before
//! closing it, because the router's copy is still open.

/// The longest prefix of a connection passed to a worker, in bytes.
pub const MOST_BYTES: usize = 128 * 1024;
/// The length of kind and session number.
pub const HEAD_BYTES: usize = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ToWorker {
    /// Serves the attached connection. The payload is the data already read.
    Serve = b'S',
    /// Serves the attached connection and shuts it down after the answer.
    ServeLast = b'L',
    /// Requests [`FromWorker::Here`] once every earlier session has ended or was reported as [`FromWorker::Has`].
    Where = b'?',
    /// Requests out-of-band work, reported by [`FromWorker::Worked`].
    Work = b'O',
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FromWorker {
    /// The answer is complete. The payload is the start of the next request on the connection.
    Kept = b'K',
    /// The connection is shut down.
    Closed = b'C',
    /// The answer is complete, but the application still works on the request. Otherwise like [`FromWorker::Kept`].
    /// [`FromWorker::Done`] follows.
    Released = b'R',
    /// The end of a released session.
    Done = b'D',
    /// The worker exits without having read from the connection.
    NotBegun = b'N',
    /// Not begun, because the application's path now belongs to another application.
    Moved = b'X',
    /// A session from an earlier router that is still running. Precedes [`FromWorker::Here`].
    Has = b'=',
    /// The answer to [`ToWorker::Where`].
    Here = b'!',
    /// One byte: 1 if the worker's event loop is blocked, 0 if it runs again.
    HeldUp = b'h',
    WorkWanted = b'o',
    /// The end of out-of-band work. One byte: 1 on success.
    Worked = b'd',
    /// The worker's memory (PSS): 8 bytes, little-endian.
    Memory = b'M',
}

pub trait MessageKind: Copy + PartialEq + 'static {
    const ALL: &'static [Self];

    /// The kind's first byte.
    fn byte(self) -> u8;
}

impl MessageKind for ToWorker {
    const ALL: &'static [ToWorker] = &[
        ToWorker::Serve,
        ToWorker::ServeLast,
        ToWorker::Where,
        ToWorker::Work,
    ];

    fn byte(self) -> u8 {
        self as u8
    }
}

impl MessageKind for FromWorker {
    const ALL: &'static [FromWorker] = &[
        FromWorker::Kept,
        FromWorker::Closed,
        FromWorker::Released,
        FromWorker::Done,
        FromWorker::NotBegun,
        FromWorker::Moved,
        FromWorker::Has,
        FromWorker::Here,
        FromWorker::HeldUp,
        FromWorker::WorkWanted,
        FromWorker::Worked,
        FromWorker::Memory,
    ];

    fn byte(self) -> u8 {
        self as u8
    }
}

/// Encodes kind and session number.
pub fn head<K: MessageKind>(kind: K, session: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[0] = kind.byte();
    head[1..].copy_from_slice(&session.to_le_bytes());
    head
}

/// Splits a message into kind, session and payload. Returns `None` if the message is invalid.
pub fn parse<K: MessageKind>(message: &[u8]) -> Option<(K, u64, &[u8])> {
    let (head, rest) = message.split_first_chunk::<HEAD_BYTES>()?;
    let [byte, session @ ..] = head;
    let kind = K::ALL.iter().find(|kind| kind.byte() == *byte)?;
    (rest.len() <= MOST_BYTES).then_some((*kind, u64::from_le_bytes(*session), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_understood_and_nothing_else() {
        fn round<K: MessageKind + std::fmt::Debug>() {
            for kind in K::ALL {
                let mut message = head(*kind, 0x0102_0304_0506_0708).to_vec();
                message.extend_from_slice(b"more");
                assert_eq!(
                    parse::<K>(&message),
                    Some((*kind, 0x0102_0304_0506_0708, &b"more"[..]))
                );
            }
            assert_eq!(parse::<K>(b"\0\0\0\0\0\0\0\0\0"), None);
            assert_eq!(parse::<K>(b"S"), None);
        }
        round::<ToWorker>();
        round::<FromWorker>();
        let long = [&head(ToWorker::Serve, 1)[..], &vec![0; MOST_BYTES + 1]].concat();
        assert_eq!(parse::<ToWorker>(&long), None);
    }
}

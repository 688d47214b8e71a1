//! What passes between a router and a worker: messages over a socket of type `SOCK_SEQPACKET`.
//!
//! A message is a byte that says what it is, the session's number (8 bytes, the least first), and bytes that were read from
//! the connection already. The router keeps its own descriptor of a connection while a worker serves it: so it can offer
//! the connection to another instance, or close it, when the worker is gone; and a worker that is done need not send it
//! back. A worker that closes a connection shuts it down first (shutdown(2)), because the router's copy is still open.

/// Most bytes of a connection that are passed on with it.
pub const MOST_BYTES: usize = 128 * 1024;
/// Bytes before them.
pub const HEAD_BYTES: usize = 9;

/// From the router to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToWorker {
    /// Serve the connection that comes along. The bytes are what was read of it already.
    Serve,
    /// As [`ToWorker::Serve`], and shut the connection down after its answer, whatever its client asked for.
    ServeLast,
    /// Tell [`ToRouter::Here`] when all that was sent before is done, or named with [`ToRouter::Has`].
    Where,
    /// Do out-of-band work; answered with [`ToRouter::Worked`].
    Work,
}

/// From a worker to the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToRouter {
    /// The answer is complete and the connection may have another request, whose first bytes come along if there are any.
    Kept,
    /// The connection is shut down.
    Closed,
    /// The answer is complete and the connection may have another request, as with [`ToRouter::Kept`], but the application
    /// is still busy with this one. Ends in [`ToRouter::Done`].
    Released,
    /// The session of a released connection is over.
    Done,
    /// The connection was not looked at: the worker leaves.
    NotBegun,
    /// As [`ToRouter::NotBegun`]: what has the application's path now is another one, which the worker does not run.
    Moved,
    /// Before [`ToRouter::Here`]: the worker is busy with the session, which an earlier router has given. Ends as any other.
    Has,
    /// The answer to [`ToWorker::Where`].
    Here,
    /// A byte: 1 if the worker's event loop does not get round to what it is given, 0 if it does again.
    HeldUp,
    /// The application asks for out-of-band work.
    WorkWanted,
    /// Out-of-band work is done. A byte: 1 if it went well.
    Worked,
    /// How much memory the worker uses (PSS): 8 bytes, the least first.
    Memory,
}

impl ToWorker {
    const ALL: [(u8, ToWorker); 4] = [
        (b'S', ToWorker::Serve),
        (b'L', ToWorker::ServeLast),
        (b'?', ToWorker::Where),
        (b'O', ToWorker::Work),
    ];
}

impl ToRouter {
    const ALL: [(u8, ToRouter); 12] = [
        (b'K', ToRouter::Kept),
        (b'C', ToRouter::Closed),
        (b'R', ToRouter::Released),
        (b'D', ToRouter::Done),
        (b'N', ToRouter::NotBegun),
        (b'X', ToRouter::Moved),
        (b'=', ToRouter::Has),
        (b'!', ToRouter::Here),
        (b'h', ToRouter::HeldUp),
        (b'o', ToRouter::WorkWanted),
        (b'd', ToRouter::Worked),
        (b'M', ToRouter::Memory),
    ];
}

/// What a message is, as its first byte says it.
pub trait MessageKind: Copy + PartialEq + 'static {
    /// All there are.
    const TABLE: &'static [(u8, Self)];
}

impl MessageKind for ToWorker {
    const TABLE: &'static [(u8, ToWorker)] = &ToWorker::ALL;
}

impl MessageKind for ToRouter {
    const TABLE: &'static [(u8, ToRouter)] = &ToRouter::ALL;
}

/// The beginning of a message.
pub fn head<K: MessageKind>(kind: K, session: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    // Every kind is in its table.
    head[0] = K::TABLE
        .iter()
        .find(|(_, one)| *one == kind)
        .map_or(0, |(byte, _)| *byte);
    head[1..].copy_from_slice(&session.to_le_bytes());
    head
}

/// A message's kind, session and bytes. `None`: it is no message.
pub fn parse<K: MessageKind>(message: &[u8]) -> Option<(K, u64, &[u8])> {
    let (head, rest) = message.split_first_chunk::<HEAD_BYTES>()?;
    let [byte, session @ ..] = head;
    let (_, kind) = K::TABLE.iter().find(|(one, _)| one == byte)?;
    (rest.len() <= MOST_BYTES).then_some((*kind, u64::from_le_bytes(*session), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_understood_and_nothing_else() {
        fn round<K: MessageKind + std::fmt::Debug>() {
            for (_, kind) in K::TABLE {
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
        round::<ToRouter>();
        let long = [&head(ToWorker::Serve, 1)[..], &vec![0; MOST_BYTES + 1]].concat();
        assert_eq!(parse::<ToWorker>(&long), None);
    }
}

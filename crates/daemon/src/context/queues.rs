//! The queues of a pool: socket pairs over which its workers pass each other connections.

use super::handover::Named;
use forkyard_protocol::handover::names::QueueKind;
use forkyard_sys::Error;
use forkyard_sys::fd::{set_send_buffer, socket_pair, unread};
use forkyard_sys::guarded::Guarded;
use nix::sys::socket::SockType;
use std::collections::BTreeMap;
use std::os::fd::AsFd;

/// Holds a thousand parked connections.
const LANES_BUFFER: usize = 2 << 20;

/// The ends of the queues that are open.
#[derive(Debug, Default)]
pub(crate) struct Queues(BTreeMap<QueueKind, Vec<Guarded>>);

impl Queues {
    /// Opens the queues of a kind, unless they are open. Returns whether it did.
    pub(crate) fn open(&mut self, kind: QueueKind) -> Result<bool, Error> {
        if self.0.contains_key(&kind) {
            return Ok(false);
        }
        let mut ends = Vec::new();
        for _ in kind.names(0).step_by(2) {
            let (out, into) = socket_pair(SockType::SeqPacket)?;
            ends.extend([out, into]);
        }
        if kind == QueueKind::Lanes {
            // A smaller buffer holds fewer connections.
            ends.iter()
                .try_for_each(|end| set_send_buffer(end.as_fd(), LANES_BUFFER))?;
        }
        self.insert(kind, ends.into_iter().map(Guarded::with_descriptors).collect());
        Ok(true)
    }

    pub(crate) fn insert(&mut self, kind: QueueKind, ends: Vec<Guarded>) {
        self.0.insert(kind, ends);
    }

    pub(crate) fn remove(&mut self, kind: QueueKind) -> Option<Vec<Guarded>> {
        self.0.remove(&kind)
    }

    pub(crate) fn get(&self, kind: QueueKind) -> Option<&[Guarded]> {
        self.0.get(&kind).map(Vec::as_slice)
    }

    /// Returns the read end and the write end of the hand-off queue.
    pub(crate) fn hand_off(&self) -> Option<(&Guarded, &Guarded)> {
        match self.get(QueueKind::HandOff)? {
            [out, into] => Some((out, into)),
            _ => None,
        }
    }

    /// Whether nothing waits in the queues of a kind.
    pub(crate) fn are_empty(&self, kind: QueueKind) -> bool {
        let mut ends = self.get(kind).into_iter().flatten();
        ends.all(|end| unread(end.as_fd()) == 0)
    }

    /// Returns the ends from which connections come that wait for any worker of the pool.
    pub(crate) fn work(&self) -> impl Iterator<Item = &Guarded> {
        QueueKind::ALL.into_iter().flat_map(|kind| self.work_of(kind))
    }

    pub(crate) fn work_of(&self, kind: QueueKind) -> &[Guarded] {
        let ends = self.get(kind).unwrap_or_default();
        match kind {
            QueueKind::HandOff => ends.get(..1).unwrap_or_default(),
            QueueKind::Lanes => ends,
            QueueKind::Turns => &[],
        }
    }

    pub(crate) fn named(&self, pool: u32) -> impl Iterator<Item = Named<'_>> {
        let kinds = self.0.iter();
        kinds.flat_map(move |(kind, ends)| kind.names(pool).zip(ends.iter().map(|end| &**end)))
    }
}

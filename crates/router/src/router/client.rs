//! One connection of the router's, and where all of them are kept.

use super::app_index::Known;
use super::reading::{RequestInput, Rest};
use super::state::{ClientCause, ClientState, next};
use crate::applications::RestartFiles;
use crate::applications::event::SessionId;
use crate::tick::Tick;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    socket: OwnedFd,
    state: ClientState,
    /// When it is closed, or goes on without what it waits for.
    pub(super) expires: Option<Tick>,
    /// When its expiry is looked at.
    pub(super) timer: Option<Tick>,
    /// How epoll watches it.
    pub(super) watch: Interest,
    /// Something came while the pool or an instance had the connection.
    pub(super) stirred: bool,
    /// Its input, where that is read by the router.
    pub(super) reading: Option<Box<RequestInput>>,
    /// What was read of it, to be passed on with it.
    pub(super) bytes: Vec<u8>,
    /// What that takes, as it was counted last.
    pub(super) memory: usize,
    /// Bytes of the request that lay in it when it was passed on.
    pub(super) seen: usize,
    /// The request's number.
    pub(super) id: u16,
    /// It may be kept after the request.
    pub(super) keep: bool,
    /// The application's root as the request names it.
    pub(super) root: Vec<u8>,
    pub(super) known: Option<Arc<Known>>,
    /// For whose application its request is, as it is counted.
    pub(super) user: Option<u32>,
    /// What was just seen of the restart files, for the pool.
    pub(super) restart_files: Option<RestartFiles>,
    /// It waits for an instance, or has one, by this.
    pub(super) session: Option<SessionId>,
    /// Instances that were tried for the request.
    pub(super) tries: u8,
    /// Since when the kernel does not let it be passed on.
    pub(super) stuck: Option<Tick>,
    /// Since when the request waits.
    pub(super) since: Tick,
    /// The router's own answer, and how much of it is written.
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    /// What is left of a request that the router answers.
    pub(super) rest: Option<Box<Rest>>,
}

/// How epoll watches a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    /// Not at all.
    None,
    /// For what comes, and for its end.
    Input,
    /// For its end alone: the pool or an instance reads what comes.
    End,
    /// For room to write as well.
    Both,
}

impl Client {
    pub(super) fn new(socket: OwnedFd) -> Client {
        Client {
            socket,
            state: ClientState::Silent,
            expires: None,
            timer: None,
            watch: Interest::None,
            stirred: false,
            reading: None,
            bytes: Vec::new(),
            memory: 0,
            seen: 0,
            id: 0,
            keep: false,
            root: Vec::new(),
            known: None,
            user: None,
            restart_files: None,
            session: None,
            tries: 0,
            stuck: None,
            since: Tick::ZERO,
            out: Vec::new(),
            sent: 0,
            rest: None,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn state(&self) -> ClientState {
        self.state
    }

    /// No request is under way on it.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, ClientState::Idle | ClientState::Silent)
    }

    /// Goes where a cause leads; whether that is another state.
    pub(super) fn change(&mut self, cause: ClientCause) -> bool {
        let before = self.state;
        self.state = next(before, cause);
        self.state != before
    }
}

/// All connections. A number is never used for two of them at a time, and seldom soon again.
#[derive(Debug, Default)]
pub(super) struct Clients {
    slots: Vec<Option<Box<Client>>>,
    uses: Vec<u32>,
    free: Vec<u32>,
}

/// Bits of a number that say the slot.
const SLOT_BITS: u32 = 24;
/// Bits that say which use of the slot it is.
const USE_MASK: u64 = (1 << 32) - 1;

impl Clients {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes one in. `None`: there are as many as there can be.
    pub(super) fn insert(&mut self, client: Client) -> Option<u64> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.slots.len()).ok()?;
                if slot >> SLOT_BITS != 0 {
                    return None;
                }
                self.slots.push(None);
                self.uses.push(0);
                slot
            }
        };
        let index = slot as usize;
        self.uses[index] = self.uses[index].wrapping_add(1);
        self.slots[index] = Some(Box::new(client));
        Some(u64::from(self.uses[index]) << SLOT_BITS | u64::from(slot))
    }

    fn index(&self, id: u64) -> Option<usize> {
        let index = (id & ((1 << SLOT_BITS) - 1)) as usize;
        let uses = u64::from(*self.uses.get(index)?);
        (uses == (id >> SLOT_BITS) & USE_MASK).then_some(index)
    }

    pub(super) fn get(&mut self, id: u64) -> Option<&mut Client> {
        let index = self.index(id)?;
        self.slots[index].as_deref_mut()
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Box<Client>> {
        let index = self.index(id)?;
        let client = self.slots[index].take()?;
        self.free.push(index as u32);
        Some(client)
    }

    /// The numbers of all.
    pub(super) fn ids(&self) -> Vec<u64> {
        self.iter().map(|(id, _)| id).collect()
    }

    /// The numbers of all, with what they are.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Client)> {
        self.slots.iter().enumerate().filter_map(|(index, client)| {
            let id = u64::from(self.uses[index]) << SLOT_BITS | index as u64;
            Some((id, client.as_deref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_means_one_connection_only() {
        let client = || Client::new(crate::sys::fd::null().expect("/dev/null"));
        let mut clients = Clients::default();
        let first = clients.insert(client()).expect("room");
        let second = clients.insert(client()).expect("room");
        assert!(clients.get(first).is_some() && clients.get(second).is_some());
        assert!(clients.remove(first).is_some());
        assert!(clients.get(first).is_none() && clients.remove(first).is_none());
        let third = clients.insert(client()).expect("room");
        assert_ne!(first, third);
        assert!(clients.get(first).is_none() && clients.get(third).is_some());
        assert_eq!(clients.len(), 2);
        assert_eq!(
            clients.iter().map(|(id, _)| id).collect::<Vec<_>>(),
            [third, second]
        );
    }
}

//! The router's client connections.

use super::app_index::Known;
use super::reading::{RequestInput, Rest};
use super::state::{ClientCause, ClientState, next};
use crate::applications::RestartFiles;
use crate::applications::event::SessionId;
use crate::tick::Tick;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Client {
    socket: OwnedFd,
    state: ClientState,
    pub(super) expires: Option<Tick>,
    pub(super) timer: Option<Tick>,
    pub(super) watch: Interest,
    /// Input arrived while the pool or an instance had the connection.
    pub(super) stirred: bool,
    pub(super) reading: Option<Box<RequestInput>>,
    pub(super) bytes: Vec<u8>,
    pub(super) memory: usize,
    /// Bytes of the request still in the socket when it was passed on.
    pub(super) seen: usize,
    pub(super) id: u16,
    pub(super) keep: bool,
    pub(super) root: Vec<u8>,
    pub(super) known: Option<Arc<Known>>,
    pub(super) user: Option<u32>,
    pub(super) restart_files: Option<RestartFiles>,
    pub(super) session: Option<SessionId>,
    pub(super) tries: u8,
    /// Since when the kernel has refused to pass the connection.
    pub(super) stuck: Option<Tick>,
    pub(super) since: Tick,
    /// The router's own answer and the bytes written.
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    pub(super) rest: Option<Box<Rest>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    None,
    Input,
    /// Hang-up only, while the pool or an instance reads input.
    End,
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

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, ClientState::Idle | ClientState::Silent)
    }

    pub(super) fn change(&mut self, cause: ClientCause) -> bool {
        let before = self.state;
        self.state = next(before, cause);
        self.state != before
    }
}

/// All connections by number. A number is unique among open connections and rarely reused.
#[derive(Debug, Default)]
pub(super) struct Clients {
    slots: Vec<Option<Box<Client>>>,
    uses: Vec<u32>,
    free: Vec<u32>,
}

const SLOT_BITS: u32 = 24;
const USE_MASK: u64 = (1 << 32) - 1;

impl Clients {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

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

    pub(super) fn ids(&self) -> Vec<u64> {
        self.iter().map(|(id, _)| id).collect()
    }

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

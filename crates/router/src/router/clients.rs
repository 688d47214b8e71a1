//! All client connections, with their times, memory and users.

use super::client::{Client, Interest};
use super::memory::Memory;
use super::state::{ClientCause, ClientState, Limit};
use super::user_shares::UserShares;
use forkyard_base::tick::Tick;
use forkyard_base::timers::Timers;
use forkyard_config::Pool;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::time::Duration;

/// The token bit of connections; the rest is the number.
pub(super) const CLIENT: u64 = 1 << 63;
pub(super) const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection's number is unique among open connections and rarely reused.
#[derive(Debug, Default)]
pub(super) struct Clients {
    slots: Vec<Option<Box<Client>>>,
    uses: Vec<u32>,
    free: Vec<u32>,
    most: usize,
    pub(super) accepted: u64,
    /// An early timer is set again, so it need not move with each request.
    timers: Timers<u64>,
    pub(super) memory: Memory,
    users: UserShares,
    /// Connections that may have unread input.
    pub(super) ready: Vec<u64>,
    /// Connections that have asked for an instance in this turn.
    pub(super) asked: Vec<u64>,
}

const SLOT_BITS: u32 = 24;
const USE_MASK: u64 = (1 << 32) - 1;

impl Clients {
    pub(super) fn new(most: usize) -> Clients {
        Clients {
            most,
            ..Clients::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.most
    }

    pub(super) fn insert(&mut self, client: Client) -> Option<u64> {
        self.accepted += 1;
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

    pub(super) fn get(&self, id: u64) -> Option<&Client> {
        self.slots[self.index(id)?].as_deref()
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Client> {
        let index = self.index(id)?;
        self.slots[index].as_deref_mut()
    }

    /// Removes a connection and everything that is counted for it.
    pub(super) fn remove(&mut self, id: u64, epoll: &Epoll) -> Option<Box<Client>> {
        self.uncount_user(id);
        let index = self.index(id)?;
        let client = self.slots[index].take()?;
        self.free.push(index as u32);
        self.memory.change(client.memory, 0);
        self.timers.clear(id);
        if client.watch != Interest::None {
            // Explicitly, because an instance may hold a copy.
            let _ = epoll.delete(client.socket());
        }
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

    /// The first matching connection, by time.
    fn first(&self, is_it: impl Fn(&Client) -> bool) -> Option<u64> {
        self.timers.iter().find(|id| self.get(*id).is_some_and(&is_it))
    }

    pub(super) fn first_idle(&self) -> Option<u64> {
        self.first(Client::is_idle)
    }

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.timers.next()
    }

    /// Takes the next connection whose time is over.
    pub(super) fn take_late(&mut self, now: Tick) -> Option<u64> {
        while let Some(id) = self.timers.take_due(now) {
            match self.get(id).and_then(|client| client.expires) {
                Some(expires) if expires <= now => return Some(id),
                Some(expires) => self.timers.set_by(id, now, expires.since(now)),
                None => {}
            }
        }
        None
    }

    pub(super) fn expire_in(&mut self, id: u64, now: Tick, time: Duration) {
        if let Some(client) = self.get_mut(id) {
            client.expires = Some(now + time);
            self.timers.set_by(id, now, time);
        }
    }

    /// Sets the time limit of a connection's new state.
    pub(super) fn limit(&mut self, id: u64, pool: &Pool, now: Tick) {
        let Some(client) = self.get_mut(id) else {
            return;
        };
        match client.state().limit() {
            Limit::Client => self.expire_in(id, now, pool.serving.client_timeout),
            Limit::Keepalive => self.expire_in(id, now, pool.serving.keepalive_timeout),
            Limit::Look => self.expire_in(id, now, LOOK_TIMEOUT),
            Limit::None => client.expires = None,
        }
    }

    pub(super) fn change(&mut self, id: u64, cause: ClientCause, pool: &Pool, now: Tick) {
        if self.get_mut(id).is_some_and(|client| client.change(cause)) {
            self.limit(id, pool, now);
        }
    }

    pub(super) fn watch(&mut self, id: u64, watch: Interest, epoll: &Epoll) -> Result<(), Errno> {
        let Some(client) = self.get_mut(id).filter(|client| client.watch != watch) else {
            return Ok(());
        };
        let flags = EpollFlags::EPOLLET | EpollFlags::EPOLLRDHUP;
        let flags = match watch {
            Interest::None => EpollFlags::EPOLLET,
            Interest::End => flags,
            Interest::Input => flags | EpollFlags::EPOLLIN,
            Interest::Both => flags | EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
        };
        let before = std::mem::replace(&mut client.watch, watch);
        let mut event = EpollEvent::new(flags, CLIENT | id);
        match (before, watch) {
            (Interest::None, _) => epoll.add(client.socket(), event),
            (_, Interest::None) => epoll.delete(client.socket()),
            _ => epoll.modify(client.socket(), &mut event),
        }
    }

    pub(super) fn count_memory(&mut self, id: u64) {
        if let Some(client) = self.get_mut(id) {
            let now = client.held();
            let before = std::mem::replace(&mut client.memory, now);
            self.memory.change(before, now);
        }
    }

    /// The connection with the oldest incomplete request, if all have too much memory; and whether to log it.
    pub(super) fn over_budget(&mut self) -> Option<(u64, bool)> {
        let is_incomplete = |client: &Client| client.state() == ClientState::Partial && client.memory > 0;
        let id = match self.memory.is_over() {
            true => self.first(is_incomplete)?,
            false => return None,
        };
        Some((id, self.memory.says()))
    }

    /// Counts a connection for its application's user. Returns `false` if the user has too many. `shares`: several users
    /// share the connections.
    pub(super) fn count_user(&mut self, id: u64, user: u32, shares: bool) -> bool {
        self.uncount_user(id);
        if shares && !self.users.admits(user, self.len(), self.most) {
            return false;
        }
        if let Some(client) = self.get_mut(id) {
            client.user = Some(user);
            self.users.add(user);
        }
        true
    }

    pub(super) fn uncount_user(&mut self, id: u64) {
        if let Some(user) = self.get_mut(id).and_then(|client| client.user.take()) {
            self.users.remove(user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::epoll::EpollCreateFlags;

    #[test]
    fn a_number_means_one_connection_only() {
        let epoll = Epoll::new(EpollCreateFlags::empty()).expect("epoll");
        let client = || Client::new(forkyard_sys::fd::null().expect("/dev/null"));
        let mut clients = Clients::new(2);
        let first = clients.insert(client()).expect("room");
        let second = clients.insert(client()).expect("room");
        assert!(clients.get(first).is_some() && clients.get(second).is_some() && clients.is_full());
        assert!(clients.remove(first, &epoll).is_some());
        assert!(clients.get(first).is_none() && clients.remove(first, &epoll).is_none());
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

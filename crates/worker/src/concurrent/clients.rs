//! The connections and requests of a worker, by index. A token names a request: its index and the serial of its client.

use super::client::{Client, Link};
use fastcgi::{Connection, Output, Phase};
use forkyard_base::tick::Tick;
use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

/// The most connections and outputs that are kept for reuse.
const SPARES: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Clients {
    all: Vec<Client>,
    free: Vec<usize>,
    /// Those with a request that waits for room, in the order of arrival.
    pub waiting: VecDeque<usize>,
    #[expect(clippy::vec_box, reason = "the same boxes come from and go to the indices")]
    spare: Vec<Box<Connection<Tick>>>,
    #[expect(clippy::vec_box, reason = "the same boxes come from and go to the indices")]
    pub(super) spare_outputs: Vec<Box<Output>>,
}

impl Index<usize> for Clients {
    type Output = Client;

    fn index(&self, index: usize) -> &Client {
        &self.all[index]
    }
}

impl IndexMut<usize> for Clients {
    fn index_mut(&mut self, index: usize) -> &mut Client {
        &mut self.all[index]
    }
}

impl Clients {
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// The number of places that are taken.
    pub(super) fn held(&self) -> usize {
        self.all.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.all.iter_mut()
    }

    /// Takes a free place.
    pub(super) fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(Client::default());
            self.all.len() - 1
        })
    }

    /// Frees a place.
    pub(super) fn release(&mut self, index: usize) {
        let client = &mut self.all[index];
        let connection = client.connection.take();
        *client = Client {
            serial: client.serial,
            ..Client::default()
        };
        if self.spare.len() < SPARES {
            self.spare.extend(connection);
        }
        self.waiting.retain(|other| *other != index);
        self.free.push(index);
    }

    /// A connection of an earlier client.
    pub(super) fn spare(&mut self) -> Option<Box<Connection<Tick>>> {
        self.spare.pop()
    }

    pub(super) fn keep_output(&mut self, mut output: Box<Output>) {
        if self.spare_outputs.len() < SPARES {
            output.abandon();
            self.spare_outputs.push(output);
        }
    }

    /// Kept connections without a request.
    pub(super) fn idle(&self) -> Vec<usize> {
        let clients = self.all.iter().enumerate();
        let idle = clients.filter(|(_, client)| client.is_in(Phase::Idle));
        idle.map(|(index, _)| index).collect()
    }

    /// The client of an epoll event, unless the place has another by now.
    pub(super) fn link(&mut self, event: u64) -> Option<(usize, &mut Link)> {
        let index = (event & 0xffff_ffff) as usize;
        let link = self.all.get_mut(index)?.link.as_mut()?;
        (u64::from(link.generation) == event >> 32).then_some((index, link))
    }

    pub(super) fn token(&self, index: usize) -> u64 {
        u64::from(self.all[index].serial) << 32 | index as u64
    }

    /// The index of a request, unless it has ended.
    pub(super) fn find(&self, token: u64) -> Option<usize> {
        let index = (token & 0xffff_ffff) as usize;
        let client = self.all.get(index)?;
        let is_it = client.request.is_some() && u64::from(client.serial) == token >> 32;
        is_it.then_some(index)
    }
}

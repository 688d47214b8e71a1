//! The idle connections that a worker holds: kept ones between requests, and new ones that have said nothing yet.
//!
//! A connection belongs to one worker at a time. It is watched by the worker's epoll as long as it has a place here,
//! also while it is being served, so that a request on a kept connection costs no registration. Connections that
//! another worker should have go into the pool's hand-over queue, a socket pair shared by all workers, from which an
//! idle one takes them. That happens
//!
//! * when a request runs longer than a moment while others are held: the `minder` sends them;
//! * when several have requests ready at once and a sibling is idle: half of those are sent;
//! * before a request: a few, if a sibling is idle, and in any case those on which nothing was ever said, so that a
//!   request that kills its worker takes no new one along;
//! * when the worker retires: all are sent.
//!
//! A message in the queue holds connections of one kind: its byte says whether anything was ever said on them.

use super::connection::Connection;
use crate::sys::fd::{MAX_PASSED, send_with};
use crate::tick::Tick;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The connections held.
#[derive(Debug, Default)]
pub(super) struct Held {
    places: Vec<Place>,
    idle: usize,
}

#[derive(Debug)]
enum Place {
    Free,
    Idle(Box<Connection>),
    /// Taken out to be served; still registered.
    Serving,
}

impl Held {
    /// Number of idle connections.
    pub(super) fn idle(&self) -> usize {
        self.idle
    }

    /// Takes a connection in. `first_token` is the token of place 0.
    pub(super) fn hold(
        &mut self,
        mut connection: Box<Connection>,
        epoll: &Epoll,
        first_token: u64,
    ) -> nix::Result<()> {
        let place = match connection.place {
            Some(place) => place,
            None => {
                let free = self.places.iter().position(|place| matches!(place, Place::Free));
                let place = free.unwrap_or(self.places.len());
                let event = EpollEvent::new(
                    EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP,
                    first_token + place as u64,
                );
                epoll.add(connection.socket(), event)?;
                if place == self.places.len() {
                    self.places.push(Place::Free);
                }
                place
            }
        };
        connection.place = Some(place);
        self.places[place] = Place::Idle(connection);
        self.idle += 1;
        Ok(())
    }

    /// Takes an idle connection out to serve it; it keeps its place.
    pub(super) fn take(&mut self, place: usize) -> Option<Box<Connection>> {
        let slot = self.places.get_mut(place)?;
        match std::mem::replace(slot, Place::Serving) {
            Place::Idle(connection) => {
                self.idle -= 1;
                Some(connection)
            }
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Closes a connection that was taken out, or never held.
    pub(super) fn close(&mut self, connection: &Connection, epoll: &Epoll) {
        if let Some(place) = connection.place {
            // Explicitly, because a process that a script forked may hold the same open file.
            let _ = epoll.delete(connection.socket());
            self.places[place] = Place::Free;
        }
    }

    /// When the first idle connection expires.
    pub(super) fn next_expiry(&self) -> Option<Tick> {
        self.idle_connections()
            .map(|(_, connection)| connection.expires)
            .min()
    }

    /// Takes out every idle connection that has expired.
    #[expect(clippy::vec_box, reason = "they are boxed where they are held")]
    pub(super) fn take_expired(&mut self, now: Tick) -> Vec<Box<Connection>> {
        let due: Vec<usize> = self
            .idle_connections()
            .filter(|(_, c)| c.expires <= now)
            .map(|(place, _)| place)
            .collect();
        due.into_iter().filter_map(|place| self.take(place)).collect()
    }

    /// Takes out the idle connection whose time ends first.
    pub(super) fn take_oldest(&mut self) -> Option<Box<Connection>> {
        let (place, _) = self
            .idle_connections()
            .min_by_key(|(_, connection)| connection.expires)?;
        self.take(place)
    }

    /// The places of all idle connections.
    pub(super) fn idle_places(&self) -> Vec<usize> {
        self.idle_connections().map(|(place, _)| place).collect()
    }

    /// The places of those on which nothing has been said yet.
    pub(super) fn silent_places(&self) -> Vec<usize> {
        self.idle_connections()
            .filter(|(_, c)| !c.spoken)
            .map(|(place, _)| place)
            .collect()
    }

    fn idle_connections(&self) -> impl Iterator<Item = (usize, &Connection)> {
        self.places
            .iter()
            .enumerate()
            .filter_map(|(index, place)| match place {
                Place::Idle(connection) => Some((index, connection.as_ref())),
                Place::Free | Place::Serving => None,
            })
    }

    /// Sends idle connections to the pool's hand-over queue. One that can't go (mid-request, or the queue is full)
    /// stays. Says how many went.
    pub(super) fn send_away(&mut self, places: &[usize], queue_in: BorrowedFd<'_>, epoll: &Epoll) -> usize {
        let is_spoken = |place: &usize| matches!(self.places.get(*place), Some(Place::Idle(c)) if c.spoken);
        let (spoken, silent): (Vec<usize>, Vec<usize>) = places.iter().partition(|place| is_spoken(place));
        self.send_group(&silent, false, queue_in, epoll) + self.send_group(&spoken, true, queue_in, epoll)
    }

    /// Sends connections of one kind, a message for as many as it takes.
    fn send_group(
        &mut self,
        places: &[usize],
        spoken: bool,
        queue_in: BorrowedFd<'_>,
        epoll: &Epoll,
    ) -> usize {
        let mut sent = 0;
        for group in places.chunks(MAX_PASSED) {
            let portable: Vec<(usize, RawFd)> = group
                .iter()
                .filter_map(|&place| match self.places.get(place) {
                    Some(Place::Idle(c)) if c.is_portable() => Some((place, c.socket().as_raw_fd())),
                    _ => None,
                })
                .collect();
            let descriptors: Vec<RawFd> = portable.iter().map(|(_, fd)| *fd).collect();
            if descriptors.is_empty() || send_with(queue_in, &[u8::from(spoken)], &descriptors).is_err() {
                continue;
            }
            for (place, _) in portable {
                if let Some(connection) = self.take(place) {
                    self.close(&connection, epoll);
                    sent += 1;
                }
            }
        }
        sent
    }
}

/// Takes one message's connections out of the hand-over queue, and whether anything was ever said on them. `None`: there
/// was no message.
pub(super) fn receive(queue_out: BorrowedFd<'_>) -> Option<(bool, Vec<OwnedFd>)> {
    let mut spoken = [1; 1];
    let received = crate::sys::fd::receive_with(queue_out, &mut spoken, false).ok()?;
    Some((spoken[0] != 0, received.descriptors))
}

//! For event loops in Rust, which wait on the worker's epoll themselves and get events as values.

use super::Concurrent;
use super::events::{EventKind, HEAD_BYTES};
use fastcgi::Params;
use forkyard_protocol::accept_notify::RestartReason;
use forkyard_sys::clock;
use nix::sys::epoll::{Epoll, EpollEvent};
use std::sync::Arc;

/// Set in the epoll data of the event loop's own descriptors. Connections of the worker never have it; its other
/// sources have the highest bit.
pub const OWN: u64 = 1 << 62;
pub(super) const SOURCES: u64 = 1 << 63;

/// Whether an event belongs to the worker ([`Concurrent::on_ready`]).
pub fn is_of_worker(data: u64) -> bool {
    data & OWN == 0 || data & SOURCES != 0
}

/// An event of a worker with several requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'e> {
    /// A request, its body so far, and whether that is complete. See [`Concurrent::with_params`].
    Request(u64, &'e [u8], bool),
    /// More of a body ([`Concurrent::read`]).
    Body(u64),
    /// The client is gone.
    Gone(u64),
    /// There is room to write again.
    Writable(u64),
    /// The request timed out and was answered.
    Expired(u64),
    /// Do out-of-band work.
    Work,
    /// No request is left, and none will come.
    End,
}

/// Decodes records.
#[derive(Debug)]
pub struct Records<'e>(pub &'e [u8]);

impl<'e> Iterator for Records<'e> {
    type Item = Event<'e>;

    fn next(&mut self) -> Option<Event<'e>> {
        let (head, rest) = self.0.split_at_checked(HEAD_BYTES)?;
        let number = |at: usize| head[at..at + 4].try_into().map(u32::from_ne_bytes).unwrap_or(0);
        let length = number(4) as usize;
        let token = head[8..].try_into().map(u64::from_ne_bytes).ok()?;
        let (inside, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        let inner = |at: usize| {
            let four = inside.get(at..at + 4).and_then(|four| four.try_into().ok());
            four.map_or(0, u32::from_ne_bytes)
        };
        Some(match EventKind::from_number(number(0))? {
            EventKind::Request => {
                let params = 12 + inner(0) as usize + inner(4) as usize;
                Event::Request(token, inside.get(params..)?, inner(8) != 0)
            }
            EventKind::Body => Event::Body(token),
            EventKind::Gone => Event::Gone(token),
            EventKind::Writable => Event::Writable(token),
            EventKind::Expired => Event::Expired(token),
            EventKind::Work => Event::Work,
            EventKind::End => Event::End,
        })
    }
}

impl Concurrent {
    /// A request's parameters; `None` if the request has ended.
    pub fn with_params<T>(&self, token: u64, look: impl FnOnce(&Params) -> T) -> Option<T> {
        let state = self.lock();
        let index = state.clients.find(token)?;
        state.clients[index].params().map(look)
    }

    /// The epoll to wait on.
    pub fn epoll(&self) -> Arc<Epoll> {
        Arc::clone(&self.lock().sources.epoll)
    }

    /// [`Concurrent::turn`] for events already received; replaces the content of `told`.
    pub fn on_ready(&mut self, ready: &[EpollEvent], told: &mut Vec<u8>) -> bool {
        let mut state = self.lock();
        state.on_ready(ready);
        state.events.take(told);
        state.could_do_more()
    }

    /// The process of the last request; its memory counts against the worker's limit.
    pub fn set_program(&mut self, pid: i32) {
        self.lock().wear.program = pid;
    }

    /// Requests new processes for the pool.
    pub fn ask_restart(&mut self, why: RestartReason) {
        let now = clock::now();
        self.lock().notifier.ask_restart(why, now, now);
    }

    /// Whether there is room for another request.
    pub fn has_room(&self) -> bool {
        self.lock().has_room()
    }
}

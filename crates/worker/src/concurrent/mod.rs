//! A worker that serves several requests at a time, for languages with an event loop; see [`threads`] for others.
//!
//! The event loop watches one epoll descriptor and calls [`Concurrent::turn`], which returns [`events`];
//! [`Concurrent::send`] takes answers. No call blocks. A connection has one request at a time.
//!
//! All workers are notified of a new connection; the least busy accepts it and busier ones leave it to siblings for a
//! moment. Workers that only pass requests on concentrate connections instead ([`accepting`]). A request on a kept
//! connection stays with its worker, unless that is full or its event loop is blocked ([`watch`]); then it goes through
//! the hand-off queue.

mod accept;
pub mod accepting;
mod client;
mod clients;
mod dispatch;
mod events;
mod input;
mod leave;
mod native;
mod other;
mod output;
mod quiet;
mod routed;
mod several;
mod shown;
mod sources;
mod state;
mod threads;
mod times;
mod visits;
mod watch;

pub use fastcgi::Piece;
pub use native::{Event, OWN, Records, is_of_worker};
pub use output::{Sent, When};
pub use several::Several;
pub use threads::{Threads, Wish};

use super::context::{GenerationContext, WorkerContext};
use forkyard_sys::{Error, clock};
use leave::Life;
use state::WorkerState;
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use watch::{Shared, Watch};

/// The worker.
#[derive(Debug)]
pub struct Concurrent {
    shared: Arc<Shared>,
    watch: Option<Watch>,
    handed: Vec<u8>,
}

impl Concurrent {
    /// See [`super::run()`] for the requirements.
    ///
    /// # Errors
    /// A system call failed; the process must exit.
    pub fn begin(context: GenerationContext, own: WorkerContext) -> Result<Concurrent, Error> {
        let state = WorkerState::begin(context, own)?;
        Ok(Concurrent {
            watch: (!state.accepting.concentrates()).then(Watch::default),
            shared: Shared::new(state),
            handed: Vec::new(),
        })
    }

    /// The descriptor for the event loop.
    pub fn descriptor(&self) -> RawFd {
        self.lock().sources.epoll.0.as_raw_fd()
    }

    /// Handles ready events. Returns records for the event loop, and whether to call it again soon.
    pub fn turn(&mut self) -> (&[u8], bool) {
        let mut state = self.shared.state.lock();
        let more = state.turn();
        let is_busy = state.capacity.in_flight > 0 || state.departure.life.is_working();
        let is_done = state.departure.life == Life::Done;
        state.events.take(&mut self.handed);
        drop(state);
        if let Some(watch) = &mut self.watch {
            if is_done {
                watch.end(&self.shared);
            } else if is_busy {
                watch.wake(&self.shared);
            }
        }
        (&self.handed, more)
    }

    /// Whether work has arrived since the last turn.
    pub fn has_more(&self) -> bool {
        let state = self.lock();
        !state.events.is_empty() || state.could_do_more() || state.is_leaving()
    }

    /// Sends a piece of an answer.
    pub fn send(&mut self, token: u64, bytes: &[u8], when: When) -> Sent {
        self.lock().send_to(token, bytes, when)
    }

    /// The next piece of a request's body.
    pub fn read(&mut self, token: u64) -> (Piece, &[u8]) {
        let mut state = self.shared.state.lock();
        let piece = match state.clients.find(token) {
            Some(index) => state.next_piece(index, &mut self.handed, clock::now()),
            None => Piece::Gone,
        };
        drop(state);
        let has_bytes = matches!(piece, Piece::More | Piece::Last);
        (piece, if has_bytes { &self.handed } else { &[] })
    }
}

impl Deref for Concurrent {
    type Target = Several;

    fn deref(&self) -> &Several {
        &self.shared.state
    }
}

impl Drop for Concurrent {
    fn drop(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.end(&self.shared);
        }
    }
}

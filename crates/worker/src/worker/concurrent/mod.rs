//! A worker that serves several requests at a time, for languages with an event loop of their own; for others, see
//! [`threads`].
//!
//! The event loop watches one descriptor, an epoll, and calls [`Concurrent::turn`] when it is readable: what has come is
//! given to it as records ([`events`]), what it answers is taken by [`Concurrent::send`], and nothing waits. Each connection
//! has one request at a time, so a worker has many connections.
//!
//! All workers of a pool are told of a new connection. The one with the least to do takes it. One that has clearly more
//! to do leaves it to a sibling for a moment. Workers that only pass requests on share connections out otherwise
//! ([`gather`]): the first that waits takes them, and as few workers as can do it have all of them. A request on a kept connection stays where it comes, unless that worker has as many as
//! it may have or its event loop is held up ([`watch`]): then it goes through the pool's hand-off queue.

mod accept;
mod client;
mod dispatch;
mod events;
mod gather;
mod input;
mod leave;
mod native;
mod output;
mod quiet;
mod routed;
mod shown;
mod state;
mod threads;
mod times;
mod visits;
mod watch;

pub use input::Piece;
pub use native::{Event, OWN, Records, is_of_worker};
pub use output::{Sent, When};
pub use threads::{Threads, Wish};

use super::context::{GenerationContext, WorkerContext};
use super::promotion::Promotion;
use crate::sys::{Error, clock};
use leave::Leaving;
use state::WorkerState;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use watch::{Shared, Watch};

/// Exit code of a worker that could not begin or go on (sysexits.h, EX_SOFTWARE).
const EXIT_SOFTWARE: i32 = 70;

/// The worker.
#[derive(Debug)]
pub struct Concurrent {
    shared: Arc<Shared>,
    /// `None`: nothing holds the event loop up.
    watch: Option<Watch>,
    /// What was handed out last.
    handed: Vec<u8>,
}

impl Concurrent {
    /// Takes the contexts. As for [`super::run()`].
    ///
    /// # Errors
    /// A system call failed; the process has to end.
    pub fn begin(context: GenerationContext, own: WorkerContext) -> Result<Concurrent, Error> {
        super::stderr_errors::at_begin(&context.settings.pool);
        let state = WorkerState::begin(context, own)?;
        Ok(Concurrent {
            watch: (!state.is_native).then(Watch::default),
            shared: Shared::new(state),
            handed: Vec::new(),
        })
    }

    /// What the event loop has to watch.
    pub fn descriptor(&self) -> RawFd {
        self.shared.lock().epoll.0.as_raw_fd()
    }

    /// Looks at everything that is ready: what the event loop is told, and whether there is more, for which this is to be
    /// called again soon.
    pub fn turn(&mut self) -> (&[u8], bool) {
        let mut state = self.shared.lock();
        let more = state.turn();
        let is_busy = state.in_flight > 0 || state.is_working;
        let is_done = state.leaving == Leaving::Done;
        state.events.take(&mut self.handed);
        drop(state);
        if let Some(watch) = &mut self.watch {
            if is_done {
                // A process that is to be forked must have no other thread.
                watch.end(&self.shared);
            } else if is_busy {
                watch.wake(&self.shared);
            }
        }
        (&self.handed, more)
    }

    /// Whether something has come up since the last turn that can be done at once.
    pub fn has_more(&self) -> bool {
        let state = self.shared.lock();
        !state.events.is_empty() || state.could_do_more() || state.is_leaving()
    }

    /// Takes a piece of the answer to a request.
    pub fn send(&mut self, token: u64, bytes: &[u8], when: When) -> Sent {
        let mut state = self.shared.lock();
        match state.find(token) {
            Some(index) => state.send(index, bytes, when, clock::now()),
            None => Sent::Gone,
        }
    }

    /// Text for the web server's error log.
    pub fn send_error(&mut self, token: u64, bytes: &[u8]) {
        let mut state = self.shared.lock();
        if let Some(index) = state.find(token) {
            state.put_error(index, bytes);
        }
    }

    /// The next piece of a request's body.
    pub fn read(&mut self, token: u64) -> (Piece, &[u8]) {
        let mut state = self.shared.lock();
        let piece = match state.find(token) {
            Some(index) => state.next_piece(index, &mut self.handed, clock::now()),
            None => Piece::Gone,
        };
        drop(state);
        let has_bytes = matches!(piece, Piece::More | Piece::Last);
        (piece, if has_bytes { &self.handed } else { &[] })
    }

    /// The application is done with a request that it has not answered to its end: nothing more comes, and the client is to
    /// see that.
    pub fn abandon(&mut self, token: u64) {
        let mut state = self.shared.lock();
        if let Some(index) = state.find(token) {
            state.break_off(index, clock::now());
        }
    }

    /// Lets the worker end once its requests are answered, as with `max_requests`.
    pub fn retire(&mut self) {
        self.shared.lock().leave(clock::now());
    }

    /// Asks for out-of-band work.
    pub fn want_work(&mut self) {
        self.shared.lock().ask_for_work();
    }

    /// The out-of-band work is done; or what went wrong, for the log.
    pub fn out_of_band_done(&mut self, outcome: Result<(), String>) {
        self.shared.lock().out_of_band_done(outcome);
    }

    /// Whether the process is to make a preloader. It has no other thread of this library's then, and no request.
    pub fn must_promote(&mut self) -> bool {
        self.shared.lock().promotion.is_some()
    }

    /// What the preloader is to be given.
    pub fn take_promotion(&mut self) -> Option<Promotion> {
        self.shared.lock().promotion.take()
    }

    /// The exit code, once there is no request any more.
    pub fn exit_code(&self) -> i32 {
        self.shared.lock().exit_code
    }
}

impl Drop for Concurrent {
    fn drop(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.end(&self.shared);
        }
    }
}

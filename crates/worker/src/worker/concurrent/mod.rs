//! A worker that serves several requests at a time, for languages with an event loop of their own.
//!
//! The event loop watches one descriptor, an epoll, and calls [`Concurrent::turn`] when it is readable: what has come is
//! given to it as records ([`events`]), what it answers is taken by [`Concurrent::send`], and nothing waits. Each connection
//! has one request at a time, so a worker has many connections.
//!
//! All workers of a pool are told of a new connection. The one with the least to do takes it; one that has more leaves it to
//! that for a millisecond. A request on a kept connection stays where it comes, unless that worker has as many as it may
//! have or its event loop is held up ([`watch`]): then it goes through the pool's hand-over queue.

mod desk;
mod doors;
mod events;
mod input;
mod leave;
mod output;
mod place;
mod routed;
mod shown;
mod times;
mod watch;

pub use input::Piece;
pub use output::Sent;

use super::kit::{Kit, Seat};
use super::promotion::Promotion;
use crate::sys::{Error, clock};
use desk::Desk;
use leave::Leaving;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use watch::{Shared, Watch};

/// Exit code of a worker that could not begin or go on (sysexits.h, EX_SOFTWARE).
const EXIT_SOFTWARE: i32 = 70;

/// The worker.
#[derive(Debug)]
pub struct Concurrent {
    shared: Arc<Shared>,
    watch: Watch,
    /// What was handed out last.
    handed: Vec<u8>,
}

impl Concurrent {
    /// Takes the seat. As for [`super::run()`].
    ///
    /// # Errors
    /// A system call failed; the process has to end.
    pub fn begin(kit: Kit, seat: Seat) -> Result<Concurrent, Error> {
        super::said::at_begin(&kit.settings.pool);
        Ok(Concurrent {
            shared: Shared::new(Desk::begin(kit, seat)?),
            watch: Watch::default(),
            handed: Vec::new(),
        })
    }

    /// What the event loop has to watch.
    pub fn descriptor(&self) -> RawFd {
        self.shared.desk().epoll.0.as_raw_fd()
    }

    /// Looks at everything that is ready: what the event loop is told, and whether there is more, for which this is to be
    /// called again soon.
    pub fn turn(&mut self) -> (&[u8], bool) {
        let mut desk = self.shared.desk();
        let more = desk.turn();
        let is_busy = desk.in_flight > 0 || desk.is_working;
        let is_done = desk.leaving == Leaving::Done;
        desk.events.take(&mut self.handed);
        drop(desk);
        if is_done {
            // A process that is to be forked must have no other thread.
            self.watch.end(&self.shared);
        } else if is_busy {
            self.watch.attend(&self.shared);
        }
        (&self.handed, more)
    }

    /// Whether something has come up since the last turn that can be done at once.
    pub fn has_more(&self) -> bool {
        let desk = self.shared.desk();
        !desk.events.is_empty() || desk.could_do_more() || desk.is_leaving()
    }

    /// Takes a piece of the answer to a request. `is_last`: the answer ends with it, once all of it was taken.
    pub fn send(&mut self, token: u64, bytes: &[u8], is_last: bool) -> Sent {
        let mut desk = self.shared.desk();
        match desk.find(token) {
            Some(index) => desk.send(index, bytes, is_last, clock::now()),
            None => Sent::Gone,
        }
    }

    /// Text for the web server's error log.
    pub fn send_error(&mut self, token: u64, bytes: &[u8]) {
        let mut desk = self.shared.desk();
        if let Some(index) = desk.find(token) {
            desk.put_error(index, bytes);
        }
    }

    /// The next piece of a request's body.
    pub fn read(&mut self, token: u64) -> (Piece, &[u8]) {
        let mut desk = self.shared.desk();
        let piece = match desk.find(token) {
            Some(index) => desk.next_piece(index, &mut self.handed, clock::now()),
            None => Piece::Gone,
        };
        drop(desk);
        let has_bytes = matches!(piece, Piece::More | Piece::Last);
        (piece, if has_bytes { &self.handed } else { &[] })
    }

    /// The application is done with a request that it has not answered to its end: nothing more comes, and the client is to
    /// see that.
    pub fn abandon(&mut self, token: u64) {
        let mut desk = self.shared.desk();
        if let Some(index) = desk.find(token) {
            desk.break_off(index, clock::now());
        }
    }

    /// Lets the worker end once its requests are answered, as with `max_requests`.
    pub fn retire(&mut self) {
        self.shared.desk().leave(clock::now());
    }

    /// Asks for out-of-band work.
    pub fn want_work(&mut self) {
        self.shared.desk().ask_for_work();
    }

    /// The out-of-band work is done; or what went wrong, for the log.
    pub fn worked(&mut self, outcome: Result<(), String>) {
        self.shared.desk().worked(outcome);
    }

    /// Whether the process is to make a preloader. It has no other thread of this library's then, and no request.
    pub fn is_to_promote(&mut self) -> bool {
        self.shared.desk().promotion.is_some()
    }

    /// What the preloader is to be given.
    pub fn take_promotion(&mut self) -> Option<Promotion> {
        self.shared.desk().promotion.take()
    }

    /// The exit code, once there is no request any more.
    pub fn exit_code(&self) -> i32 {
        self.shared.desk().exit_code
    }
}

impl Drop for Concurrent {
    fn drop(&mut self) {
        self.watch.end(&self.shared);
    }
}

//! A worker's end of the channel from its router ([`forkyard_protocol::channel`]).

use super::context::Settings;
use super::memory::Occasion;
use super::out_of_band::Want;
use super::wear::Wear;
use forkyard_protocol::channel::{FromWorker, ToWorker, head, parse};
use forkyard_sys::Error;
use forkyard_sys::fd::{receive_with, send_gathered_with};
use forkyard_sys::origin::is_there;
use forkyard_sys::socket::{Readiness, shutdown_read, wait};
use nix::errno::Errno;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A worker's sessions, work and questions from its router. Without a router there is no channel, and messages go
/// nowhere.
#[derive(Debug)]
pub(super) struct Router {
    channel: Option<OwnedFd>,
    /// The sessions that the worker serves.
    sessions: Vec<u64>,
    /// Questions ([`ToWorker::Where`]) that out-of-band work holds up.
    asked: Vec<u64>,
    work: Work,
    /// The application's wish for out-of-band work, also without a router.
    pub(super) want: Want,
}

/// ```text
///   None ── ordered ──▶ Ordered ── no session is left ──▶ Begun ── reported ──▶ None
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    None,
    Ordered,
    Begun,
}

/// The router is gone.
pub(super) struct RouterGone;

pub(super) enum Order {
    Serve(Serve),
    /// Nothing, or out-of-band work ([`Router::begins_work`]).
    Other,
}

/// A request to serve.
pub(super) struct Serve {
    pub(super) socket: OwnedFd,
    pub(super) session: Session,
    /// The bytes read so far, after the message's head.
    pub(super) length: usize,
    /// The connection closes after it.
    pub(super) is_last: bool,
}

/// A connection from the router, for one request.
#[derive(Debug)]
pub(super) struct Session {
    number: u64,
    /// The answer is complete.
    pub(super) is_answered: bool,
}

impl Router {
    pub(super) fn new(channel: Option<OwnedFd>) -> Router {
        Router {
            channel,
            sessions: Vec::new(),
            asked: Vec::new(),
            work: Work::None,
            want: Want::Nothing,
        }
    }

    pub(super) fn is_there(&self) -> bool {
        self.channel.is_some()
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(AsFd::as_fd)
    }

    /// Sends a message. If the router is gone for good, the channel closes and the worker exits.
    fn tell(&self, kind: FromWorker, session: u64, bytes: &[u8]) {
        let Some(channel) = self.fd() else { return };
        let head = head(kind, session);
        let pieces = [IoSlice::new(&head), IoSlice::new(bytes)];
        loop {
            match send_gathered_with(channel, &pieces, &[]) {
                Err(Error {
                    errno: Errno::EAGAIN, ..
                }) if wait(channel, Readiness::Writable, TIMEOUT).is_ok_and(|ready| ready) => {}
                Err(Error {
                    errno: Errno::EINTR, ..
                }) => {}
                Err(error) if error.errno != Errno::EPIPE => {
                    return log::warn!("can't send to the router: {error}");
                }
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Sends the application's memory, if it has changed.
    pub(super) fn tell_memory(&self, wear: &mut Wear, occasion: Occasion) {
        if self.is_there()
            && let Some(bytes) = wear.news(occasion)
        {
            self.tell(FromWorker::Memory, 0, &bytes.to_le_bytes());
        }
    }

    /// Reports whether the event loop is blocked.
    pub(super) fn tell_held_up(&self, is_held_up: bool) {
        self.tell(FromWorker::HeldUp, 0, &[u8::from(is_held_up)]);
    }

    pub(super) fn tell_session(&self, session: &Session, how: FromWorker, bytes: &[u8]) {
        self.tell(how, session.number, bytes);
    }

    /// Forgets a session after its end. Passes the application's wish for out-of-band work on.
    pub(super) fn has_ended(&mut self, session: &Session) {
        self.sessions.retain(|number| *number != session.number);
        self.tell_want();
    }

    fn tell_want(&mut self) {
        if self.is_there() && self.want.due().is_some() {
            self.want = Want::Told;
            self.tell(FromWorker::WorkWanted, 0, &[]);
        }
    }

    /// Whether ordered work begins now, because no session is left. A leaving worker refuses it.
    pub(super) fn begins_work(&mut self, is_leaving: bool) -> bool {
        if self.work != Work::Ordered || !self.sessions.is_empty() {
            return false;
        }
        self.work = if is_leaving { Work::None } else { Work::Begun };
        if is_leaving {
            self.tell_worked(false);
            self.answer();
        }
        !is_leaving
    }

    pub(super) fn end_work(&mut self, is_well: bool) {
        if self.is_there() {
            self.work = Work::None;
            self.tell_worked(is_well);
            self.answer();
            self.tell_want();
        }
    }

    fn tell_worked(&self, is_well: bool) {
        self.tell(FromWorker::Worked, 0, &[u8::from(is_well)]);
    }

    /// Answers questions, and repeats the wish for work, because the router may be a new one.
    fn answer(&mut self) {
        if self.work != Work::None {
            return;
        }
        for session in std::mem::take(&mut self.asked) {
            self.tell(FromWorker::Here, session, &[]);
            if self.want == Want::Told {
                self.tell(FromWorker::WorkWanted, 0, &[]);
            }
        }
    }

    /// Receives the next message, if there is one, and answers a question.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Order>, RouterGone> {
        let channel = self.fd().ok_or(RouterGone)?;
        loop {
            let received = match receive_with(channel, buffer, false) {
                Ok(received) if received.bytes > 0 => received,
                Err(error) if matches!(error.errno, Errno::EAGAIN | Errno::EINTR) => return Ok(None),
                Ok(_) | Err(_) => return Err(RouterGone),
            };
            if let Some((kind, session, bytes)) = parse::<ToWorker>(&buffer[..received.bytes]) {
                let socket = received.descriptors.into_iter().next();
                return Ok(Some(self.heed(kind, session, bytes.len(), socket)));
            }
            log::warn!("invalid message from the router");
        }
    }

    fn heed(&mut self, kind: ToWorker, number: u64, length: usize, socket: Option<OwnedFd>) -> Order {
        match (kind, socket) {
            (ToWorker::Serve | ToWorker::ServeLast, Some(socket)) => {
                self.sessions.push(number);
                return Order::Serve(Serve {
                    socket,
                    session: Session {
                        number,
                        is_answered: false,
                    },
                    length,
                    is_last: kind == ToWorker::ServeLast,
                });
            }
            (ToWorker::Serve | ToWorker::ServeLast, None) => self.tell(FromWorker::NotBegun, number, &[]),
            (ToWorker::Where, _) => {
                for own in &self.sessions {
                    self.tell(FromWorker::Has, *own, &[]);
                }
                self.asked.push(number);
                self.answer();
            }
            (ToWorker::Work, _) => self.work = Work::Ordered,
        }
        Order::Other
    }

    /// Ends a session without reading from its connection.
    pub(super) fn refuse(&mut self, serve: Serve, why: FromWorker) {
        drop(serve.socket);
        self.tell_session(&serve.session, why, &[]);
        self.sessions.retain(|number| *number != serve.session.number);
    }

    /// Before the worker exits: closes the channel for more, and returns the connections still in it.
    pub(super) fn hand_back_all(&mut self, buffer: &mut [u8]) {
        let Some(channel) = self.fd() else { return };
        shutdown_read(channel);
        while let Ok(Some(order)) = self.receive(buffer) {
            match order {
                Order::Serve(serve) => self.refuse(serve, FromWorker::NotBegun),
                Order::Other => _ = self.begins_work(true),
            }
        }
    }
}

impl Settings {
    /// Whether the application's path leads elsewhere, so that no more code may be loaded from it.
    pub(super) fn has_moved(&self) -> bool {
        let origin = self.pool.setup.origin.as_ref();
        origin.is_some_and(|origin| !is_there(origin))
    }
}

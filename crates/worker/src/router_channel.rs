//! A worker's end of the channel from its router ([`forkyard_protocol::channel`]).

use super::context::Settings;
use super::memory::{Occasion, Scale};
use super::out_of_band::Want;
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

#[derive(Debug)]
pub(super) struct RouterChannel(OwnedFd);

/// The router is gone.
pub(super) struct RouterGone;

pub(super) struct Message {
    pub(super) kind: ToWorker,
    pub(super) session: u64,
    /// The payload's bytes, after the message's head.
    pub(super) length: usize,
    pub(super) socket: Option<OwnedFd>,
}

impl RouterChannel {
    pub(super) fn new(fd: OwnedFd) -> RouterChannel {
        RouterChannel(fd)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Sends a message. If the router is gone for good, the channel closes and the worker exits.
    pub(super) fn tell(&self, kind: FromWorker, session: u64, bytes: &[u8]) {
        let head = head(kind, session);
        let pieces = [IoSlice::new(&head), IoSlice::new(bytes)];
        loop {
            match send_gathered_with(self.fd(), &pieces, &[]) {
                Err(Error {
                    errno: Errno::EAGAIN, ..
                }) if wait(self.fd(), Readiness::Writable, TIMEOUT).is_ok_and(|ready| ready) => {}
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
    pub(super) fn tell_memory(&self, scale: Option<&mut Scale>, program: i32, occasion: Occasion) {
        if let Some(bytes) = scale.and_then(|scale| scale.news(program, occasion)) {
            self.tell(FromWorker::Memory, 0, &bytes.to_le_bytes());
        }
    }

    /// Passes the application's wish for out-of-band work on.
    pub(super) fn tell_want(&self, want: &mut Want) {
        if want.due().is_some() {
            *want = Want::Told;
            self.tell(FromWorker::WorkWanted, 0, &[]);
        }
    }

    pub(super) fn tell_worked(&self, is_well: bool) {
        self.tell(FromWorker::Worked, 0, &[u8::from(is_well)]);
    }

    /// Answers [`ToWorker::Where`], and repeats the wish for work, because the router may be a new one.
    pub(super) fn tell_here(&self, session: u64, want: Want) {
        self.tell(FromWorker::Here, session, &[]);
        if want == Want::Told {
            self.tell(FromWorker::WorkWanted, 0, &[]);
        }
    }

    /// The next message, if there is one.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Result<Option<Message>, RouterGone> {
        loop {
            let received = match receive_with(self.fd(), buffer, false) {
                Ok(received) if received.bytes > 0 => received,
                Err(error) if matches!(error.errno, Errno::EAGAIN | Errno::EINTR) => return Ok(None),
                Ok(_) | Err(_) => return Err(RouterGone),
            };
            if let Some((kind, session, bytes)) = parse::<ToWorker>(&buffer[..received.bytes]) {
                return Ok(Some(Message {
                    kind,
                    session,
                    length: bytes.len(),
                    socket: received.descriptors.into_iter().next(),
                }));
            }
            log::warn!("invalid message from the router");
        }
    }

    /// Before the worker exits: closes the channel for more, and returns the connections that are still in it.
    pub(super) fn hand_back_all(&self, buffer: &mut [u8], want: Want) {
        shutdown_read(self.fd());
        while let Ok(Some(message)) = self.receive(buffer) {
            match message.kind {
                ToWorker::Serve | ToWorker::ServeLast => {
                    drop(message.socket);
                    self.tell(FromWorker::NotBegun, message.session, &[]);
                }
                ToWorker::Work => self.tell_worked(false),
                ToWorker::Where => self.tell_here(message.session, want),
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

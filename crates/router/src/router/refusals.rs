//! Requests that the router answers itself, or skips: their lines in the access log, and their counts for the master.

use super::event_loop::Router;
use fastcgi::{Input, Params, Responder};
use forkyard_base::tick::Tick;
use forkyard_config::AccessLog;
use forkyard_protocol::dead_work::DeadCount;
use forkyard_protocol::router::{Refusals, ToMaster};
use forkyard_sys::fd::set_nonblocking;
use forkyard_sys::socket::{Progress, peek, peer_address};
use forkyard_worker::Recorder;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

const LONGEST_LOOK: usize = 64 * 1024;
/// The router sends its counts to the master after this time, so that many refused requests are one message.
const PAUSE: Duration = Duration::from_millis(100);

/// What the router has refused.
#[derive(Debug, Default)]
pub(super) struct Refused {
    recorder: Option<Recorder>,
    /// Not told yet.
    counts: Refusals,
    due: Option<Tick>,
}

impl Refused {
    /// Turns to another file; `None`: there is no access log.
    pub(super) fn log_to(&mut self, file: Option<OwnedFd>, settings: Option<&AccessLog>, limit: usize) {
        self.recorder = file.zip(settings).map(|(file, settings)| {
            // The router waits for no other process: then the line is lost.
            let _ = set_nonblocking(file.as_fd(), true);
            Recorder::of_refused(settings.clone(), limit, file)
        });
    }

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.due
    }
}

impl Router {
    /// Counts a request that gets this status from the router, and writes its line.
    pub(super) fn note_refused(&mut self, id: u64, status: u16, dead: Option<DeadCount>) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let waited = self.now.since(client.since);
        self.refused.counts.add(status, dead, waited);
        self.refused.due.get_or_insert(self.now + PAUSE);
        let Some(recorder) = &mut self.refused.recorder else {
            return;
        };
        let mut responder = Responder::new(self.settings.limits());
        let mut buffer = Vec::new();
        let bytes = request(client.socket(), &client.bytes, &mut buffer);
        let none = Params::default();
        // A request with more parameters than a look has is logged without them.
        let params = params(&mut responder, bytes).unwrap_or(&none);
        let peer = (recorder.wants_peer())
            .then(|| peer_address(client.socket()).ok().flatten())
            .flatten();
        let known = client.known.as_ref();
        let pool = known.and_then(|known| self.settings.pool_of(&known.name));
        let pool = pool.as_deref().unwrap_or(self.settings.name());
        recorder.refused(pool, params, waited, status, peer);
    }

    /// Sends the counts if they are due. `at_once`: even if they are not.
    pub(super) fn tell_refused(&mut self, at_once: bool) {
        let is_due = self.refused.due.is_some_and(|due| at_once || due <= self.now);
        if !is_due {
            return;
        }
        // A master that does not listen gets one message later.
        match self.master.outbox.is_empty() || at_once {
            true => {
                let counts = std::mem::take(&mut self.refused.counts);
                self.master.say(&ToMaster::Refused(counts));
                self.refused.due = None;
            }
            false => self.refused.due = Some(self.now + PAUSE),
        }
    }
}

/// Returns the first bytes of a request, from the buffer or from the socket.
pub(super) fn request<'b>(socket: BorrowedFd<'_>, read: &'b [u8], buffer: &'b mut Vec<u8>) -> &'b [u8] {
    if !read.is_empty() {
        return read;
    }
    buffer.resize(LONGEST_LOOK, 0);
    match peek(socket, buffer) {
        Ok(Progress::Done(count)) => &buffer[..count],
        Ok(Progress::WouldBlock) | Err(_) => &[],
    }
}

/// Returns the parameters of the request that begins these bytes, if they are complete.
pub(super) fn params<'r>(responder: &'r mut Responder, mut bytes: &[u8]) -> Option<&'r Params> {
    loop {
        let (used, input) = responder.receive(bytes);
        bytes = bytes.get(used..).unwrap_or_default();
        match input {
            Input::Request => return Some(responder.params()),
            Input::Reply(_) if used > 0 => {}
            Input::Reply(_)
            | Input::More
            | Input::Body(_)
            | Input::BodyEnd
            | Input::Abort
            | Input::Broken(_) => {
                return None;
            }
        }
    }
}

//! The socket for workers' reports of programs that failed to start. Each is an untrusted, bounded message.

use forkyard_base::tick::Tick;
use forkyard_config::Application;
use forkyard_protocol::start_failure::{MOST_BYTES, StartFailure};
use forkyard_sys::Error;
use forkyard_sys::fd::{set_send_buffer, socket_pair};
use forkyard_sys::guarded::Guarded;
use forkyard_sys::socket::Progress;
use nix::sys::socket::SockType;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

const MOST_IN_WINDOW: u32 = 16;
const WINDOW: Duration = Duration::from_secs(10);
/// The socket's buffer: one message of the greatest length.
const BUFFER_BYTES: usize = MOST_BYTES;

#[derive(Debug)]
pub(crate) struct Reports {
    out: Guarded,
    into: OwnedFd,
    window: (Tick, u32),
}

impl Reports {
    /// Creates a report socket; `None`: workers of this kind start nothing.
    pub(crate) fn new(application: &Application) -> Result<Option<Reports>, Error> {
        if !application.traits().starts_from_disk {
            return Ok(None);
        }
        // Non-blocking at both ends.
        let (out, into) = socket_pair(SockType::SeqPacket)?;
        set_send_buffer(into.as_fd(), BUFFER_BYTES)?;
        Ok(Some(Reports::adopt(Guarded::new(out), into)))
    }

    pub(crate) fn adopt(out: Guarded, into: OwnedFd) -> Reports {
        Reports {
            out,
            into,
            window: (Tick::ZERO, 0),
        }
    }

    pub(crate) fn ends(&self) -> (&OwnedFd, &OwnedFd) {
        (&self.out, &self.into)
    }

    /// The next report. `None`: none; `Some(None)`: one that is useless.
    pub(crate) fn next(&mut self, now: Tick) -> Option<Option<StartFailure>> {
        if now.since(self.window.0) >= WINDOW {
            self.window = (now, 0);
        }
        let is_too_many = self.window.1 >= MOST_IN_WINDOW;
        // The kernel drops the excess with any descriptors.
        let mut buffer = vec![0; if is_too_many { 1 } else { MOST_BYTES }];
        let count = match self.out.receive(&mut buffer) {
            Ok(Progress::Done(count)) => count,
            Ok(Progress::WouldBlock) | Err(_) => return None,
        };
        if is_too_many {
            return Some(None);
        }
        self.window.1 += 1;
        Some(StartFailure::decode(buffer.get(..count)?))
    }
}

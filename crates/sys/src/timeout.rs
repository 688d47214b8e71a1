//! Time limits as poll(2) and epoll_wait(2) take them.

use super::clock;
use forkyard_base::tick::Tick;
use nix::errno::Errno;
use nix::poll::{PollFd, PollTimeout, poll};
use nix::sys::epoll::EpollTimeout;
use std::time::Duration;

/// Whole milliseconds, rounded up.
#[inline]
pub(super) fn millis(limit: Duration) -> i32 {
    i32::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
}

/// A limit for poll(2).
pub fn poll_timeout(limit: Duration) -> PollTimeout {
    PollTimeout::try_from(millis(limit)).unwrap_or(PollTimeout::MAX)
}

/// The limit for epoll_wait(2) until `due`; `None`: no limit.
#[inline]
pub fn epoll_timeout(due: Option<Tick>) -> EpollTimeout {
    due.map_or(EpollTimeout::NONE, |due| {
        EpollTimeout::try_from(millis(due.since(clock::now()))).unwrap_or(EpollTimeout::MAX)
    })
}

/// Waits for one of several descriptors, again after a signal; returns how many are ready.
///
/// # Errors
/// poll(2).
pub fn wait_for_one(about: &mut [PollFd<'_>], limit: Option<Duration>) -> nix::Result<usize> {
    let timeout = limit.map_or(PollTimeout::NONE, poll_timeout);
    loop {
        match poll(about, timeout) {
            Ok(count) => return Ok(count as usize),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

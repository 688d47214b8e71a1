//! Connections that the kernel temporarily refuses to pass to an instance.
//!
//! The kernel counts descriptors in flight per user and limits an unprivileged user to RLIMIT_NOFILE (unix(7),
//! ETOOMANYREFS). All processes of the router's user count. No event reports new room, so the connection keeps its
//! instance and a timer retries.

use forkyard_base::tick::Tick;
use forkyard_sys::Error;
use nix::errno::Errno;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(50);
const TIMEOUT: Duration = Duration::from_secs(30);
const SAY_INTERVAL: Duration = Duration::from_secs(60);

/// Returns whether any instance's connection would fail with this error.
pub(super) fn is_shortage(error: &Error) -> bool {
    matches!(error.errno, Errno::ETOOMANYREFS | Errno::ENOBUFS | Errno::ENOMEM)
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ShortageStep {
    /// Try again after this time.
    Retry(Duration),
    /// The request has waited for `max_request_queue_time`.
    TimedOut,
    /// The kernel has refused for too long.
    Refuse,
}

#[derive(Debug, Default)]
pub(super) struct Shortage {
    said: Option<Tick>,
}

impl Shortage {
    /// What to do with a connection that was refused `since`; `queue_end`: the end of its time in the queue.
    pub(super) fn step(
        &mut self,
        pool: &str,
        errno: Errno,
        times: (Tick, Option<Tick>),
        now: Tick,
    ) -> ShortageStep {
        let (since, queue_end) = times;
        let end = since + TIMEOUT;
        let queue_end = queue_end.filter(|due| *due < end);
        if queue_end.is_some_and(|due| due <= now) {
            return ShortageStep::TimedOut;
        }
        if end <= now {
            return ShortageStep::Refuse;
        }
        if self.said.is_none_or(|said| now.since(said) >= SAY_INTERVAL) {
            self.said = Some(now);
            log::warn!(
                "[pool {pool}] connections can't be passed on to instances: sendmsg: {errno}; trying again"
            );
        }
        ShortageStep::Retry(queue_end.map_or(PAUSE, |due| due.since(now).min(PAUSE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_tried_until_its_time_is_over() {
        let at = |millis| Tick::ZERO + Duration::from_millis(millis);
        let step = |queue_end, now| {
            let times = (at(0), queue_end);
            Shortage::default().step("www", Errno::ENOBUFS, times, at(now))
        };
        assert_eq!(step(None, 0), ShortageStep::Retry(PAUSE));
        assert_eq!(step(None, 30_000), ShortageStep::Refuse);
        let soon = Some(at(40));
        assert_eq!(step(soon, 0), ShortageStep::Retry(Duration::from_millis(40)));
        assert_eq!(step(soon, 40), ShortageStep::TimedOut);
        assert_eq!(step(Some(at(40_000)), 30_000), ShortageStep::Refuse);
    }
}

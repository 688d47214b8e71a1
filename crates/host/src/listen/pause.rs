//! What follows an accept(2) that has failed.
//!
//! A connection that could not be accepted (EMFILE, ENFILE, ENOMEM …) waits on. Whether the next attempt succeeds no event
//! tells: descriptors and memory become free elsewhere. So the socket is left alone for a moment, by a timer, and tried again.

use crate::tick::Tick;
use std::time::Duration;

/// How long a socket is left alone.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How often the log is told at most.
const SAY_INTERVAL: Duration = Duration::from_secs(60);

/// The pause of one listening socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcceptPause {
    until: Option<Tick>,
    said: Option<Tick>,
}

impl AcceptPause {
    /// An attempt has failed: the pause begins. Returns whether the log is to say so.
    pub fn begin(&mut self, now: Tick) -> bool {
        self.until = Some(now + ACCEPT_PAUSE);
        let is_due = self.said.is_none_or(|said| now.since(said) >= SAY_INTERVAL);
        if is_due {
            self.said = Some(now);
        }
        is_due
    }

    /// When the socket is to be tried again; `None`: there is no pause.
    pub fn deadline(&self) -> Option<Tick> {
        self.until
    }

    /// Whether the socket is to be tried again now; that ends the pause.
    pub fn end(&mut self, now: Tick) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_is_followed_by_another_attempt_and_not_by_a_line_each() {
        let mut pause = AcceptPause::default();
        let mut now = Tick::ZERO + Duration::from_secs(5);
        assert_eq!((pause.deadline(), pause.end(now)), (None, false));
        assert!(pause.begin(now));
        for _ in 0..10 {
            assert!(!pause.end(now));
            now = pause.deadline().unwrap();
            assert!(pause.end(now) && pause.deadline().is_none());
            assert!(!pause.begin(now));
        }
        assert!(pause.begin(now + SAY_INTERVAL));
    }
}

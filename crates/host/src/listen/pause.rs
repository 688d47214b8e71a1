//! Pauses a listening socket after accept(2) has failed (EMFILE, ENFILE, ENOMEM …). The connection stays queued, and no
//! event announces that resources are free again, so the socket is retried after a delay.

use forkyard_base::tick::Tick;
use std::time::Duration;

/// Delay before the retry.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
const SAY_INTERVAL: Duration = Duration::from_secs(60);

/// The pause of one listening socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcceptPause {
    until: Option<Tick>,
    said: Option<Tick>,
}

impl AcceptPause {
    /// Starts a pause after a failure. Returns whether to log it.
    pub fn begin(&mut self, now: Tick) -> bool {
        self.until = Some(now + ACCEPT_PAUSE);
        let is_due = self.said.is_none_or(|said| now.since(said) >= SAY_INTERVAL);
        if is_due {
            self.said = Some(now);
        }
        is_due
    }

    /// Time of the retry, `None` if there is no pause.
    pub fn deadline(&self) -> Option<Tick> {
        self.until
    }

    /// Ends the pause if its time has passed. Returns whether to retry now.
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

//! Decides when the worker looks for connections.

use super::gather::Gathering;
use forkyard_base::tick::Tick;
use forkyard_host::listen::AcceptPause;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Accepting {
    /// The listening socket may have a connection.
    pub is_ready: bool,
    pub queue_is_ready: bool,
    /// Until then siblings may take connections; afterwards this worker accepts them.
    insists_at: Option<Tick>,
    pub gathering: Gathering,
    pub pause: AcceptPause,
    /// The worker was full or blocked and has not checked the listening socket since.
    pub was_strained: bool,
    /// The listening socket is watched.
    pub is_listening: bool,
}

impl Accepting {
    pub(super) fn begin(is_native: bool) -> Accepting {
        Accepting {
            is_ready: true,
            queue_is_ready: true,
            insists_at: None,
            gathering: Gathering::begin(is_native),
            pause: AcceptPause::default(),
            was_strained: false,
            is_listening: false,
        }
    }

    pub(super) fn may_look(&self) -> bool {
        self.is_ready && self.pause.deadline().is_none()
    }

    pub(super) fn insists(&self, now: Tick) -> bool {
        self.insists_at.is_some_and(|due| due <= now)
    }

    pub(super) fn insists_at(&self) -> Option<Tick> {
        self.insists_at
    }

    /// Leaves a connection to a sibling for `time`. Returns the end of that time when it starts.
    pub(super) fn leave(&mut self, time: Duration, now: Tick) -> Option<Tick> {
        let is_new = self.insists_at.is_none();
        let due = *self.insists_at.get_or_insert(now + time);
        is_new.then_some(due)
    }

    pub(super) fn stop_leaving(&mut self) {
        self.insists_at = None;
    }

    /// The alarm has rung.
    pub(super) fn ring(&mut self, now: Tick) {
        self.is_ready |= self.insists(now);
        self.is_ready |= self.pause.end(now);
    }

    pub(super) fn due(&self, now: Tick) -> Option<Tick> {
        let insists = self.insists_at.filter(|due| *due > now);
        insists.into_iter().chain(self.pause.deadline()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_left_to_siblings_once_and_then_taken() {
        let mut accepting = Accepting::begin(false);
        let (now, time) = (Tick::from_nanos(1), Duration::from_millis(1));
        accepting.is_ready = false;
        assert_eq!(accepting.leave(time, now), Some(now + time));
        assert_eq!(accepting.leave(time, now + time / 2), None);
        assert_eq!(accepting.due(now), Some(now + time));
        accepting.ring(now + time / 2);
        assert!(!accepting.may_look() && !accepting.insists(now + time / 2));
        accepting.ring(now + time);
        assert!(accepting.may_look() && accepting.insists(now + time));
        assert_eq!(accepting.due(now + time), None);
        accepting.stop_leaving();
        assert!(!accepting.insists(now + time));
    }

    #[test]
    fn a_pause_ends_by_the_alarm() {
        let mut accepting = Accepting::begin(false);
        let now = Tick::from_nanos(1);
        accepting.pause.begin(now);
        let due = accepting.due(now).unwrap();
        accepting.ring(now);
        assert!(!accepting.may_look());
        accepting.ring(due);
        assert!(accepting.may_look());
    }
}

//! Delays the check of changed files until they are quiet, with an upper limit.

use forkyard_base::tick::Tick;
use std::time::Duration;

/// The quiet period. A deployment of a thousand files causes one reload.
const QUIET: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Debounce {
    /// The first and the last.
    seen: Option<(Tick, Tick)>,
}

impl Debounce {
    pub fn note(&mut self, now: Tick) {
        let first = self.seen.map_or(now, |(first, _)| first);
        self.seen = Some((first, now));
    }

    /// When the changes are due.
    pub fn deadline(&self) -> Option<Tick> {
        self.seen.map(|(first, last)| (last + QUIET).min(first + LONGEST))
    }

    /// Returns whether the changes are due, and clears them if so.
    pub fn take(&mut self, now: Tick) -> bool {
        let is_due = self.deadline().is_some_and(|due| due <= now);
        if is_due {
            self.seen = None;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_one_change_and_one_without_end_is_looked_at_all_the_same() {
        let at = |ms: u64| Tick::from_nanos(ms * 1_000_000);
        let mut changes = Debounce::default();
        assert_eq!(changes.deadline(), None);
        assert!(!changes.take(at(0)));
        for ms in (0..1000).step_by(100) {
            changes.note(at(ms));
            assert!(!changes.take(at(ms + 99)), "{ms}");
        }
        assert_eq!(changes.deadline(), Some(at(1100)));
        assert!(changes.take(at(1100)) && changes.deadline().is_none());
        for ms in (5000..).step_by(100) {
            changes.note(at(ms));
            if changes.take(at(ms)) {
                assert_eq!(ms, 7000);
                break;
            }
        }
    }
}

//! Decides when numbers are used, asked for, or missing.

use forkyard_base::tick::Tick;
use std::time::Duration;

/// After this long without an answer, the master counts as not alive.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Numbers are used for at least this long.
pub(crate) const FRESH: Duration = Duration::from_millis(100);

/// Numbers from the master.
#[derive(Debug)]
pub(crate) struct Source<T> {
    held: Option<Held<T>>,
    /// The time of the question that waits for its answer.
    asked: Option<Tick>,
}

#[derive(Debug)]
struct Held<T> {
    value: T,
    until: Tick,
}

/// What a request does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'a, T> {
    Fresh(&'a T),
    /// Asks the master, and waits.
    Ask,
    /// Waits for an answer.
    Wait,
    /// The master has not answered in time.
    Missing,
}

impl<T> Source<T> {
    pub(crate) fn new() -> Source<T> {
        Source {
            held: None,
            asked: None,
        }
    }

    /// Looks for numbers. A question that waited too long is asked no second time: the master has it.
    pub(crate) fn look(&mut self, now: Tick) -> Found<'_, T> {
        match (&self.held, self.asked) {
            (Some(held), _) if now < held.until => Found::Fresh(&held.value),
            (_, Some(asked)) if asked + PATIENCE <= now => Found::Missing,
            (_, Some(_)) => Found::Wait,
            (_, None) => {
                self.asked = Some(now);
                Found::Ask
            }
        }
    }

    /// Returns the last numbers, however old.
    pub(crate) fn last(&self) -> Option<&T> {
        self.held.as_ref().map(|held| &held.value)
    }

    pub(crate) fn answered(&mut self, value: T, fresh: Duration, now: Tick) {
        self.asked = None;
        let until = now + fresh.max(FRESH);
        self.held = Some(Held { value, until });
    }

    /// When a waiting request is answered without numbers.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.asked.map(|asked| asked + PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn numbers_are_asked_for_once_and_kept_for_a_moment() {
        let mut source = Source::new();
        assert_eq!(source.look(at(0)), Found::Ask);
        assert_eq!(source.look(at(1)), Found::Wait);
        source.answered(7, Duration::ZERO, at(5));
        assert_eq!(source.look(at(104)), Found::Fresh(&7));
        assert_eq!(source.look(at(105)), Found::Ask);
        assert_eq!(source.deadline(), Some(at(2_105)));
        source.answered(8, Duration::from_millis(300), at(110));
        assert_eq!(source.look(at(409)), Found::Fresh(&8));
        assert_eq!(source.deadline(), None);
    }

    #[test]
    fn a_master_that_does_not_answer_is_missed_until_it_does() {
        let mut source = Source::new();
        assert_eq!(source.look(at(0)), Found::Ask);
        assert_eq!(source.look(at(1_999)), Found::Wait);
        assert_eq!(source.look(at(2_000)), Found::Missing);
        assert_eq!(source.look(at(60_000)), Found::Missing);
        source.answered(1, FRESH, at(60_001));
        assert_eq!(source.look(at(60_002)), Found::Fresh(&1));
    }
}

//! The last events of the daemon and its pools. Neither a pool nor the daemon can push out all events of others.

use forkyard_protocol::past_event::{EventKind, Happening, LONGEST_TEXT, PastEvent};
use std::collections::{BTreeMap, BTreeSet};

/// The most events.
pub const MOST: usize = 200;
/// The most events of one pool, and of the daemon itself.
pub const MOST_OF_ONE: usize = 50;
/// Equal events within this time, in milliseconds, are counted as one.
const TOGETHER_MS: u64 = 1000;

/// The events by number, and the changes since the last write of the copy for the next master.
#[derive(Debug, Clone, Default)]
pub struct History {
    events: BTreeMap<u64, PastEvent>,
    last: u64,
    stale: BTreeSet<u64>,
}

/// Events that were added or changed, and the numbers of forgotten ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryChanges {
    pub events: Vec<PastEvent>,
    pub gone: Vec<u64>,
}

impl History {
    /// Continues with the events of the previous master.
    pub fn resume(before: Vec<PastEvent>) -> History {
        let mut history = History::default();
        for event in before {
            let number = event.number;
            let what = bounded(event.what);
            history.insert(PastEvent { what, ..event });
            history.last = history.last.max(number);
        }
        history.stale.clear();
        history
    }

    /// Adds an event, or counts it as a repetition of an equal one. `now_ms`: milliseconds since 1970.
    pub fn add(&mut self, what: Happening, now_ms: u64) {
        let what = self.with_duration(bounded(what), now_ms);
        let is_same = |event: &&mut PastEvent| {
            let last = event.last_ms.unwrap_or(event.time_ms);
            last.abs_diff(now_ms) <= TOGETHER_MS
                && (event.what.kind, &event.what.pool, event.what.user) == (what.kind, &what.pool, what.user)
                && event.what.text == what.text
        };
        if let Some(event) = self.events.values_mut().rev().find(is_same) {
            event.count = event.count.saturating_add(1);
            event.last_ms = Some(now_ms);
            event.what = what;
            self.stale.insert(event.number);
            return;
        }
        self.last = self.last.saturating_add(1);
        self.insert(PastEvent {
            number: self.last,
            time_ms: now_ms,
            last_ms: None,
            count: 1,
            what,
        });
    }

    /// Adds the duration of a saturation to the event of its end.
    fn with_duration(&self, what: Happening, now_ms: u64) -> Happening {
        if what.kind != EventKind::MaxChildrenOver {
            return what;
        }
        let begun = self
            .events
            .values()
            .rev()
            .find(|event| event.what.kind == EventKind::MaxChildren && event.what.pool == what.pool);
        let begun = begun.map(|event| event.last_ms.unwrap_or(event.time_ms));
        Happening {
            took_ms: begun.map(|begun| now_ms.saturating_sub(begun)),
            ..what
        }
    }

    fn insert(&mut self, event: PastEvent) {
        let number = event.number;
        let pool = event.what.pool.clone();
        self.events.insert(number, event);
        self.stale.insert(number);
        let of_same = self.events.values().filter(|it| it.what.pool == pool);
        let surplus = match of_same.clone().count() {
            count if count > MOST_OF_ONE => of_same.map(|it| it.number).next(),
            _ if self.events.len() > MOST => {
                let of_pools = self.events.values().find(|it| it.what.pool.is_some());
                of_pools.map(|it| it.number)
            }
            _ => None,
        };
        if let Some(number) = surplus {
            self.events.remove(&number);
            self.stale.insert(number);
        }
    }

    /// The events, oldest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &PastEvent> {
        self.events.values()
    }

    pub fn is_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Returns the changes since the last call.
    pub fn take_changes(&mut self) -> HistoryChanges {
        let mut changes = HistoryChanges::default();
        for number in std::mem::take(&mut self.stale) {
            match self.events.get(&number) {
                Some(event) => changes.events.push(event.clone()),
                None => changes.gone.push(number),
            }
        }
        changes
    }

    /// Forgets the changes: no other master needs them.
    pub fn forget_changes(&mut self) {
        self.stale.clear();
    }
}

fn bounded(what: Happening) -> Happening {
    Happening {
        text: cut(what.text),
        detail: what.detail.map(cut),
        ..what
    }
}

fn cut(mut text: String) -> String {
    const MARK: &str = " ...";
    if text.len() > LONGEST_TEXT {
        let end = (0..=LONGEST_TEXT - MARK.len()).rev();
        let end = end.into_iter().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died(pool: &str, text: &str) -> Happening {
        Happening::of_pool(EventKind::WorkerDied, pool, None, text)
    }

    fn reload(number: u64) -> Happening {
        Happening::of_daemon(EventKind::Reload, number.to_string())
    }

    fn texts(history: &History) -> Vec<(&str, u64)> {
        history
            .events()
            .map(|event| (event.what.text.as_str(), event.count))
            .collect()
    }

    #[test]
    fn equal_events_within_a_second_are_counted_together() {
        let mut history = History::default();
        history.add(died("a", "x").with_detail("child 1"), 10_000);
        history.add(died("b", "x"), 10_100);
        history.add(died("a", "y"), 10_200);
        history.add(died("a", "x").with_detail("child 2"), 11_000);
        history.add(died("a", "x").with_detail("child 3"), 12_000);
        history.add(died("a", "x").with_detail("child 4"), 13_001);
        assert_eq!(texts(&history), [("x", 3), ("x", 1), ("y", 1), ("x", 1)]);
        let first = history.events().next().unwrap();
        assert_eq!((first.time_ms, first.last_ms), (10_000, Some(12_000)));
        assert_eq!(first.what.detail.as_deref(), Some("child 3"));
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_the_order() {
        let mut history = History::default();
        history.add(reload(1), 900_000);
        history.add(reload(2), 10);
        assert_eq!(texts(&history), [("1", 1), ("2", 1)]);
    }

    #[test]
    fn a_pool_that_crashes_in_a_loop_leaves_the_events_of_others() {
        let mut history = History::default();
        for number in 0..10 {
            history.add(reload(number), number * 10_000);
        }
        history.add(died("quiet", "once"), 0);
        for number in 0..10_000 {
            history.add(died("loud", &number.to_string()), number * 10_000);
        }
        let of = |pool: Option<&str>| {
            let same = |event: &&PastEvent| event.what.pool.as_deref() == pool;
            history.events().filter(same).count()
        };
        assert_eq!(
            (of(None), of(Some("quiet")), of(Some("loud"))),
            (10, 1, MOST_OF_ONE)
        );
        assert_eq!(history.events().next_back().unwrap().what.text, "9999");
    }

    #[test]
    fn many_pools_that_crash_leave_the_daemons_events() {
        let mut history = History::default();
        for number in 0..100 {
            history.add(reload(number), number * 10_000);
        }
        for number in 0..1000 {
            history.add(died(&number.to_string(), "x"), 0);
        }
        let of_daemon = history.events().filter(|event| event.what.pool.is_none());
        assert_eq!((of_daemon.count(), history.events().count()), (MOST_OF_ONE, MOST));
        assert_eq!(history.events().next().unwrap().what.text, "50");
    }

    #[test]
    fn a_copy_with_all_changes_is_equal() {
        let mut history = History::default();
        let mut copy: BTreeMap<u64, PastEvent> = BTreeMap::new();
        for step in 0..3000_u64 {
            let pool = (step * step % 17).to_string();
            let text = (step % 3).to_string();
            match step % 5 {
                0 => history.add(reload(step), step * 300),
                _ => history.add(died(&pool, &text), step * 300),
            }
            if step % 7 == 0 {
                let changes = history.take_changes();
                copy.extend(changes.events.into_iter().map(|event| (event.number, event)));
                for number in changes.gone {
                    copy.remove(&number);
                }
                assert!(!history.is_stale());
                assert!(copy.values().eq(history.events()), "step {step}");
                let resumed = History::resume(copy.values().cloned().collect());
                assert!(resumed.events().eq(history.events()));
            }
        }
        let mut resumed = History::resume(copy.into_values().collect());
        let last = resumed.events().next_back().unwrap().number;
        resumed.add(reload(0), u64::MAX);
        assert_eq!(resumed.events().next_back().unwrap().number, last + 1);
    }

    #[test]
    fn the_end_of_a_saturation_has_its_duration() {
        let mut history = History::default();
        let of = |kind, pool| Happening::of_pool(kind, pool, None, "x");
        history.add(of(EventKind::MaxChildren, "a"), 1000);
        history.add(of(EventKind::MaxChildren, "b"), 5000);
        history.add(of(EventKind::MaxChildrenOver, "a"), 8000);
        history.add(of(EventKind::MaxChildrenOver, "c"), 9000);
        let took: Vec<_> = history.events().map(|event| event.what.took_ms).collect();
        assert_eq!(took, [None, None, Some(7000), None]);
    }

    #[test]
    fn texts_are_bounded() {
        let mut history = History::default();
        history.add(died("a", &"\u{e4}".repeat(5000)).with_detail("b".repeat(5000)), 0);
        let event = history.events().next().unwrap();
        for text in [&event.what.text, event.what.detail.as_ref().unwrap()] {
            assert!(
                text.len() <= LONGEST_TEXT && text.len() > LONGEST_TEXT - 3,
                "{}",
                text.len()
            );
            assert!(text.ends_with(" ..."));
        }
    }
}

//! The last hour of a slot, by the minute: a ring of rows, which its worker writes.

use super::layout::numbers as at;
use super::numbers::Counters;
use super::row::{Row, WORDS};
use forkyard_base::tick::Tick;
use forkyard_protocol::dead_work::DeadCount;
use forkyard_protocol::history::{History, MINUTES, class_of};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

const NANOS: u64 = 60_000_000_000;

/// Returns the minute of the monotonic clock.
pub fn minute_of(now: Tick) -> u64 {
    now.as_nanos() / NANOS
}

fn row(words: &[AtomicU64], minute: u64) -> Row<'_> {
    let first = at::MINUTES + (minute % MINUTES) as usize * WORDS;
    Row::new(&words[first..first + WORDS])
}

/// A request's part in its minute.
#[derive(Debug, Clone, Copy)]
pub(super) struct MinuteUse {
    pub run: Duration,
    pub wait: Duration,
    pub is_error: bool,
    pub dead: Option<DeadCount>,
}

impl Counters<'_> {
    /// Counts a request in its minute.
    pub(super) fn in_minute(&self, now: Tick, request: &MinuteUse) {
        let minute = minute_of(now);
        let run = u64::try_from(request.run.as_micros()).unwrap_or(u64::MAX);
        let class = class_of(u64::try_from(request.wait.as_millis()).unwrap_or(u64::MAX));
        let dead = request.dead.map(DeadCount::index);
        row(self.words, minute).add(minute, run, class, request.is_error, dead);
    }

    /// Reads all minutes. Untrusted.
    pub(super) fn history(&self) -> History {
        let mut history = History::default();
        let rows = (0..MINUTES).filter_map(|index| row(self.words, index).read());
        rows.for_each(|minute| history.add_minute(&minute));
        history
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::NUMBERS_PAGES;
    use super::*;
    use forkyard_sys::shm::PAGE_WORDS;

    #[test]
    fn a_ring_has_the_last_hour() {
        let words: Vec<AtomicU64> = (0..NUMBERS_PAGES * PAGE_WORDS)
            .map(|_| AtomicU64::new(0))
            .collect();
        let counters = Counters::new(&words);
        assert!(counters.history().is_empty());
        for minute in 100..300 {
            let now = Tick::from_nanos(minute * NANOS + 5);
            let wait = Duration::from_millis(minute % 9_000);
            for dead in [None, None, Some(DeadCount::Overload)] {
                let request = MinuteUse {
                    run: Duration::from_millis(2),
                    wait,
                    is_error: minute % 2 == 0,
                    dead,
                };
                counters.in_minute(now, &request);
            }
        }
        let hour = counters.history().last_hour(299).unwrap();
        assert_eq!((hour.requests, hour.errors), (180, 90));
        assert_eq!(hour.dead_work.counts(), [0, 0, 0, 60]);
        assert_eq!(hour.wait_p95_at_most_ms, Some(1_000));
    }
}

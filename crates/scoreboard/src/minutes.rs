//! The last hour of a slot, by the minute: a ring of rows, which its worker writes.

use super::layout::numbers as at;
use super::numbers::Counters;
use forkyard_base::tick::Tick;
use forkyard_protocol::history::{History, MINUTES, Minute, WAITS, class_of};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const NANOS: u64 = 60_000_000_000;
/// Before the waits: the minute, requests, errors and run time.
const SUMS: usize = 3;

/// Returns the minute of the monotonic clock.
pub fn minute_of(now: Tick) -> u64 {
    now.as_nanos() / NANOS
}

fn row(words: &[AtomicU64], minute: u64) -> &[AtomicU64] {
    let first = at::MINUTES + (minute % MINUTES) as usize * at::MINUTE_WORDS;
    &words[first..first + at::MINUTE_WORDS]
}

impl Counters<'_> {
    /// Counts a request in its minute. Two classes of waits share a word.
    pub(super) fn in_minute(&self, now: Tick, run: Duration, wait: Duration, is_error: bool) {
        let minute = minute_of(now);
        let row = row(self.words, minute);
        if row[0].load(Ordering::Relaxed) != minute {
            // A reader takes no row whose minute is 0.
            row[0].store(0, Ordering::Release);
            row[1..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
            row[0].store(minute, Ordering::Release);
        }
        let add = |index: usize, by: u64| {
            let word = &row[index];
            word.store(word.load(Ordering::Relaxed).saturating_add(by), Ordering::Relaxed);
        };
        let class = class_of(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        add(1, 1);
        add(2, u64::from(is_error));
        add(3, u64::try_from(run.as_micros()).unwrap_or(u64::MAX));
        add(1 + SUMS + class / 2, 1 << (class % 2 * 32));
    }

    /// Reads all minutes. Untrusted.
    pub(super) fn history(&self) -> History {
        let mut history = History::default();
        for index in 0..MINUTES {
            let row = row(self.words, index);
            let load = |index: usize| row[index].load(Ordering::Relaxed);
            let minute = row[0].load(Ordering::Acquire);
            let waits: [u64; WAITS] = std::array::from_fn(|class| {
                load(1 + SUMS + class / 2) >> (class % 2 * 32) & u64::from(u32::MAX)
            });
            let read = Minute {
                minute,
                requests: load(1),
                errors: load(2),
                run_micros: load(3),
                waits,
            };
            if minute != 0 && row[0].load(Ordering::Acquire) == minute {
                history.add_minute(&read);
            }
        }
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
            for _ in 0..3 {
                counters.in_minute(now, Duration::from_millis(2), wait, minute % 2 == 0);
            }
        }
        let hour = counters.history().last_hour(299).unwrap();
        assert_eq!((hour.requests, hour.errors), (180, 90));
        assert_eq!(hour.wait_p95_at_most_ms, Some(1_000));
    }
}

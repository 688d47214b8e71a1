//! The counts of a period as a row of words. The last hour has rows for minutes, and two weeks have rows for ten minutes and
//! for hours.
//!
//! | half words | count |
//! | --- | --- |
//! | 0 | the minute; 0: no row |
//! | 1 | errors |
//! | 2–5 | requests that did not begin, by the reason |
//! | 6, 7 | the run time in microseconds |
//! | 8–15 | requests by the class of their wait; their sum is all requests |

use forkyard_protocol::dead_work::REASONS;
use forkyard_protocol::history::{Minute, WAITS};
use std::sync::atomic::{AtomicU64, Ordering};

/// The length of a row.
pub(super) const WORDS: usize = RUN + 1 + WAITS / 2;
const RUN: usize = 3;
const ERRORS: usize = 1;
const DEAD: usize = ERRORS + 1;
const FIRST_WAIT: usize = 2 * (RUN + 1);
const HALF: u64 = u32::MAX as u64;

/// The words of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'w>(&'w [AtomicU64]);

impl<'w> Row<'w> {
    /// `words` has the length [`WORDS`].
    pub(super) fn new(words: &'w [AtomicU64]) -> Row<'w> {
        Row(words)
    }

    fn half(&self, index: usize) -> u64 {
        self.0[index / 2].load(Ordering::Relaxed) >> (index % 2 * 32) & HALF
    }

    fn count(&self, index: usize) {
        if self.half(index) < HALF {
            let word = &self.0[index / 2];
            let more = 1 << (index % 2 * 32);
            word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        }
    }

    fn minute(&self) -> u64 {
        self.0[0].load(Ordering::Acquire) & HALF
    }

    /// Begins another minute in this row. Its minute is 0 in between, and readers skip such a row, also after a kill.
    fn begin(&self, minute: u64) {
        self.0[0].store(0, Ordering::SeqCst);
        self.0[1..]
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        self.0[0].store(minute & HALF, Ordering::SeqCst);
    }

    /// Counts a request. `class`: the class of its wait; `dead`: the index of the reason why it did not begin.
    pub(super) fn add(
        &self,
        minute: u64,
        run_micros: u64,
        class: usize,
        is_error: bool,
        dead: Option<usize>,
    ) {
        if self.minute() != minute {
            self.begin(minute);
        }
        if is_error {
            self.count(ERRORS);
        }
        if let Some(reason) = dead.filter(|reason| *reason < REASONS) {
            self.count(DEAD + reason);
        }
        let run = &self.0[RUN];
        run.store(
            run.load(Ordering::Relaxed).saturating_add(run_micros),
            Ordering::Relaxed,
        );
        self.count(FIRST_WAIT + class);
    }

    /// Reads the row. Returns `None` if it has no minute or is just changing to another one. Untrusted.
    pub(super) fn read(&self) -> Option<Minute> {
        let minute = self.minute();
        let waits: [u64; WAITS] = std::array::from_fn(|class| self.half(FIRST_WAIT + class));
        let read = Minute {
            minute,
            requests: waits.iter().sum(),
            errors: self.half(ERRORS),
            dead: std::array::from_fn(|reason| self.half(DEAD + reason)),
            run_micros: self.0[RUN].load(Ordering::Relaxed),
            waits,
        };
        (minute != 0 && self.minute() == minute).then_some(read)
    }

    /// Writes the whole row.
    pub(super) fn write(&self, of: &Minute) {
        let half = |count: u64| count.min(HALF);
        let pair = |low: u64, high: u64| half(low) | half(high) << 32;
        self.0[0].store(0, Ordering::SeqCst);
        let store = |index: usize, value: u64| self.0[index].store(value, Ordering::Relaxed);
        let [abandoned, deadline, queue_time, overload] = of.dead;
        store(1, pair(abandoned, deadline));
        store(2, pair(queue_time, overload));
        store(RUN, of.run_micros);
        for (index, waits) in of.waits.chunks(2).enumerate() {
            store(RUN + 1 + index, pair(waits[0], waits[1]));
        }
        self.0[0].store(pair(of.minute, of.errors), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Vec<AtomicU64> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let words = words();
        let row = Row::new(&words);
        assert_eq!(row.read(), None);
        let minute = Minute {
            minute: 7,
            requests: 36,
            errors: 9,
            dead: [1, 2, 3, 4],
            run_micros: u64::MAX,
            waits: [1, 2, 3, 4, 5, 6, 7, 8],
        };
        row.write(&minute);
        assert_eq!(row.read(), Some(minute));
        row.add(7, 1, 1, true, Some(3));
        row.add(7, 1, 1, false, None);
        let more = Minute {
            requests: 38,
            errors: 10,
            dead: [1, 2, 3, 5],
            waits: [1, 4, 3, 4, 5, 6, 7, 8],
            ..minute
        };
        assert_eq!(row.read(), Some(more));
        row.add(8, 5, 7, false, Some(REASONS));
        let next = Minute {
            minute: 8,
            requests: 1,
            run_micros: 5,
            waits: [0, 0, 0, 0, 0, 0, 0, 1],
            ..Minute::default()
        };
        assert_eq!(row.read(), Some(next));
    }

    #[test]
    fn full_counts_stay() {
        let words = words();
        words
            .iter()
            .for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        let row = Row::new(&words);
        let before = row.read().unwrap();
        row.add(before.minute, 1, 0, true, Some(0));
        assert_eq!(row.read(), Some(before));
    }
}

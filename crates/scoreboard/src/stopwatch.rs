//! A total of time in one word, correct at any moment, also after the death of the process that started it.
//!
//! Stopped, the word is the total in nanoseconds. Running, the word has the highest bit, and the time at which the total
//! was zero.

use forkyard_base::tick::Tick;

const RUNS: u64 = 1 << 63;

/// Whether the time runs.
pub fn runs(word: u64) -> bool {
    word & RUNS != 0
}

/// Returns the total.
pub fn total(word: u64, now: Tick) -> u64 {
    match runs(word) {
        true => now.as_nanos().saturating_sub(word & !RUNS),
        false => word,
    }
}

/// Returns the word after a start.
pub fn started(word: u64, now: Tick) -> u64 {
    match runs(word) {
        true => word,
        false => RUNS | now.as_nanos().saturating_sub(word),
    }
}

/// Returns the word after a stop.
pub fn stopped(word: u64, now: Tick) -> u64 {
    total(word, now) & !RUNS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_added_while_it_runs() {
        let at = Tick::from_nanos;
        let first = started(0, at(100));
        assert_eq!((total(first, at(100)), total(first, at(130))), (0, 30));
        assert_eq!(started(first, at(110)), first);
        let rest = stopped(first, at(130));
        assert_eq!((rest, stopped(rest, at(200)), total(rest, at(200))), (30, 30, 30));
        let second = started(rest, at(500));
        assert_eq!((runs(second), total(second, at(501))), (true, 31));
    }

    #[test]
    fn nonsense_is_a_number() {
        let at = Tick::from_nanos;
        for word in [u64::MAX, RUNS, RUNS - 1] {
            assert!(!runs(stopped(word, at(5))));
            assert!(total(started(word, at(5)), at(9)) <= RUNS);
        }
    }
}

//! Which of two generations of a pool takes the requests of a moment. The time of the machine is cut into slices, and
//! each slice is one generation's turn.

use super::layout::header;
use forkyard_base::tick::Tick;
use std::sync::atomic::{AtomicU64, Ordering};

const SLICE_NANOS: u64 = 4_000_000;
const PARTS: u64 = 10_000;
const PARTS_IN_PERCENT: u64 = 100;
const SHARES: u64 = 1 << 8;
const IS_NEW: u64 = 1 << 9;
const PERCENT: u64 = 0xff;

/// A generation's part of the requests, in a pool with two generations that share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The new generation gets the percentage, the old one the rest.
    pub is_new: bool,
    pub percent: u8,
}

impl Turn {
    /// Whether it is the generation's turn.
    pub fn is_now(self, now: Tick) -> bool {
        let slice = now.as_nanos() / SLICE_NANOS;
        let is_of_new = mix(slice) % PARTS < u64::from(self.percent) * PARTS_IN_PERCENT;
        is_of_new == self.is_new
    }
}

/// Mixes the bits of a number (splitmix64), so that no period of requests meets the same slices.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Publishes the generation's part. `None`: it takes all requests.
pub fn set_turn(words: &[AtomicU64], turn: Option<Turn>) {
    let word = turn.map_or(0, |turn| {
        let side = if turn.is_new { IS_NEW } else { 0 };
        SHARES | side | u64::from(turn.percent.min(100))
    });
    words[header::TURN].store(word, Ordering::SeqCst);
}

/// Returns the generation's part; `None`: it takes all requests.
#[inline]
pub fn turn(words: &[AtomicU64]) -> Option<Turn> {
    let word = words[header::TURN].load(Ordering::Relaxed);
    (word != 0).then_some(Turn {
        is_new: word & IS_NEW != 0,
        percent: (word & PERCENT) as u8,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(turn: Turn, every: u64) -> u64 {
        let slices = (1..=10_000).map(|slice| Tick::from_nanos(slice * every * SLICE_NANOS));
        slices.filter(|slice| turn.is_now(*slice)).count() as u64
    }

    #[test]
    fn each_generation_has_its_part_of_the_slices() {
        // Requests come in each slice, or once in 25 (10 a second), 250 or 256 slices.
        for every in [1, 25, 250, 256] {
            for (percent, most_off) in [(0, 0), (1, 40), (10, 120), (50, 200), (100, 0)] {
                let turn = |is_new| Turn { is_new, percent };
                let (new, old) = (slices(turn(true), every), slices(turn(false), every));
                assert_eq!(new + old, 10_000, "each slice is one generation's");
                let expected = u64::from(percent) * 100;
                assert!(
                    new.abs_diff(expected) <= most_off,
                    "{percent} %, one of {every}: {new} slices"
                );
            }
        }
    }

    #[test]
    fn a_part_is_read_as_it_was_written() {
        let words: Vec<AtomicU64> = (0..512).map(|_| AtomicU64::new(0)).collect();
        assert_eq!(turn(&words), None);
        for is_new in [false, true] {
            for percent in [0, 1, 50, 100] {
                let one = Some(Turn { is_new, percent });
                set_turn(&words, one);
                assert_eq!(turn(&words), one);
            }
        }
        set_turn(&words, None);
        assert_eq!(turn(&words), None);
    }
}

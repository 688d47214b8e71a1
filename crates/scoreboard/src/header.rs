//! The header page, which the master writes and the pool's processes read.

use super::layout::header;
use std::sync::atomic::{AtomicU64, Ordering};

/// When a worker that accepts work must notify the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WakeOnAccept {
    pub always: bool,
    /// If fewer idle workers than this remain.
    pub idle_below: u32,
}

/// The autopilot's needs from a pool's workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    /// A worker that accepts work notifies the master if more workers than this are busy, or if connections wait while
    /// all are busy. `None`: never.
    pub busy_above: Option<u32>,
    /// Workers take samples ([`super::samples`]).
    pub samples: bool,
}

const SAMPLES: u64 = 1 << 32;

/// Publishes the autopilot's needs.
pub fn set_wish(words: &[AtomicU64], wish: Wish) {
    let above = wish
        .busy_above
        .map_or(0, |above| u64::from(above.saturating_add(1)));
    let samples = if wish.samples { SAMPLES } else { 0 };
    words[header::WISH].store(above | samples, Ordering::SeqCst);
}

/// Returns the autopilot's needs.
#[inline]
pub fn wish(words: &[AtomicU64]) -> Wish {
    let word = words[header::WISH].load(Ordering::SeqCst);
    Wish {
        busy_above: (word as u32).checked_sub(1),
        samples: word & SAMPLES != 0,
    }
}

/// Publishes the condition. Sequentially consistent with a worker's store of ACCEPTED: either the worker sees the
/// condition, or a later snapshot sees the worker busy.
pub fn set_wake_on_accept(words: &[AtomicU64], notify: WakeOnAccept) {
    let value = u64::from(notify.idle_below) | u64::from(notify.always) << 32;
    words[header::NOTIFY].store(value, Ordering::SeqCst);
}

/// Returns the published condition.
#[inline]
pub fn notify(words: &[AtomicU64]) -> WakeOnAccept {
    let value = words[header::NOTIFY].load(Ordering::SeqCst);
    WakeOnAccept {
        always: value >> 32 != 0,
        idle_below: value as u32,
    }
}

/// Publishes whether a worker that sees all workers busy and a queue must notify the master.
pub fn set_tell_crowded(words: &[AtomicU64], tell: bool) {
    words[header::TELL_CROWDED].store(u64::from(tell), Ordering::SeqCst);
}

/// Whether the master wants to know of a queue.
#[inline]
pub fn tell_crowded(words: &[AtomicU64]) -> bool {
    words[header::TELL_CROWDED].load(Ordering::SeqCst) != 0
}

/// Asks the worker in a slot to exit.
pub fn set_retire(words: &[AtomicU64], slot: usize, retire: bool) {
    set_bit(words, header::RETIRE, slot, retire);
}

/// Whether the worker in a slot was asked to exit.
pub fn retire(words: &[AtomicU64], slot: usize) -> bool {
    bit(words, header::RETIRE, slot)
}

/// Marks a slot as used or free.
pub fn set_used(words: &[AtomicU64], slot: usize, used: bool) {
    set_bit(words, header::USED, slot, used);
}

/// Whether a slot is in use.
pub fn used(words: &[AtomicU64], slot: usize) -> bool {
    bit(words, header::USED, slot)
}

/// Number of log reopens. A worker that sees a new number finds the new files.
pub fn logs_opened(words: &[AtomicU64]) -> u64 {
    words[header::LOGS_OPENED].load(Ordering::Acquire)
}

/// Counts a log reopen.
pub fn add_logs_opened(words: &[AtomicU64]) {
    words[header::LOGS_OPENED].fetch_add(1, Ordering::Release);
}

/// Counts workers with an incomplete output line in the master.
pub fn count_unfinished(words: &[AtomicU64], is_one_more: bool) {
    let word = &words[header::UNFINISHED_LINES];
    if is_one_more {
        word.fetch_add(1, Ordering::SeqCst);
    } else {
        word.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether the master holds an incomplete line.
pub fn has_unfinished(words: &[AtomicU64]) -> bool {
    words[header::UNFINISHED_LINES].load(Ordering::SeqCst) > 0
}

/// Adds to a counter.
pub fn add(words: &[AtomicU64], counter: usize, by: u64) {
    let sum = words[counter].load(Ordering::Relaxed).saturating_add(by);
    words[counter].store(sum, Ordering::Relaxed);
}

/// Raises a high-water mark.
pub fn raise(words: &[AtomicU64], counter: usize, to: u64) {
    if words[counter].load(Ordering::Relaxed) < to {
        words[counter].store(to, Ordering::Relaxed);
    }
}

fn bit(words: &[AtomicU64], first: usize, slot: usize) -> bool {
    slot < header::MAX_SLOTS && words[first + slot / 64].load(Ordering::SeqCst) >> (slot % 64) & 1 == 1
}

fn set_bit(words: &[AtomicU64], first: usize, slot: usize, on: bool) {
    if slot < header::MAX_SLOTS {
        let mask = 1_u64 << (slot % 64);
        let word = &words[first + slot / 64];
        if on {
            word.fetch_or(mask, Ordering::SeqCst)
        } else {
            word.fetch_and(!mask, Ordering::SeqCst)
        };
    }
}

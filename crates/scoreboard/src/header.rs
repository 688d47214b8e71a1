//! The header page: written by the master, read by all processes of the pool.

use super::layout::header;
use std::sync::atomic::{AtomicU64, Ordering};

/// When a worker that takes up work has to tell the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WakeOnAccept {
    pub always: bool,
    /// When fewer than this many workers stay idle.
    pub idle_below: u32,
}

/// Publishes when workers have to tell. Sequentially consistent: pairs with the workers' store of ACCEPTED, so that of
/// "the worker sees this" and "a snapshot after this sees the worker busy" at least one holds.
pub fn set_wake_on_accept(words: &[AtomicU64], notify: WakeOnAccept) {
    let value = u64::from(notify.idle_below) | u64::from(notify.always) << 32;
    words[header::NOTIFY].store(value, Ordering::SeqCst);
}

/// What [`set_wake_on_accept`] published.
pub fn notify(words: &[AtomicU64]) -> WakeOnAccept {
    let value = words[header::NOTIFY].load(Ordering::SeqCst);
    WakeOnAccept {
        always: value >> 32 != 0,
        idle_below: value as u32,
    }
}

/// Tells the worker in a slot to finish.
pub fn set_retire(words: &[AtomicU64], slot: usize, retire: bool) {
    set_bit(words, header::RETIRE, slot, retire);
}

/// Whether the worker in a slot has been told to finish.
pub fn retire(words: &[AtomicU64], slot: usize) -> bool {
    bit(words, header::RETIRE, slot)
}

/// Says whether a slot is in use.
pub fn set_used(words: &[AtomicU64], slot: usize, used: bool) {
    set_bit(words, header::USED, slot, used);
}

/// Whether a slot is in use.
pub fn used(words: &[AtomicU64], slot: usize) -> bool {
    bit(words, header::USED, slot)
}

/// How often the logs were opened anew. A worker that sees a new number finds what was laid out before the number was stored.
pub fn logs_opened(words: &[AtomicU64]) -> u64 {
    words[header::LOGS_OPENED].load(Ordering::Acquire)
}

/// Says that the logs were opened anew.
pub fn add_logs_opened(words: &[AtomicU64]) {
    words[header::LOGS_OPENED].fetch_add(1, Ordering::Release);
}

/// Counts workers whose last line of output the master holds because it is not complete.
pub fn count_unfinished(words: &[AtomicU64], is_one_more: bool) {
    let word = &words[header::UNFINISHED_LINES];
    if is_one_more {
        word.fetch_add(1, Ordering::SeqCst);
    } else {
        word.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether the master holds an incomplete line of any worker.
pub fn has_unfinished(words: &[AtomicU64]) -> bool {
    words[header::UNFINISHED_LINES].load(Ordering::SeqCst) > 0
}

/// Adds to one of the counters.
pub fn add(words: &[AtomicU64], counter: usize, by: u64) {
    let sum = words[counter].load(Ordering::Relaxed).saturating_add(by);
    words[counter].store(sum, Ordering::Relaxed);
}

/// Raises one of the high-water marks.
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

//! Keeps the bytes of a worker's request if a signal ends the worker, for the report of the death.
//!
//! The worker only notes where the bytes are: they cost no copy. The handlers of [`super::sender`] copy them to shared
//! memory.

use super::shm::PAGE_BYTES;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, compiler_fence};

/// The pages for the bytes of one worker.
pub const PAGES: usize = 4;
/// The most bytes that are kept.
pub const MOST_BYTES: usize = PAGES * PAGE_BYTES;

static BYTES: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
/// 0 if there is no request.
static LENGTH: AtomicUsize = AtomicUsize::new(0);
static PLACE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// Notes where a request is. Call [`end`] before the bytes are freed.
pub fn begin(bytes: &[u8]) {
    LENGTH.store(0, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    BYTES.store(bytes.as_ptr().cast_mut(), Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    LENGTH.store(bytes.len(), Ordering::Relaxed);
}

/// Forgets the request.
pub fn end() {
    LENGTH.store(0, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

pub(crate) fn keep_in(place: &[AtomicU64; MOST_BYTES / 8]) {
    PLACE.store(place.as_ptr().cast_mut(), Ordering::Release);
}

pub(crate) fn forget(words: &[AtomicU64]) {
    crate::sender::forget_in(&PLACE, words);
}

/// Copies the request and returns the number of its bytes. Async-signal-safe.
pub(crate) fn keep() -> usize {
    let (bytes, place) = (BYTES.load(Ordering::Relaxed), PLACE.load(Ordering::Acquire));
    if bytes.is_null() || place.is_null() {
        return 0;
    }
    let length = LENGTH.load(Ordering::Relaxed).min(MOST_BYTES);
    for first in (0..length).step_by(8) {
        let mut word = [0_u8; 8];
        for (index, byte) in word.iter_mut().enumerate().take(length - first) {
            // SAFETY: `begin` was called with so many bytes, and `end` is called before they are freed. A store that the
            // signal has interrupted may be seen in part, which is harmless.
            *byte = unsafe { bytes.add(first + index).read_volatile() };
        }
        // SAFETY: `keep_in` guarantees so many words, and `forget` is called before they are unmapped.
        unsafe { (*place.add(first / 8)).store(u64::from_ne_bytes(word), Ordering::Release) };
    }
    length
}

//! Text in words, eight bytes in each.

use std::sync::atomic::{AtomicU64, Ordering};

/// A word of at most eight bytes; the rest is zero.
pub(super) fn word(bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(whole)
}

/// Stores a text, as far as there is room.
pub(super) fn store(words: &[AtomicU64], text: &[u8]) {
    for (place, bytes) in words.iter().zip(text.chunks(8)) {
        place.store(word(bytes), Ordering::Relaxed);
    }
}

/// Returns a text of at most `length` bytes.
pub(super) fn load(words: &[AtomicU64], length: u64) -> Vec<u8> {
    let bytes = words
        .iter()
        .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    bytes
        .take(usize::try_from(length).unwrap_or(usize::MAX))
        .collect()
}

//! The first file of another release that a request of a slot has included. Untrusted.

use super::layout::numbers::{FOREIGN, FOREIGN_BYTES, FOREIGN_LENGTH};
use super::numbers::Counters;
use super::text;
use std::sync::atomic::Ordering;

impl Counters<'_> {
    /// Keeps the end of a path that is too long.
    pub fn note_foreign(&self, path: &[u8]) {
        let kept = &path[path.len().saturating_sub(FOREIGN_BYTES)..];
        text::store(&self.words[FOREIGN..], kept);
        self.words[FOREIGN_LENGTH].store(kept.len() as u64, Ordering::Release);
    }

    /// Returns the file, if there is one.
    pub fn foreign(&self) -> Option<String> {
        let length = self.words[FOREIGN_LENGTH].load(Ordering::Acquire);
        let bytes = text::load(&self.words[FOREIGN..FOREIGN + FOREIGN_BYTES / 8], length);
        (length > 0).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::NUMBERS_PAGES;
    use super::*;
    use forkyard_sys::shm::PAGE_WORDS;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_file_is_read_again_and_any_words_are_safe() {
        let words: Vec<AtomicU64> = (0..NUMBERS_PAGES * PAGE_WORDS)
            .map(|_| AtomicU64::new(0))
            .collect();
        let counters = Counters::new(&words);
        assert_eq!(counters.foreign(), None);
        counters.note_foreign(b"/srv/releases/1/lib.php");
        assert_eq!(counters.foreign().as_deref(), Some("/srv/releases/1/lib.php"));
        let long = "/a".repeat(200);
        counters.note_foreign(long.as_bytes());
        assert_eq!(counters.foreign().as_deref(), Some(&long[400 - FOREIGN_BYTES..]));
        words
            .iter()
            .for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        assert!(counters.foreign().is_some());
    }
}

//! A page that a worker can write to.

use forkyard_fuzz::words_of;
use forkyard_scoreboard::layout::slot;
use forkyard_scoreboard::{header, layout, slot_reader};
use forkyard_sys::shm::PAGE_WORDS;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) fn slot(input: &[u8]) {
    let page = words_of(input, PAGE_WORDS);
    let entry = slot_reader::read(&page);
    for (text, (_, room)) in entry.texts.iter().zip(slot::TEXTS) {
        assert!(text.len() <= room);
    }
    assert_eq!(
        entry.consistent,
        page[slot::SEQUENCE].load(Ordering::Relaxed) & 1 == 0
    );
    let stage = page[slot::STAGE].load(Ordering::Relaxed);
    assert!(stage <= u64::from(u32::MAX) || slot_reader::stage(&page) == entry.stage);
    let own: Vec<AtomicU64> = (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect();
    for _ in 0..3 {
        header::add(&own, layout::header::PAST_REQUESTS, entry.requests);
        header::raise(&own, layout::header::PAST_MAX_ACTIVE, entry.max_active);
    }
    assert!(own[layout::header::PAST_REQUESTS].load(Ordering::Relaxed) >= entry.requests);
}

//! Input that a hostile worker, preloader or client could make up, from seeds.

use crate::random::{Random, rounds};
use forkyard_scoreboard::layout::header::{MAX_SLOTS, PAST_MAX_ACTIVE, PAST_REQUESTS, USED};
use forkyard_scoreboard::layout::slot;
use forkyard_scoreboard::{header, slot_reader};
use forkyard_worker::BackendStatus;
use std::sync::atomic::{AtomicU64, Ordering};

const ROUNDS: u64 = 3_000;
const PAGE_WORDS: usize = 512;

fn edge(random: &mut Random) -> u64 {
    let edges = [
        0,
        1,
        u64::MAX,
        u64::MAX - 1,
        1 << 63,
        (1 << 63) - 1,
        1 << 32,
        1 << 31,
        u64::from(u32::MAX),
    ];
    match random.below(2) {
        0 => random.pick(&edges),
        _ => random.next() >> random.below(64),
    }
}

#[test]
fn a_slot_is_read_within_its_page_whatever_is_in_it() {
    rounds(ROUNDS, |random| {
        let page: Vec<AtomicU64> = (0..PAGE_WORDS).map(|_| AtomicU64::new(edge(random))).collect();
        page[slot::LENGTHS].store(edge(random), Ordering::Relaxed);
        let entry = slot_reader::read(&page);
        for (text, (_, room)) in entry.texts.iter().zip(slot::TEXTS) {
            assert!(text.len() <= room);
        }
        assert_eq!(
            entry.consistent,
            page[slot::SEQUENCE].load(Ordering::Relaxed) & 1 == 0
        );
        let _ = BackendStatus::read(slot_reader::program(&page)).map(|sight| sight.doing.name());
        let stage = page[slot::STAGE].load(Ordering::Relaxed);
        assert!(stage <= u64::from(u32::MAX) || slot_reader::stage(&page) == entry.stage);
        // The master's counts for a slot never fall, and nothing else changes.
        let own: Vec<AtomicU64> = (0..PAGE_WORDS).map(|_| AtomicU64::new(edge(random))).collect();
        let numbers = || -> Vec<u64> { own.iter().map(|word| word.load(Ordering::Relaxed)).collect() };
        let mut before = numbers();
        for _ in 0..3 {
            header::add(&own, PAST_REQUESTS, entry.requests);
            header::raise(&own, PAST_MAX_ACTIVE, entry.max_active);
            before[PAST_REQUESTS] = before[PAST_REQUESTS].saturating_add(entry.requests);
            before[PAST_MAX_ACTIVE] = before[PAST_MAX_ACTIVE].max(entry.max_active);
            assert_eq!(numbers(), before);
        }
        let slot = random.below(MAX_SLOTS + 64);
        for is_used in [true, false] {
            header::set_used(&own, slot, is_used);
            assert_eq!(header::used(&own, slot), is_used && slot < MAX_SLOTS);
            if slot < MAX_SLOTS {
                let bit = 1 << (slot % 64);
                let word = &mut before[USED + slot / 64];
                *word = if is_used { *word | bit } else { *word & !bit };
            }
            assert_eq!(numbers(), before, "slot {slot}");
        }
    });
}

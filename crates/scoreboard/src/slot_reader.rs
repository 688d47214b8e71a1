//! Reads slots. Everything in a slot is its worker's word and may be nonsense: lengths are bounded, numbers are only
//! shown or clamped, and a writer that never finishes costs a bounded number of tries.

use super::counters::ExitCause;
use super::layout::slot;
use super::load::Load;
use super::stage::RequestStage;
use crate::sys::sender::Sent;
use crate::sys::shm::PAGE_WORDS;
use crate::tick::Tick;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Tries before a slot that keeps changing is taken as it is.
const TRIES: usize = 64;

/// One slot at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotEntry {
    /// RequestStage; a number that is none is taken for a busy worker's.
    pub stage: RequestStage,
    /// Process id, as the worker says.
    pub pid: u64,
    /// When it began, seconds since 1970.
    pub started: u64,
    /// Requests taken up.
    pub requests: u64,
    /// When it last became idle or busy.
    pub since: Tick,
    /// When the request was taken up.
    pub taken: Tick,
    /// How long the last request took, microseconds.
    pub duration_micros: u64,
    /// Content-Length, bytes.
    pub content_length: u64,
    /// Peak memory of the last request, bytes.
    pub memory: u64,
    /// CPU of the last request, hundredths of a percent.
    pub cpu_centipercent: u64,
    /// Idle kept connections held.
    pub kept: u64,
    /// Most workers seen busy at once.
    pub max_active: u64,
    /// Longest listen queue measured.
    pub max_queue: u64,
    /// Most memory of a request, bytes.
    pub max_memory: u64,
    /// What a worker that serves several requests at a time has to do.
    pub load: Load,
    /// By what number such a worker knows the request that is shown; 0: it has not said.
    pub shown: u64,
    /// Method, URI, query, script, user.
    pub texts: [Vec<u8>; 5],
    /// Whether the words belong together: no write came between.
    pub consistent: bool,
}

impl SlotEntry {
    /// Whether the worker has ever taken up work.
    pub fn had_work(&self) -> bool {
        self.requests > 0 || !matches!(self.stage, RequestStage::Creating | RequestStage::Accepting)
    }
}

/// The stage alone, sequentially consistent with what the worker told and was told.
pub fn stage(words: &[AtomicU64]) -> RequestStage {
    let number = words[slot::STAGE].load(Ordering::SeqCst);
    u32::try_from(number)
        .ok()
        .and_then(RequestStage::from_number)
        .unwrap_or(RequestStage::Executing)
}

/// One word of a slot, alone.
pub fn word(words: &[AtomicU64], index: usize) -> u64 {
    words[index].load(Ordering::Relaxed)
}

/// Why a worker that is gone has ended by itself, and the number of why it could not be put back; as far as it has said.
pub fn leaving(words: &[AtomicU64]) -> (Option<ExitCause>, Option<u8>) {
    let said = word(words, slot::LEAVING);
    let reason = (said >> 8 & 0xff) as u8;
    (ExitCause::from_word(said & 0xff), reason.checked_sub(1))
}

/// Who has sent the signal that has ended a worker, as far as it could say.
pub fn sent(words: &[AtomicU64]) -> Option<Sent> {
    Sent::from_words(std::array::from_fn(|index| word(words, slot::SENDER + index)))
}

/// How often a worker was put back, nanoseconds that this took, pages that were copied. `first`: of these words.
pub fn rewound(words: &[AtomicU64], first: usize) -> [u64; slot::REWOUND_WORDS] {
    std::array::from_fn(|index| word(words, first + index))
}

/// What a worker that serves several requests at a time has to do; sequentially consistent, as the stage.
pub fn load(words: &[AtomicU64]) -> Load {
    Load::from_word(words[slot::LOAD].load(Ordering::SeqCst))
}

/// What a worker tells of its own program, word by word.
pub fn program(words: &[AtomicU64]) -> [u64; slot::PROGRAM_WORDS] {
    std::array::from_fn(|index| words[slot::PROGRAM + index].load(Ordering::Relaxed))
}

/// Reads a slot as a whole.
pub fn read(words: &[AtomicU64]) -> SlotEntry {
    let mut copy = [0_u64; PAGE_WORDS];
    for _ in 0..TRIES {
        if copy_consistent(words, &mut copy) {
            return entry(&copy, true);
        }
        std::hint::spin_loop();
    }
    entry(&copy, false)
}

/// Reader's side of the sequence lock. The acquire load of an even number sees every store before the writer's release
/// of it. The acquire fence keeps the data loads before the second load of the number; if any data load saw a store of
/// a later write, the fences of both sides make that write's odd number visible to the second load.
fn copy_consistent(words: &[AtomicU64], copy: &mut [u64; PAGE_WORDS]) -> bool {
    let before = words[slot::SEQUENCE].load(Ordering::Acquire);
    for (to, from) in copy.iter_mut().zip(words) {
        *to = from.load(Ordering::Relaxed);
    }
    fence(Ordering::Acquire);
    let after = words[slot::SEQUENCE].load(Ordering::Relaxed);
    before == after && before & 1 == 0
}

fn entry(copy: &[u64; PAGE_WORDS], consistent: bool) -> SlotEntry {
    let lengths = copy[slot::LENGTHS];
    let text = |index: usize| {
        let (first, room) = slot::TEXTS[index];
        let length = ((lengths >> (index * 12)) & 0xfff) as usize;
        let bytes = copy[first..first + room / 8]
            .iter()
            .flat_map(|word| word.to_ne_bytes());
        bytes.take(length.min(room)).collect()
    };
    SlotEntry {
        stage: u32::try_from(copy[slot::STAGE])
            .ok()
            .and_then(RequestStage::from_number)
            .unwrap_or(RequestStage::Executing),
        pid: copy[slot::PID],
        started: copy[slot::STARTED],
        requests: copy[slot::REQUESTS],
        since: Tick::from_nanos(copy[slot::SINCE]),
        taken: Tick::from_nanos(copy[slot::TAKEN]),
        duration_micros: copy[slot::DURATION],
        content_length: copy[slot::CONTENT_LENGTH],
        memory: copy[slot::MEMORY],
        cpu_centipercent: copy[slot::CPU],
        kept: copy[slot::KEPT],
        max_active: copy[slot::MAX_ACTIVE],
        max_queue: copy[slot::MAX_QUEUE],
        max_memory: copy[slot::MAX_MEMORY],
        load: Load::from_word(copy[slot::LOAD]),
        shown: copy[slot::SHOWN],
        texts: [text(0), text(1), text(2), text(3), text(4)],
        consistent,
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot_writer::{Description, SlotWriter};
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn page() -> Vec<AtomicU64> {
        (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn what_is_described_is_read() {
        let page = page();
        let slot_writer = SlotWriter::new(&page);
        slot_writer.begin(42, 1000, Tick::from_nanos(1));
        slot_writer.reading(Tick::from_nanos(5));
        let long = vec![b'x'; 5000];
        let about = Description {
            method: b"GET",
            uri: b"/a.php",
            query: &long,
            ..Description::default()
        };
        slot_writer.describe(&about);
        let entry = read(&page);
        assert!(entry.consistent);
        assert_eq!((entry.pid, entry.requests, entry.started), (42, 1, 1000));
        assert_eq!(entry.texts[0], b"GET");
        assert_eq!(entry.texts[1], b"/a.php");
        assert_eq!(entry.texts[2], vec![b'x'; 1024]);
        assert_eq!(entry.stage, RequestStage::ReadingHeaders);
    }

    #[test]
    fn a_reader_never_sees_two_writes_mixed() {
        let page = page();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let slot_writer = SlotWriter::new(&page);
                let mut round = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let text = [b'a' + (round % 26) as u8; 300];
                    let about = Description {
                        method: &text[..20],
                        uri: &text,
                        query: &text,
                        script: &text,
                        user: &text[..50],
                        content_length: round % 26,
                    };
                    slot_writer.describe(&about);
                    round += 1;
                    // From back-to-back writes to pauses of about a short request.
                    for _ in 0..(round % 64) * 64 {
                        std::hint::spin_loop();
                    }
                }
            });
            let mut consistent = 0;
            for _ in 0..20_000 {
                let entry = read(&page);
                if entry.consistent && !entry.texts[0].is_empty() {
                    consistent += 1;
                    let letter = b'a' + entry.content_length as u8;
                    for text in &entry.texts {
                        assert!(text.iter().all(|byte| *byte == letter), "{entry:?}");
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert!(consistent > 100, "only {consistent} consistent reads");
        });
    }

    #[test]
    fn nonsense_is_bounded() {
        let mut state = 1_u64;
        for _ in 0..2_000 {
            let page = page();
            for word in &page {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                word.store(state, Ordering::Relaxed);
            }
            let entry = read(&page);
            assert!(entry.texts.iter().all(|text| text.len() <= 1024));
            let _ = stage(&page);
        }
    }
}

//! Reads slots. Their content is untrusted: lengths are bounded, numbers only displayed or clamped, and retries
//! limited.

use super::layout::slot;
use super::load::Load;
use super::stage::RequestStage;
use forkyard_base::tick::Tick;
use forkyard_protocol::counters::ExitCause;
use forkyard_sys::sender::Sent;
use forkyard_sys::shm::PAGE_WORDS;
use std::sync::atomic::{AtomicU64, Ordering, fence};

const TRIES: usize = 64;

/// A copy of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotEntry {
    /// The stage; an invalid number counts as busy.
    pub stage: RequestStage,
    /// Pid according to the worker.
    pub pid: u64,
    /// Start, in seconds since 1970.
    pub started: u64,
    /// Accepted requests.
    pub requests: u64,
    /// Last change between idle and busy.
    pub since: Tick,
    /// Start of the request.
    pub taken: Tick,
    /// Duration of the last request, in microseconds.
    pub duration_micros: u64,
    /// Content-Length, in bytes.
    pub content_length: u64,
    /// Peak memory of the last request, in bytes.
    pub memory: u64,
    /// CPU usage of the last request, in hundredths of a percent.
    pub cpu_centipercent: u64,
    /// Idle kept connections.
    pub kept: u64,
    /// Maximum of active workers seen.
    pub max_active: u64,
    /// Maximum of the listen queue seen.
    pub max_queue: u64,
    /// Maximum memory of a request, in bytes.
    pub max_memory: u64,
    /// Load of a concurrent worker.
    pub load: Load,
    /// A concurrent worker's number for the displayed request; 0 if unknown.
    pub shown: u64,
    /// Method, URI, query, script, user.
    pub texts: [Vec<u8>; 5],
    /// No write happened during the copy.
    pub consistent: bool,
}

impl SlotEntry {
    /// Whether the worker has ever had a request.
    pub fn had_work(&self) -> bool {
        self.requests > 0 || !matches!(self.stage, RequestStage::Creating | RequestStage::Accepting)
    }
}

/// Returns the stage, sequentially consistent with notifications.
pub fn stage(words: &[AtomicU64]) -> RequestStage {
    stage_of(words[slot::STAGE].load(Ordering::SeqCst))
}

fn stage_of(number: u64) -> RequestStage {
    let stage = u32::try_from(number).ok().and_then(RequestStage::from_number);
    stage.unwrap_or(RequestStage::Executing)
}

/// Returns one word of a slot.
pub fn word(words: &[AtomicU64], index: usize) -> u64 {
    words[index].load(Ordering::Relaxed)
}

/// Returns why a worker exited on its own, and the index of the reason why it could not be rewound, if known.
pub fn leaving(words: &[AtomicU64]) -> (Option<ExitCause>, Option<u8>) {
    let said = word(words, slot::LEAVING);
    let reason = (said >> 8 & 0xff) as u8;
    (ExitCause::from_word(said & 0xff), reason.checked_sub(1))
}

/// Returns the sender of a worker's fatal signal, if known.
pub fn sent(words: &[AtomicU64]) -> Option<Sent> {
    Sent::from_words(std::array::from_fn(|index| word(words, slot::SENDER + index)))
}

/// Returns the rewind counters: number, nanoseconds, pages. `first`: their first word.
pub fn rewound(words: &[AtomicU64], first: usize) -> [u64; slot::REWOUND_WORDS] {
    std::array::from_fn(|index| word(words, first + index))
}

/// Returns a concurrent worker's load, sequentially consistent.
pub fn load(words: &[AtomicU64]) -> Load {
    Load::from_word(words[slot::LOAD].load(Ordering::SeqCst))
}

/// Returns the words of a worker's program.
pub fn program(words: &[AtomicU64]) -> [u64; slot::PROGRAM_WORDS] {
    std::array::from_fn(|index| words[slot::PROGRAM + index].load(Ordering::Relaxed))
}

/// Copies a slot.
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

/// Reader of the sequence lock. The acquire load of an even number sees every store before the writer's release of it.
/// The acquire fence orders the data loads before the second load of the number: if a data load saw a later write, the
/// fences make that write's odd number visible to the second load.
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
        stage: stage_of(copy[slot::STAGE]),
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

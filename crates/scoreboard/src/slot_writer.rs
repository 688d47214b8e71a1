//! Writes a worker's own slot.

use super::layout::slot;
use super::load::Load;
use super::refusals;
use super::stage::RequestStage;
use forkyard_base::tick::Tick;
use forkyard_protocol::counters::ExitCause;
use forkyard_protocol::refusals::RefusalCause;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// As in Passenger.
const WORK_METHOD: &[u8] = b"OOBW";

/// A request's displayed properties.
#[derive(Debug, Clone, Copy, Default)]
pub struct Description<'a> {
    pub method: &'a [u8],
    /// The final SCRIPT_NAME.
    pub uri: &'a [u8],
    pub query: &'a [u8],
    /// Script path.
    pub script: &'a [u8],
    /// Authenticated user.
    pub user: &'a [u8],
    /// Content-Length, in bytes.
    pub content_length: u64,
}

/// The only writer of a slot.
#[derive(Debug)]
pub struct SlotWriter<'a> {
    words: &'a [AtomicU64],
}

impl<'a> SlotWriter<'a> {
    /// Creates the writer of a slot's page.
    #[inline]
    pub fn new(words: &'a [AtomicU64]) -> SlotWriter<'a> {
        SlotWriter { words }
    }

    pub(super) fn word(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Relaxed)
    }

    pub(super) fn set_word(&self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::Relaxed);
    }

    /// Sets the stage. Sequentially consistent: whoever receives a later message of the worker sees the stage.
    pub fn stage(&self, stage: RequestStage) {
        self.words[slot::STAGE].store(u64::from(stage as u32), Ordering::SeqCst);
    }

    /// Initializes the slot for a new worker.
    pub fn begin(&self, pid: i32, epoch_seconds: u64, now: Tick) {
        self.write(|w| {
            for word in &self.words[slot::STAGE..] {
                word.store(0, Ordering::Relaxed);
            }
            w.set(slot::PID, pid as u64);
            w.set(slot::STARTED, epoch_seconds);
            w.set(slot::SINCE, now.as_nanos());
        });
    }

    /// Marks the worker as idle.
    pub fn idle(&self, now: Tick) {
        self.words[slot::SINCE].store(now.as_nanos(), Ordering::Relaxed);
        self.stage(RequestStage::Accepting);
    }

    /// Marks the worker as busy. Stores the stage last, because the master checks it.
    pub fn accepted(&self, now: Tick) {
        self.words[slot::SINCE].store(now.as_nanos(), Ordering::Relaxed);
        self.stage(RequestStage::Accepted);
    }

    /// Starts a request and clears the previous one.
    pub fn reading(&self, now: Tick) {
        self.write(|w| {
            w.set(slot::TAKEN, now.as_nanos());
            w.set(slot::REQUESTS, w.get(slot::REQUESTS) + 1);
            w.set(slot::LENGTHS, 0);
            w.set(slot::CONTENT_LENGTH, 0);
        });
        self.stage(RequestStage::ReadingHeaders);
    }

    /// Starts out-of-band work, displayed as a request.
    pub fn working(&self, now: Tick) {
        self.write(|w| w.set(slot::TAKEN, now.as_nanos()));
        self.describe(&Description {
            method: WORK_METHOD,
            ..Description::default()
        });
        self.stage(RequestStage::Working);
    }

    /// Sets the request's properties.
    pub fn describe(&self, about: &Description<'_>) {
        self.write(|w| {
            let texts = [about.method, about.uri, about.query, about.script, about.user];
            let mut lengths = 0_u64;
            for (index, (text, (first, room))) in texts.iter().zip(slot::TEXTS).enumerate() {
                let text = &text[..text.len().min(room)];
                lengths |= (text.len() as u64) << (index * 12);
                let whole = text.chunks_exact(8);
                let (rest, count) = (whole.remainder(), text.len() / 8);
                for (word, bytes) in self.words[first..]
                    .iter()
                    .zip(whole.filter_map(<[u8]>::first_chunk))
                {
                    word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
                }
                if !rest.is_empty() {
                    let word = rest
                        .iter()
                        .rev()
                        .fold(0, |word, byte| word << 8 | u64::from(*byte));
                    w.set(first + count, word.to_le());
                }
            }
            w.set(slot::LENGTHS, lengths);
            w.set(slot::CONTENT_LENGTH, about.content_length);
        });
    }

    /// Ends the request.
    pub fn finished(&self, duration_micros: u64, cpu_centipercent: u64) {
        self.write(|w| {
            w.set(slot::DURATION, duration_micros);
            w.set(slot::CPU, cpu_centipercent);
        });
        self.stage(RequestStage::Finished);
    }

    /// Sets the request's peak memory, in bytes. Returns the growth of the worker's peak; 0 for its first request.
    pub fn memory(&self, bytes: u64) -> u64 {
        let before = self.words[slot::MAX_MEMORY].load(Ordering::Relaxed);
        let most = before.max(bytes);
        self.write(|w| {
            w.set(slot::MEMORY, bytes);
            w.set(slot::MAX_MEMORY, most);
        });
        if before == 0 { 0 } else { most - before }
    }

    /// Sets a concurrent worker's load, sequentially consistent.
    pub fn load(&self, load: Load) {
        self.words[slot::LOAD].store(load.to_word(), Ordering::SeqCst);
    }

    /// Records that the worker logged that all workers are full.
    pub fn said_full(&self, now: Tick) {
        self.words[slot::SAID_FULL].store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Counts a refused script. `at`: the length of the path's part that caused it.
    pub fn refused(&self, cause: RefusalCause, epoch_seconds: u64, path: &[u8], at: Option<usize>) {
        let (meta, text) = refusals::encode(epoch_seconds, path, at);
        self.write(|w| {
            for (index, word) in (refusals::first_of(cause)..).zip(text) {
                w.set(index, word);
            }
            w.set(slot::REFUSED_LAST + cause.index(), meta);
            let count = slot::REFUSED + cause.index();
            w.set(count, w.get(count).saturating_add(1));
        });
    }

    /// Records that the worker logged `count` refusals of all workers.
    pub fn told_refused(&self, cause: RefusalCause, now: Tick, count: u64) {
        self.words[slot::REFUSED_TOLD + cause.index()].store(count, Ordering::Relaxed);
        self.words[slot::REFUSED_SINCE + cause.index()].store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Counts a concurrent request without displaying it.
    pub fn count_request(&self) {
        let requests = self.words[slot::REQUESTS].load(Ordering::Relaxed) + 1;
        self.words[slot::REQUESTS].store(requests, Ordering::Relaxed);
    }

    /// Displays one of several concurrent requests, started at `taken`.
    pub fn show(&self, request: u64, taken: Tick) {
        self.write(|w| {
            w.set(slot::SHOWN, request);
            w.set(slot::TAKEN, taken.as_nanos());
            w.set(slot::LENGTHS, 0);
            w.set(slot::CONTENT_LENGTH, 0);
        });
    }

    /// Ends one of several concurrent requests.
    pub fn took(&self, duration_micros: u64) {
        self.words[slot::DURATION].store(duration_micros, Ordering::Relaxed);
    }

    /// Sets the number of idle kept connections.
    pub fn kept(&self, count: u64) {
        self.words[slot::KEPT].store(count, Ordering::Relaxed);
    }

    /// Sets the number of accepted connections.
    pub fn accepts(&self, count: u64) {
        self.words[slot::ACCEPTS].store(count, Ordering::Relaxed);
    }

    /// Sets the words of the worker's program.
    pub fn program(&self, words: [u64; slot::PROGRAM_WORDS]) {
        for (index, word) in words.into_iter().enumerate() {
            self.words[slot::PROGRAM + index].store(word, Ordering::Relaxed);
        }
    }

    /// Sets the maximum of active workers seen.
    pub fn max_active(&self, count: u64) {
        self.words[slot::MAX_ACTIVE].store(count, Ordering::Relaxed);
    }

    /// Sets why the worker exits. `reason`: index of why it can't be rewound.
    pub fn leaving(&self, cause: ExitCause, reason: Option<u8>) {
        let reason = reason.map_or(0, |reason| u64::from(reason) + 1);
        self.words[slot::LEAVING].store(cause.word() | reason << 8, Ordering::Relaxed);
    }

    /// Counts a rewind with its duration and copied pages.
    pub fn rewound(&self, nanos: u64, pages: u64) {
        for (index, more) in [1, nanos, pages].into_iter().enumerate() {
            let word = &self.words[slot::REWOUND + index];
            let sum = word.load(Ordering::Relaxed).saturating_add(more);
            word.store(sum, Ordering::Relaxed);
        }
    }

    /// Sets the maximum of the listen queue seen.
    pub fn max_queue(&self, count: u64) {
        self.words[slot::MAX_QUEUE].store(count, Ordering::Relaxed);
    }

    /// Writes under the sequence lock.
    ///
    /// The odd number is stored relaxed. The release fence after it keeps a reader, whose acquire fence follows its
    /// data loads, from seeing data before the odd number. The even number is stored with release, so a reader that
    /// loads it with acquire sees all data. (Boehm, "Can seqlocks get along with programming language memory models?",
    /// MSPC 2012.) Data words are atomics, so there is no data race.
    fn write(&self, change: impl FnOnce(&Pen<'_>)) {
        let sequence = self.words[slot::SEQUENCE].load(Ordering::Relaxed);
        self.words[slot::SEQUENCE].store(sequence | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        change(&Pen { words: self.words });
        let even = (sequence | 1).wrapping_add(1);
        self.words[slot::SEQUENCE].store(even, Ordering::Release);
    }
}

struct Pen<'a> {
    words: &'a [AtomicU64],
}

impl Pen<'_> {
    fn set(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Relaxed);
    }

    fn get(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Relaxed)
    }
}

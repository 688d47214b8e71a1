//! The worker's pen: writes its own slot.

use super::counters::ExitCause;
use super::layout::slot;
use super::load::Load;
use super::refusals;
use super::stage::RequestStage;
use crate::tick::Tick;
use forkyard_protocol::refusals::RefusalCause;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What is shown of out-of-band work: the method by which Passenger asks for it.
const WORK_METHOD: &[u8] = b"OOBW";

/// What is shown of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Description<'a> {
    pub method: &'a [u8],
    /// The URI as the runtime knows it: the final SCRIPT_NAME.
    pub uri: &'a [u8],
    pub query: &'a [u8],
    /// Script path.
    pub script: &'a [u8],
    /// Authenticated user.
    pub user: &'a [u8],
    /// Content-Length, bytes.
    pub content_length: u64,
}

/// Writes one slot. There is one pen per slot and it is the only writer.
#[derive(Debug)]
pub struct SlotWriter<'a> {
    words: &'a [AtomicU64],
}

impl<'a> SlotWriter<'a> {
    /// A pen for a slot's page.
    pub fn new(words: &'a [AtomicU64]) -> SlotWriter<'a> {
        SlotWriter { words }
    }

    /// Sets the stage alone. Sequentially consistent: a message that the worker sends to the master after this call
    /// arrives after the stage can be seen.
    pub fn stage(&self, stage: RequestStage) {
        self.words[slot::STAGE].store(u64::from(stage as u32), Ordering::SeqCst);
    }

    /// A new worker took the slot over.
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

    /// The worker is idle from now on.
    pub fn idle(&self, now: Tick) {
        self.words[slot::SINCE].store(now.as_nanos(), Ordering::Relaxed);
        self.stage(RequestStage::Accepting);
    }

    /// The worker has taken up work. The stage comes last and is what the master looks at.
    pub fn accepted(&self, now: Tick) {
        self.words[slot::SINCE].store(now.as_nanos(), Ordering::Relaxed);
        self.stage(RequestStage::Accepted);
    }

    /// A request begins: the one before is wiped, so that nothing of it is shown as this one's.
    pub fn reading(&self, now: Tick) {
        self.write(|w| {
            w.set(slot::TAKEN, now.as_nanos());
            w.set(slot::REQUESTS, w.get(slot::REQUESTS) + 1);
            w.set(slot::LENGTHS, 0);
            w.set(slot::CONTENT_LENGTH, 0);
        });
        self.stage(RequestStage::ReadingHeaders);
    }

    /// Out-of-band work begins, which is shown as a request of its own method.
    pub fn working(&self, now: Tick) {
        self.write(|w| w.set(slot::TAKEN, now.as_nanos()));
        self.describe(&Description {
            method: WORK_METHOD,
            ..Description::default()
        });
        self.stage(RequestStage::Working);
    }

    /// The request is known.
    pub fn describe(&self, about: &Description<'_>) {
        self.write(|w| {
            let texts = [about.method, about.uri, about.query, about.script, about.user];
            let mut lengths = 0_u64;
            for (index, (text, (first, room))) in texts.iter().zip(slot::TEXTS).enumerate() {
                let text = &text[..text.len().min(room)];
                lengths |= (text.len() as u64) << (index * 12);
                for (offset, chunk) in text.chunks(8).enumerate() {
                    let mut bytes = [0; 8];
                    bytes[..chunk.len()].copy_from_slice(chunk);
                    w.set(first + offset, u64::from_ne_bytes(bytes));
                }
            }
            w.set(slot::LENGTHS, lengths);
            w.set(slot::CONTENT_LENGTH, about.content_length);
        });
    }

    /// The request is over.
    pub fn finished(&self, duration_micros: u64, cpu_centipercent: u64) {
        self.write(|w| {
            w.set(slot::DURATION, duration_micros);
            w.set(slot::CPU, cpu_centipercent);
        });
        self.stage(RequestStage::Finished);
    }

    /// Peak memory of the request, bytes.
    pub fn memory(&self, bytes: u64) {
        let most = self.words[slot::MAX_MEMORY].load(Ordering::Relaxed).max(bytes);
        self.write(|w| {
            w.set(slot::MEMORY, bytes);
            w.set(slot::MAX_MEMORY, most);
        });
    }

    /// What a worker that serves several requests at a time has to do. Sequentially consistent, as the stage.
    pub fn load(&self, load: Load) {
        self.words[slot::LOAD].store(load.to_word(), Ordering::SeqCst);
    }

    /// The worker has said in the log that all workers are full.
    pub fn said_full(&self, now: Tick) {
        self.words[slot::SAID_FULL].store(now.as_nanos(), Ordering::Relaxed);
    }

    /// A script was not run. `at`: the cause is about so many bytes of its path.
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

    /// The worker has told in the log of so many requests of all workers whose script was not run.
    pub fn told_refused(&self, cause: RefusalCause, now: Tick, count: u64) {
        self.words[slot::REFUSED_TOLD + cause.index()].store(count, Ordering::Relaxed);
        self.words[slot::REFUSED_SINCE + cause.index()].store(now.as_nanos(), Ordering::Relaxed);
    }

    /// A request was taken up while others are under way: it is counted and not shown.
    pub fn count_request(&self) {
        let requests = self.words[slot::REQUESTS].load(Ordering::Relaxed) + 1;
        self.words[slot::REQUESTS].store(requests, Ordering::Relaxed);
    }

    /// From now on the slot shows this one of several requests that are under way; it was taken up at that time.
    pub fn show(&self, request: u64, taken: Tick) {
        self.write(|w| {
            w.set(slot::SHOWN, request);
            w.set(slot::TAKEN, taken.as_nanos());
            w.set(slot::LENGTHS, 0);
            w.set(slot::CONTENT_LENGTH, 0);
        });
    }

    /// A request is over while others are under way.
    pub fn took(&self, duration_micros: u64) {
        self.words[slot::DURATION].store(duration_micros, Ordering::Relaxed);
    }

    /// How many idle kept connections the worker holds.
    pub fn kept(&self, count: u64) {
        self.words[slot::KEPT].store(count, Ordering::Relaxed);
    }

    /// How many connections the worker has accepted.
    pub fn accepts(&self, count: u64) {
        self.words[slot::ACCEPTS].store(count, Ordering::Relaxed);
    }

    /// What the worker's own program is doing.
    pub fn program(&self, words: [u64; slot::PROGRAM_WORDS]) {
        for (index, word) in words.into_iter().enumerate() {
            self.words[slot::PROGRAM + index].store(word, Ordering::Relaxed);
        }
    }

    /// Most workers seen busy at once.
    pub fn max_active(&self, count: u64) {
        self.words[slot::MAX_ACTIVE].store(count, Ordering::Relaxed);
    }

    /// Why the worker is about to end by itself. `reason`: the number of why it could not be put back.
    pub fn leaving(&self, cause: ExitCause, reason: Option<u8>) {
        let reason = reason.map_or(0, |reason| u64::from(reason) + 1);
        self.words[slot::LEAVING].store(cause.word() | reason << 8, Ordering::Relaxed);
    }

    /// The worker was put back after a request: nanoseconds that this took, pages that were copied.
    pub fn rewound(&self, nanos: u64, pages: u64) {
        for (index, more) in [1, nanos, pages].into_iter().enumerate() {
            let word = &self.words[slot::REWOUND + index];
            let sum = word.load(Ordering::Relaxed).saturating_add(more);
            word.store(sum, Ordering::Relaxed);
        }
    }

    /// Longest listen queue measured.
    pub fn max_queue(&self, count: u64) {
        self.words[slot::MAX_QUEUE].store(count, Ordering::Relaxed);
    }

    /// Changes words under the sequence number.
    ///
    /// Writer: the odd number is stored relaxed, and the release fence after it keeps the data stores from being seen
    /// before it by a reader whose acquire fence follows a data load. The even number is stored with release, so a
    /// reader that loads it with acquire sees every data store before it. (Boehm, "Can seqlocks get along with
    /// programming language memory models?", MSPC 2012.) Data words are atomics, so there is no data race.
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

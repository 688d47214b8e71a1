//! A slot's numbers: sums and histograms over all its workers, one after the other.
//!
//! The present worker writes them. After its death the master counts its unfinished request.

use super::layout::{numbers as at, slot};
use super::minutes::MinuteUse;
use super::routes::RouteUse;
use super::stage::RequestStage;
use super::{slot_reader, stopwatch};
use forkyard_base::scale::{BUCKETS, bucket};
use forkyard_base::tick::{Tick, nanos};
use forkyard_protocol::dead_work::DeadCount;
use forkyard_protocol::numbers::{Histogram, Numbers, StatusClass};
use forkyard_sys::timeout_responder;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const KIB: u64 = 1024;

/// A request that has ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct FinishedRequest {
    /// `None` for a WebSocket or another endless connection, and for a request that did not begin.
    pub run: Option<Duration>,
    pub wait: Duration,
    /// When it ended; zero: no minute counts it.
    pub ended: Tick,
    pub class: StatusClass,
    /// Why it did not begin.
    pub dead: Option<DeadCount>,
    /// Processor time in microseconds, if known.
    pub cpu_micros: Option<u64>,
    /// Peak memory in bytes, if known.
    pub memory: Option<u64>,
    pub is_aborted: bool,
    pub is_timed_out: bool,
}

/// A slot's numbers.
#[derive(Debug, Clone, Copy)]
pub struct Counters<'a> {
    pub(super) words: &'a [AtomicU64],
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl<'a> Counters<'a> {
    #[inline]
    pub(super) fn new(words: &'a [AtomicU64]) -> Counters<'a> {
        Counters { words }
    }

    pub(super) fn load(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Relaxed)
    }

    pub(super) fn store(&self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::Relaxed);
    }

    pub(super) fn add(&self, index: usize, by: u64) {
        self.store(index, self.load(index).saturating_add(by));
    }

    fn record(&self, histogram: usize, value: u64, sum: usize, more: u64) {
        self.add(histogram + bucket(value), 1);
        self.add(sum, more);
    }

    /// Whether the slot's worker is busy.
    pub fn is_busy(&self) -> bool {
        stopwatch::runs(self.load(at::BUSY))
    }

    /// Returns how long the slot was busy.
    pub fn busy_time(&self, now: Tick) -> Duration {
        Duration::from_nanos(stopwatch::total(self.load(at::BUSY), now))
    }

    /// Starts the busy time.
    pub fn begin_busy(&self, now: Tick) {
        self.store(at::BUSY, stopwatch::started(self.load(at::BUSY), now));
    }

    /// Ends the busy time.
    pub fn end_busy(&self, now: Tick) {
        self.store(at::BUSY, stopwatch::stopped(self.load(at::BUSY), now));
    }

    /// Counts a request at its end.
    pub fn finished(&self, request: &FinishedRequest) {
        if let Some(run) = request.run {
            self.record(at::RUN, micros(run), at::RUN_SUM, nanos(run));
            self.record(at::WAIT, micros(request.wait), at::WAIT_SUM, nanos(request.wait));
        }
        let has_minute = request.ended != Tick::ZERO && (request.run.is_some() || request.dead.is_some());
        if has_minute {
            let counted = MinuteUse {
                run: request.run.unwrap_or_default(),
                wait: request.wait,
                is_error: matches!(request.class, StatusClass::ServerError | StatusClass::None),
                dead: request.dead,
            };
            self.in_minute(request.ended, &counted);
        }
        if let Some(cpu) = request.cpu_micros {
            self.record(at::CPU, cpu, at::CPU_SUM, cpu.saturating_mul(1_000));
        }
        if let Some(memory) = request.memory {
            let kib = memory.div_ceil(KIB);
            self.record(at::MEMORY, kib, at::MEMORY_SUM, kib);
        }
        self.add(at::REQUESTS + request.class.index(), 1);
        if request.is_aborted {
            self.add(at::ABORTED, 1);
        }
        if request.is_timed_out {
            self.add(at::TIMED_OUT, 1);
        }
    }

    /// Counts a request that did not begin, or that only would not have begun.
    pub fn dead(&self, count: DeadCount) {
        self.add(at::DEAD + count.index(), 1);
    }

    /// Counts bytes from and to the web server.
    pub fn transferred(&self, received: u64, sent: u64) {
        self.add(at::BYTES_IN, received);
        self.add(at::BYTES_OUT, sent);
    }

    /// Counts the unfinished request of a dead worker. `page`: its slot. One store adds the busy time and ends it, so a
    /// killed master counts nothing twice.
    pub fn settle(&self, page: &[AtomicU64], now: Tick) {
        if !self.is_busy() {
            return;
        }
        self.end_busy(now);
        let is_request = matches!(
            slot_reader::stage(page),
            RequestStage::ReadingHeaders | RequestStage::Info | RequestStage::Executing | RequestStage::End
        );
        if is_request {
            let run = now.since(Tick::from_nanos(slot_reader::word(page, slot::TAKEN)));
            let last_answer = slot_reader::word(page, slot::LAST_ANSWER);
            self.finished(&FinishedRequest {
                run: Some(run),
                ended: now,
                class: match last_answer {
                    0 => StatusClass::None,
                    _ => StatusClass::ServerError,
                },
                ..FinishedRequest::default()
            });
            self.transferred(0, last_answer.min(timeout_responder::MAX_BYTES as u64));
            let routes = self.routes();
            let request = RouteUse {
                run,
                is_sampled: true,
                is_error: true,
                ..RouteUse::default()
            };
            routes.finished(routes.current(), &request);
        }
    }

    fn histogram(&self, first: usize, sum: usize) -> Histogram {
        let counts = self.words[first..first + BUCKETS].iter();
        Histogram::new(self.load(sum), counts.map(|word| word.load(Ordering::Relaxed)))
    }

    /// Reads all. Untrusted.
    pub fn read(&self, now: Tick) -> Numbers {
        Numbers {
            busy_ns: stopwatch::total(self.load(at::BUSY), now),
            saturated_ns: 0,
            queue_ns: 0,
            classes: std::array::from_fn(|class| self.load(at::REQUESTS + class)),
            bytes_in: self.load(at::BYTES_IN),
            bytes_out: self.load(at::BYTES_OUT),
            aborted: self.load(at::ABORTED),
            timed_out: self.load(at::TIMED_OUT),
            dead: std::array::from_fn(|count| self.load(at::DEAD + count)),
            run: self.histogram(at::RUN, at::RUN_SUM),
            wait: self.histogram(at::WAIT, at::WAIT_SUM),
            cpu: self.histogram(at::CPU, at::CPU_SUM),
            memory: self.histogram(at::MEMORY, at::MEMORY_SUM),
            history: self.history(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::NUMBERS_PAGES;
    use super::super::slot_writer::SlotWriter;
    use super::*;
    use forkyard_sys::shm::PAGE_WORDS;

    fn words(pages: usize) -> Vec<AtomicU64> {
        (0..pages * PAGE_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn what_is_counted_is_read() {
        let words = words(NUMBERS_PAGES);
        let counters = Counters::new(&words);
        counters.begin_busy(at(10));
        counters.finished(&FinishedRequest {
            run: Some(Duration::from_micros(900)),
            wait: Duration::from_micros(3),
            ended: at(12),
            class: StatusClass::of(404),
            dead: None,
            cpu_micros: Some(800),
            memory: Some(3 << 20),
            is_aborted: true,
            is_timed_out: false,
        });
        counters.finished(&FinishedRequest {
            is_timed_out: true,
            ..FinishedRequest::default()
        });
        counters.transferred(5, 7);
        counters.end_busy(at(12));
        let read = counters.read(at(99));
        assert_eq!((read.busy_ns, read.bytes_in, read.bytes_out), (2_000_000, 5, 7));
        assert_eq!(
            (read.classes, read.aborted, read.timed_out),
            ([0, 0, 0, 1, 0, 1], 1, 1)
        );
        assert_eq!(
            (read.run.sum, read.run.count(), read.cpu.sum),
            (900_000, 1, 800_000)
        );
        assert_eq!((read.wait.count(), read.memory.sum), (1, 3072));
    }

    #[test]
    fn a_gone_worker_s_request_counts_once() {
        let (words, page) = (words(NUMBERS_PAGES), words(1));
        let (counters, writer) = (Counters::new(&words), SlotWriter::new(&page));
        counters.begin_busy(at(10));
        writer.reading(at(11));
        for now in [20, 30] {
            counters.settle(&page, at(now));
            let read = counters.read(at(40));
            assert_eq!((read.busy_ns, read.run.sum), (10_000_000, 9_000_000));
            assert_eq!(read.classes, [0, 0, 0, 0, 0, 1]);
        }
    }
}

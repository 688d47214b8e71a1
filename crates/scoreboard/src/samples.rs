//! Samples that workers take while the autopilot wants them, and the numbers that the autopilot reads from a slot.
//!
//! A worker's last sample is in its slot's page, because a rewind to the boot would erase it in the worker.

use super::layout::{numbers as at, slot};
use super::numbers::Counters;
use super::routes::{LOG_SCALE, Routes};
use super::slot_writer::SlotWriter;
use forkyard_base::tick::{Tick, nanos};
use std::time::Duration;

/// The least time between two samples of a worker, and between two measurements of its memory.
const INTERVAL: Duration = Duration::from_millis(100);
/// An older sample is from before an idle time.
const OLD: Duration = Duration::from_secs(1);
const MEMORY_INTERVAL: Duration = Duration::from_secs(4);

/// How long a worker ran and waited for a processor since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    pub run: Duration,
    pub queued: Duration,
}

/// A route's sums in one row of a slot. Untrusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteSums {
    pub key: u64,
    pub requests: u64,
    pub busy_ns: u64,
    pub cpu_ns: u64,
    /// Sum of ln(1 + ms) of the blocked time, in parts of [`LOG_SCALE`].
    pub log_blocked: u64,
}

impl RouteSums {
    /// Undoes the scaling of a sum of logarithms.
    pub fn log(sum: u64) -> f64 {
        sum as f64 / LOG_SCALE
    }
}

/// The sums of a slot that the autopilot reads. Untrusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotSums {
    pub requests: u64,
    /// The duration of all requests, and the processor time of requests that measure it.
    pub held_ns: u64,
    pub cpu_ns: u64,
    pub sampled_run_ns: u64,
    pub sampled_queued_ns: u64,
    /// Own memory, in bytes, and when it was measured.
    pub memory: u64,
    pub memory_at: Tick,
    /// By row.
    pub routes: Vec<Option<RouteSums>>,
}

impl SlotWriter<'_> {
    /// Whether a sample and a measurement of the memory are due.
    pub fn samples_due(&self, now: Tick) -> (bool, bool) {
        let is_due = |word, interval| {
            let last = Tick::from_nanos(self.word(slot::SAMPLE + word));
            last == Tick::ZERO || now.since(last) >= interval
        };
        (is_due(0, INTERVAL), is_due(3, MEMORY_INTERVAL))
    }

    /// Whether there is no sample, or only one from before the last request.
    pub fn is_sample_old(&self, now: Tick) -> bool {
        let last = Tick::from_nanos(self.word(slot::SAMPLE));
        last == Tick::ZERO || now.since(last) >= OLD
    }

    /// Keeps a sample that nothing is counted for.
    pub fn begin_sample(&self, sample: Sample, now: Tick) {
        self.keep_sample(sample, now);
    }

    /// Keeps a sample. Returns the difference from the last; zero for the first.
    fn keep_sample(&self, sample: Sample, now: Tick) -> (u64, u64) {
        let values = [now.as_nanos(), nanos(sample.run), nanos(sample.queued)];
        let before = [0, 1, 2].map(|word| self.word(slot::SAMPLE + word));
        for (word, value) in values.into_iter().enumerate() {
            self.set_word(slot::SAMPLE + word, value);
        }
        match before[0] {
            0 => (0, 0),
            _ => (
                values[1].saturating_sub(before[1]),
                values[2].saturating_sub(before[2]),
            ),
        }
    }
}

impl Counters<'_> {
    /// Counts a worker's sample.
    pub fn sampled(&self, writer: SlotWriter<'_>, sample: Sample, now: Tick) {
        let (run, queued) = writer.keep_sample(sample, now);
        for (index, more) in [(at::SAMPLED_RUN, run), (at::SAMPLED_QUEUED, queued)] {
            self.add(index, more);
        }
    }

    /// Keeps the worker's own memory, with the peak of its last request.
    pub fn measured_memory(&self, writer: SlotWriter<'_>, bytes: u64, now: Tick) {
        writer.set_word(slot::SAMPLE + 3, now.as_nanos());
        self.store(at::OWN_MEMORY, bytes);
        self.store(at::OWN_MEMORY_AT, now.as_nanos());
    }

    /// Returns the own memory of the slot's last worker with a measurement, in bytes; 0 if unknown. Untrusted.
    pub fn own_memory(&self) -> u64 {
        self.load(at::OWN_MEMORY)
    }

    /// Reads the sums for the autopilot. Untrusted.
    pub fn sums(&self) -> SlotSums {
        let classes = at::REQUESTS..at::BYTES_IN;
        SlotSums {
            requests: classes.fold(0, |sum, word| sum.saturating_add(self.load(word))),
            held_ns: self.load(at::RUN_SUM),
            cpu_ns: self.load(at::CPU_SUM),
            sampled_run_ns: self.load(at::SAMPLED_RUN),
            sampled_queued_ns: self.load(at::SAMPLED_QUEUED),
            memory: self.load(at::OWN_MEMORY),
            memory_at: Tick::from_nanos(self.load(at::OWN_MEMORY_AT)),
            routes: self.routes().sums(),
        }
    }
}

impl Routes<'_> {
    fn sums(&self) -> Vec<Option<RouteSums>> {
        (0..at::ROUTES).map(|row| self.sums_of(row)).collect()
    }

    fn sums_of(&self, row: usize) -> Option<RouteSums> {
        let first = at::ROUTE_ROWS + row * at::ROUTE_WORDS;
        let sums = RouteSums {
            key: self.key(row),
            requests: self.0.load(first),
            busy_ns: self.0.load(first + 2),
            cpu_ns: self.0.load(first + 3),
            log_blocked: self.0.load(first + at::ROUTE_LOG_BLOCKED),
        };
        (sums.key != 0 && sums.key == self.key(row)).then_some(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::NUMBERS_PAGES;
    use super::super::routes::RouteUse;
    use super::*;
    use forkyard_sys::shm::PAGE_WORDS;
    use std::sync::atomic::AtomicU64;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn samples_add_what_is_new() {
        let (page, numbers) = (words(PAGE_WORDS), words(NUMBERS_PAGES * PAGE_WORDS));
        let counters = Counters::new(&numbers);
        let at = |millis: u64| Tick::from_nanos(millis * 1_000_000);
        let sample = |run, queued| Sample {
            run: Duration::from_millis(run),
            queued: Duration::from_millis(queued),
        };
        assert_eq!(SlotWriter::new(&page).samples_due(at(1)), (true, true));
        counters.sampled(SlotWriter::new(&page), sample(50, 7), at(1));
        assert_eq!(counters.sums().sampled_run_ns, 0, "the start is not a request");
        assert_eq!(SlotWriter::new(&page).samples_due(at(100)), (false, true));
        counters.measured_memory(SlotWriter::new(&page), 1 << 20, at(100));
        assert_eq!(SlotWriter::new(&page).samples_due(at(101)), (true, false));
        counters.sampled(SlotWriter::new(&page), sample(60, 9), at(101));
        let sums = counters.sums();
        assert_eq!(
            (sums.sampled_run_ns, sums.sampled_queued_ns),
            (10_000_000, 2_000_000)
        );
        assert_eq!((sums.memory, sums.memory_at), (1 << 20, at(100)));
        assert!(
            !SlotWriter::new(&page).is_sample_old(at(1_100))
                && SlotWriter::new(&page).is_sample_old(at(1_101))
        );
        SlotWriter::new(&page).begin_sample(sample(100, 100), at(1_101));
        counters.sampled(SlotWriter::new(&page), sample(101, 102), at(1_301));
        let sums = counters.sums();
        assert_eq!(
            (sums.sampled_run_ns, sums.sampled_queued_ns),
            (11_000_000, 4_000_000)
        );
        SlotWriter::new(&page).begin(7, 8, at(1_400));
        counters.sampled(SlotWriter::new(&page), sample(1, 1), at(1_500));
        assert_eq!(
            counters.sums().sampled_run_ns,
            11_000_000,
            "another worker begins anew"
        );
    }

    #[test]
    fn a_route_has_the_logarithm_of_its_wait_without_the_run_queue() {
        let numbers = words(NUMBERS_PAGES * PAGE_WORDS);
        let counters = Counters::new(&numbers);
        let row = counters.routes().row(7, b"GET /");
        for (run, queued) in [(109, 0), (109, 99)] {
            let request = RouteUse {
                run: Duration::from_millis(run),
                cpu_micros: Some(10_000),
                queued: Duration::from_millis(queued),
                is_sampled: true,
                ..RouteUse::default()
            };
            counters.routes().finished(Some(row), &request);
        }
        let routes = counters.sums().routes;
        let row = routes.into_iter().flatten().next().unwrap();
        assert_eq!((row.key, row.requests, row.cpu_ns), (7, 2, 20_000_000));
        assert!(
            (RouteSums::log(row.log_blocked) - 100_f64.ln()).abs() < 1e-3,
            "{row:?}"
        );
    }
}

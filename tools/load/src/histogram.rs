//! Durations counted with a bounded relative error, as HdrHistogram does it.

use std::time::Duration;

/// Counts durations. Each power of two has [`STEPS`] steps, so a value is at most 1 / [`STEPS`] too high.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum_ns: u128,
    max_ns: u64,
}

const STEP_BITS: u32 = 7;
const STEPS: u64 = 1 << STEP_BITS;

impl Histogram {
    pub(crate) fn new() -> Histogram {
        let slots = slot(u64::MAX) + 1;
        Histogram {
            counts: vec![0; slots],
            total: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }

    pub(crate) fn record(&mut self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts[slot(ns)] += 1;
        self.total += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub(crate) fn mean(&self) -> Duration {
        nanoseconds((self.sum_ns / u128::from(self.total.max(1))) as u64)
    }

    pub(crate) fn max(&self) -> Duration {
        nanoseconds(self.max_ns)
    }

    /// The duration that `share` (0 to 1) of the recorded ones don't exceed.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (slot, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return nanoseconds(greatest_in(slot).min(self.max_ns));
            }
        }
        Duration::ZERO
    }
}

fn nanoseconds(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

fn slot(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let shift = ns.ilog2() - STEP_BITS;
    ((u64::from(shift + 1) << STEP_BITS) + (ns >> shift) - STEPS) as usize
}

fn greatest_in(slot: usize) -> u64 {
    let slot = slot as u64;
    if slot < STEPS {
        return slot;
    }
    let shift = (slot >> STEP_BITS) - 1;
    let lowest = (slot % STEPS + STEPS) << shift;
    lowest + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_each_other_and_hold_what_they_say() {
        let mut last = 0;
        for bit in 0..64 {
            for ns in [(1u64 << bit) - 1, 1 << bit, (1 << bit) + (1 << bit) / 3] {
                let slot = slot(ns);
                assert!(slot >= last);
                last = slot;
                let told = greatest_in(slot);
                assert!(
                    told >= ns && (told - ns) as f64 <= ns as f64 / STEPS as f64,
                    "{ns} told as {told}"
                );
            }
        }
        assert_eq!(greatest_in(slot(u64::MAX)), u64::MAX);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_list() {
        let mut histogram = Histogram::new();
        assert_eq!(
            (histogram.quantile(0.5), histogram.mean()),
            (Duration::ZERO, Duration::ZERO)
        );
        for microseconds in 1..=10_000 {
            histogram.record(Duration::from_micros(microseconds));
        }
        for (share, expected) in [(0.5, 5000.0), (0.9, 9000.0), (0.999, 9990.0), (1.0, 10_000.0)] {
            let told = histogram.quantile(share).as_nanos() as f64 / 1000.0;
            assert!((told / expected - 1.0).abs() < 0.01, "{share}: {told}");
        }
        assert_eq!(histogram.max(), Duration::from_millis(10));
        assert_eq!(histogram.mean(), Duration::from_nanos(5_000_500));
    }
}

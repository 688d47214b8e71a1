//! Decides whether a worker accepts a new connection or leaves it to busy siblings.
//!
//! With more computing workers than processors, the kernel preempts requests and each finds the caches full of others'
//! data. So while enough workers have recently begun a request, a new connection stays in the backlog until the first
//! is done. Requests that wait for something else, such as a database, allow more at once, and a request that
//! takes longer than usual no longer counts.

use std::time::Duration;

/// Shorter requests are always accepted: leaving them costs more than it saves.
pub(super) const LEAST: Duration = Duration::from_micros(300);
/// A request counts for this multiple of the usual time.
const COUNTS_FOR: u32 = 4;
const COUNTS_AT_LEAST: Duration = Duration::from_millis(2);
const COUNTS_AT_MOST: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_micros(500);
const LOOK_AT_LEAST: Duration = Duration::from_millis(1);
const LOOK_AT_MOST: Duration = Duration::from_millis(100);
/// More idle workers don't change when to look again.
pub(super) const MOST_IDLE: usize = (LOOK_AT_MOST.as_micros() / LOOK_EVERY.as_micros()) as usize;
/// The weight of the last request is 1/8.
const PART: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct UsualRequest {
    /// CPU time; zero: unknown.
    pub(super) run: Duration,
    /// Total time without that in the run queue.
    pub(super) took: Duration,
}

impl UsualRequest {
    pub(super) fn note(&mut self, took: Duration, run: Duration, waited: Duration) {
        let took = took.saturating_sub(waited).max(run);
        if self.run.is_zero() {
            (self.run, self.took) = (run, took);
            return;
        }
        self.run = self.run * (PART - 1) / PART + run / PART;
        self.took = self.took * (PART - 1) / PART + took / PART;
    }

    pub(super) fn is_long(&self) -> bool {
        self.run >= LEAST
    }

    /// How many requests keep the processors busy, at least one each.
    pub(super) fn at_once(&self, processors: usize) -> usize {
        let run = self.run.as_nanos().max(1);
        let at_once = (self.took.as_nanos().max(run) * processors as u128 + run / 2) / run;
        usize::try_from(at_once).unwrap_or(usize::MAX)
    }

    pub(super) fn counts_for(&self) -> Duration {
        (self.took * COUNTS_FOR).clamp(COUNTS_AT_LEAST, COUNTS_AT_MOST)
    }
}

/// When to check again after leaving a connection. `idle`: workers that do the same, including this one.
pub(super) fn look_again(idle: usize) -> Duration {
    let idle = u32::try_from(idle).unwrap_or(u32::MAX);
    LOOK_EVERY.saturating_mul(idle).clamp(LOOK_AT_LEAST, LOOK_AT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual(run: u64, took: u64) -> UsualRequest {
        let [run, took] = [run, took].map(Duration::from_micros);
        UsualRequest { run, took }
    }

    #[test]
    fn what_is_usual_follows_what_is_measured() {
        let micros = Duration::from_micros;
        let mut request = UsualRequest::default();
        assert!(!request.is_long(), "nothing is known");
        request.note(micros(5_000), micros(800), micros(4_000));
        assert_eq!(request, usual(800, 1_000));
        request.note(micros(9_000), micros(1_600), micros(0));
        assert_eq!(request, usual(900, 2_000));
        for _ in 0..100 {
            request.note(micros(100), micros(101), micros(2));
        }
        assert!((micros(100)..micros(105)).contains(&request.run) && request.took >= request.run);
        assert!(!request.is_long());
    }

    #[test]
    fn as_many_as_keep_the_processors_busy() {
        for (request, processors, at_once) in [
            (usual(1_000, 1_000), 2, 2),
            (usual(1_000, 1_200), 2, 2),
            (usual(1_000, 1_300), 2, 3),
            (usual(1_000, 51_000), 2, 102),
            (usual(1_000, 1_000), 1, 1),
            (usual(0, 1_000), 1, 1_000_000),
            (usual(0, 0), 2, 2),
        ] {
            assert_eq!(request.at_once(processors), at_once, "{request:?} {processors}");
        }
    }

    #[test]
    fn a_request_counts_for_a_while() {
        let counts_for = |took| usual(took, took).counts_for().as_micros();
        assert_eq!(
            [300, 1_000, 10_000, 1_000_000].map(counts_for),
            [2_000, 4_000, 40_000, 50_000]
        );
    }

    #[test]
    fn the_more_are_idle_the_less_often_each_looks() {
        let look_again = |idle| super::look_again(idle).as_micros();
        assert_eq!(
            [0, 1, 14, 64, 10_000].map(look_again),
            [1_000, 1_000, 7_000, 32_000, 100_000]
        );
    }
}

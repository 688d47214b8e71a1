//! The requests of one route over a few seconds. Both generations have the same seconds, so an outage of a database hurts both.

use super::sums::{Counts, Pair};

/// Seconds of the longest window. A longer one shows less about the same moment.
const LONGEST: f64 = 64.0;
/// A window is long enough to have one request of each generation, but no longer than this if it has so many requests.
const ENOUGH_SECONDS: f64 = 8.0;
const ENOUGH_REQUESTS: f64 = 8.0;
/// Requests in a second of a rare route.
const RARE: f64 = 0.5;
/// Seconds of the first window, when the number of requests is unknown.
const FIRST: u32 = 2;
/// The part of a new second in the mean of requests.
const NEW_PART: f64 = 0.1;

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Window {
    sums: Pair<Counts>,
    age: u32,
    /// Fixed when the window begins; a length that follows its requests would choose them.
    length: u32,
    /// The mean of requests in a second.
    rate: Option<f64>,
    /// Whether the window has so few requests that it rarely has both generations.
    pub is_rare: bool,
}

impl Window {
    /// Takes a second. Returns a complete window. `part`: the smaller part of requests that a generation should have.
    pub(super) fn second(&mut self, second: &Pair<Counts>, part: f64) -> Option<Pair<Counts>> {
        if self.age == 0 {
            self.is_rare = self.rate.is_some_and(|rate| rate < RARE);
            self.length = match self.rate {
                None => FIRST,
                Some(rate) => {
                    let has_both = 1.0 / (rate * part);
                    let has_enough = ENOUGH_SECONDS.max(ENOUGH_REQUESTS / rate);
                    has_both.min(has_enough).clamp(1.0, LONGEST) as u32
                }
            };
        }
        self.sums.merge(second);
        let mut now = Counts::default();
        now.merge(&second.old);
        now.merge(&second.new);
        let now = now.requests as f64;
        self.rate = Some(self.rate.map_or(now, |rate| rate + NEW_PART * (now - rate)));
        self.age += 1;
        if self.age < self.length {
            return None;
        }
        self.end()
    }

    /// Ends the window early, because the conditions change. Returns its sums so far.
    pub(super) fn end(&mut self) -> Option<Pair<Counts>> {
        self.age = 0;
        let sums = std::mem::take(&mut self.sums);
        (sums.new.requests > 0).then_some(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the length of the third window, and whether it is rare. `every`: a request each so many seconds.
    fn length(requests: u64, every: u32, part: f64) -> (u32, bool) {
        let mut window = Window::default();
        let mut second = 0;
        let mut next = || {
            second += 1;
            let mut sums = Pair::<Counts>::default();
            if second % every == 0 {
                sums.old.requests = requests - 1;
                sums.new.requests = 1;
            }
            window.second(&sums, part).is_some().then_some(window.is_rare)
        };
        let mut ends = (1..2000).filter_map(|second| Some((second, next()?)));
        let (before, _) = ends.by_ref().take(20).last().unwrap();
        let (end, is_rare) = ends.next().unwrap();
        (end - before, is_rare)
    }

    #[test]
    fn a_window_is_as_long_as_its_requests_need() {
        let rows = [
            // Requests, each so many seconds, the smaller part of them: the length, and whether it is rare.
            ((100, 1, 0.5), (1, false)),
            ((5, 1, 0.5), (1, false)),
            ((5, 1, 0.1), (2, false)),
            ((5, 1, 0.01), (8, false)),
            ((100, 1, 0.01), (1, false)),
            ((1, 1, 0.1), (8, false)),
        ];
        for ((requests, every, part), expected) in rows {
            assert_eq!(
                length(requests, every, part),
                expected,
                "{requests} in {every} s, {part}"
            );
        }
        // The mean of a rare route sways.
        let (seconds, is_rare) = length(1, 20, 0.5);
        assert!((16..=64).contains(&seconds) && is_rare, "{seconds}");
    }

    #[test]
    fn a_window_that_ends_early_keeps_its_requests() {
        let mut window = Window::default();
        let mut sums = Pair::<Counts>::default();
        (sums.old.requests, sums.new.requests) = (9, 1);
        assert_eq!(window.second(&sums, 0.5), None);
        assert_eq!(window.end(), Some(sums));
        assert_eq!(window.end(), None);
    }
}

//! The last hour of a pool, by the minute of the monotonic clock, which goes on over reloads and upgrades, and the form
//! of earlier hours in answers.

use crate::dead_work::{NotBegun, REASONS};
use serde::{Deserialize, Serialize};

/// How far the history reaches.
pub const MINUTES: u64 = 60;
/// The minutes of ended generations are kept by tens: each pool then has at most seven.
pub const COARSE: u64 = 10;
/// The upper bounds of the classes of waits, in milliseconds. The last class is unbounded.
pub const BOUNDS_MILLIS: [u64; WAITS - 1] = [1, 10, 50, 100, 250, 1_000, 5_000];
pub const WAITS: usize = 8;

/// One minute of a pool, or ten that are kept as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Minute {
    pub minute: u64,
    pub requests: u64,
    /// Requests with status 5xx or without an answer.
    pub errors: u64,
    /// Requests that did not begin, by [`DeadCount`](crate::dead_work::DeadCount); they are among the requests.
    pub dead: [u64; REASONS],
    /// The duration of all requests, in microseconds.
    pub run_micros: u64,
    /// Requests by the class of their wait.
    pub waits: [u64; WAITS],
}

/// Returns the class of a wait.
pub fn class_of(millis: u64) -> usize {
    BOUNDS_MILLIS.iter().take_while(|bound| millis > **bound).count()
}

impl Minute {
    pub fn add(&mut self, other: &Minute) {
        let sums = [
            (&mut self.requests, other.requests),
            (&mut self.errors, other.errors),
            (&mut self.run_micros, other.run_micros),
        ];
        let waits = self.waits.iter_mut().zip(other.waits);
        let dead = self.dead.iter_mut().zip(other.dead);
        for (own, others) in sums.into_iter().chain(waits).chain(dead) {
            *own = own.saturating_add(others);
        }
    }

    /// Returns the bound in milliseconds that 95 of 100 requests did not exceed; `None`: more than all bounds.
    pub fn wait_of_most(&self) -> Option<u64> {
        let all = self
            .waits
            .iter()
            .fold(0_u64, |sum, count| sum.saturating_add(*count));
        let mut below = 0_u64;
        let class = self.waits.iter().position(|count| {
            below = below.saturating_add(*count);
            below as f64 >= all as f64 * 0.95
        });
        BOUNDS_MILLIS.get(class?).copied()
    }
}

/// Minutes with requests, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct History {
    minutes: Vec<Minute>,
}

impl History {
    pub fn is_empty(&self) -> bool {
        self.minutes.is_empty()
    }

    pub fn add_minute(&mut self, minute: &Minute) {
        match self.minutes.binary_search_by_key(&minute.minute, |it| it.minute) {
            Ok(at) => self.minutes[at].add(minute),
            Err(at) => self.minutes.insert(at, *minute),
        }
    }

    pub fn add(&mut self, other: &History) {
        other.minutes.iter().for_each(|minute| self.add_minute(minute));
    }

    /// Drops minutes older than an hour, and merges the others by ten minutes.
    pub fn coarsen(&mut self, now: u64) {
        for minute in std::mem::take(&mut self.minutes) {
            if is_recent(&minute, now) {
                let begin = minute.minute / COARSE * COARSE;
                self.add_minute(&Minute {
                    minute: begin,
                    ..minute
                });
            }
        }
    }

    /// Returns the periods of ten minutes with all their minutes, and the present, incomplete one.
    pub fn tens(&self, now: u64) -> Vec<Minute> {
        let mut tens = History::default();
        for minute in &self.minutes {
            let begin = minute.minute / COARSE * COARSE;
            if minute.minute <= now && now - begin < MINUTES {
                tens.add_minute(&Minute {
                    minute: begin,
                    ..*minute
                });
            }
        }
        tens.minutes
    }

    /// Sums up the last hour; `None` without a request.
    pub fn last_hour(&self, now: u64) -> Option<LastHour> {
        let recent = || self.minutes.iter().filter(|minute| is_recent(minute, now));
        let mut sum = Minute::default();
        recent().for_each(|minute| sum.add(minute));
        let worst =
            recent().max_by_key(|minute| (minute.wait_of_most().unwrap_or(u64::MAX), minute.minute))?;
        Some(LastHour {
            requests: sum.requests,
            errors: sum.errors,
            dead_work: sum.dead.into(),
            busy_workers: sum.run_micros as f64 / 1e6 / (MINUTES * 60) as f64,
            wait_p95_at_most_ms: sum.wait_of_most(),
            worst_minutes_ago: now.saturating_sub(worst.minute),
            worst_wait_p95_at_most_ms: worst.wait_of_most(),
        })
    }
}

/// A worker may write any minute.
fn is_recent(minute: &Minute, now: u64) -> bool {
    minute.minute <= now && now - minute.minute <= MINUTES
}

/// The last hour in an answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LastHour {
    pub requests: u64,
    pub errors: u64,
    /// Requests that did not begin.
    pub dead_work: NotBegun,
    /// The mean number of busy workers.
    pub busy_workers: f64,
    /// 95 of 100 requests waited at most so long; `None`: for more than 5 s.
    pub wait_p95_at_most_ms: Option<u64>,
    /// The minute with the longest waits.
    pub worst_minutes_ago: u64,
    pub worst_wait_p95_at_most_ms: Option<u64>,
}

/// A time of a pool in an answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Period {
    /// Its begin, in seconds since 1970.
    pub began: u64,
    pub minutes: u64,
    pub requests: u64,
    pub errors: u64,
    /// Requests that did not begin.
    pub dead_work: NotBegun,
    /// The mean number of busy workers.
    pub busy_workers: f64,
    /// 95 of 100 requests waited at most so long; `None`: for more than 5 s.
    pub wait_p95_at_most_ms: Option<u64>,
}

impl Period {
    /// Describes `minutes` minutes that began `ago` seconds before `epoch` (seconds since 1970).
    pub fn new(sum: &Minute, minutes: u64, ago: u64, epoch: u64) -> Period {
        Period {
            began: epoch.saturating_sub(ago),
            minutes,
            requests: sum.requests,
            errors: sum.errors,
            dead_work: sum.dead.into(),
            busy_workers: sum.run_micros as f64 / 1e6 / (minutes * 60) as f64,
            wait_p95_at_most_ms: sum.wait_of_most(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(minute: u64, wait_millis: u64, requests: u64) -> Minute {
        let mut waits = [0; WAITS];
        waits[class_of(wait_millis)] = requests;
        Minute {
            minute,
            requests,
            errors: 1,
            dead: [0, 0, 1, 0],
            run_micros: 36_000_000,
            waits,
        }
    }

    #[test]
    fn waits_have_classes() {
        let classes = [0, 1, 2, 10, 250, 251, 5_000, 5_001, u64::MAX].map(class_of);
        assert_eq!(classes, [0, 0, 1, 1, 4, 5, 6, 7, 7]);
    }

    #[test]
    fn an_hour_is_summed_up() {
        let mut history = History::default();
        assert_eq!(history.last_hour(500), None);
        for (at, wait, requests) in [
            (439, 9_000, 5),
            (440, 3, 96),
            (470, 80, 4),
            (470, 3, 1),
            (501, 9_000, 1),
        ] {
            history.add_minute(&minute(at, wait, requests));
        }
        let hour = history.last_hour(500).unwrap();
        assert_eq!(
            (hour.requests, hour.errors, hour.wait_p95_at_most_ms),
            (101, 3, Some(10))
        );
        assert_eq!(hour.dead_work.counts(), [0, 0, 3, 0]);
        assert_eq!(
            (hour.worst_minutes_ago, hour.worst_wait_p95_at_most_ms),
            (30, Some(100))
        );
        assert!((hour.busy_workers - 0.03).abs() < 1e-9);
        let slow = History {
            minutes: vec![minute(500, 9_000, 1)],
        };
        assert_eq!(slow.last_hour(500).unwrap().wait_p95_at_most_ms, None);
        assert_eq!(slow.last_hour(561), None);
    }

    #[test]
    fn ended_generations_are_kept_by_tens_and_nothing_is_lost() {
        let mut history = History::default();
        (300..=500).for_each(|at| history.add_minute(&minute(at, at % 7, 2)));
        let before = history.last_hour(500).unwrap();
        history.coarsen(500);
        assert!(history.minutes.len() <= 7, "{}", history.minutes.len());
        let after = history.last_hour(500).unwrap();
        assert_eq!((before.requests, before.errors), (after.requests, after.errors));
        history.coarsen(9_999);
        assert!(history.is_empty());
    }

    #[test]
    fn tens_are_whole() {
        let mut history = History::default();
        (400..=503).for_each(|at| history.add_minute(&minute(at, 3, 2)));
        let tens: Vec<_> = history
            .tens(502)
            .iter()
            .map(|it| (it.minute, it.requests))
            .collect();
        assert_eq!(
            tens,
            [(450, 20), (460, 20), (470, 20), (480, 20), (490, 20), (500, 6)]
        );
        let before = history.tens(502);
        history.coarsen(502);
        assert_eq!(history.tens(502), before);
    }

    #[test]
    fn nonsense_does_no_harm() {
        let nonsense = Minute {
            minute: u64::MAX,
            requests: u64::MAX,
            errors: u64::MAX,
            dead: [u64::MAX; REASONS],
            run_micros: u64::MAX,
            waits: [u64::MAX; WAITS],
        };
        let mut history = History::default();
        history.add_minute(&nonsense);
        history.add_minute(&Minute {
            minute: 7,
            ..nonsense
        });
        history.add(&history.clone());
        assert_eq!(history.last_hour(7).unwrap().requests, u64::MAX);
        history.coarsen(u64::MAX);
    }
}

//! The work of a pool's workers between two readings of the scoreboard. Pure; the numbers are untrusted.

use forkyard_base::tick::Tick;
use forkyard_core::autopilot::Route;
use forkyard_core::master::event::GenerationId;
use forkyard_scoreboard::samples::{RouteSums, SlotSums};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// A route's wait beyond this, and times of a request, are not believed: one day.
const LONGEST: f64 = 86_400.0;

/// A scoreboard at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    pub(super) at: Tick,
    pub(super) generation: GenerationId,
    pub(super) slots: HashMap<u32, SlotSums>,
    /// Time with all slots busy, and with a known queue, in nanoseconds.
    pub(super) saturated_ns: u64,
    pub(super) queue_ns: u64,
}

/// What happened between two readings; times in seconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Work {
    pub(super) elapsed: f64,
    pub(super) done: u32,
    pub(super) run: f64,
    pub(super) queued: f64,
    pub(super) held: f64,
    /// The share of the time with all slots busy, and with a known queue.
    pub(super) saturated: f64,
    pub(super) waited: f64,
    pub(super) routes: Vec<Route>,
    pub(super) private: Vec<u64>,
}

fn seconds(now: u64, before: u64) -> f64 {
    Duration::from_nanos(now.saturating_sub(before))
        .as_secs_f64()
        .min(LONGEST)
}

fn count(now: u64, before: u64) -> u32 {
    u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX)
}

impl Reading {
    /// Returns what happened since an earlier reading; `None` if it is of another generation.
    pub(super) fn since(&self, before: &Reading) -> Option<Work> {
        if self.generation != before.generation || self.at <= before.at {
            return None;
        }
        let elapsed = self.at.since(before.at).as_secs_f64();
        let mut work = Work {
            elapsed,
            saturated: (seconds(self.saturated_ns, before.saturated_ns) / elapsed).min(1.0),
            waited: (seconds(self.queue_ns, before.queue_ns) / elapsed).min(1.0),
            ..Work::default()
        };
        let nothing = SlotSums::default();
        let mut routes: BTreeMap<u64, Route> = BTreeMap::new();
        for (slot, now) in &self.slots {
            // A slot without earlier sums had its first worker since.
            let before_it = before.slots.get(slot).unwrap_or(&nothing);
            work.take_slot(now, before_it, (before.at, self.at));
            for (row, sums) in now.routes.iter().enumerate() {
                let Some(sums) = sums else { continue };
                let same = before_it.routes.get(row).copied().flatten();
                let same = same.filter(|same| same.key == sums.key);
                add_route(&mut routes, sums, same.as_ref());
            }
        }
        work.routes = routes.into_values().filter(|route| route.done > 0).collect();
        Some(work)
    }
}

impl Work {
    fn take_slot(&mut self, now: &SlotSums, before: &SlotSums, (since, until): (Tick, Tick)) {
        self.done = self.done.saturating_add(count(now.requests, before.requests));
        self.held += seconds(now.held_ns, before.held_ns);
        // A worker with several requests at a time knows only the samples.
        let known = seconds(now.cpu_ns, before.cpu_ns);
        let sampled = seconds(now.sampled_run_ns, before.sampled_run_ns);
        self.run += known.max(sampled);
        self.queued += seconds(now.sampled_queued_ns, before.sampled_queued_ns);
        if (since..=until).contains(&now.memory_at) && now.memory > 0 {
            self.private.push(now.memory);
        }
    }
}

/// Adds the growth of a row since the last reading. The row of another route grows from zero.
fn add_route(routes: &mut BTreeMap<u64, Route>, now: &RouteSums, before: Option<&RouteSums>) {
    let then = |of: fn(&RouteSums) -> u64| before.map_or(0, of);
    let done = count(now.requests, then(|it| it.requests));
    let busy = seconds(now.busy_ns, then(|it| it.busy_ns));
    let run = seconds(now.cpu_ns, then(|it| it.cpu_ns));
    let logs = now.log_blocked.saturating_sub(then(|it| it.log_blocked));
    // The worker counts ln(1 + ms); a second is the unit here.
    let least = f64::from(done) * 1e-3_f64.ln();
    let most = f64::from(done) * LONGEST.ln();
    let route = routes.entry(now.key).or_insert(Route {
        key: now.key,
        done: 0,
        log_blocked: 0.0,
        blocked: 0.0,
    });
    route.done = route.done.saturating_add(done);
    route.log_blocked += (RouteSums::log(logs) + least).min(most);
    route.blocked += (busy - run).max(0.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    fn sums(requests: u64, held_ms: u64, cpu_ms: u64, key: u64) -> SlotSums {
        SlotSums {
            requests,
            held_ns: held_ms * 1_000_000,
            cpu_ns: cpu_ms * 1_000_000,
            routes: vec![
                None,
                Some(RouteSums {
                    key,
                    requests,
                    busy_ns: held_ms * 1_000_000,
                    cpu_ns: cpu_ms * 1_000_000,
                    log_blocked: (requests as f64 * 100_f64.ln() * 1e6) as u64,
                }),
            ],
            ..SlotSums::default()
        }
    }

    fn reading(millis: u64, slots: &[(u32, SlotSums)]) -> Reading {
        Reading {
            at: at(millis),
            slots: slots.iter().cloned().collect(),
            saturated_ns: millis * 250_000,
            ..Reading::default()
        }
    }

    #[test]
    fn the_difference_is_what_happened() {
        let before = reading(1_000, &[(0, sums(10, 1_000, 100, 7))]);
        let now = reading(3_000, &[(0, sums(30, 3_000, 300, 7)), (1, sums(10, 990, 0, 7))]);
        let work = now.since(&before).unwrap();
        assert_eq!((work.elapsed, work.done, work.saturated), (2.0, 30, 0.25));
        assert!(
            (work.held - 2.99).abs() < 1e-6 && (work.run - 0.2).abs() < 1e-6,
            "{work:?}"
        );
        let [route] = work.routes[..] else {
            panic!("{work:?}")
        };
        assert_eq!((route.key, route.done), (7, 30));
        assert!(
            (route.log_blocked - 30.0 * 0.1_f64.ln()).abs() < 1e-3,
            "{route:?}"
        );
        assert!((route.blocked - 2.79).abs() < 1e-6, "{route:?}");
    }

    #[test]
    fn a_row_of_another_route_begins_at_zero_and_another_generation_too() {
        let before = reading(1_000, &[(0, sums(1_000, 9_000, 0, 7))]);
        let mut now = reading(2_000, &[(0, sums(1_010, 9_100, 0, 8))]);
        let work = now.since(&before).unwrap();
        assert_eq!(
            (work.done, work.routes[0].key, work.routes[0].done),
            (10, 8, 1_010)
        );
        now.generation = GenerationId(1);
        assert_eq!(now.since(&before), None);
        assert_eq!(before.since(&before), None);
    }

    #[test]
    fn only_memory_that_was_measured_since_counts() {
        let measured = |memory, millis| SlotSums {
            memory,
            memory_at: at(millis),
            ..SlotSums::default()
        };
        let now = reading(
            2_000,
            &[
                (0, measured(5, 900)),
                (1, measured(6, 1_500)),
                (2, measured(0, 1_500)),
            ],
        );
        assert_eq!(now.since(&reading(1_000, &[])).unwrap().private, [6]);
    }

    #[test]
    fn nonsense_is_bounded() {
        let lie = SlotSums {
            requests: u64::MAX,
            held_ns: u64::MAX,
            cpu_ns: u64::MAX,
            sampled_run_ns: u64::MAX,
            sampled_queued_ns: u64::MAX,
            memory: u64::MAX,
            memory_at: Tick::from_nanos(u64::MAX),
            routes: vec![
                Some(RouteSums {
                    key: u64::MAX,
                    requests: u64::MAX,
                    busy_ns: u64::MAX,
                    cpu_ns: 0,
                    log_blocked: u64::MAX,
                });
                40
            ],
        };
        let now = reading(2_000, &[(0, lie.clone()), (1, lie)]);
        let work = now.since(&reading(1_000, &[])).unwrap();
        assert!(work.held <= 2.0 * LONGEST && work.run <= 2.0 * LONGEST && work.done == u32::MAX);
        assert!(work.routes.iter().all(|route| route.log_blocked.is_finite()));
    }
}

//! Detects hanging helpers: the master sends a byte now and then and checks whether it was read. On a busy machine a
//! late answer proves nothing, so the helper's activity counts:
//!
//! * Much CPU time without reading: it hangs.
//! * Stopped or asleep at several checks, without CPU time: nothing will wake it. The unread byte would wake a helper
//!   that listens.
//! * Runnable or waiting for a disk: it is slow.
//!
//! If the master itself was late, only CPU time counts.

use forkyard_base::tick::Tick;
use std::time::Duration;

/// The time from a byte to the check, and to the next byte.
const INTERVAL: Duration = Duration::from_secs(2);
/// The time between checks of an unread byte.
const LOOK: Duration = Duration::from_millis(500);
/// A check that is later than this proves nothing about the helper.
const LATE: Duration = Duration::from_millis(400);
/// Checks without activity before the helper is killed.
const LOOKS: u32 = 3;
/// CPU time in microseconds without reading before the kill; more than ten times a helper's longest turn.
const MOST_MICROS: u64 = 2_500_000;

/// A process's state (proc(5), `stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It is runnable, or waits for a disk or memory.
    Work,
    /// It sleeps until an event.
    Rest,
    /// It is stopped by a signal or tracer.
    Stop,
}

/// An observation of a helper.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Whether it read the byte.
    pub has_read: bool,
    /// Its total CPU time in microseconds.
    pub micros: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatAction {
    None,
    Send,
    /// Kill it for this reason.
    Kill(&'static str),
}

/// The heartbeat of one process.
#[derive(Debug)]
pub struct Heartbeat {
    due: Tick,
    sent: Option<Sent>,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    /// Its CPU time when the byte was sent.
    since: u64,
    /// Its CPU time at the last check.
    last: u64,
    looks: u32,
}

impl Sent {
    fn new(micros: u64) -> Sent {
        Sent {
            since: micros,
            last: micros,
            looks: 0,
        }
    }
}

impl Heartbeat {
    /// Returns the heartbeat of a new process.
    pub fn new(now: Tick) -> Heartbeat {
        Heartbeat {
            due: now + INTERVAL,
            sent: None,
        }
    }

    /// When to call [`Heartbeat::check`].
    pub fn deadline(&self) -> Tick {
        self.due
    }

    /// Checks the helper. `at` is called only if its state matters.
    pub fn check(&mut self, seen: Sample, at: impl FnOnce() -> Activity, now: Tick) -> HeartbeatAction {
        let late = now.since(self.due);
        let Some(mut sent) = self.sent.filter(|_| !seen.has_read) else {
            self.sent = Some(Sent::new(seen.micros));
            self.due = now + INTERVAL;
            return HeartbeatAction::Send;
        };
        let at = at();
        if at == Activity::Work || seen.micros != sent.last {
            sent.looks = 0;
        } else if late < LATE {
            sent.looks += 1;
        }
        sent.last = seen.micros;
        self.sent = Some(sent);
        self.due = now + LOOK;
        let why = match at {
            _ if seen.micros.saturating_sub(sent.since) >= MOST_MICROS => "it is busy and takes up nothing",
            Activity::Stop if sent.looks >= LOOKS => "it is stopped",
            Activity::Rest if sent.looks >= LOOKS => "it waits for something else and takes up nothing",
            Activity::Work | Activity::Rest | Activity::Stop => return HeartbeatAction::None,
        };
        self.sent = Some(Sent::new(seen.micros));
        self.due = now + INTERVAL;
        HeartbeatAction::Kill(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        heartbeat: Heartbeat,
        now: Tick,
        micros: u64,
    }

    impl Bench {
        fn new() -> Bench {
            let now = Tick::from_nanos(1);
            let mut bench = Bench {
                heartbeat: Heartbeat::new(now),
                now,
                micros: 1_000_000,
            };
            assert_eq!(bench.beat(true, Activity::Rest, 0), HeartbeatAction::Send);
            bench
        }

        fn beat(&mut self, has_read: bool, at: Activity, micros: u64) -> HeartbeatAction {
            self.beat_late(Duration::ZERO, has_read, at, micros)
        }

        fn beat_late(
            &mut self,
            late: Duration,
            has_read: bool,
            at: Activity,
            micros: u64,
        ) -> HeartbeatAction {
            self.now = self.heartbeat.deadline() + late;
            self.micros += micros;
            let micros = self.micros;
            let seen = Sample { has_read, micros };
            self.heartbeat.check(seen, || at, self.now)
        }

        fn killed_after(&mut self, at: Activity, micros: u64) -> Option<Duration> {
            let begun = self.now;
            let is_killed = |step| matches!(step, HeartbeatAction::Kill(_));
            (0..1000)
                .any(|_| is_killed(self.beat(false, at, micros)))
                .then(|| self.now.since(begun))
        }
    }

    const SOON: Duration = Duration::from_secs(4);

    #[test]
    fn one_that_reads_is_sent_another_byte_now_and_then() {
        let mut bench = Bench::new();
        for _ in 0..1000 {
            assert_eq!(bench.beat(true, Activity::Rest, 100), HeartbeatAction::Send);
        }
        assert_eq!(bench.now.since(Tick::from_nanos(1)), 1001 * INTERVAL);
    }

    #[test]
    fn one_that_is_stopped_or_sleeps_is_given_up_soon() {
        for at in [Activity::Stop, Activity::Rest] {
            assert!(
                Bench::new()
                    .killed_after(at, 0)
                    .is_some_and(|after| after <= SOON)
            );
        }
    }

    #[test]
    fn one_that_runs_in_a_loop_is_given_up_soon() {
        let mut bench = Bench::new();
        assert_eq!(
            bench.beat_late(LATE * 3, false, Activity::Work, 2_000_000),
            HeartbeatAction::None
        );
        let killed = bench.beat_late(LATE * 3, false, Activity::Work, 500_000);
        assert!(matches!(killed, HeartbeatAction::Kill(_)));

        let mut bench = Bench::new();
        assert_eq!(
            bench.beat(false, Activity::Work, 2_000_000),
            HeartbeatAction::None
        );
        assert!(
            bench
                .killed_after(Activity::Work, 500_000)
                .is_some_and(|after| after <= SOON)
        );
        assert!(Bench::new().killed_after(Activity::Rest, 50_000).is_some());
    }

    #[test]
    fn one_that_is_only_slow_is_not() {
        assert_eq!(Bench::new().killed_after(Activity::Work, 0), None);
        let mut bench = Bench::new();
        for _ in 0..100 {
            assert_eq!(bench.beat(false, Activity::Work, 10_000), HeartbeatAction::None);
        }
        assert_eq!(bench.beat(true, Activity::Rest, 10_000), HeartbeatAction::Send);
        for _ in 0..100 {
            assert_eq!(bench.beat(false, Activity::Work, 10_000), HeartbeatAction::None);
        }
    }

    #[test]
    fn nor_where_the_master_was_held_up_as_well() {
        let mut bench = Bench::new();
        for _ in 0..1000 {
            assert_eq!(
                bench.beat_late(LATE, false, Activity::Stop, 0),
                HeartbeatAction::None
            );
        }
        assert_eq!(bench.beat(false, Activity::Work, 0), HeartbeatAction::None);
        // A virtual machine that was paused for a day and continues.
        assert_eq!(bench.beat(false, Activity::Rest, 0), HeartbeatAction::None);
        let day = Duration::from_secs(86_400);
        assert_eq!(
            bench.beat_late(day, false, Activity::Rest, 0),
            HeartbeatAction::None
        );
        assert_eq!(bench.beat(false, Activity::Rest, 0), HeartbeatAction::None);
        assert_eq!(bench.beat(true, Activity::Rest, 0), HeartbeatAction::Send);
    }
}

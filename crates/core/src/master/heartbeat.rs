//! Whether a helper still reads what it is told: its heartbeat.
//!
//! The master sends it a byte now and then, and looks whether it was read. One that does not read may be stopped, hang in a loop,
//! or wait for something that never comes; but it may also have had no processor on a machine that is busy, or no memory, or the
//! whole machine was asleep. So what counts is what the helper itself did meanwhile, not how late it is:
//!
//! * It had much processor time and did not read: it hangs.
//! * It was stopped, or slept, at several looks, and had no processor time between them: nothing wakes it. A byte that waits would
//!   wake one that listens, and it would be ready to run.
//! * It is ready to run, or waits for a disk: it is slow.
//!
//! Where the master itself was late, the same may have held up the helper: of such a look only the processor time
//! counts that the helper has had.

use crate::tick::Tick;
use std::time::Duration;

/// From one byte to the look at it, and to the next byte.
const INTERVAL: Duration = Duration::from_secs(2);
/// From one look at a byte that was not read to the next.
const LOOK: Duration = Duration::from_millis(500);
/// A look that comes so late does not say that the helper could have done anything since the one before.
const LATE: Duration = Duration::from_millis(400);
/// Looks at one that does nothing until it is given up.
const LOOKS: u32 = 3;
/// Processor time without reading, in microseconds, until it is given up. No turn of a helper's loop takes a tenth of it.
const MOST_MICROS: u64 = 2_500_000;

/// What a helper is at (proc(5), `stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It has, or waits for, a processor; or waits for a disk or for memory.
    Work,
    /// It waits for something to happen.
    Rest,
    /// A signal or a tracer has stopped it.
    Stop,
}

/// What can be seen of a helper from outside.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// It has read what it was sent.
    pub has_read: bool,
    /// Processor time that it has had so far, in microseconds.
    pub micros: u64,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatAction {
    /// Nothing.
    None,
    /// Send it a byte.
    Send,
    /// Kill it, for this reason.
    Kill(&'static str),
}

/// The heartbeat of one process.
#[derive(Debug)]
pub struct Heartbeat {
    due: Tick,
    /// A byte was sent, and what was seen then and since.
    sent: Option<Sent>,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    /// Its processor time when the byte was sent.
    since: u64,
    /// Its processor time at the last look.
    last: u64,
    /// Looks at which it did nothing.
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
    /// Of a process that has just been started.
    pub fn new(now: Tick) -> Heartbeat {
        Heartbeat {
            due: now + INTERVAL,
            sent: None,
        }
    }

    /// When [`Heartbeat::check`] is to be called.
    pub fn deadline(&self) -> Tick {
        self.due
    }

    /// It is time to look: says what is to be done. `at` is asked for where it matters.
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
        // It is gone in a moment, as far as the kernel can end it.
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
        /// A byte was sent.
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

        /// The next look in time, at one that has had so much more of a processor.
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

        /// How long it takes from the byte until it is killed.
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
        // However late the master is on a machine that is busy.
        let mut bench = Bench::new();
        assert_eq!(
            bench.beat_late(LATE * 3, false, Activity::Work, 2_000_000),
            HeartbeatAction::None
        );
        let killed = bench.beat_late(LATE * 3, false, Activity::Work, 500_000);
        assert!(matches!(killed, HeartbeatAction::Kill(_)));

        // It has a processor for itself between looks: the first comes after two seconds.
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
        // Also if it sleeps now and then.
        assert!(Bench::new().killed_after(Activity::Rest, 50_000).is_some());
    }

    #[test]
    fn one_that_is_only_slow_is_not() {
        // It waits for a processor or a disk.
        assert_eq!(Bench::new().killed_after(Activity::Work, 0), None);
        // It has had a little of a processor before it reads at last.
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
        // A whole day, as of a virtual machine that was stopped; and then it goes on.
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

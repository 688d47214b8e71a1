//! Scheduler statistics (/proc/self/schedstat; Documentation/scheduler/sched-stats.rst of Linux) and policy.

use crate::error::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const TEXT_BYTES: usize = 64;

/// How long a thread ran and waited for a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchedTimes {
    /// CPU time.
    pub run: Duration,
    /// Time in the run queue.
    pub waited: Duration,
}

/// Statistics of the main thread of the process that opened it.
#[derive(Debug)]
pub struct SchedStat(File);

impl SchedStat {
    /// Opens the statistics, or returns `None` if the kernel lacks them.
    pub fn open() -> Option<SchedStat> {
        let opened = SchedStat(File::open("/proc/self/schedstat").ok()?);
        opened.read().is_some().then_some(opened)
    }

    /// Reads the times. A system call.
    pub fn read(&self) -> Option<SchedTimes> {
        let mut text = [0; TEXT_BYTES];
        let length = self.0.read_at(&mut text, 0).ok()?;
        parse(text.get(..length)?)
    }
}

/// Sets SCHED_BATCH (sched(7)): no preemption at wake-ups. Keeps a non-default policy. Children inherit it.
///
/// # Errors
/// sched_setscheduler(2), if a seccomp filter rejects it.
pub fn set_batch() -> Result<()> {
    // SAFETY: the call takes only numbers.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        return Ok(());
    }
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the struct outlives the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const priority) } {
        0 => Ok(()),
        _ => Err(Error::last("sched_setscheduler", "SCHED_BATCH")),
    }
}

fn parse(text: &[u8]) -> Option<SchedTimes> {
    let mut numbers = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let mut time = || numbers.next()?.parse().ok().map(Duration::from_nanos);
    let (run, waited) = (time()?, time()?);
    // The kernel doesn't count.
    (!run.is_zero()).then_some(SchedTimes { run, waited })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_read() {
        let times = |run, waited| {
            let (run, waited) = (Duration::from_nanos(run), Duration::from_nanos(waited));
            Some(SchedTimes { run, waited })
        };
        assert_eq!(parse(b"264522 17 2\n"), times(264_522, 17));
        for wrong in [&b"0 0 0\n"[..], b"", b"12", b"x 1 2", b"\xff"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_thread_becomes_one_for_batches() {
        // SAFETY: the call takes only numbers.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let usual = policy();
        let batch = if usual == libc::SCHED_OTHER {
            libc::SCHED_BATCH
        } else {
            usual
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                set_batch().expect("SCHED_BATCH");
                assert_eq!(policy(), batch);
                set_batch().expect("nothing to do");
            });
            scope.spawn(|| {
                let priority = libc::sched_param { sched_priority: 0 };
                // SAFETY: the kernel reads the struct.
                let chosen = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const priority) };
                assert_eq!((chosen, set_batch().is_ok()), (0, true));
                assert_eq!(policy(), libc::SCHED_IDLE);
            });
        });
        assert_eq!(policy(), usual);
    }

    #[test]
    fn a_process_that_computes_has_run_longer() {
        let Some(stat) = SchedStat::open() else { return };
        let main = || std::process::id() as i32 == nix::unistd::gettid().as_raw();
        let before = stat.read().expect("times");
        let after = stat.read().expect("times");
        assert!(after.run >= before.run || !main(), "{before:?} {after:?}");
    }
}

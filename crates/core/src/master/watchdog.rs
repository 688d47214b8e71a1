//! When a generation's requests are looked at for `request_slowlog_timeout` and `request_terminate_timeout`.
//!
//! ```text
//!          Accepted             Due             Busy
//!   Armed ──────────▶ Timing ────────▶ Looking ──────▶ Timing
//!     ▲                                   │
//!     └───────────────────────────────────┘ Quiet
//! ```
//!
//! While no request runs that could still be slow or expire, there is no timer: in Armed and Looking, workers tell when they
//! take up work. While some run, there is one timer, for the earliest that can expire; no request that starts later can expire
//! before it.

use super::event::GenerationId;
use super::manager::{Manager, Step};
use super::overdue::Limits;
use super::snapshot::View;
use super::timers::Timer;

/// The state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watchdog {
    /// The generation has no such timeout.
    Off,
    /// At the last look no request ran that could still become slow or expire; workers tell the next one.
    Armed,
    /// A timer is set for the earliest request that can expire.
    Timing,
    /// The timer fired, workers tell again, a snapshot will show what runs.
    Looking,
}

/// What changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchdogCause {
    /// A worker told that it took up work.
    Accepted,
    /// The timer fired.
    Due,
    /// A snapshot: some request runs, or is about to.
    Busy,
    /// A snapshot: none does.
    Quiet,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchdogAction {
    /// Nothing.
    Nothing,
    /// Set the timer to a whole timeout from now, the shorter one.
    Time,
    /// Set the timer to the earliest expiry that the snapshot shows.
    TimeEarliest,
    /// Let workers tell, then take a snapshot.
    Look,
}

impl Watchdog {
    /// The state after `cause`, and the action that goes with the change.
    pub(super) fn after(self, cause: WatchdogCause) -> (Watchdog, WatchdogAction) {
        match (self, cause) {
            (Watchdog::Armed | Watchdog::Looking, WatchdogCause::Accepted) => {
                (Watchdog::Timing, WatchdogAction::Time)
            }
            (Watchdog::Timing, WatchdogCause::Due) => (Watchdog::Looking, WatchdogAction::Look),
            (Watchdog::Armed | Watchdog::Looking | Watchdog::Timing, WatchdogCause::Busy) => {
                (Watchdog::Timing, WatchdogAction::TimeEarliest)
            }
            (Watchdog::Looking, WatchdogCause::Quiet) => (Watchdog::Armed, WatchdogAction::Nothing),
            // A snapshot taken for another reason proves nothing in Timing; the timer will tell. In Looking it may come
            // first and be too old, but then the one that was asked for here is still on its way and says Busy.
            (Watchdog::Timing, WatchdogCause::Accepted | WatchdogCause::Quiet)
            | (Watchdog::Armed, WatchdogCause::Due | WatchdogCause::Quiet)
            | (Watchdog::Looking, WatchdogCause::Due)
            | (
                Watchdog::Off,
                WatchdogCause::Accepted | WatchdogCause::Due | WatchdogCause::Busy | WatchdogCause::Quiet,
            ) => (self, WatchdogAction::Nothing),
        }
    }

    /// Whether workers that take up work are to tell.
    pub(super) fn wants_telling(self) -> bool {
        match self {
            Watchdog::Armed | Watchdog::Looking => true,
            Watchdog::Off | Watchdog::Timing => false,
        }
    }
}

impl Manager {
    /// Changes the state of a generation's watchdog and does what goes with it.
    pub(super) fn watchdog_changed(
        &mut self,
        id: GenerationId,
        cause: WatchdogCause,
        view: Option<&View>,
        step: &mut Step<'_>,
    ) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let limits = Limits::of(&generation.policy);
        let Some(soonest) = limits.soonest() else {
            return;
        };
        let (next, action) = generation.watchdog.after(cause);
        generation.watchdog = next;
        match action {
            WatchdogAction::Nothing => {}
            WatchdogAction::Time => self.timers.set_by(Timer::Expiry(id), step.now, soonest),
            WatchdogAction::TimeEarliest => {
                // Not later than for a request that begins now without a word to the master.
                let next = view.and_then(|view| limits.next_look(view, step.now));
                let next = next.map_or(soonest, |next| next.min(soonest));
                self.timers.set(Timer::Expiry(id), step.now, next);
            }
            WatchdogAction::Look => {
                self.take_snapshot(id, step);
            }
        }
        self.publish_wake_on_accept(id, step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_only_while_workers_tell() {
        assert_eq!(
            Watchdog::Timing.after(WatchdogCause::Quiet),
            (Watchdog::Timing, WatchdogAction::Nothing)
        );
        assert_eq!(
            Watchdog::Looking.after(WatchdogCause::Quiet),
            (Watchdog::Armed, WatchdogAction::Nothing)
        );
    }

    #[test]
    fn work_taken_while_it_looks_keeps_it_awake() {
        let (timing, action) = Watchdog::Looking.after(WatchdogCause::Accepted);
        assert_eq!((timing, action), (Watchdog::Timing, WatchdogAction::Time));
        assert_eq!(
            timing.after(WatchdogCause::Quiet),
            (Watchdog::Timing, WatchdogAction::Nothing)
        );
    }
}

//! When a generation's requests are checked for `request_slowlog_timeout` and `request_terminate_timeout`.
//!
//! ```text
//!          Accepted             Due             Busy
//!   Armed ──────────▶ Timing ────────▶ Looking ──────▶ Timing
//!     ▲                                   │
//!     └───────────────────────────────────┘ Quiet
//! ```
//!
//! Without requests that can become slow or expire there is no timer: in Armed and Looking workers report when they
//! take up work. Otherwise one timer is set for the earliest; later requests can't expire before it.

use super::event::GenerationId;
use super::manager::{Manager, Step};
use super::overdue::Limits;
use super::snapshot::View;
use super::timers::Timer;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Watchdog {
    /// The generation has no such timeout.
    #[default]
    Off,
    /// No request can become slow or expire; workers report the next one.
    Armed,
    Timing,
    /// The timer fired; workers report again, and a snapshot is pending.
    Looking,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchdogCause {
    Accepted,
    Due,
    Busy,
    Quiet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchdogAction {
    Nothing,
    /// Set the timer to the shorter timeout from now.
    Time,
    /// Set the timer to the snapshot's earliest expiry.
    TimeEarliest,
    /// Have workers report, then take a snapshot.
    Look,
}

impl Watchdog {
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
            // In Timing a snapshot proves nothing. In Looking it may be too old, but the requested one follows.
            (Watchdog::Timing, WatchdogCause::Accepted | WatchdogCause::Quiet)
            | (Watchdog::Armed, WatchdogCause::Due | WatchdogCause::Quiet)
            | (Watchdog::Looking, WatchdogCause::Due)
            | (
                Watchdog::Off,
                WatchdogCause::Accepted | WatchdogCause::Due | WatchdogCause::Busy | WatchdogCause::Quiet,
            ) => (self, WatchdogAction::Nothing),
        }
    }

    pub(super) fn wants_telling(self) -> bool {
        match self {
            Watchdog::Armed | Watchdog::Looking => true,
            Watchdog::Off | Watchdog::Timing => false,
        }
    }
}

impl Manager {
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
                // No later than for a request that starts now without a report.
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

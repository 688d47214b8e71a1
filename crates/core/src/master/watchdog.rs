//! When a generation's requests are looked at for `request_slowlog_timeout` and `request_terminate_timeout`.
//!
//! ```text
//!          Accepted             Due             Busy
//!   Armed ──────────▶ Timing ────────▶ Looking ──────▶ Timing
//!     ▲                                   │
//!     └───────────────────────────────────┘ Quiet
//! ```
//!
//! While no request runs that could still be slow or expire nothing ticks: in Armed and Looking workers tell when they take up work. While some run there is
//! one timer, for the earliest that can expire; no request that starts later can expire before it.

/// The state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watchdog {
    /// The generation has no such timeout.
    Off,
    /// No request ran when last looked, or none of which anything could become; the next one is told.
    Armed,
    /// A timer is set for the earliest request that can expire.
    Timing,
    /// The timer fired, workers tell again, a census will show what runs.
    Looking,
}

/// What changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A worker told that it took up work.
    Accepted,
    /// The timer fired.
    Due,
    /// A census: some request runs, or is about to.
    Busy,
    /// A census: none does.
    Quiet,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Nothing.
    Nothing,
    /// Set the timer to a whole timeout from now, the shorter one.
    Time,
    /// Set the timer to the earliest expiry that the census shows.
    TimeEarliest,
    /// Let workers tell, then take a census.
    Look,
}

impl Watchdog {
    /// The state after `cause`, and the order that goes with the change.
    pub(super) fn after(self, cause: Cause) -> (Watchdog, Order) {
        match (self, cause) {
            (Watchdog::Armed | Watchdog::Looking, Cause::Accepted) => (Watchdog::Timing, Order::Time),
            (Watchdog::Timing, Cause::Due) => (Watchdog::Looking, Order::Look),
            (Watchdog::Armed | Watchdog::Looking | Watchdog::Timing, Cause::Busy) => {
                (Watchdog::Timing, Order::TimeEarliest)
            }
            (Watchdog::Looking, Cause::Quiet) => (Watchdog::Armed, Order::Nothing),
            // A census taken for another reason proves nothing in Timing; the timer will tell. In Looking it may come
            // first and be too old, but then the one that was asked for here is still on its way and says Busy.
            (Watchdog::Timing, Cause::Accepted | Cause::Quiet)
            | (Watchdog::Armed, Cause::Due | Cause::Quiet)
            | (Watchdog::Looking, Cause::Due)
            | (Watchdog::Off, Cause::Accepted | Cause::Due | Cause::Busy | Cause::Quiet) => {
                (self, Order::Nothing)
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_only_while_workers_tell() {
        assert_eq!(
            Watchdog::Timing.after(Cause::Quiet),
            (Watchdog::Timing, Order::Nothing)
        );
        assert_eq!(
            Watchdog::Looking.after(Cause::Quiet),
            (Watchdog::Armed, Order::Nothing)
        );
    }

    #[test]
    fn work_taken_while_it_looks_keeps_it_awake() {
        let (timing, order) = Watchdog::Looking.after(Cause::Accepted);
        assert_eq!((timing, order), (Watchdog::Timing, Order::Time));
        assert_eq!(timing.after(Cause::Quiet), (Watchdog::Timing, Order::Nothing));
    }
}

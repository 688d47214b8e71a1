//! The daemon's own life.
//!
//! ```text
//!            Drain             Finish               Terminate
//!  Running ────────▶ Draining ───────▶ Finishing ───────────▶ Terminating
//!    │ │                │                ▲  │ Empty              ▲ │ Empty
//!    │ └────────────────┼────────────────┘  ▼                    │ ▼
//!    │   Finish         │                 Gone ◀─────────────────┼─┘
//!    └──────────────────┴────────────────────────────────────────┘ Terminate
//! ```
//!
//! Nothing leads back: a daemon that was told to stop stops.

/// Where the daemon is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Pools are served.
    Running,
    /// As Finishing, but for what is ordered: orders are taken, and their workers stay. Only Finish ends it, since an
    /// order may come while nothing is there.
    Draining,
    /// Requests that run are finished; nothing new is begun.
    Finishing,
    /// Everything is being ended.
    Terminating,
    /// Everything has ended.
    Gone,
}

/// What changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Stop after the requests that run, once nobody orders workers any more.
    Drain,
    /// Stop after the requests that run.
    Finish,
    /// Stop now.
    Terminate,
    /// No worker and no preloader is left.
    Empty,
}

impl Phase {
    /// The phase after `cause`.
    pub(super) fn after(self, cause: Cause) -> Phase {
        match (self, cause) {
            (Phase::Running, Cause::Drain) => Phase::Draining,
            (Phase::Running, Cause::Finish) => Phase::Finishing,
            (Phase::Running, Cause::Terminate) => Phase::Terminating,
            (Phase::Running, Cause::Empty) => Phase::Running,
            (Phase::Draining, Cause::Drain | Cause::Empty) => Phase::Draining,
            (Phase::Draining, Cause::Finish) => Phase::Finishing,
            (Phase::Draining, Cause::Terminate) => Phase::Terminating,
            (Phase::Finishing, Cause::Drain | Cause::Finish) => Phase::Finishing,
            (Phase::Finishing, Cause::Terminate) => Phase::Terminating,
            (Phase::Finishing, Cause::Empty) => Phase::Gone,
            (Phase::Terminating, Cause::Drain | Cause::Finish | Cause::Terminate) => Phase::Terminating,
            (Phase::Terminating, Cause::Empty) => Phase::Gone,
            (Phase::Gone, Cause::Drain | Cause::Finish | Cause::Terminate | Cause::Empty) => Phase::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminate_overrides_finish_and_nothing_overrides_terminate() {
        assert_eq!(Phase::Finishing.after(Cause::Terminate), Phase::Terminating);
        assert_eq!(Phase::Terminating.after(Cause::Finish), Phase::Terminating);
        assert_eq!(Phase::Running.after(Cause::Empty), Phase::Running);
    }

    #[test]
    fn who_drains_finishes_when_told_to_and_not_before() {
        let draining = Phase::Running.after(Cause::Drain);
        assert_eq!(draining.after(Cause::Empty), Phase::Draining);
        assert_eq!(draining.after(Cause::Finish).after(Cause::Empty), Phase::Gone);
        assert_eq!(draining.after(Cause::Terminate), Phase::Terminating);
        assert_eq!(Phase::Finishing.after(Cause::Drain), Phase::Finishing);
    }
}

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
pub(super) enum PhaseCause {
    /// Stop after the requests that run, once no router orders workers any more.
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
    pub(super) fn after(self, cause: PhaseCause) -> Phase {
        match (self, cause) {
            (Phase::Running, PhaseCause::Drain) => Phase::Draining,
            (Phase::Running, PhaseCause::Finish) => Phase::Finishing,
            (Phase::Running, PhaseCause::Terminate) => Phase::Terminating,
            (Phase::Running, PhaseCause::Empty) => Phase::Running,
            (Phase::Draining, PhaseCause::Drain | PhaseCause::Empty) => Phase::Draining,
            (Phase::Draining, PhaseCause::Finish) => Phase::Finishing,
            (Phase::Draining, PhaseCause::Terminate) => Phase::Terminating,
            (Phase::Finishing, PhaseCause::Drain | PhaseCause::Finish) => Phase::Finishing,
            (Phase::Finishing, PhaseCause::Terminate) => Phase::Terminating,
            (Phase::Finishing, PhaseCause::Empty) => Phase::Gone,
            (Phase::Terminating, PhaseCause::Drain | PhaseCause::Finish | PhaseCause::Terminate) => {
                Phase::Terminating
            }
            (Phase::Terminating, PhaseCause::Empty) => Phase::Gone,
            (
                Phase::Gone,
                PhaseCause::Drain | PhaseCause::Finish | PhaseCause::Terminate | PhaseCause::Empty,
            ) => Phase::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminate_overrides_finish_and_nothing_overrides_terminate() {
        assert_eq!(Phase::Finishing.after(PhaseCause::Terminate), Phase::Terminating);
        assert_eq!(Phase::Terminating.after(PhaseCause::Finish), Phase::Terminating);
        assert_eq!(Phase::Running.after(PhaseCause::Empty), Phase::Running);
    }

    #[test]
    fn who_drains_finishes_when_told_to_and_not_before() {
        let draining = Phase::Running.after(PhaseCause::Drain);
        assert_eq!(draining.after(PhaseCause::Empty), Phase::Draining);
        assert_eq!(
            draining.after(PhaseCause::Finish).after(PhaseCause::Empty),
            Phase::Gone
        );
        assert_eq!(draining.after(PhaseCause::Terminate), Phase::Terminating);
        assert_eq!(Phase::Finishing.after(PhaseCause::Drain), Phase::Finishing);
    }
}

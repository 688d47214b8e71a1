//! The daemon's own life.
//!
//! ```text
//!            Finish               Terminate
//!  Running ─────────▶ Finishing ───────────▶ Terminating
//!     │                   │ Empty              ▲   │ Empty
//!     │                   ▼                    │   ▼
//!     │                 Gone ◀─────────────────┼───┘
//!     └────────────────────────────────────────┘ Terminate
//! ```
//!
//! Nothing leads back: a daemon that was told to stop stops.

/// Where the daemon is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Pools are served.
    Running,
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
            (Phase::Running, Cause::Finish) => Phase::Finishing,
            (Phase::Running, Cause::Terminate) => Phase::Terminating,
            (Phase::Running, Cause::Empty) => Phase::Running,
            (Phase::Finishing, Cause::Finish) => Phase::Finishing,
            (Phase::Finishing, Cause::Terminate) => Phase::Terminating,
            (Phase::Finishing, Cause::Empty) => Phase::Gone,
            (Phase::Terminating, Cause::Finish | Cause::Terminate) => Phase::Terminating,
            (Phase::Terminating, Cause::Empty) => Phase::Gone,
            (Phase::Gone, Cause::Finish | Cause::Terminate | Cause::Empty) => Phase::Gone,
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
}

//! The state of the daemon. A stop can't be undone.
//!
//! ```text
//!            Drain             Finish               Terminate
//!  Running ────────▶ Draining ───────▶ Finishing ───────────▶ Terminating
//!    │ │                │                ▲  │ Empty              ▲ │ Empty
//!    │ └────────────────┼────────────────┘  ▼                    │ ▼
//!    │   Finish         │                 Gone ◀─────────────────┼─┘
//!    └──────────────────┴────────────────────────────────────────┘ Terminate
//! ```

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ManagerState {
    #[default]
    Running,
    /// As Finishing, but spawn requests are served and their workers stay. Only Finish ends it.
    Draining,
    /// Running requests finish; nothing new starts.
    Finishing,
    Terminating,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ManagerCause {
    /// Stop after the running requests, once the routers are gone.
    Drain,
    /// Stop after the running requests.
    Finish,
    Terminate,
    /// All workers and preloaders are gone.
    Empty,
}

impl ManagerState {
    pub(super) fn after(self, cause: ManagerCause) -> ManagerState {
        match (self, cause) {
            (ManagerState::Running, ManagerCause::Drain) => ManagerState::Draining,
            (ManagerState::Running, ManagerCause::Finish) => ManagerState::Finishing,
            (ManagerState::Running, ManagerCause::Terminate) => ManagerState::Terminating,
            (ManagerState::Running, ManagerCause::Empty) => ManagerState::Running,
            (ManagerState::Draining, ManagerCause::Drain | ManagerCause::Empty) => ManagerState::Draining,
            (ManagerState::Draining, ManagerCause::Finish) => ManagerState::Finishing,
            (ManagerState::Draining, ManagerCause::Terminate) => ManagerState::Terminating,
            (ManagerState::Finishing, ManagerCause::Drain | ManagerCause::Finish) => ManagerState::Finishing,
            (ManagerState::Finishing, ManagerCause::Terminate) => ManagerState::Terminating,
            (ManagerState::Finishing, ManagerCause::Empty) => ManagerState::Gone,
            (
                ManagerState::Terminating,
                ManagerCause::Drain | ManagerCause::Finish | ManagerCause::Terminate,
            ) => ManagerState::Terminating,
            (ManagerState::Terminating, ManagerCause::Empty) => ManagerState::Gone,
            (
                ManagerState::Gone,
                ManagerCause::Drain | ManagerCause::Finish | ManagerCause::Terminate | ManagerCause::Empty,
            ) => ManagerState::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminate_overrides_finish_and_nothing_overrides_terminate() {
        assert_eq!(
            ManagerState::Finishing.after(ManagerCause::Terminate),
            ManagerState::Terminating
        );
        assert_eq!(
            ManagerState::Terminating.after(ManagerCause::Finish),
            ManagerState::Terminating
        );
        assert_eq!(
            ManagerState::Running.after(ManagerCause::Empty),
            ManagerState::Running
        );
    }

    #[test]
    fn who_drains_finishes_when_told_to_and_not_before() {
        let draining = ManagerState::Running.after(ManagerCause::Drain);
        assert_eq!(draining.after(ManagerCause::Empty), ManagerState::Draining);
        assert_eq!(
            draining.after(ManagerCause::Finish).after(ManagerCause::Empty),
            ManagerState::Gone
        );
        assert_eq!(draining.after(ManagerCause::Terminate), ManagerState::Terminating);
        assert_eq!(
            ManagerState::Finishing.after(ManagerCause::Drain),
            ManagerState::Finishing
        );
    }
}

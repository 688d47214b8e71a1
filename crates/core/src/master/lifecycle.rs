//! The lifecycle of the daemon's event loop. Its steps send events to [`super::Manager`].
//!
//! ```text
//!                 Upgrade            Able, routers        RoutersGone
//!  ┌─▶ Serving ───────────▶ Rehearsing ───────▶ WaitingForRouters ───────▶ (hand over)
//!  │    │ │ ▲                 │ │ │ Able, no routers: (hand over)   │
//!  │    │ │ └─────────────────┘ │ └──────────────────────┬──────────┘
//!  │    │ │   Unable            │                        │ Unable
//!  └────┼─┼─────────────────────┼────────────────────────┘
//!       │ │ Quit, from each but Terminating
//!       │ ├───────────▶ Draining ────────────▶ Finishing ┐
//!       │ │   routers              RoutersGone     ▲     │ Terminate, from each
//!       │ └────────────────────────────────────────┘     ▼
//!       └───────────────────────────────────────────▶ Terminating
//!           Terminate
//! ```
//!
//! A stop cancels a running upgrade and allows no other. A faster stop may follow.

use forkyard_protocol::handover::document::Stopping;

/// The control client that requested the upgrade; `None`: a signal did.
pub type Asker = Option<u64>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lifecycle {
    #[default]
    Serving,
    /// Pools are served while the new program checks whether it can take over.
    Rehearsing(Asker),
    /// It can. Routers finish first; connections wait in the listening sockets.
    WaitingForRouters(Asker),
    /// Exits after the routers, which start applications while requests wait.
    Draining,
    /// Exits after the running requests.
    Finishing,
    Terminating,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifecycleCause {
    /// The program on disk should take over.
    Upgrade(Asker),
    Able {
        /// Whether routers have to finish first.
        routers: bool,
    },
    /// It can't, or the handover failed.
    Unable,
    RoutersGone,
    Quit {
        /// Whether routers have to finish first.
        routers: bool,
    },
    Terminate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifecycleAction {
    Nothing,
    /// Start the new program's check.
    Rehearse,
    /// Tell the routers to finish.
    FinishRouters,
    /// Execute the new program; if that fails, send `Unable`.
    HandOver(Asker),
    /// Restart routers and perform the upgrade's reload.
    GoOn,
    /// Tell the routers to finish while the core drains.
    Drain,
    /// Have the core finish.
    Finish,
    /// Kill the routers and have the core terminate.
    Terminate,
}

impl Lifecycle {
    /// Returns the next phase and what to do.
    pub fn after(self, cause: LifecycleCause) -> (Lifecycle, LifecycleAction) {
        use Lifecycle::{Draining, Finishing, Rehearsing, Serving, Terminating, WaitingForRouters};
        match (self, cause) {
            (Serving, LifecycleCause::Upgrade(asker)) => (Rehearsing(asker), LifecycleAction::Rehearse),
            (Serving, LifecycleCause::Able { .. } | LifecycleCause::Unable | LifecycleCause::RoutersGone) => {
                (Serving, LifecycleAction::Nothing)
            }

            (Rehearsing(_), LifecycleCause::Upgrade(_) | LifecycleCause::RoutersGone) => {
                (self, LifecycleAction::Nothing)
            }
            (Rehearsing(asker), LifecycleCause::Able { routers: true }) => {
                (WaitingForRouters(asker), LifecycleAction::FinishRouters)
            }
            (Rehearsing(asker), LifecycleCause::Able { routers: false }) => {
                (WaitingForRouters(None), LifecycleAction::HandOver(asker))
            }
            (Rehearsing(_), LifecycleCause::Unable) => (Serving, LifecycleAction::GoOn),

            (WaitingForRouters(_), LifecycleCause::Upgrade(_) | LifecycleCause::Able { .. }) => {
                (self, LifecycleAction::Nothing)
            }
            // The client gets its answer before this program is replaced.
            (WaitingForRouters(asker), LifecycleCause::RoutersGone) => {
                (WaitingForRouters(None), LifecycleAction::HandOver(asker))
            }
            (WaitingForRouters(_), LifecycleCause::Unable) => (Serving, LifecycleAction::GoOn),

            (
                Serving | Rehearsing(_) | WaitingForRouters(_) | Draining | Finishing,
                LifecycleCause::Quit { routers: true },
            ) => (Draining, LifecycleAction::Drain),
            (
                Serving | Rehearsing(_) | WaitingForRouters(_) | Draining | Finishing,
                LifecycleCause::Quit { routers: false },
            ) => (Finishing, LifecycleAction::Finish),

            (Draining, LifecycleCause::RoutersGone) => (Finishing, LifecycleAction::Finish),
            (Draining, LifecycleCause::Upgrade(_) | LifecycleCause::Able { .. } | LifecycleCause::Unable) => {
                (Draining, LifecycleAction::Nothing)
            }
            (
                Finishing,
                LifecycleCause::Upgrade(_)
                | LifecycleCause::Able { .. }
                | LifecycleCause::Unable
                | LifecycleCause::RoutersGone,
            ) => (Finishing, LifecycleAction::Nothing),

            (
                Serving | Rehearsing(_) | WaitingForRouters(_) | Draining | Finishing | Terminating,
                LifecycleCause::Terminate,
            ) => (Terminating, LifecycleAction::Terminate),
            (
                Terminating,
                LifecycleCause::Upgrade(_)
                | LifecycleCause::Able { .. }
                | LifecycleCause::Unable
                | LifecycleCause::RoutersGone
                | LifecycleCause::Quit { .. },
            ) => (Terminating, LifecycleAction::Nothing),
        }
    }

    /// Returns the phase of a daemon that continues its predecessor's work.
    pub fn resume(stopping: Option<Stopping>) -> Lifecycle {
        match stopping {
            None => Lifecycle::Serving,
            Some(Stopping::Finish) => Lifecycle::Finishing,
            Some(Stopping::Terminate) => Lifecycle::Terminating,
        }
    }

    /// How the daemon exits; `None`: it stays.
    pub fn stopping(self) -> Option<Stopping> {
        match self {
            Lifecycle::Serving | Lifecycle::Rehearsing(_) | Lifecycle::WaitingForRouters(_) => None,
            Lifecycle::Draining | Lifecycle::Finishing => Some(Stopping::Finish),
            Lifecycle::Terminating => Some(Stopping::Terminate),
        }
    }

    /// Whether it waits for `RoutersGone`.
    pub fn waits_for_routers(self) -> bool {
        match self {
            Lifecycle::WaitingForRouters(_) | Lifecycle::Draining => true,
            Lifecycle::Serving | Lifecycle::Rehearsing(_) | Lifecycle::Finishing | Lifecycle::Terminating => {
                false
            }
        }
    }

    /// The client that waits for the running upgrade.
    pub fn asker(self) -> Asker {
        match self {
            Lifecycle::Rehearsing(asker) | Lifecycle::WaitingForRouters(asker) => asker,
            Lifecycle::Serving | Lifecycle::Draining | Lifecycle::Finishing | Lifecycle::Terminating => None,
        }
    }

    /// Why no upgrade may start; `None`: it may.
    pub fn why_no_upgrade(self) -> Option<&'static str> {
        match self {
            Lifecycle::Serving => None,
            Lifecycle::Rehearsing(_) | Lifecycle::WaitingForRouters(_) => Some("an upgrade is under way"),
            Lifecycle::Draining | Lifecycle::Finishing | Lifecycle::Terminating => {
                Some("the daemon is ending, there is no upgrade")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKER: Asker = Some(7);
    const ALL: [Lifecycle; 6] = [
        Lifecycle::Serving,
        Lifecycle::Rehearsing(ASKER),
        Lifecycle::WaitingForRouters(ASKER),
        Lifecycle::Draining,
        Lifecycle::Finishing,
        Lifecycle::Terminating,
    ];

    #[test]
    fn the_new_program_takes_over_once_the_routers_have_finished() {
        let (lifecycle, step) = Lifecycle::Serving.after(LifecycleCause::Upgrade(ASKER));
        assert_eq!(
            (lifecycle, step),
            (Lifecycle::Rehearsing(ASKER), LifecycleAction::Rehearse)
        );
        assert_eq!(
            lifecycle.after(LifecycleCause::RoutersGone),
            (lifecycle, LifecycleAction::Nothing)
        );
        let (lifecycle, step) = lifecycle.after(LifecycleCause::Able { routers: true });
        assert_eq!(step, LifecycleAction::FinishRouters);
        assert!(lifecycle.waits_for_routers());
        let (lifecycle, step) = lifecycle.after(LifecycleCause::RoutersGone);
        assert_eq!(step, LifecycleAction::HandOver(ASKER));
        assert_eq!(lifecycle.asker(), None);
        assert_eq!(
            lifecycle.after(LifecycleCause::Unable),
            (Lifecycle::Serving, LifecycleAction::GoOn)
        );
    }

    #[test]
    fn without_routers_the_new_program_takes_over_at_once() {
        let (_, step) = Lifecycle::Rehearsing(ASKER).after(LifecycleCause::Able { routers: false });
        assert_eq!(step, LifecycleAction::HandOver(ASKER));
    }

    #[test]
    fn a_new_program_that_fails_leaves_the_old_one_serving() {
        for lifecycle in [Lifecycle::Rehearsing(ASKER), Lifecycle::WaitingForRouters(ASKER)] {
            assert_eq!(lifecycle.asker(), ASKER);
            assert_eq!(
                lifecycle.after(LifecycleCause::Unable),
                (Lifecycle::Serving, LifecycleAction::GoOn)
            );
        }
    }

    #[test]
    fn a_daemon_that_ends_drains_if_there_are_routers_and_then_finishes() {
        for lifecycle in ALL.into_iter().filter(|it| *it != Lifecycle::Terminating) {
            let quit = |routers| lifecycle.after(LifecycleCause::Quit { routers });
            assert_eq!(quit(false), (Lifecycle::Finishing, LifecycleAction::Finish));
            assert_eq!(quit(true), (Lifecycle::Draining, LifecycleAction::Drain));
        }
        let gone = Lifecycle::Draining.after(LifecycleCause::RoutersGone);
        assert_eq!(gone, (Lifecycle::Finishing, LifecycleAction::Finish));
    }

    #[test]
    fn terminate_overrides_everything_and_nothing_overrides_it() {
        for lifecycle in ALL {
            assert_eq!(
                lifecycle.after(LifecycleCause::Terminate),
                (Lifecycle::Terminating, LifecycleAction::Terminate)
            );
        }
        for cause in [
            LifecycleCause::Upgrade(None),
            LifecycleCause::Able { routers: false },
            LifecycleCause::Unable,
            LifecycleCause::RoutersGone,
            LifecycleCause::Quit { routers: true },
        ] {
            assert_eq!(
                Lifecycle::Terminating.after(cause),
                (Lifecycle::Terminating, LifecycleAction::Nothing)
            );
        }
    }

    #[test]
    fn a_daemon_that_ends_neither_begins_an_upgrade_nor_goes_on_with_one() {
        for lifecycle in ALL {
            let ends = lifecycle.stopping().is_some();
            let (_, step) = lifecycle.after(LifecycleCause::Upgrade(None));
            assert_eq!(
                step == LifecycleAction::Rehearse,
                lifecycle.why_no_upgrade().is_none()
            );
            let begins = [
                LifecycleCause::Able { routers: false },
                LifecycleCause::RoutersGone,
                LifecycleCause::Unable,
            ]
            .map(|cause| lifecycle.after(cause).1)
            .into_iter()
            .any(|step| matches!(step, LifecycleAction::HandOver(_) | LifecycleAction::GoOn));
            assert!(!(ends && begins), "{lifecycle:?}");
        }
    }

    #[test]
    fn the_next_master_goes_on_ending() {
        for lifecycle in ALL {
            let resumed = Lifecycle::resume(lifecycle.stopping());
            assert_eq!(resumed.stopping(), lifecycle.stopping());
        }
    }
}

//! When a dynamic pool forks. Workers notify the master when they leave fewer than `min_spare_servers` idle (`take_up`
//! in `crates/worker/src/accept_notify.rs`), the master takes a snapshot (`spare_changed`), and forks as many as
//! `growth` in `policy.rs` returns (`fork_spare`), unless `fork_workers` in `fork.rs` finds an obstacle: a back-off,
//! `process.max`, a preloader that is not ready, or `max_children`.
//!
//! A worker that exits by itself, for its request's timeout, or for a refork is replaced even if enough are idle, up to
//! `max_spare_servers`, and beyond for waiting connections (`Generation::to_replace`).
//!
//! ```text
//!           Accepted, Gone, Freed             Blocked
//!   Open ─────────────────────────▶ Asking ───────────▶ Closed
//!    ▲                               │  ▲                 │
//!    └───────────────────────────────┘  └─────────────────┘
//!                 Enough                    Freed; Gone if full
//! ```
//!
//! Workers notify in Open and Asking. In Closed no worker can be forked, so none needs to.

use super::action::Notice;
use super::event::GenerationId;
use super::fork::{Block, DemandCause};
use super::generation::SnapshotNumber;
use super::manager::{Manager, Step};
use super::policy::{self, Load};
use super::snapshot::View;

const MANY: u32 = 8;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Spare {
    /// Not dynamic, or not serving.
    #[default]
    Unused,
    /// Enough workers are idle; workers notify when that changes.
    Open,
    /// A snapshot will show whether enough are idle.
    Asking,
    /// Too few are idle, and no more can be forked.
    Closed(Block),
}

impl Spare {
    /// Returns the next state, and whether to take a snapshot.
    pub(super) fn after(self, cause: DemandCause) -> (Spare, bool) {
        use Spare::{Asking, Closed, Open, Unused};
        match (self, cause) {
            (Unused | Open | Closed(_), DemandCause::Begin) => (Asking, true),
            (Unused | Open | Asking | Closed(_), DemandCause::End) => (Unused, false),
            // The notification may be later than the pending snapshot.
            (Open | Asking, DemandCause::Accepted | DemandCause::Gone | DemandCause::Freed) => (Asking, true),
            (Asking, DemandCause::Enough) => (Open, false),
            (Asking, DemandCause::Blocked(block)) => (Closed(block), false),
            (Closed(_), DemandCause::Freed) => (Asking, true),
            (Closed(Block::Full | Block::Ceiling), DemandCause::Gone) => (Asking, true),
            // Only the source of an ondemand pool has these causes.
            (_, DemandCause::Ready | DemandCause::None | DemandCause::Changed | DemandCause::TimedOut)
            // The timer, fork grant or preloader will follow.
            | (Closed(Block::ProcessMax | Block::Backoff | Block::Preloader), DemandCause::Gone)
            | (Closed(_), DemandCause::Accepted | DemandCause::Enough | DemandCause::Blocked(_))
            | (Asking, DemandCause::Begin)
            | (Open, DemandCause::Enough | DemandCause::Blocked(_))
            | (
                Unused,
                DemandCause::Accepted
                | DemandCause::Gone
                | DemandCause::Freed
                | DemandCause::Enough
                | DemandCause::Blocked(_),
            ) => (self, false),
        }
    }

    pub(super) fn wants_telling(self) -> bool {
        match self {
            Spare::Open | Spare::Asking => true,
            Spare::Unused | Spare::Closed(_) => false,
        }
    }
}

impl Manager {
    pub(super) fn spare_changed(&mut self, id: GenerationId, cause: DemandCause, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let (next, asks) = generation.spare.after(cause);
        generation.spare = next;
        self.publish_wake_on_accept(id, step);
        if !asks {
            return;
        }
        if self.worker_counts(id).all == 0 {
            self.fork_spare(id, &View::default(), step);
            return;
        }
        let number = self.take_snapshot(id, step);
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.spare_on = number;
        }
    }

    pub(super) fn spare_counted(
        &mut self,
        id: GenerationId,
        number: SnapshotNumber,
        view: &View,
        step: &mut Step<'_>,
    ) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        if generation.spare == Spare::Asking && number >= generation.spare_on {
            self.fork_spare(id, view, step);
        }
    }

    fn fork_spare(&mut self, id: GenerationId, view: &View, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let load = Load {
            kept: self.worker_counts(id).kept,
            idle: view.ready(),
            starting: view.starting,
            waiting: view.queued.map(|queued| generation.policy.workers_for(queued)),
            to_replace: generation.to_replace,
        };
        let wanted = policy::growth(generation.policy.manager(), load);
        let (made, block) = self.fork_workers(id, wanted, step);
        let kept = self.worker_counts(id).kept;
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        generation.to_replace = if wanted == 0 && load.starting == 0 {
            0
        } else {
            generation.to_replace.saturating_sub(made)
        };
        let many = made >= MANY && load.kept > 0;
        if many && !generation.said_busy {
            step.say(Notice::SeemsBusy(generation.pool, made, load.idle, kept));
        }
        generation.said_busy = many;
        let cause = match block {
            None => DemandCause::Enough,
            Some(block) => DemandCause::Blocked(block),
        };
        self.spare_changed(id, cause, step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_while_asking_is_asked_again() {
        assert_eq!(Spare::Asking.after(DemandCause::Accepted), (Spare::Asking, true));
    }

    #[test]
    fn workers_are_silent_while_nothing_can_be_done() {
        let (closed, _) = Spare::Asking.after(DemandCause::Blocked(Block::Full));
        assert!(!closed.wants_telling());
        assert_eq!(closed.after(DemandCause::Accepted), (closed, false));
        assert_eq!(closed.after(DemandCause::Gone), (Spare::Asking, true));
    }
}

//! Why a dynamic pool forks now: its workers tell the master when they leave fewer than `min_spare_servers` idle (`take_up`),
//! the master counts them by a snapshot (`spare_changed`), and forks what `growth` in `policy.rs` says (`fork_spare`), unless
//! something is in the way: `fork_workers` in `fork.rs` looks for a back-off, `process.max`, a preloader that is not ready, and
//! `max_children`.
//!
//! There is a second reason: a worker that ended by itself, for its request's time, or for a copy of it (refork), is replaced even if
//! enough are idle, up to `max_spare_servers`, and beyond for connections that wait (`Generation::to_replace`). `exited` in `departure.rs` counts these, `serve` in `reload.rs`
//! counts those of the start, and `policy::growth` weighs them at the count that follows the end.
//!
//! ```text
//!           Accepted, Gone, Freed             Blocked
//!   Open ─────────────────────────▶ Asking ───────────▶ Closed
//!    ▲                               │  ▲                 │
//!    └───────────────────────────────┘  └─────────────────┘
//!                 Enough                    Freed; Gone if full
//! ```
//!
//! In Open and Asking a worker that leaves fewer than `min_spare_servers` idle tells (`take_up` in
//! `crates/worker/src/worker/accept_notify.rs`). In Closed no worker can be made, so none needs to tell. A worker that ends
//! (Gone) and an obstacle that goes away (Freed) lead to a count, too.

use super::action::Notice;
use super::event::GenerationId;
use super::fork::Block;
use super::generation::SnapshotNumber;
use super::manager::{Manager, Step};
use super::policy::{self, Load};
use super::snapshot::View;

/// Making this many spare workers at once is worth a line.
const MANY: u32 = 8;

/// The state of a dynamic generation's spare workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spare {
    /// Not a dynamic generation, or not the one that serves.
    Unused,
    /// There were enough; workers tell when there no longer are.
    Open,
    /// A snapshot will show whether there are enough.
    Asking,
    /// There are too few, and no more can be made.
    Closed(Block),
}

/// What changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpareCause {
    /// The generation serves now.
    Begin,
    /// It doesn't any more.
    End,
    /// A worker wrote into the accept-notify pipe: too few are idle, it called accept for the first time, or the watchdog
    /// wants to know of every request (`WakeOnAccept::always`).
    Accepted,
    /// A worker ended or could not be made.
    Gone,
    /// The obstacle is gone.
    Freed,
    /// The snapshot: there are enough, or as many as may be made at once are being made.
    Enough,
    /// The snapshot: there are too few, and no more can be made.
    Blocked(Block),
}

impl Spare {
    /// The state after `cause`, and whether a snapshot is to be taken: after the workers were told to tell.
    pub(super) fn after(self, cause: SpareCause) -> (Spare, bool) {
        use Spare::{Asking, Closed, Open, Unused};
        match (self, cause) {
            (Unused | Open | Closed(_), SpareCause::Begin) => (Asking, true),
            (Unused | Open | Asking | Closed(_), SpareCause::End) => (Unused, false),
            // What was told in Asking may have happened after the snapshot that is on its way: take another.
            (Open | Asking, SpareCause::Accepted | SpareCause::Gone | SpareCause::Freed) => (Asking, true),
            (Asking, SpareCause::Enough) => (Open, false),
            (Asking, SpareCause::Blocked(block)) => (Closed(block), false),
            (Closed(_), SpareCause::Freed) => (Asking, true),
            (Closed(Block::Full | Block::Trial), SpareCause::Gone) => (Asking, true),
            // The timer, the fork grant or the preloader will come; and nothing told now could be acted upon.
            (Closed(Block::ProcessMax | Block::Backoff | Block::Preloader), SpareCause::Gone)
            | (Closed(_), SpareCause::Accepted | SpareCause::Enough | SpareCause::Blocked(_))
            | (Asking, SpareCause::Begin)
            | (Open, SpareCause::Enough | SpareCause::Blocked(_))
            | (
                Unused,
                SpareCause::Accepted
                | SpareCause::Gone
                | SpareCause::Freed
                | SpareCause::Enough
                | SpareCause::Blocked(_),
            ) => (self, false),
        }
    }

    /// Whether workers that leave too few idle are to tell.
    pub(super) fn wants_telling(self) -> bool {
        match self {
            Spare::Open | Spare::Asking => true,
            Spare::Unused | Spare::Closed(_) => false,
        }
    }
}

impl Manager {
    /// Changes the state of a dynamic generation's spare workers.
    pub(super) fn spare_changed(&mut self, id: GenerationId, cause: SpareCause, step: &mut Step<'_>) {
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
            // Without workers there is nothing to count.
            self.fork_spare(id, &View::default(), step);
            return;
        }
        let number = self.take_snapshot(id, step);
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.spare_on = number;
        }
    }

    /// Decides about a dynamic generation's spare workers, on the newest snapshot that was asked for them.
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

    /// Forks what a dynamic generation lacks, by this snapshot.
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
        let wanted = policy::growth(generation.policy.pm, load);
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
            None => SpareCause::Enough,
            Some(block) => SpareCause::Blocked(block),
        };
        self.spare_changed(id, cause, step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_while_asking_is_asked_again() {
        assert_eq!(Spare::Asking.after(SpareCause::Accepted), (Spare::Asking, true));
    }

    #[test]
    fn workers_are_silent_while_nothing_can_be_done() {
        let (closed, _) = Spare::Asking.after(SpareCause::Blocked(Block::Full));
        assert!(!closed.wants_telling());
        assert_eq!(closed.after(SpareCause::Accepted), (closed, false));
        assert_eq!(closed.after(SpareCause::Gone), (Spare::Asking, true));
    }
}

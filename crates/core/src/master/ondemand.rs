//! Why an ondemand pool forks now: a connection waits, and a snapshot shows that too few workers are free for it. In between,
//! either the master watches the pool's source of work, or a worker is expected to tell it.
//!
//! ```text
//!             Ready            Enough
//!  Watched ───────────▶ Asking ───────▶ Told
//!   ▲ ▲ ▲                │ │ ▲           │ │
//!   │ │ └────────────────┘ │ └───────────┘ │
//!   │ │  Accepted, None,   │   TimedOut    │
//!   │ │  Changed           │               │
//!   │ └────────────────────┼───────────────┘
//!   │                      │    Accepted, Gone, Freed, Changed
//!   │ Freed, Gone          ▼ Blocked
//!   └─────────────────── Blocked
//! ```
//!
//! In Watched the master watches the source of work. In Asking and Told it does not, and every worker that takes up work
//! tells it: at least one is expected to. In Blocked no worker can be made, so the master does not watch, and workers do not
//! tell. Each way out of a state is an event that must come: see the table.

use super::action::Action;
use super::event::{GenerationId, PoolId, Row};
use super::fork::Block;
use super::generation::SnapshotNumber;
use super::manager::{Manager, Step};
use super::policy;
use super::snapshot::View;
use super::timers::Timer;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a worker that says it is idle may let work wait before it is no longer counted upon.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of a pool's source of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The source is not watched: the serving generation is static or dynamic, or there is none.
    Unused,
    /// The master watches.
    Watched,
    /// Work came; a snapshot will show whether a worker can take it.
    Asking,
    /// A worker is expected to take it and to tell.
    Told,
    /// No worker can be made for it.
    Blocked(Block),
}

/// What changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceCause {
    /// An ondemand generation serves now.
    Begin,
    /// None does any more.
    End,
    /// Work waits.
    Ready,
    /// A worker told that it took work, or called accept for the first time.
    Accepted,
    /// A worker ended or could not be made.
    Gone,
    /// Other generations take work now: a worker that was to be counted, or to tell, may be leaving.
    Changed,
    /// The obstacle is gone.
    Freed,
    /// The snapshot: nothing waits any more.
    None,
    /// The snapshot: a worker can take what waits, or was just asked for.
    Enough,
    /// The snapshot: there are too few, and no more can be made.
    Blocked(Block),
    /// No worker has told anything for a while.
    TimedOut,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceAction {
    /// Nothing.
    Nothing,
    /// Let workers be silent, then watch.
    Watch,
    /// Stop watching, let workers tell, then take a snapshot.
    Snapshot,
    /// Take another snapshot: workers are telling already.
    SnapshotAgain,
    /// Let workers be silent.
    StopTelling,
    /// Stop watching.
    Unwatch,
}

impl Source {
    /// The state after `cause`, and the action that goes with the change.
    pub(super) fn after(self, cause: SourceCause) -> (Source, SourceAction) {
        use Source::{Asking, Blocked, Told, Unused, Watched};
        match (self, cause) {
            (Unused, SourceCause::Begin) => (Watched, SourceAction::Watch),
            (Watched, SourceCause::End) => (Unused, SourceAction::Unwatch),
            (Asking | Told | Blocked(_), SourceCause::End) => (Unused, SourceAction::StopTelling),
            (Watched, SourceCause::Ready) => (Asking, SourceAction::Snapshot),
            (Asking, SourceCause::Accepted | SourceCause::None | SourceCause::Changed) => (Watched, SourceAction::Watch),
            (Asking, SourceCause::Enough) => (Told, SourceAction::Nothing),
            (Asking, SourceCause::Blocked(block)) => (Blocked(block), SourceAction::StopTelling),
            (Told, SourceCause::Accepted | SourceCause::Gone | SourceCause::Changed | SourceCause::Freed) => (Watched, SourceAction::Watch),
            (Told, SourceCause::TimedOut) => (Asking, SourceAction::SnapshotAgain),
            (Blocked(_), SourceCause::Freed | SourceCause::Begin) => (Watched, SourceAction::Watch),
            (Blocked(Block::Full | Block::Trial), SourceCause::Gone) => (Watched, SourceAction::Watch),
            // The snapshot that is on its way will not count the one that is gone.
            (Asking, SourceCause::Gone | SourceCause::Freed)
            // The timer, the fork grant or the preloader will come.
            | (Blocked(Block::ProcessMax | Block::Backoff | Block::Preloader), SourceCause::Gone)
            // What stands in the way does so still, unless another generation begins to serve.
            | (Blocked(_), SourceCause::Changed)
            // Ignored: late, or for another state.
            | (Unused, SourceCause::End | SourceCause::Ready | SourceCause::Accepted | SourceCause::Gone | SourceCause::Freed)
            | (Unused, SourceCause::Changed | SourceCause::None | SourceCause::Enough | SourceCause::Blocked(_) | SourceCause::TimedOut)
            | (Watched, SourceCause::Begin | SourceCause::Accepted | SourceCause::Gone | SourceCause::Freed)
            | (Watched, SourceCause::Changed | SourceCause::None | SourceCause::Enough | SourceCause::Blocked(_) | SourceCause::TimedOut)
            | (Asking, SourceCause::Begin | SourceCause::Ready | SourceCause::TimedOut)
            | (Told, SourceCause::Begin | SourceCause::Ready | SourceCause::None | SourceCause::Enough | SourceCause::Blocked(_))
            | (Blocked(_), SourceCause::Ready | SourceCause::Accepted | SourceCause::None | SourceCause::Enough)
            | (Blocked(_), SourceCause::Blocked(_) | SourceCause::TimedOut) => (self, SourceAction::Nothing),
        }
    }

    /// Whether workers that take up work are to tell.
    pub(super) fn wants_telling(self) -> bool {
        match self {
            Source::Asking | Source::Told => true,
            Source::Unused | Source::Watched | Source::Blocked(_) => false,
        }
    }
}

impl Manager {
    /// Changes the state of a pool's source of work and does what goes with it.
    pub(super) fn source_changed(&mut self, id: PoolId, cause: SourceCause, step: &mut Step<'_>) {
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        let (next, action) = pool.source.after(cause);
        if next == pool.source && action == SourceAction::Nothing {
            return;
        }
        pool.source = next;
        self.timers.clear(Timer::Accept(id));
        if next == Source::Told {
            self.timers.set(Timer::Accept(id), step.now, ACCEPT_TIMEOUT);
        }
        match action {
            SourceAction::Nothing => {}
            SourceAction::Watch => {
                self.stop_telling(id, step);
                step.act(Action::Watch(id));
            }
            SourceAction::Snapshot => {
                pool.inquiry.open(step.now);
                step.act(Action::Unwatch(id));
                self.inquire(id, step);
            }
            SourceAction::SnapshotAgain => {
                pool.inquiry.doubts = true;
                self.inquire(id, step);
            }
            SourceAction::StopTelling => self.stop_telling(id, step),
            SourceAction::Unwatch => {
                step.act(Action::Unwatch(id));
                self.stop_telling(id, step);
            }
        }
    }

    fn stop_telling(&mut self, id: PoolId, step: &mut Step<'_>) {
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        pool.inquiry.drop_answers();
        for generation in pool.takers() {
            self.publish_wake_on_accept(generation, step);
        }
    }

    /// Lets the workers of all generations that take work tell, and only then counts them.
    fn inquire(&mut self, id: PoolId, step: &mut Step<'_>) {
        let Some(pool) = self.pools.get(&id) else { return };
        let serving = pool.serving;
        let takers: Vec<GenerationId> = pool.takers().collect();
        for generation in &takers {
            self.publish_wake_on_accept(*generation, step);
        }
        let mut awaited = BTreeMap::new();
        for generation in takers {
            if Some(generation) == serving || self.worker_counts(generation).kept > 0 {
                awaited.insert(generation, self.take_snapshot(generation, step));
            }
        }
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.inquiry.begin(awaited);
        }
    }

    /// Work waits although no worker has told anything for a while: a worker that was idle all the time does not take it.
    pub(super) fn doubt(
        &mut self,
        id: GenerationId,
        number: SnapshotNumber,
        rows: &[Row],
        queued: Option<u32>,
    ) {
        let Some(pool) = self.pool_of(id).and_then(|pool| self.pools.get(&pool)) else {
            return;
        };
        let inquiry = &pool.inquiry;
        if !inquiry.convicts(id, number, queued) {
            return;
        }
        for row in rows
            .iter()
            .filter(|row| (row.idle || row.has_room) && row.since <= inquiry.unwatched_at)
        {
            self.children.change(row.worker, |worker| {
                if worker.generation == id {
                    worker.stalled = Some(row.since);
                }
            });
        }
    }

    /// Decides about a source that is not watched, once every generation that takes work was counted.
    pub(super) fn source_counted(
        &mut self,
        id: GenerationId,
        number: SnapshotNumber,
        view: &View,
        step: &mut Step<'_>,
    ) {
        let Some(pool_id) = self.generations.get(&id).map(|generation| generation.pool) else {
            return;
        };
        let Some(pool) = self.pools.get_mut(&pool_id) else {
            return;
        };
        if pool.source != Source::Asking || !pool.inquiry.take(id, number, view) {
            return;
        }
        let Some(serving) = pool.serving else { return };
        let waiting = pool.waiting();
        if waiting == 0 {
            pool.inquiry.close_empty(step.now);
            self.end_grant(serving);
            self.source_changed(pool_id, SourceCause::None, step);
            return;
        }
        let Some(generation) = self.generations.get(&serving) else {
            return;
        };
        let load = pool.inquiry.load(generation.policy.workers_for(waiting));
        let wanted = policy::growth(generation.policy.pm, load);
        let cause = match self.fork_workers(serving, wanted, step).1 {
            None => SourceCause::Enough,
            Some(block) => SourceCause::Blocked(block),
        };
        self.source_changed(pool_id, cause, step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_watched_again_whenever_a_worker_told() {
        for source in [Source::Asking, Source::Told] {
            assert_eq!(
                source.after(SourceCause::Accepted),
                (Source::Watched, SourceAction::Watch)
            );
        }
        assert_eq!(
            Source::Told.after(SourceCause::Gone),
            (Source::Watched, SourceAction::Watch)
        );
    }

    #[test]
    fn a_full_pool_is_silent_until_a_worker_ends() {
        let (full, action) = Source::Asking.after(SourceCause::Blocked(Block::Full));
        assert_eq!(action, SourceAction::StopTelling);
        assert!(!full.wants_telling());
        assert_eq!(full.after(SourceCause::Accepted), (full, SourceAction::Nothing));
        assert_eq!(
            full.after(SourceCause::Gone),
            (Source::Watched, SourceAction::Watch)
        );
    }

    #[test]
    fn a_worker_that_ends_does_not_cut_a_back_off_short() {
        let waiting = Source::Blocked(Block::Backoff);
        assert_eq!(waiting.after(SourceCause::Gone), (waiting, SourceAction::Nothing));
        assert_eq!(
            waiting.after(SourceCause::Freed),
            (Source::Watched, SourceAction::Watch)
        );
    }
}

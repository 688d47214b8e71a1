//! When an ondemand pool forks: a connection waits, and a snapshot shows too few free workers. Between snapshots the
//! master watches the pool's source of work, or a worker reports.
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
//! In Asking and Told the master does not watch, and every worker that takes up work reports it. In Blocked no worker
//! can be forked, so neither the master nor a worker watches or reports. The table lists the event that ends each state.

use super::action::Action;
use super::event::{GenerationId, PoolId, Row};
use super::fork::{Block, DemandCause};
use super::generation::SnapshotNumber;
use super::manager::{Manager, Step};
use super::policy;
use super::snapshot::View;
use super::timers::Timer;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a worker that claims to be idle may ignore waiting work.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Source {
    /// Not watched: the serving generation is static or dynamic, or there is none.
    #[default]
    Unused,
    Watched,
    /// Work came; a snapshot will show whether a worker can take it.
    Asking,
    /// A worker will take it and report.
    Told,
    /// No worker can be forked for it.
    Blocked(Block),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceAction {
    Nothing,
    /// Stop reports, then watch.
    Watch,
    /// Stop watching, have workers report, then take a snapshot.
    Snapshot,
    SnapshotAgain,
    StopTelling,
    Unwatch,
}

impl Source {
    pub(super) fn after(self, cause: DemandCause) -> (Source, SourceAction) {
        use Source::{Asking, Blocked, Told, Unused, Watched};
        match (self, cause) {
            (Unused, DemandCause::Begin) => (Watched, SourceAction::Watch),
            (Watched, DemandCause::End) => (Unused, SourceAction::Unwatch),
            (Asking | Told | Blocked(_), DemandCause::End) => (Unused, SourceAction::StopTelling),
            (Watched, DemandCause::Ready) => (Asking, SourceAction::Snapshot),
            (Asking, DemandCause::Accepted | DemandCause::None | DemandCause::Changed) => (Watched, SourceAction::Watch),
            (Asking, DemandCause::Enough) => (Told, SourceAction::Nothing),
            (Asking, DemandCause::Blocked(block)) => (Blocked(block), SourceAction::StopTelling),
            (Told, DemandCause::Accepted | DemandCause::Gone | DemandCause::Changed | DemandCause::Freed) => (Watched, SourceAction::Watch),
            (Told, DemandCause::TimedOut) => (Asking, SourceAction::SnapshotAgain),
            (Blocked(_), DemandCause::Freed | DemandCause::Begin) => (Watched, SourceAction::Watch),
            (Blocked(Block::Full | Block::Ceiling), DemandCause::Gone) => (Watched, SourceAction::Watch),
            // The pending snapshot does not count the worker that exited.
            (Asking, DemandCause::Gone | DemandCause::Freed)
            // The timer, fork grant or preloader will follow.
            | (Blocked(Block::ProcessMax | Block::Backoff | Block::Preloader), DemandCause::Gone)
            // The obstacle stays unless another generation starts to serve.
            | (Blocked(_), DemandCause::Changed)
            | (Unused, DemandCause::End | DemandCause::Ready | DemandCause::Accepted | DemandCause::Gone | DemandCause::Freed)
            | (Unused, DemandCause::Changed | DemandCause::None | DemandCause::Enough | DemandCause::Blocked(_) | DemandCause::TimedOut)
            | (Watched, DemandCause::Begin | DemandCause::Accepted | DemandCause::Gone | DemandCause::Freed)
            | (Watched, DemandCause::Changed | DemandCause::None | DemandCause::Enough | DemandCause::Blocked(_) | DemandCause::TimedOut)
            | (Asking, DemandCause::Begin | DemandCause::Ready | DemandCause::TimedOut)
            | (Told, DemandCause::Begin | DemandCause::Ready | DemandCause::None | DemandCause::Enough | DemandCause::Blocked(_))
            | (Blocked(_), DemandCause::Ready | DemandCause::Accepted | DemandCause::None | DemandCause::Enough)
            | (Blocked(_), DemandCause::Blocked(_) | DemandCause::TimedOut) => (self, SourceAction::Nothing),
        }
    }

    pub(super) fn wants_telling(self) -> bool {
        match self {
            Source::Asking | Source::Told => true,
            Source::Unused | Source::Watched | Source::Blocked(_) => false,
        }
    }
}

impl Manager {
    pub(super) fn source_changed(&mut self, id: PoolId, cause: DemandCause, step: &mut Step<'_>) {
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
        pool.inquiry.awaited.clear();
        for generation in pool.takers() {
            self.publish_wake_on_accept(generation, step);
        }
    }

    /// Has the workers of all generations that take work report, and only then counts them.
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

    /// Handles work that waits without any report: an idle worker does not take it.
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
            self.source_changed(pool_id, DemandCause::None, step);
            return;
        }
        let Some(generation) = self.generations.get(&serving) else {
            return;
        };
        let load = pool.inquiry.load(generation.policy.workers_for(waiting));
        let wanted = policy::growth(generation.policy.manager(), load);
        let cause = match self.fork_workers(serving, wanted, step).1 {
            None => DemandCause::Enough,
            Some(block) => DemandCause::Blocked(block),
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
                source.after(DemandCause::Accepted),
                (Source::Watched, SourceAction::Watch)
            );
        }
        assert_eq!(
            Source::Told.after(DemandCause::Gone),
            (Source::Watched, SourceAction::Watch)
        );
    }

    #[test]
    fn a_full_pool_is_silent_until_a_worker_ends() {
        let (full, action) = Source::Asking.after(DemandCause::Blocked(Block::Full));
        assert_eq!(action, SourceAction::StopTelling);
        assert!(!full.wants_telling());
        assert_eq!(full.after(DemandCause::Accepted), (full, SourceAction::Nothing));
        assert_eq!(
            full.after(DemandCause::Gone),
            (Source::Watched, SourceAction::Watch)
        );
    }

    #[test]
    fn a_worker_that_ends_does_not_cut_a_back_off_short() {
        let waiting = Source::Blocked(Block::Backoff);
        assert_eq!(waiting.after(DemandCause::Gone), (waiting, SourceAction::Nothing));
        assert_eq!(
            waiting.after(DemandCause::Freed),
            (Source::Watched, SourceAction::Watch)
        );
    }
}

//! A pool: one source of work and its generations.

use super::event::GenerationId;
use super::generation::SnapshotNumber;
use super::ondemand::Source;
use super::policy::Load;
use super::snapshot::View;
use forkyard_base::tick::Tick;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a watched source may be ready with an empty queue before the measured length is distrusted.
const EMPTY_AT_MOST: u32 = 8;

/// A source that is ready this soon after the watch was ready before.
const AT_ONCE: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(super) struct Pool {
    pub source: Source,
    /// The generation that grows by demand.
    pub serving: Option<GenerationId>,
    /// The generation that takes over once warm.
    pub coming: Option<GenerationId>,
    pub inquiry: Inquiry,
    /// How often in a row the source was ready with an empty queue.
    pub found_empty: u32,
    /// Whether the log reported that it can't have a worker.
    pub said_none: bool,
    /// Its workers are ordered; it exists only by spawn requests.
    pub by_order: bool,
    /// Its listening socket is closed; it ends with its last generation.
    pub closed: bool,
    /// A 503 responder refuses its requests.
    pub is_refused: bool,
}

/// The combined snapshots of all generations that take work from the source.
#[derive(Debug, Default)]
pub(super) struct Inquiry {
    pub(super) awaited: BTreeMap<GenerationId, SnapshotNumber>,
    idle: u32,
    starting: u32,
    queued: Option<u32>,
    /// When the master stopped watching. A worker that has been idle since earlier is ignored.
    pub unwatched_at: Tick,
    /// No worker has reported for a while.
    pub doubts: bool,
    /// If the queue can't be measured: when the source was watched again.
    suspects: Option<Tick>,
    /// The source was ready at once, so work does wait.
    confirmed: bool,
}

impl Pool {
    pub(super) fn takers(&self) -> impl Iterator<Item = GenerationId> + use<> {
        self.serving.into_iter().chain(self.coming)
    }

    /// The number of waiting connections to assume; zero: look again.
    pub(super) fn waiting(&mut self) -> u32 {
        match self.inquiry.queued {
            // The 503 responder may have been faster. A client is reason enough to try again.
            Some(0) if self.is_refused => 1,
            Some(0) if self.found_empty < EMPTY_AT_MOST => {
                self.found_empty += 1;
                0
            }
            Some(queued) => {
                self.found_empty = 0;
                queued.max(1)
            }
            None if self.inquiry.doubts && !self.inquiry.confirmed => 0,
            None => 1,
        }
    }
}

impl Inquiry {
    pub(super) fn open(&mut self, now: Tick) {
        self.confirmed = self
            .suspects
            .take()
            .is_some_and(|since| now.since(since) <= AT_ONCE);
        self.doubts = self.confirmed;
        if !self.confirmed {
            self.unwatched_at = now;
        }
    }

    /// Nothing seems to wait. If the queue can't be measured, how soon the source is ready decides.
    pub(super) fn close_empty(&mut self, now: Tick) {
        self.suspects = (self.doubts && self.queued.is_none()).then_some(now);
    }

    pub(super) fn convicts(
        &self,
        generation: GenerationId,
        number: SnapshotNumber,
        queued: Option<u32>,
    ) -> bool {
        let waits = queued.map_or(self.confirmed, |queued| queued > 0);
        self.doubts && waits && self.awaited.get(&generation) == Some(&number)
    }

    pub(super) fn begin(&mut self, awaited: BTreeMap<GenerationId, SnapshotNumber>) {
        self.awaited = awaited;
        (self.idle, self.starting, self.queued) = (0, 0, None);
    }

    pub(super) fn take(&mut self, generation: GenerationId, number: SnapshotNumber, view: &View) -> bool {
        if self.awaited.get(&generation) != Some(&number) {
            return false;
        }
        self.awaited.remove(&generation);
        self.idle = self.idle.saturating_add(view.ready());
        self.starting = self.starting.saturating_add(view.starting);
        self.queued = self.queued.max(view.queued);
        self.awaited.is_empty()
    }

    pub(super) fn generations(&self) -> impl Iterator<Item = GenerationId> {
        self.awaited.keys().copied()
    }

    pub(super) fn is_over(&self) -> bool {
        self.awaited.is_empty()
    }

    pub(super) fn load(&self, waiting: u32) -> Load {
        Load {
            idle: self.idle,
            starting: self.starting,
            waiting: Some(waiting),
            ..Load::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_is_ready_with_nothing_in_it_is_believed_in_the_end() {
        let mut pool = Pool::default();
        pool.inquiry.queued = Some(0);
        for _ in 0..EMPTY_AT_MOST {
            assert_eq!(pool.waiting(), 0);
        }
        assert_eq!(pool.waiting(), 1);
        assert_eq!(pool.waiting(), 0);
    }

    #[test]
    fn a_doubt_is_settled_by_how_soon_the_source_is_ready() {
        let at = |millis| Tick::ZERO + Duration::from_millis(millis);
        let mut pool = Pool::default();
        for (ready, waiting) in [(1, 1), (500, 1)] {
            pool.inquiry.open(at(0));
            pool.inquiry.doubts = true;
            assert_eq!(pool.waiting(), 0);
            pool.inquiry.close_empty(at(1_000));
            pool.inquiry.open(at(1_000 + ready));
            assert_eq!(pool.waiting(), waiting);
            assert_eq!(pool.inquiry.doubts, ready == 1);
        }
    }

    #[test]
    fn only_the_answers_that_were_asked_for_count() {
        let mut inquiry = Inquiry::default();
        let (generation, number) = (GenerationId(1), SnapshotNumber(7));
        inquiry.begin(BTreeMap::from([(generation, number)]));
        let view = View {
            starting: 1,
            ..View::default()
        };
        assert!(!inquiry.take(generation, SnapshotNumber(6), &view));
        assert!(inquiry.take(generation, number, &view));
        assert_eq!(
            inquiry.load(2),
            Load {
                starting: 1,
                waiting: Some(2),
                ..Load::default()
            }
        );
    }
}

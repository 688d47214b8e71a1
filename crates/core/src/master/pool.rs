//! A pool: one source of work, and the generations of workers behind it.

use super::event::GenerationId;
use super::generation::SnapshotNumber;
use super::ondemand::Source;
use super::policy::Load;
use super::snapshot::View;
use crate::tick::Tick;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often in a row a source may be ready with nothing in its queue before the queue's measured length is no longer
/// believed. Now and then that is normal: an idle worker was faster.
const EMPTY_AT_MOST: u32 = 8;

/// A source that is ready so soon after it was watched was ready before.
const AT_ONCE: Duration = Duration::from_millis(10);

/// One pool.
#[derive(Debug)]
pub(super) struct Pool {
    pub source: Source,
    /// The generation that grows by demand.
    pub serving: Option<GenerationId>,
    /// The one that takes over when it is warm.
    pub coming: Option<GenerationId>,
    /// What is being gathered while the source is in Asking.
    pub inquiry: Inquiry,
    /// The source was ready this many times in a row with nothing in it.
    pub found_empty: u32,
    /// The log already says that it has no worker and can't have one.
    pub said_none: bool,
    /// Its workers are ordered. It begins with the first order and is no matter of the configuration's.
    pub by_order: bool,
    /// Its listening socket is closed; it goes when its last generation does.
    pub closed: bool,
    /// A process refuses its requests, because its application can't be started.
    pub is_refused: bool,
}

/// The snapshots of all generations that take work from the source, as one.
#[derive(Debug, Default)]
pub(super) struct Inquiry {
    awaited: BTreeMap<GenerationId, SnapshotNumber>,
    idle: u32,
    starting: u32,
    queued: Option<u32>,
    /// When the master stopped watching the source. A worker that has been idle since before and let work wait is not counted upon.
    pub unwatched_at: Tick,
    /// No worker told for a while: is one really there?
    pub doubts: bool,
    /// Then, where the queue can't be measured: when the source was watched again, to see whether it is ready at once.
    suspects: Option<Tick>,
    /// It was: something does wait.
    confirmed: bool,
}

impl Pool {
    pub(super) fn new() -> Pool {
        Pool {
            source: Source::Unused,
            serving: None,
            coming: None,
            inquiry: Inquiry::default(),
            found_empty: 0,
            said_none: false,
            by_order: false,
            closed: false,
            is_refused: false,
        }
    }

    /// The generations that take work and are not on their way out.
    pub(super) fn takers(&self) -> impl Iterator<Item = GenerationId> + use<> {
        self.serving.into_iter().chain(self.coming)
    }

    /// How many connections are to be taken as waiting, after the source was ready; zero: look again.
    pub(super) fn waiting(&mut self) -> u32 {
        match self.inquiry.queued {
            // The 503 responder may have been faster. That a client came is reason enough to try again.
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
    /// The source was ready.
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

    /// Nothing seems to wait. If that was only a doubt, it is settled by how soon the source is ready.
    pub(super) fn close_empty(&mut self, now: Tick) {
        self.suspects = (self.doubts && self.queued.is_none()).then_some(now);
    }

    /// Whether an answer shows that idle workers let work wait.
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

    /// The answers still to come are of no use any more.
    pub(super) fn drop_answers(&mut self) {
        self.awaited.clear();
    }

    /// Takes in an answer, if it is one that was asked for here, and tells whether it was the last.
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
        let mut pool = Pool::new();
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
        let mut pool = Pool::new();
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

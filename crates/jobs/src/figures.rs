//! What is counted of each queue since this process began.

use crate::core::{Outcome, Scheduler};
use crate::store::StateCount;
use forkyard_config::Jobs;
use forkyard_protocol::jobs::{Histogram, QueueView};
use std::collections::BTreeMap;

/// What is counted of a queue.
#[derive(Debug, Clone, Default)]
struct OfQueue {
    ended: BTreeMap<String, u64>,
    wait: Histogram,
    run: Histogram,
}

/// What is counted of all.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    queues: BTreeMap<String, OfQueue>,
}

impl Figures {
    /// A job has started, so long after it could have.
    pub(crate) fn started(&mut self, queue: &str, waited_ms: u64) {
        self.of(queue).wait.add(waited_ms);
    }

    /// A start has ended.
    pub(crate) fn ended(&mut self, queue: &str, outcome: Outcome, ran_ms: u64) {
        let word = match serde_json::to_value(outcome) {
            Ok(serde_json::Value::String(word)) => word,
            _ => return,
        };
        let figures = self.of(queue);
        *figures.ended.entry(word).or_default() += 1;
        figures.run.add(ran_ms);
    }

    fn of(&mut self, queue: &str) -> &mut OfQueue {
        self.queues.entry(queue.to_owned()).or_default()
    }

    /// Every queue that is configured or has jobs.
    pub(crate) fn views(
        &self,
        jobs: &Jobs,
        scheduler: &Scheduler,
        counts: Vec<StateCount>,
        now_ms: i64,
    ) -> Vec<QueueView> {
        let mut views: BTreeMap<String, QueueView> = BTreeMap::new();
        let mut view = |name: &str, set: &mut dyn FnMut(&mut QueueView)| {
            let view = views.entry(name.to_owned()).or_insert_with(|| QueueView {
                name: name.to_owned(),
                ..QueueView::default()
            });
            set(view);
        };
        for queue in &jobs.queues {
            view(&queue.name, &mut |view| {
                view.pool = Some(queue.pool.clone());
                view.limit = Some(queue.max_running.min(queue.workers).into());
            });
        }
        for (name, known) in scheduler.view() {
            view(name, &mut |view| {
                view.waiting = known.waiting;
                view.running = known.running.into();
                view.paused = known.is_paused;
            });
        }
        for count in counts {
            view(&count.queue, &mut |view| {
                view.scheduled = count.scheduled;
                view.blocked = count.blocked;
                view.failed = count.failed;
                view.quarantined = count.quarantined;
                view.oldest_waiting_ms = count
                    .oldest_waiting_ms
                    .map(|since| now_ms.saturating_sub(since).max(0).unsigned_abs());
            });
        }
        for (name, figures) in &self.queues {
            view(name, &mut |view| {
                view.ended = figures.ended.clone();
                view.wait = figures.wait.clone();
                view.run = figures.run.clone();
            });
        }
        let is_of_use = |view: &QueueView| {
            let jobs =
                view.waiting + view.scheduled + view.blocked + view.running + view.failed + view.quarantined;
            view.pool.is_some() || jobs > 0 || view.paused
        };
        views.into_values().filter(is_of_use).collect()
    }
}

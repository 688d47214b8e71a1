//! The figures of each queue since the start of this process.

use crate::core::{Outcome, Scheduler};
use crate::store::{StateCount, word};
use forkyard_config::Jobs;
use forkyard_protocol::jobs::{Histogram, KindView, QueueView};
use std::collections::{BTreeMap, HashMap};

const MOST_KINDS: usize = 1_000;
const OTHERS: &str = "(others)";

type Ended = BTreeMap<Outcome, u64>;

#[derive(Debug, Clone, Default)]
struct OfQueue {
    ended: Ended,
    wait: Histogram,
    run: Histogram,
    kinds: HashMap<String, OfKind>,
}

#[derive(Debug, Clone, Default)]
struct OfKind {
    ended: Ended,
    took_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// The store's last counts: they stay while the store can't be used.
    pub(crate) counts: Vec<StateCount>,
    queues: BTreeMap<String, OfQueue>,
    kinds: usize,
}

impl Figures {
    pub(crate) fn started(&mut self, queue: &str, waited_ms: u64) {
        self.of(queue).wait.add(waited_ms);
    }

    pub(crate) fn ended(&mut self, queue: &str, kind: &str, outcome: Outcome, ran_ms: u64) {
        let has_room = self.kinds < MOST_KINDS;
        let figures = self.of(queue);
        *figures.ended.entry(outcome).or_default() += 1;
        figures.run.add(ran_ms);
        let is_known = figures.kinds.contains_key(kind);
        let name = if is_known || has_room { kind } else { OTHERS };
        let figures = figures.kinds.entry(name.to_owned()).or_default();
        *figures.ended.entry(outcome).or_default() += 1;
        figures.took_ms = figures.took_ms.saturating_add(ran_ms);
        self.kinds += usize::from(!is_known && has_room);
    }

    fn of(&mut self, queue: &str) -> &mut OfQueue {
        self.queues.entry(queue.to_owned()).or_default()
    }

    /// The known kinds, from starts that ended, schedules and the configuration. A queue without any is also listed.
    pub(crate) fn kinds(&self, jobs: &Jobs) -> Vec<KindView> {
        let mut views: BTreeMap<(String, Option<String>), KindView> = BTreeMap::new();
        for (queue, figures) in &self.queues {
            for (kind, counted) in &figures.kinds {
                let view = KindView {
                    ended: words(&counted.ended),
                    took_ms: counted.took_ms,
                    ..KindView::default()
                };
                views.insert((queue.clone(), Some(kind.clone())), view);
            }
        }
        for schedule in &jobs.schedules {
            let name = (schedule.queue.clone(), Some(schedule.kind.clone()));
            views
                .entry(name)
                .or_default()
                .schedules
                .push(schedule.name.clone());
        }
        for queue in &jobs.queues {
            for (kind, description) in &queue.kinds {
                let name = (queue.name.clone(), Some(kind.clone()));
                views.entry(name).or_default().description = Some(description.clone());
            }
            if views.keys().all(|(name, _)| *name != queue.name) {
                views.insert((queue.name.clone(), None), KindView::default());
            }
        }
        let shown = views.into_iter().map(|((name, kind), view)| {
            let queue = jobs.queue(&name);
            KindView {
                queue: name,
                kind,
                pool: queue.map(|queue| queue.pool.clone()),
                script: queue.and_then(|queue| queue.script.clone()),
                ..view
            }
        });
        shown.collect()
    }

    pub(crate) fn views(&self, jobs: &Jobs, scheduler: &Scheduler, now_ms: i64) -> Vec<QueueView> {
        let mut views: BTreeMap<String, QueueView> = BTreeMap::new();
        let mut view =
            |name: &str, set: &dyn Fn(&mut QueueView)| set(views.entry(name.to_owned()).or_default());
        for queue in &jobs.queues {
            view(&queue.name, &|view| {
                view.pool = Some(queue.pool.clone());
                view.limit = Some(queue.max_running.min(queue.workers).into());
            });
        }
        for (name, known) in scheduler.view() {
            view(name, &|view| {
                view.waiting = known.waiting;
                view.running = known.running.into();
                view.paused = known.is_paused;
            });
        }
        for count in &self.counts {
            let oldest = count.oldest_waiting_ms;
            view(&count.queue, &|view| {
                view.scheduled = count.scheduled;
                view.blocked = count.blocked;
                view.failed = count.failed;
                view.quarantined = count.quarantined;
                view.oldest_waiting_ms =
                    oldest.map(|since| now_ms.saturating_sub(since).max(0).unsigned_abs());
            });
        }
        for (name, figures) in &self.queues {
            view(name, &|view| {
                view.ended = words(&figures.ended);
                view.wait = figures.wait.clone();
                view.run = figures.run.clone();
            });
        }
        let views = views.into_iter().map(|(name, view)| QueueView { name, ..view });
        let is_of_use = |view: &QueueView| {
            let jobs =
                view.waiting + view.scheduled + view.blocked + view.running + view.failed + view.quarantined;
            view.pool.is_some() || jobs > 0 || view.paused
        };
        views.filter(is_of_use).collect()
    }
}

fn words(ended: &Ended) -> BTreeMap<String, u64> {
    let counts = ended.iter();
    counts.map(|(outcome, count)| (word(outcome), *count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn kinds_are_shown_with_what_runs_them_and_there_is_an_end_of_them() {
        let jobs = sample::jobs();
        let mut figures = Figures::default();
        figures.ended("mail", "welcome", Outcome::Done, 20);
        figures.ended("mail", "welcome", Outcome::Failed, 10);
        figures.ended("gone", "old", Outcome::Lost, 0);
        let shown = |figures: &Figures| -> Vec<String> {
            let row = |view: KindView| {
                let count: u64 = view.ended.values().sum();
                let words = [Some(view.queue), view.kind, view.pool].map(|word| word.unwrap_or("-".into()));
                format!("{} {count} {}", words.join(" "), view.took_ms)
            };
            figures.kinds(&jobs).into_iter().map(row).collect()
        };
        assert_eq!(
            shown(&figures),
            ["gone old - 1 0", "mail welcome www 2 30", "other - www 0 0"]
        );
        for number in 0..2 * MOST_KINDS {
            figures.ended("mail", &format!("kind {number}"), Outcome::Done, 1);
        }
        let known = shown(&figures);
        assert_eq!(known.len(), MOST_KINDS + 2);
        assert!(
            known.contains(&format!("mail {OTHERS} www 1002 1002")),
            "{:?}",
            &known[..3]
        );
    }
}

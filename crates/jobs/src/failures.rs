//! Log lines about failed jobs. After the first few of a queue the others are only counted.

use std::collections::BTreeMap;
use std::mem::take;

const MOST_TOLD: u64 = 5;
const TOGETHER_MS: u64 = 60_000;

#[derive(Debug, Default)]
struct OfQueue {
    until_ms: u64,
    told: u64,
    more: u64,
    last: String,
}

#[derive(Debug, Default)]
pub(crate) struct Failures {
    queues: BTreeMap<String, OfQueue>,
}

impl Failures {
    pub(crate) fn tell(&mut self, queue: &str, line: String, now_ms: u64) {
        let counted = self.queues.entry(queue.to_owned()).or_insert_with(|| OfQueue {
            until_ms: now_ms + TOGETHER_MS,
            ..OfQueue::default()
        });
        if counted.told < MOST_TOLD {
            counted.told += 1;
            log::warn!("jobs: {line}");
        } else {
            counted.more += 1;
            counted.last = line;
        }
    }

    pub(crate) fn poll(&mut self, now_ms: u64) {
        self.queues.retain(|queue, counted| {
            let is_over = counted.until_ms <= now_ms;
            if is_over {
                counted.sum_up(queue);
            }
            !is_over
        });
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        let counted = self.queues.values().filter(|counted| counted.more > 0);
        counted.map(|counted| counted.until_ms).min()
    }

    pub(crate) fn end(&mut self) {
        take(&mut self.queues)
            .iter_mut()
            .for_each(|(queue, counted)| counted.sum_up(queue));
    }
}

impl OfQueue {
    fn sum_up(&mut self, queue: &str) {
        if self.more > 0 {
            log::warn!(
                "jobs: {} more jobs of queue {queue} have failed within a minute, the last one so: {}",
                take(&mut self.more),
                self.last
            );
        }
    }
}

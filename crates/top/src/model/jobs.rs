//! The view of background jobs.

use super::Span;
use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct QueueRow {
    pub(crate) name: String,
    pub(crate) pool: Option<String>,
    pub(crate) is_paused: bool,
    pub(crate) waiting: u64,
    pub(crate) scheduled: u64,
    pub(crate) blocked: u64,
    pub(crate) running: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) failed: u64,
    pub(crate) quarantined: u64,
    /// In seconds.
    pub(crate) oldest: Option<f64>,
    pub(crate) ended_per_second: Option<f64>,
}

pub(super) fn rows(span: Span<'_>) -> Vec<QueueRow> {
    let before = span.before.and_then(|before| before.jobs.as_ref());
    let queues = span.now.jobs.iter().flat_map(|stats| &stats.queues);
    let rows = queues.map(|queue| {
        let ended = |ended: &std::collections::BTreeMap<String, u64>| {
            ended.values().copied().fold(0, u64::saturating_add)
        };
        let same = before.and_then(|before| before.queues.iter().find(|it| it.name == queue.name));
        QueueRow {
            name: queue.name.clone(),
            pool: queue.pool.clone(),
            is_paused: queue.paused,
            waiting: queue.waiting,
            scheduled: queue.scheduled,
            blocked: queue.blocked,
            running: queue.running,
            limit: queue.limit,
            failed: queue.failed,
            quarantined: queue.quarantined,
            oldest: queue.oldest_waiting_ms.map(|millis| millis as f64 / 1e3),
            ended_per_second: span.rate(ended(&queue.ended), same.map(|same| ended(&same.ended))),
        }
    });
    rows.collect()
}

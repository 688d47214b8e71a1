//! Reports whether all workers of a pool are full.

use forkyard_protocol::control::{PoolStatus, WorkerStatus};

/// Returns a remark if no worker of the pool takes another request.
pub(super) fn remark(pool: &PoolStatus) -> Option<String> {
    let serving = pool.generations.iter().find(|it| it.state == "serving")?;
    let workers = &serving.workers;
    let is_full = workers.len() >= pool.limits.max_children as usize
        && !workers.is_empty()
        && workers.iter().all(|worker| worker.full == Some(true));
    let sum =
        |of: fn(&WorkerStatus) -> Option<u32>| workers.iter().filter_map(of).map(u64::from).sum::<u64>();
    let (open, streams) = (sum(|it| it.in_flight), sum(|it| it.idle_streams));
    is_full.then(|| {
        format!(
            "all workers are full: {} requests, and {streams} idle streams and WebSockets",
            open.saturating_sub(streams)
        )
    })
}

/// Returns a worker's stage, and the number of its requests if it can have several.
pub(super) fn stage(worker: &WorkerStatus) -> String {
    let idle = worker.idle_streams.unwrap_or(0);
    match worker.in_flight {
        Some(count) if count > 0 && idle > 0 => format!("{}, {count} in flight ({idle} idle)", worker.stage),
        Some(count) if count > 0 => format!("{}, {count} in flight", worker.stage),
        _ => worker.stage.clone(),
    }
}

//! The numbers of pools, whatever they run.

use super::{Labels, Metrics, labelled, seconds, with};
use forkyard_protocol::control::{Boot, GenerationStatus, PoolStatus, RewoundTotals, Status};
use forkyard_protocol::counters::{ExitCause, Exits};
use forkyard_protocol::last_reload::LastReload;
use forkyard_protocol::refusals::Refusals;
use forkyard_sys::signal;

pub(super) fn write(metrics: &mut Metrics, status: &Status) {
    let pools = labelled(status);
    let daemon = [(vec![("version", status.version.clone())], status)];
    let all = [(Labels::new(), status)];
    let reloads: Vec<(Labels, &LastReload)> = (status.last_reload.iter())
        .map(|last| (Labels::new(), last))
        .collect();
    let described: Vec<(Labels, &PoolStatus)> = pools
        .iter()
        .map(|(labels, pool)| {
            let labels = with(labels, "pm", pool.manager());
            let mut labels = with(&labels, "listen", &pool.listen);
            let preloading = serving(pool).and_then(|it| it.preloading.clone());
            labels.extend(preloading.map(|kind| ("preloader", kind)));
            (labels, *pool)
        })
        .collect();
    metrics.of("daemon", &daemon).add("info", |_| 1.0);
    metrics
        .of("daemon", &all)
        .add("pools", |it| it.pools.len())
        .add("pools_skipped", |it| it.skipped.len());
    metrics
        .of("last_reload", &reloads)
        .add("successful", |it| it.is_done())
        .add("timestamp_seconds", |it| it.time);
    metrics.of("pool", &described).add("info", |_| 1.0);
    metrics.of("pool", &modes(&pools)).add("boot_info", |_| 1.0);
    metrics
        .of("pool", &pools)
        .add("up", |it| matches!(it.state(), "serving" | "reloading"))
        .add("generation", |it| serving(it).map(|generation| generation.id))
        .add("start_time_seconds", |it| {
            serving(it).map(|generation| generation.started)
        })
        .add("workers_max", |it| it.limits.max_children)
        .add("workers_advised", |it| {
            it.advice.as_ref().map(|advice| advice.chosen)
        })
        .add("spare_workers_min", |it| it.limits.min_spare_servers)
        .add("spare_workers_max", |it| it.limits.max_spare_servers)
        .add("boot_seconds", |it| seconds(boot(it)?.took_ms))
        .add("boot_warm_up_seconds", |it| {
            let boot = boot(it)?;
            boot.took_ms?;
            seconds(boot.warm_up.iter().map(|request| request.took_ms).sum::<u64>())
        })
        .add("boot_requests", |it| boot(it).map(|boot| boot.requests))
        .add("boot_rewound_requests", |it| {
            rewound(it).map(|rewound| rewound.requests)
        })
        .add("boot_rewinding_seconds", |it| {
            rewound(it).map(|rewound| rewound.micros as f64 / 1e6)
        })
        .add("boot_rewound_pages", |it| {
            rewound(it).map(|rewound| rewound.pages)
        })
        .add("queue_connections", |it| it.queue)
        .add("queue_connections_peak", |it| {
            Some(it.counts.queue_max.max(it.queue?.into()))
        })
        .add("queue_connections_max", |it| it.queue_limit)
        .add("requests_in_flight", |it| in_flight(it))
        .add("idle_streams", |it| idle_streams(it))
        .add("requests", |it| it.counts.requests)
        .add("slow_requests", |it| it.counts.slow)
        .add("terminated_requests", |it| it.counts.terminated)
        .add("max_children_reached", |it| it.counts.max_children_reached)
        .add("worker_starts", |it| it.counts.starts)
        .add("failed_starts", |it| it.failed_starts)
        .add("orphans", |it| it.orphans)
        .add("memory_bytes", |it| it.memory)
        .add("cpu_seconds", |it| seconds(it.cpu_ms));
    metrics.of("pool", &workers(&pools)).add("workers", |it| *it);
    metrics
        .of("pool", &exits(&pools))
        .add("worker_exits", |it| it.count);
    metrics
        .of("pool", &refusals(&pools))
        .add("scripts_not_run", |it| it.count);
}

fn serving(pool: &PoolStatus) -> Option<&GenerationStatus> {
    pool.generations.iter().find(|it| it.state == "serving")
}

fn boot(pool: &PoolStatus) -> Option<&Boot> {
    serving(pool)?.boot.as_ref()
}

fn rewound(pool: &PoolStatus) -> Option<&RewoundTotals> {
    boot(pool)?.rewound.as_ref()
}

fn modes<'p>(pools: &[(Labels, &'p PoolStatus)]) -> Vec<(Labels, &'p PoolStatus)> {
    let pools = pools.iter();
    pools
        .filter_map(|(labels, pool)| {
            let boot = boot(pool)?;
            let mut labels = with(labels, "mode", &boot.mode);
            labels.extend(boot.isolation.clone().map(|isolation| ("isolation", isolation)));
            Some((labels, *pool))
        })
        .collect()
}

fn in_flight(pool: &PoolStatus) -> Option<f64> {
    let workers = pool.generations.iter().flat_map(|it| &it.workers);
    let told: Vec<f64> = workers.filter_map(|it| it.in_flight).map(f64::from).collect();
    (!told.is_empty()).then(|| told.iter().sum())
}

fn idle_streams(pool: &PoolStatus) -> Option<f64> {
    let workers = pool.generations.iter().flat_map(|it| &it.workers);
    let told: Vec<f64> = workers.filter_map(|it| it.idle_streams).map(f64::from).collect();
    (!told.is_empty()).then(|| told.iter().sum())
}

fn workers(pools: &[(Labels, &PoolStatus)]) -> Vec<(Labels, u32)> {
    let mut all = Vec::new();
    for (labels, pool) in pools {
        for (state, count) in [
            ("busy", pool.busy),
            ("idle", pool.idle),
            ("starting", pool.starting),
        ] {
            all.push((with(labels, "state", state), count));
        }
    }
    all
}

fn refusals<'p>(pools: &[(Labels, &'p PoolStatus)]) -> Vec<(Labels, &'p Refusals)> {
    let all = pools.iter().flat_map(|(labels, pool)| {
        let of_pool = pool.counts.refusals.iter();
        of_pool.map(move |it| (with(labels, "cause", it.cause.name()), it))
    });
    all.collect()
}

fn exits<'p>(pools: &[(Labels, &'p PoolStatus)]) -> Vec<(Labels, &'p Exits)> {
    let mut all = Vec::new();
    for (labels, pool) in pools {
        for exits in &pool.counts.exits {
            let mut labels = with(labels, "cause", exits.cause.name());
            match (exits.cause, exits.code) {
                (ExitCause::Signal, Some(number)) => labels.push(("signal", signal::name(number))),
                (_, Some(code)) => labels.push(("code", code.to_string())),
                (_, None) => {}
            }
            if let Some(reason) = &exits.reason {
                labels.push(("reason", reason.clone()));
            }
            all.push((labels, exits));
        }
    }
    all
}

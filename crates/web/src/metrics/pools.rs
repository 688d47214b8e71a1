//! The numbers of pools, whatever they run.

use super::{Counter, Gauge, Labels, Metrics, Row, labelled, seconds, with};
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
    metrics.families("daemon", DAEMON_INFO, &daemon);
    metrics.families("daemon", DAEMON, &all);
    metrics.families("last_reload", RELOAD, &reloads);
    metrics.families("pool", INFO, &described);
    metrics.families("pool", BOOT_INFO, &modes(&pools));
    metrics.families("pool", POOL, &pools);
    metrics.families("pool", WORKERS, &workers(&pools));
    metrics.families("pool", EXITS, &exits(&pools));
    metrics.families("pool", REFUSALS, &refusals(&pools));
}

const DAEMON_INFO: &[Row<Status>] = &[("info", Gauge, "The daemon's version.", |_| Some(1.0))];

const DAEMON: &[Row<Status>] = &[
    (
        "pools",
        Gauge,
        "Pools that there are, skipped ones as well.",
        |it| Some(it.pools.len() as f64),
    ),
    (
        "pools_skipped",
        Gauge,
        "Pools that have errors and are skipped, or go on with the settings that they had.",
        |it| Some(it.skipped.len() as f64),
    ),
];

const RELOAD: &[Row<LastReload>] = &[
    (
        "successful",
        Gauge,
        "Whether the last reload, or the start, brought the configuration into force for all pools.",
        |it| Some(f64::from(u8::from(it.is_done()))),
    ),
    (
        "timestamp_seconds",
        Gauge,
        "When that was over, seconds since 1970.",
        |it| Some(it.time as f64),
    ),
];

const INFO: &[Row<PoolStatus>] = &[(
    "info",
    Gauge,
    "How a pool's workers are managed, and where it listens.",
    |_| Some(1.0),
)];

const BOOT_INFO: &[Row<PoolStatus>] = &[(
    "boot_info",
    Gauge,
    "How a pool's application boots, where it boots once.",
    |_| Some(1.0),
)];

const POOL: &[Row<PoolStatus>] = &[
    ("up", Gauge, "Whether the pool serves requests.", |it| {
        Some(f64::from(u8::from(matches!(it.state(), "serving" | "reloading"))))
    }),
    (
        "generation",
        Gauge,
        "The number of the generation that serves.",
        |it| serving(it).map(|generation| f64::from(generation.id)),
    ),
    (
        "start_time_seconds",
        Gauge,
        "When the generation that serves began, seconds since 1970.",
        |it| serving(it).map(|generation| generation.started as f64),
    ),
    (
        "workers_max",
        Gauge,
        "Most workers that the pool may have: max_children.",
        |it| Some(f64::from(it.limits.max_children)),
    ),
    (
        "workers_advised",
        Gauge,
        "The max_children that the autopilot would choose.",
        |it| it.advice.as_ref().map(|advice| f64::from(advice.chosen)),
    ),
    (
        "spare_workers_min",
        Gauge,
        "Fewest idle workers: min_spare_servers.",
        |it| it.limits.min_spare_servers.map(f64::from),
    ),
    (
        "spare_workers_max",
        Gauge,
        "Most idle workers: max_spare_servers.",
        |it| it.limits.max_spare_servers.map(f64::from),
    ),
    (
        "boot_seconds",
        Gauge,
        "How long the application took to boot, where it boots once.",
        |it| boot(it)?.took_ms.map(|ms| ms as f64 / 1000.0),
    ),
    (
        "boot_warm_up_seconds",
        Gauge,
        "How long the warm-up requests of the boot took together.",
        |it| {
            let boot = boot(it)?;
            boot.took_ms?;
            let took: u64 = boot.warm_up.iter().map(|request| request.took_ms).sum();
            Some(took as f64 / 1000.0)
        },
    ),
    (
        "boot_requests",
        Gauge,
        "Requests that were taken up since the boot.",
        |it| boot(it).map(|boot| boot.requests as f64),
    ),
    (
        "boot_rewound_requests",
        Gauge,
        "Requests after which a worker was put back to its snapshot, since the boot.",
        |it| rewound(it).map(|rewound| rewound.requests as f64),
    ),
    (
        "boot_rewinding_seconds",
        Gauge,
        "How long it took to put workers back, all together.",
        |it| rewound(it).map(|rewound| rewound.micros as f64 / 1e6),
    ),
    (
        "boot_rewound_pages",
        Gauge,
        "Pages of memory that were copied to put workers back.",
        |it| rewound(it).map(|rewound| rewound.pages as f64),
    ),
    (
        "queue_connections",
        Gauge,
        "Connections that wait to be accepted.",
        |it| it.queue.map(f64::from),
    ),
    (
        "queue_connections_peak",
        Gauge,
        "Most connections that were seen waiting.",
        |it| {
            let now = u64::from(it.queue?);
            Some(it.counts.queue_max.max(now) as f64)
        },
    ),
    (
        "queue_connections_max",
        Gauge,
        "Most connections that may wait: the backlog that the kernel grants.",
        |it| it.queue_limit.map(f64::from),
    ),
    (
        "requests_in_flight",
        Gauge,
        "Requests that workers serve now, where each may serve several.",
        in_flight,
    ),
    (
        "idle_streams",
        Gauge,
        "These requests with an answer that has begun and sends nothing: idle streams and WebSockets.",
        idle_streams,
    ),
    ("requests", Counter, "Requests that workers took up.", |it| {
        Some(it.counts.requests as f64)
    }),
    (
        "slow_requests",
        Counter,
        "Requests that took longer than request_slowlog_timeout.",
        |it| Some(it.counts.slow as f64),
    ),
    (
        "terminated_requests",
        Counter,
        "Requests that took longer than request_terminate_timeout and were ended.",
        |it| Some(it.counts.terminated as f64),
    ),
    (
        "max_children_reached",
        Counter,
        "How often more workers were wanted than max_children allows.",
        |it| Some(it.counts.max_children_reached as f64),
    ),
    ("worker_starts", Counter, "Workers that were made.", |it| {
        Some(it.counts.starts as f64)
    }),
    (
        "failed_starts",
        Counter,
        "How often the pool's application could not be started.",
        |it| Some(it.failed_starts as f64),
    ),
    (
        "orphans",
        Gauge,
        "Processes that workers which are gone have left behind.",
        |it| Some(f64::from(it.orphans)),
    ),
    (
        "memory_bytes",
        Gauge,
        "Memory of workers, programs and preloaders: their proportional shares (PSS).",
        |it| it.memory.map(|bytes| bytes as f64),
    ),
    (
        "cpu_seconds",
        Counter,
        "Processor time of workers, including workers that have exited.",
        |it| seconds(Some(it.cpu_ms)),
    ),
];

const WORKERS: &[Row<u32>] = &[("workers", Gauge, "Workers by state.", |it| Some(f64::from(*it)))];

const EXITS: &[Row<Exits>] = &[(
    "worker_exits",
    Counter,
    "Workers that exited, by cause: retired and terminated workers were stopped by the master.",
    |it| Some(it.count as f64),
)];

const REFUSALS: &[Row<Refusals>] = &[(
    "scripts_not_run",
    Counter,
    "Requests that were answered without running the script, by cause.",
    |it| Some(it.count as f64),
)];

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

//! OPcache and APCu of pools with PHP, as they were read last.

use super::{Counter, Gauge, Labels, Metrics, Row, labelled, with};
use forkyard_protocol::code_cache::{Apcu, ApcuState, LastCaches, Opcache, OpcacheState};
use forkyard_protocol::control::Status;

pub(super) fn write(metrics: &mut Metrics, status: &Status) {
    let caches: Vec<(Labels, &LastCaches)> = labelled(status)
        .into_iter()
        .filter_map(|(labels, pool)| Some((labels, pool.caches.as_deref()?)))
        .collect();
    let opcaches: Vec<(Labels, &Opcache)> = caches
        .iter()
        .filter_map(|(labels, caches)| match &caches.opcache {
            OpcacheState::Enabled(opcache) => Some((labels.clone(), &**opcache)),
            OpcacheState::Missing | OpcacheState::Disabled | OpcacheState::FilesOnly => None,
        })
        .collect();
    let apcus: Vec<(Labels, &Apcu)> = caches
        .iter()
        .filter_map(|(labels, caches)| match &caches.apcu {
            ApcuState::Enabled(apcu) => Some((labels.clone(), &**apcu)),
            ApcuState::Missing | ApcuState::Disabled => None,
        })
        .collect();
    metrics.families("pool", AGE, &caches);
    metrics.families("pool_opcache", OPCACHE, &opcaches);
    metrics.families("pool_opcache", RESTARTS, &restarts(&opcaches));
    metrics.families("pool_apcu", APCU, &apcus);
}

const AGE: &[Row<LastCaches>] = &[(
    "caches_age_seconds",
    Gauge,
    "How long ago the state of OPcache and APCu was read.",
    |it| Some(it.age_ms as f64 / 1000.0),
)];

const OPCACHE: &[Row<Opcache>] = &[
    ("used_bytes", Gauge, "Memory that OPcache uses.", |it| {
        Some(it.used as f64)
    }),
    ("free_bytes", Gauge, "Memory that OPcache has left.", |it| {
        Some(it.free as f64)
    }),
    (
        "wasted_bytes",
        Gauge,
        "Memory of outdated scripts, which only a restart of OPcache frees.",
        |it| Some(it.wasted as f64),
    ),
    ("full", Gauge, "Whether OPcache keeps no more scripts.", |it| {
        Some(f64::from(u8::from(it.full)))
    }),
    ("scripts", Gauge, "Scripts in OPcache.", |it| {
        Some(it.scripts as f64)
    }),
    ("keys", Gauge, "Keys of scripts in OPcache.", |it| {
        Some(it.keys as f64)
    }),
    ("keys_max", Gauge, "Most keys of scripts.", |it| {
        Some(it.max_keys as f64)
    }),
    ("hits", Counter, "Scripts that were found in OPcache.", |it| {
        Some(it.hits as f64)
    }),
    (
        "misses",
        Counter,
        "Scripts that were not found in OPcache.",
        |it| Some(it.misses as f64),
    ),
];

const RESTARTS: &[Row<u64>] = &[("restarts", Counter, "Restarts of OPcache, by cause.", |it| {
    Some(*it as f64)
})];

const APCU: &[Row<Apcu>] = &[
    ("used_bytes", Gauge, "Memory that APCu uses.", |it| {
        Some(it.used as f64)
    }),
    ("free_bytes", Gauge, "Memory that APCu has left.", |it| {
        Some(it.free as f64)
    }),
    ("entries", Gauge, "Entries in APCu.", |it| Some(it.entries as f64)),
    ("hits", Counter, "Entries that were found in APCu.", |it| {
        Some(it.hits as f64)
    }),
    ("misses", Counter, "Entries that were not found in APCu.", |it| {
        Some(it.misses as f64)
    }),
    (
        "expunges",
        Counter,
        "How often all entries were removed because the memory was full.",
        |it| Some(it.expunges as f64),
    ),
];

fn restarts(opcaches: &[(Labels, &Opcache)]) -> Vec<(Labels, u64)> {
    let mut all = Vec::new();
    for (labels, opcache) in opcaches {
        let counts = opcache.restarts;
        for (cause, count) in [
            ("memory", counts.memory),
            ("keys", counts.keys),
            ("manual", counts.manual),
        ] {
            all.push((with(labels, "cause", cause), count));
        }
    }
    all
}

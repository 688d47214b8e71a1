//! OPcache and APCu of pools with PHP, as they were read last.

use super::{Labels, Metrics, labelled, seconds, with};
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
    metrics
        .of("pool", &caches)
        .add("caches_age_seconds", |it| seconds(it.age_ms));
    metrics
        .of("pool_opcache", &opcaches)
        .add("used_bytes", |it| it.used)
        .add("free_bytes", |it| it.free)
        .add("wasted_bytes", |it| it.wasted)
        .add("full", |it| it.full)
        .add("scripts", |it| it.scripts)
        .add("keys", |it| it.keys)
        .add("keys_max", |it| it.max_keys)
        .add("hits", |it| it.hits)
        .add("misses", |it| it.misses);
    metrics
        .of("pool_opcache", &restarts(&opcaches))
        .add("restarts", |it| *it);
    metrics
        .of("pool_apcu", &apcus)
        .add("used_bytes", |it| it.used)
        .add("free_bytes", |it| it.free)
        .add("entries", |it| it.entries)
        .add("hits", |it| it.hits)
        .add("misses", |it| it.misses)
        .add("expunges", |it| it.expunges);
}

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

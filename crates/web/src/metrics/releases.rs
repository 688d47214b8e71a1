//! The releases of pools, and their deployments.

use super::{Labels, Metrics, labelled, with};
use forkyard_protocol::control::Status;
use forkyard_protocol::release::{Outcome, PoolReleases, UnderWay};

pub(super) fn write(metrics: &mut Metrics, status: &Status) {
    let pools = labelled(status).into_iter();
    let pools = pools.filter_map(|(labels, pool)| Some((labels, pool, pool.releases.as_deref()?)));
    let pools: Vec<_> = pools.collect();
    let serving = pools.iter().filter_map(|(labels, _, releases)| {
        let release = releases.release.as_ref()?.to_string_lossy();
        Some((with(labels, "release", &release), *releases))
    });
    let serving: Vec<(Labels, &PoolReleases)> = serving.collect();
    let ended = pools.iter().flat_map(|(labels, pool, _)| {
        let each = Outcome::ALL.into_iter();
        each.map(|outcome| {
            let labels = with(labels, "outcome", outcome.name());
            (labels, pool.counts.deployments(outcome))
        })
    });
    let ended: Vec<(Labels, u64)> = ended.collect();
    let under_way = pools.iter().filter_map(|(labels, _, releases)| {
        let under_way = releases.under_way.as_ref()?;
        Some((labels.clone(), under_way))
    });
    let under_way: Vec<(Labels, &UnderWay)> = under_way.collect();
    metrics.of("pool", &serving).add("release_info", |_| 1.0);
    metrics.of("pool", &ended).add("deployments", |it| *it);
    metrics
        .of("pool", &under_way)
        .add("deployment_share", |it| f64::from(it.percent) / 100.0);
}

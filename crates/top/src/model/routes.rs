//! The view of routes.

use super::Span;
use super::why::{Sights, Times, Why};
use crate::histogram::added;
use forkyard_protocol::routes::{RouteCounts, RouteStatus};
use serde::Serialize;

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct RouteRow {
    pub(crate) pool: String,
    pub(crate) route: String,
    pub(crate) requests: u64,
    pub(crate) requests_per_second: Option<f64>,
    /// Errors of the interval.
    pub(crate) errors: Option<u64>,
    /// The mean number of busy workers.
    pub(crate) busy: Option<f64>,
    /// Times of requests that ended in the interval, in seconds, with an error of at most 19 %.
    pub(crate) p50: Option<f64>,
    pub(crate) p95: Option<f64>,
    /// In bytes, since the pool's start.
    pub(crate) memory_growth: u64,
    pub(crate) why: Why,
}

pub(super) fn rows(span: Span<'_>) -> Vec<RouteRow> {
    let of_pools = span.now.routes.iter();
    let rows = of_pools.flat_map(|(pool, routes)| {
        let before = span.before.and_then(|before| before.routes.get(pool));
        routes.iter().map(move |route| {
            let before = before.and_then(|before| before.iter().find(|it| it.route == route.route));
            row(span, pool, route, before)
        })
    });
    rows.collect()
}

fn row(span: Span<'_>, pool: &str, now: &RouteStatus, before: Option<&RouteStatus>) -> RouteRow {
    let grown = |of: fn(&RouteStatus) -> f64| Some(of(now) - of(before?)).filter(|grown| *grown >= 0.0);
    let busy = grown(|it| it.busy_seconds);
    let new = before.and_then(|before| added(&now.buckets, &before.buckets));
    let new = RouteCounts {
        buckets: new.unwrap_or_default(),
        ..RouteCounts::default()
    };
    let time = |part: f64| new.quantile(part).map(|micros| micros / 1e6);
    RouteRow {
        pool: pool.to_owned(),
        route: now.route.clone(),
        requests: now.requests,
        requests_per_second: span.rate(now.requests, before.map(|before| before.requests)),
        errors: before.and_then(|before| now.errors.checked_sub(before.errors)),
        busy: busy.zip(span.seconds).map(|(busy, seconds)| busy / seconds),
        p50: time(0.5),
        p95: time(0.95),
        memory_growth: now.memory_growth,
        why: why(
            busy,
            grown(|it| it.cpu_seconds),
            grown(|it| it.blocked_seconds),
            &span.history.sights_of_route(pool, &now.route),
        )
        .unwrap_or_default(),
    }
}

/// Divides a busy time. The time without a processor is divided by what was seen in requests of the route.
fn why(busy: Option<f64>, cpu: Option<f64>, blocked: Option<f64>, sights: &Sights) -> Option<Why> {
    let (busy, cpu) = (busy?, cpu?);
    // Workers with several requests know neither.
    if cpu + blocked? <= 0.0 {
        return None;
    }
    let times = Times {
        busy,
        cpu,
        queue: None,
    };
    Some(Why::of(times, sights, false))
}

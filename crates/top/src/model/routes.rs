//! The view of routes.

use super::Span;
use super::why::{Times, Why};
use crate::wire::Route;
use serde::Serialize;

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct RouteRow {
    pub(crate) pool: String,
    pub(crate) route: String,
    pub(crate) requests: u64,
    pub(crate) requests_per_second: Option<f64>,
    /// Errors of the interval.
    pub(crate) errors: Option<u64>,
    /// Workers that were busy with it, on average.
    pub(crate) busy: Option<f64>,
    /// Since the pool's start, in seconds.
    pub(crate) p50: Option<f64>,
    pub(crate) p95: Option<f64>,
    /// In bytes, since the pool's start.
    pub(crate) memory_growth: f64,
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

fn row(span: Span<'_>, pool: &str, now: &Route, before: Option<&Route>) -> RouteRow {
    let grown = |of: fn(&Route) -> f64| Some(of(now) - of(before?)).filter(|grown| *grown >= 0.0);
    let busy = grown(|it| it.busy_seconds);
    let times = busy.zip(grown(|it| it.cpu_seconds));
    let times = times.map(|(busy, cpu)| Times {
        busy,
        cpu,
        // What neither computed nor was blocked could have run.
        queue: grown(|it| it.blocked_seconds).map(|blocked| busy - cpu - blocked),
    });
    RouteRow {
        pool: pool.to_owned(),
        route: now.route.clone(),
        requests: now.requests,
        requests_per_second: span.rate(now.requests, before.map(|before| before.requests)),
        errors: before.and_then(|before| now.errors.checked_sub(before.errors)),
        busy: busy.zip(span.seconds).map(|(busy, seconds)| busy / seconds),
        p50: now.p50,
        p95: now.p95,
        memory_growth: now.memory_growth,
        why: times.map_or_else(Why::default, |times| Why::of(times, &Vec::new(), false)),
    }
}

//! The lanes of pools.

use super::{Counter, Gauge, Labels, Metrics, Row, labelled, with};
use forkyard_base::openmetrics::Kind::Histogram;
use forkyard_protocol::control::Status;
use forkyard_protocol::lanes::{LaneNumbers, Lanes, WAIT_BOUNDS_MS};

pub(super) fn write(metrics: &mut Metrics, status: &Status) {
    let pools = labelled(status).into_iter();
    let pools = pools.filter_map(|(labels, pool)| Some((labels, pool.lanes.as_deref()?)));
    let pools: Vec<(Labels, &Lanes)> = pools.collect();
    metrics.families("pool", POOLS, &pools);
    let lanes = pools.iter().flat_map(|(labels, lanes)| {
        let each = lanes.each().into_iter();
        each.map(move |(lane, numbers)| (with(labels, "lane", lane.name()), numbers))
    });
    let lanes: Vec<(Labels, &LaneNumbers)> = lanes.collect();
    metrics.families("pool", LANES, &lanes);
    write_waits(metrics, &lanes);
}

const POOLS: &[Row<Lanes>] = &[(
    "lane_reserve",
    Gauge,
    "How many workers the lanes background and bots leave idle.",
    |it| Some(f64::from(it.reserve)),
)];

const LANES: &[Row<LaneNumbers>] = &[
    (
        "lane_requests",
        Counter,
        "Requests of a lane that have begun.",
        |it| Some(it.requests as f64),
    ),
    (
        "lane_busy_seconds",
        Counter,
        "How long requests of a lane kept workers busy.",
        |it| Some(it.busy_ms as f64 / 1e3),
    ),
    (
        "lane_parked",
        Gauge,
        "Requests that wait in the queue of their lane.",
        |it| Some(f64::from(it.parked)),
    ),
    (
        "lane_refused",
        Counter,
        "Requests that were refused because too many of their lane waited.",
        |it| Some(it.refused as f64),
    ),
];

fn write_waits(metrics: &mut Metrics, lanes: &[(Labels, &LaneNumbers)]) {
    let name = "forkyard_pool_lane_wait_seconds";
    metrics.text.family(
        name,
        Histogram,
        "How long requests of a lane waited, as far as it is known.",
    );
    for (labels, numbers) in lanes {
        let mut with_bound = with(labels, "le", "");
        let place = labels.len();
        let bounds = WAIT_BOUNDS_MS.map(|bound| (bound as f64 / 1e3).to_string());
        let bounds = bounds.into_iter().chain(["+Inf".to_owned()]);
        let mut count = 0_u64;
        for (bound, waits) in bounds.zip(numbers.waits) {
            count = count.saturating_add(waits);
            with_bound[place].1 = bound;
            metrics.text.sample(&format!("{name}_bucket"), &with_bound, count);
        }
        metrics.text.sample(&format!("{name}_count"), labels, count);
        metrics
            .text
            .sample(&format!("{name}_sum"), labels, numbers.wait_ms as f64 / 1e3);
    }
}

//! The lanes of pools.

use super::{Labels, Metrics, labelled, seconds, with};
use forkyard_protocol::control::Status;
use forkyard_protocol::lanes::{LaneNumbers, Lanes, WAIT_BOUNDS_MS};

pub(super) fn write(metrics: &mut Metrics, status: &Status) {
    let pools = labelled(status).into_iter();
    let pools = pools.filter_map(|(labels, pool)| Some((labels, pool.lanes.as_deref()?)));
    let pools: Vec<(Labels, &Lanes)> = pools.collect();
    metrics.of("pool", &pools).add("lane_reserve", |it| it.reserve);
    let lanes = pools.iter().flat_map(|(labels, lanes)| {
        let each = lanes.each().into_iter();
        each.map(move |(lane, numbers)| (with(labels, "lane", lane.name()), numbers))
    });
    let lanes: Vec<(Labels, &LaneNumbers)> = lanes.collect();
    metrics
        .of("pool", &lanes)
        .add("lane_requests", |it| it.requests)
        .add("lane_busy_seconds", |it| seconds(it.busy_ms))
        .add("lane_parked", |it| it.parked)
        .add("lane_refused", |it| it.refused);
    let name = metrics.begin("pool_lane_wait_seconds");
    for (labels, numbers) in lanes {
        let mut count = 0_u64;
        let buckets = WAIT_BOUNDS_MS.iter().zip(numbers.waits).map(|(bound, waits)| {
            count = count.saturating_add(waits);
            ((*bound as f64 / 1e3).to_string(), count)
        });
        let all = numbers.waits.iter().copied().fold(0, u64::saturating_add);
        metrics.histogram(&name, &labels, buckets, all, numbers.wait_ms as f64 / 1e3);
    }
}

//! Pools' busy time, classes of answers, and histograms.

use super::{Labels, Metrics, labelled, with};
use forkyard_protocol::control::Status;
use forkyard_protocol::dead_work::DeadCount;
use forkyard_protocol::numbers::{Distribution, PoolNumbers, StatusClass, at_most_power};

pub(super) fn write(metrics: &mut Metrics, status: &Status) {
    let pools = labelled(status).into_iter();
    let pools = pools.filter_map(|(labels, pool)| Some((labels, pool.numbers.as_deref()?)));
    let pools: Vec<(Labels, &PoolNumbers)> = pools.collect();
    metrics
        .of("pool", &pools)
        .add("busy_seconds", |it| it.busy_seconds)
        .add("saturated_seconds", |it| it.saturated_seconds)
        .add("queue_nonempty_seconds", |it| it.queue_seconds)
        .add("received_bytes", |it| it.bytes_in)
        .add("sent_bytes", |it| it.bytes_out)
        .add("aborted", |it| it.aborted);
    metrics.of("pool", &answers(&pools)).add("answers", |it| *it);
    metrics.of("pool", &dead(&pools)).add("dead_requests", |it| *it);
    for family in HISTOGRAMS {
        write_histogram(metrics, family, &pools);
    }
}

fn answers(pools: &[(Labels, &PoolNumbers)]) -> Vec<(Labels, u64)> {
    let all = pools.iter().flat_map(|(labels, numbers)| {
        let counts = StatusClass::NAMES.into_iter().zip(numbers.requests.counts());
        counts.map(move |(class, count)| (with(labels, "class", class), count))
    });
    all.collect()
}

fn dead(pools: &[(Labels, &PoolNumbers)]) -> Vec<(Labels, u64)> {
    let all = pools.iter().flat_map(|(labels, numbers)| {
        let counts = DeadCount::NAMES.into_iter().zip(numbers.dead_work.counts());
        counts.map(move |(reason, count)| (with(labels, "reason", reason), count))
    });
    all.collect()
}

/// A histogram with bounds at powers of two.
struct Family {
    name: &'static str,
    of: fn(&PoolNumbers) -> &Distribution,
    /// The exponents of the lowest and the highest bound, in the unit of the buckets.
    exponents: (usize, usize),
    /// How many base units the unit of the buckets is, and the unit of the sum.
    units: (f64, f64),
}

const MICROSECONDS: (f64, f64) = (1e-6, 1.0);
const KIB: (f64, f64) = (1024.0, 1024.0);
/// 64 µs to 134 s.
const TIMES: (usize, usize) = (6, 27);

const HISTOGRAMS: [Family; 4] = [
    Family {
        name: "pool_request_seconds",
        of: |it| &it.run,
        exponents: TIMES,
        units: MICROSECONDS,
    },
    Family {
        name: "pool_request_wait_seconds",
        of: |it| &it.wait,
        exponents: TIMES,
        units: MICROSECONDS,
    },
    Family {
        name: "pool_request_cpu_seconds",
        of: |it| &it.cpu,
        exponents: TIMES,
        units: MICROSECONDS,
    },
    Family {
        name: "pool_request_memory_bytes",
        of: |it| &it.memory,
        // 256 KiB to 16 GiB.
        exponents: (8, 24),
        units: KIB,
    },
];

fn write_histogram(metrics: &mut Metrics, family: Family, pools: &[(Labels, &PoolNumbers)]) {
    let name = metrics.begin(family.name);
    let (first, last) = family.exponents;
    let bounds: Vec<(usize, String)> = (first..=last)
        .map(|exponent| (exponent, ((exponent as f64).exp2() * family.units.0).to_string()))
        .collect();
    for (labels, numbers) in pools {
        let of = (family.of)(numbers);
        let buckets = bounds.iter();
        let buckets = buckets.map(|(exponent, bound)| (bound.clone(), at_most_power(&of.buckets, *exponent)));
        metrics.histogram(&name, labels, buckets, of.count, of.sum * family.units.1);
    }
}

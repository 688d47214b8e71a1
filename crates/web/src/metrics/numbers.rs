//! Pools' busy time, classes of answers, and histograms.

use super::{Counter, Labels, Metrics, Row, labelled, with};
use forkyard_base::openmetrics::Kind::Histogram;
use forkyard_protocol::control::Status;
use forkyard_protocol::dead_work::DeadCount;
use forkyard_protocol::numbers::{Distribution, PoolNumbers, StatusClass, at_most_power};

pub(super) fn write(metrics: &mut Metrics, status: &Status) {
    let pools = labelled(status).into_iter();
    let pools = pools.filter_map(|(labels, pool)| Some((labels, pool.numbers.as_deref()?)));
    let pools: Vec<(Labels, &PoolNumbers)> = pools.collect();
    metrics.families("pool", NUMBERS, &pools);
    metrics.families("pool", ANSWERS, &answers(&pools));
    metrics.families("pool", DEAD, &dead(&pools));
    for family in HISTOGRAMS {
        write_histogram(metrics, family, &pools);
    }
}

const NUMBERS: &[Row<PoolNumbers>] = &[
    (
        "busy_seconds",
        Counter,
        "Time that workers were busy, the sum over all: its rate is the mean number of busy workers.",
        |it| Some(it.busy_seconds),
    ),
    (
        "saturated_seconds",
        Counter,
        "Time with max_children busy workers.",
        |it| Some(it.saturated_seconds),
    ),
    (
        "queue_nonempty_seconds",
        Counter,
        "Time in which a connection waited, as far as it is known.",
        |it| Some(it.queue_seconds),
    ),
    (
        "received_bytes",
        Counter,
        "Bytes from the web server, with FastCGI's records.",
        |it| Some(it.bytes_in as f64),
    ),
    (
        "sent_bytes",
        Counter,
        "Bytes to the web server, with FastCGI's records.",
        |it| Some(it.bytes_out as f64),
    ),
    (
        "timeouts",
        Counter,
        "Requests that were ended after request_terminate_timeout.",
        |it| Some(it.timed_out as f64),
    ),
    (
        "aborted",
        Counter,
        "Requests whose client left before the end of the answer.",
        |it| Some(it.aborted as f64),
    ),
];

const ANSWERS: &[Row<u64>] = &[(
    "answers",
    Counter,
    "Requests that have ended, by the class of their status.",
    |it| Some(*it as f64),
)];

fn answers(pools: &[(Labels, &PoolNumbers)]) -> Vec<(Labels, u64)> {
    let all = pools.iter().flat_map(|(labels, numbers)| {
        let counts = StatusClass::NAMES.into_iter().zip(numbers.requests.counts());
        counts.map(move |(class, count)| (with(labels, "class", class), count))
    });
    all.collect()
}

const DEAD: &[Row<u64>] = &[(
    "dead_requests",
    Counter,
    "Requests that did not begin, by the reason; ran: they would not have begun without php-fpm's configuration; nonsense: REQUEST_START or REQUEST_TIMEOUT was ignored.",
    |it| Some(*it as f64),
)];

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
    help: &'static str,
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
        name: "request_seconds",
        help: "Duration of requests, from the parameters to the end of the answer.",
        of: |it| &it.run,
        exponents: TIMES,
        units: MICROSECONDS,
    },
    Family {
        name: "request_wait_seconds",
        help: "How long requests waited for a worker, as far as it is known.",
        of: |it| &it.wait,
        exponents: TIMES,
        units: MICROSECONDS,
    },
    Family {
        name: "request_cpu_seconds",
        help: "Processor time of requests.",
        of: |it| &it.cpu,
        exponents: TIMES,
        units: MICROSECONDS,
    },
    Family {
        name: "request_memory_bytes",
        help: "Peak memory of requests.",
        of: |it| &it.memory,
        // 256 KiB to 16 GiB.
        exponents: (8, 24),
        units: KIB,
    },
];

fn write_histogram(metrics: &mut Metrics, family: Family, pools: &[(Labels, &PoolNumbers)]) {
    let name = format!("forkyard_pool_{}", family.name);
    metrics.text.family(&name, Histogram, family.help);
    let bucket = format!("{name}_bucket");
    let (first, last) = family.exponents;
    let bounds: Vec<(usize, String)> = (first..=last)
        .map(|exponent| (exponent, ((exponent as f64).exp2() * family.units.0).to_string()))
        .collect();
    for (labels, numbers) in pools {
        let of = (family.of)(numbers);
        let mut with_bound = with(labels, "le", "");
        let place = labels.len();
        for (exponent, bound) in &bounds {
            with_bound[place].1.clone_from(bound);
            let count = at_most_power(&of.buckets, *exponent);
            metrics.text.sample(&bucket, &with_bound, count);
        }
        "+Inf".clone_into(&mut with_bound[place].1);
        metrics.text.sample(&bucket, &with_bound, of.count);
        metrics.text.sample(&format!("{name}_count"), labels, of.count);
        metrics
            .text
            .sample(&format!("{name}_sum"), labels, of.sum * family.units.1);
    }
}

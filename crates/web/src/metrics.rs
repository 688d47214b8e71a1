//! The status as OpenMetrics. The numbers of applications come from their router.

mod caches;
mod jobs;
mod lanes;
mod numbers;
mod pools;
mod releases;

use forkyard_base::openmetrics::Kind::{Counter, Gauge};
use forkyard_base::openmetrics::{Kind, OpenMetrics};
use forkyard_protocol::control::{PoolStatus, ProcessStatus, Status};
use serde_json::Value;
use std::borrow::Borrow;
use std::collections::BTreeMap;

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    OpenMetrics,
    /// Prometheus' own older text format.
    Prometheus,
}

/// Returns all metrics.
pub fn metrics(status: &Status, form: Form) -> String {
    let mut metrics = Metrics {
        text: OpenMetrics::default(),
        form,
    };
    pools::write(&mut metrics, status);
    numbers::write(&mut metrics, status);
    lanes::write(&mut metrics, status);
    releases::write(&mut metrics, status);
    caches::write(&mut metrics, status);
    metrics.families("applications", VIEW, &views(status));
    metrics.families("applications", APPLICATION, &applications(status));
    metrics.families("applications", STARTS, &starts(status));
    metrics.families("instance", DESCRIBED, &described(status));
    metrics.families("instance", INSTANCE, &instances(status));
    metrics.families("program", PROGRAM, &programs(status));
    jobs::write(&mut metrics, status);
    match form {
        Form::OpenMetrics => metrics.text.end(),
        Form::Prometheus => metrics.text.into_text(),
    }
}

struct Metrics {
    text: OpenMetrics,
    form: Form,
}

impl Metrics {
    /// Writes a family for each row, with one number per item that has a value.
    fn families<T, B: Borrow<T>>(&mut self, prefix: &str, rows: &[Row<T>], things: &[(Labels, B)]) {
        for (name, kind, help, of) in rows {
            let family = format!("forkyard_{prefix}_{name}");
            let name = match kind {
                Counter => format!("{family}_total"),
                _ => family.clone(),
            };
            // Prometheus' older format has a counter's full name in its header.
            let header = match self.form {
                Form::OpenMetrics => &family,
                Form::Prometheus => &name,
            };
            self.text.family(header, *kind, help);
            for (labels, thing) in things {
                if let Some(number) = of(thing.borrow()) {
                    self.text.sample(&name, labels, number);
                }
            }
        }
    }
}

/// A metric's name, kind, help, and the function that reads its value.
type Row<T> = (&'static str, Kind, &'static str, fn(&T) -> Option<f64>);

const VIEW: &[Row<Value>] = &[
    ("instances", Gauge, "Instances of all applications.", |it| {
        Some(number(&it["instances"]))
    }),
    (
        "instances_max",
        Gauge,
        "Most instances of all applications.",
        |it| Some(number(&it["max"])),
    ),
    ("pool_requests_waiting", Gauge, "Requests that wait.", |it| {
        Some(number(&it["waiting"]))
    }),
];

const APPLICATION: &[Row<Value>] = &[
    (
        "requests_waiting",
        Gauge,
        "Requests that wait for an instance.",
        |it| Some(number(&it["waiting"])),
    ),
    (
        "oldest_wait_seconds",
        Gauge,
        "How long the oldest request of an application has waited for an instance.",
        |it| Some(number(&it["oldest_wait"])),
    ),
    (
        "restarts",
        Gauge,
        "How often the application was restarted.",
        |it| Some(number(&it["restarts"])),
    ),
    (
        "application_instances",
        Gauge,
        "Instances of an application.",
        |it| Some(it["instances"].as_array().map_or(0, Vec::len) as f64),
    ),
    (
        "requests",
        Counter,
        "Requests that asked for an instance.",
        |it| Some(number(&it["counters"]["accepted"])),
    ),
    ("requests_queued", Counter, "Requests that had to wait.", |it| {
        Some(number(&it["counters"]["queued"]))
    }),
    (
        "requests_refused_full",
        Counter,
        "Requests refused because too many waited.",
        |it| Some(number(&it["counters"]["queue_full"])),
    ),
    (
        "requests_timed_out",
        Counter,
        "Requests that waited for too long.",
        |it| Some(number(&it["counters"]["timed_out"])),
    ),
    (
        "requests_abandoned",
        Counter,
        "Requests whose client left while they waited.",
        |it| Some(number(&it["counters"]["abandoned"])),
    ),
    (
        "requests_refused",
        Counter,
        "Requests refused for another reason.",
        |it| Some(number(&it["counters"]["refused"])),
    ),
    ("instances_started", Counter, "Instances that came up.", |it| {
        Some(number(&it["counters"]["spawned"]))
    }),
    ("instances_failed", Counter, "Instances that did not.", |it| {
        Some(number(&it["counters"]["spawn_failed"]))
    }),
];

const STARTS: &[Row<Starts>] = &[
    (
        "instances_starting",
        Gauge,
        "Instances of an application that are being started.",
        |it| Some(f64::from(it.count)),
    ),
    (
        "start_age_seconds",
        Gauge,
        "How long the oldest start under way of an application has lasted.",
        |it| seconds(Some(it.oldest_ms)),
    ),
];

const DESCRIBED: &[Row<Value>] = &[(
    "info",
    Gauge,
    "The state of an instance, and the version of its code.",
    |_| Some(1.0),
)];

const INSTANCE: &[Row<Value>] = &[
    ("sessions", Gauge, "Requests that an instance has now.", |it| {
        it["sessions"].as_f64()
    }),
    (
        "processed",
        Counter,
        "Requests that an instance has completed.",
        |it| it["processed"].as_f64(),
    ),
    (
        "uptime_seconds",
        Gauge,
        "How long an instance has been up.",
        |it| it["uptime"].as_f64(),
    ),
    (
        "idle_seconds",
        Gauge,
        "How long ago an instance was last used.",
        |it| it["last_used"].as_f64(),
    ),
    ("memory_bytes", Gauge, "An instance's share of memory.", |it| {
        it["memory"].as_f64()
    }),
    ("cpu_seconds", Counter, "An instance's processor time.", |it| {
        seconds(it["cpu_ms"].as_u64())
    }),
];

const PROGRAM: &[Row<ProcessStatus>] = &[
    ("up", Gauge, "Whether the process takes requests.", |it| {
        Some(f64::from(u8::from(it.state == "up")))
    }),
    ("uptime_seconds", Gauge, "How long it has been up.", |it| {
        seconds(it.uptime_ms)
    }),
    ("memory_bytes", Gauge, "Its share of memory.", |it| {
        it.memory.map(|bytes| bytes as f64)
    }),
    ("cpu_seconds", Counter, "Its processor time.", |it| {
        seconds(it.cpu_ms)
    }),
    (
        "requests",
        Counter,
        "Requests that the process has completed.",
        |it| Some(it.requests as f64),
    ),
    ("sessions", Gauge, "Requests that it has now.", |it| {
        Some(it.sessions as f64)
    }),
    (
        "restarts",
        Counter,
        "How often another came up before it.",
        |it| Some(it.restarts as f64),
    ),
];

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn seconds(millis: Option<u64>) -> Option<f64> {
    millis.map(|millis| millis as f64 / 1000.0)
}

type Labels = Vec<(&'static str, String)>;

fn members<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value.to_owned()));
    labels
}

fn labelled(status: &Status) -> Vec<(Labels, &PoolStatus)> {
    let pools = status.pools.iter();
    pools
        .map(|pool| (vec![("pool", pool.name.clone())], pool))
        .collect()
}

fn views(status: &Status) -> Vec<(Labels, &Value)> {
    let pools = labelled(status).into_iter();
    pools
        .filter_map(|(labels, pool)| Some((labels, pool.applications.as_ref()?.view.as_ref()?)))
        .collect()
}

fn applications(status: &Status) -> Vec<(Labels, &Value)> {
    let mut all = Vec::new();
    for (labels, view) in views(status) {
        for one in members(view, "applications") {
            let name = one["name"].as_str().unwrap_or_default();
            all.push((with(&labels, "application", name), one));
        }
    }
    all
}

/// Returns the instances with a process.
fn instances(status: &Status) -> Vec<(Labels, &Value)> {
    let mut all = Vec::new();
    for (labels, application) in applications(status) {
        for one in members(application, "instances") {
            if let Some(pid) = one["pid"].as_i64() {
                all.push((with(&labels, "pid", &pid.to_string()), one));
            }
        }
    }
    all
}

/// Returns the instances with labels for state and version.
fn described(status: &Status) -> Vec<(Labels, &Value)> {
    let mut all = instances(status);
    for (labels, one) in &mut all {
        for key in ["state", "version"] {
            labels.push((key, one[key].as_str().unwrap_or_default().to_owned()));
        }
    }
    all
}

/// Starts of an application in progress.
#[derive(Debug, Default)]
struct Starts {
    count: u32,
    oldest_ms: u64,
}

fn starts(status: &Status) -> Vec<(Labels, Starts)> {
    let mut all = Vec::new();
    for (labels, pool) in labelled(status) {
        let mut by_root: BTreeMap<&str, Starts> = BTreeMap::new();
        for starting in pool.applications.iter().flat_map(|it| &it.starting) {
            let starts = by_root.entry(&starting.application).or_default();
            starts.count += 1;
            starts.oldest_ms = starts.oldest_ms.max(starting.for_ms);
        }
        let of_pool = by_root.into_iter();
        all.extend(of_pool.map(|(root, starts)| (with(&labels, "application", root), starts)));
    }
    all
}

fn programs(status: &Status) -> Vec<(Labels, &ProcessStatus)> {
    let mut all = Vec::new();
    for (labels, pool) in labelled(status) {
        for generation in &pool.generations {
            let labels = with(&labels, "generation", &generation.id.to_string());
            let of_generation = generation.programs.iter();
            all.extend(of_generation.map(|it| (with(&labels, "place", &it.place.to_string()), it)));
        }
    }
    all
}

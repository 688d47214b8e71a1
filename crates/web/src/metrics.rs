//! The status as OpenMetrics. The numbers of applications come from their router.

mod caches;
mod jobs;
mod lanes;
mod numbers;
mod pools;
mod releases;

use forkyard_base::openmetrics::Kind::{Counter, Gauge, Histogram};
use forkyard_base::openmetrics::{Kind, OpenMetrics};
use forkyard_protocol::control::{PoolStatus, ProcessStatus, Status};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;

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
    metrics
        .of("applications", &views(status))
        .add("instances", |it| number(&it["instances"]))
        .add("instances_max", |it| number(&it["max"]))
        .add("pool_requests_waiting", |it| number(&it["waiting"]));
    metrics
        .of("applications", &applications(status))
        .add("requests_waiting", |it| number(&it["waiting"]))
        .add("oldest_wait_seconds", |it| number(&it["oldest_wait"]))
        .add("restarts", |it| number(&it["restarts"]))
        .add("application_instances", |it| members(it, "instances").len())
        .add("requests", |it| number(&it["counters"]["accepted"]))
        .add("requests_queued", |it| number(&it["counters"]["queued"]))
        .add("requests_refused_full", |it| {
            number(&it["counters"]["queue_full"])
        })
        .add("requests_timed_out", |it| number(&it["counters"]["timed_out"]))
        .add("requests_abandoned", |it| number(&it["counters"]["abandoned"]))
        .add("requests_refused", |it| number(&it["counters"]["refused"]))
        .add("instances_started", |it| number(&it["counters"]["spawned"]))
        .add("instances_failed", |it| number(&it["counters"]["spawn_failed"]));
    metrics
        .of("applications", &starts(status))
        .add("instances_starting", |it| it.count)
        .add("start_age_seconds", |it| seconds(it.oldest_ms));
    metrics.of("instance", &described(status)).add("info", |_| 1.0);
    metrics
        .of("instance", &instances(status))
        .add("sessions", |it| it["sessions"].as_f64())
        .add("processed", |it| it["processed"].as_f64())
        .add("uptime_seconds", |it| it["uptime"].as_f64())
        .add("idle_seconds", |it| it["last_used"].as_f64())
        .add("memory_bytes", |it| it["memory"].as_f64())
        .add("cpu_seconds", |it| seconds(it["cpu_ms"].as_u64()));
    metrics
        .of("program", &programs(status))
        .add("up", |it| it.state == "up")
        .add("uptime_seconds", |it| seconds(it.uptime_ms))
        .add("memory_bytes", |it| it.memory)
        .add("cpu_seconds", |it| seconds(it.cpu_ms))
        .add("requests", |it| it.requests)
        .add("sessions", |it| it.sessions)
        .add("restarts", |it| it.restarts);
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

/// The families: name, kind and help, without `forkyard_` and `_total`.
static FAMILIES: LazyLock<BTreeMap<&str, (Kind, &str)>> = LazyLock::new(|| {
    let lines = include_str!("metrics/families.txt").lines();
    let families = lines.filter_map(|line| {
        let (name, about) = line.split_once(' ')?;
        let (kind, help) = about.split_once(' ')?;
        let kind = match kind {
            "counter" => Counter,
            "histogram" => Histogram,
            _ => Gauge,
        };
        Some((name, (kind, help)))
    });
    families.collect()
});

impl Metrics {
    /// Begins a family, and returns the name of its numbers.
    fn begin(&mut self, name: &str) -> String {
        let (kind, help) = FAMILIES.get(name).copied().unwrap_or((Gauge, ""));
        let family = format!("forkyard_{name}");
        let name = match kind {
            Counter => format!("{family}_total"),
            _ => family.clone(),
        };
        // Prometheus' older format has a counter's full name in its header.
        let header = match self.form {
            Form::OpenMetrics => &family,
            Form::Prometheus => &name,
        };
        self.text.family(header, kind, help);
        name
    }

    /// Families about things, with one number per thing that has a value.
    fn of<'m, T>(&'m mut self, prefix: &'static str, things: &'m [(Labels, T)]) -> Families<'m, T> {
        Families {
            metrics: self,
            prefix,
            things,
        }
    }

    /// Writes a histogram. `buckets`: each bound, and the count up to it.
    fn histogram(
        &mut self,
        name: &str,
        labels: &Labels,
        buckets: impl IntoIterator<Item = (String, u64)>,
        count: u64,
        sum: f64,
    ) {
        let (bucket, mut with_bound) = (format!("{name}_bucket"), with(labels, "le", ""));
        for (bound, count) in buckets.into_iter().chain([("+Inf".to_owned(), count)]) {
            with_bound[labels.len()].1 = bound;
            self.text.sample(&bucket, &with_bound, count);
        }
        self.text.sample(&format!("{name}_count"), labels, count);
        self.text.sample(&format!("{name}_sum"), labels, sum);
    }
}

struct Families<'m, T> {
    metrics: &'m mut Metrics,
    prefix: &'static str,
    things: &'m [(Labels, T)],
}

impl<T> Families<'_, T> {
    fn add<F: Figure>(self, name: &str, of: impl Fn(&T) -> F) -> Self {
        let name = self.metrics.begin(&format!("{}_{name}", self.prefix));
        for (labels, thing) in self.things {
            if let Some(number) = of(thing).number() {
                self.metrics.text.sample(&name, labels, number);
            }
        }
        self
    }
}

trait Figure {
    fn number(self) -> Option<f64>;
}

macro_rules! figures {
    ($($type:ty => $number:expr,)*) => {
        $(impl Figure for $type {
            fn number(self) -> Option<f64> {
                let number: fn($type) -> f64 = $number;
                Some(number(self))
            }
        })*
    };
}

figures! {
    bool => |it| f64::from(u8::from(it)),
    u32 => f64::from,
    u64 => |it| it as f64,
    i64 => |it| it as f64,
    usize => |it| it as f64,
    f64 => |it| it,
}

impl<F: Figure> Figure for Option<F> {
    fn number(self) -> Option<f64> {
        self.and_then(Figure::number)
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn seconds(millis: impl Into<Option<u64>>) -> Option<f64> {
    millis.into().map(|millis| millis as f64 / 1000.0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_protocol::control::JobsStatus;
    use forkyard_protocol::jobs::Stats;

    #[test]
    fn every_family_has_a_line() {
        let status = Status {
            jobs: Some(Box::new(JobsStatus {
                socket: "/s".into(),
                stats: Some(Stats::default()),
            })),
            ..Status::default()
        };
        let text = metrics(&status, Form::OpenMetrics);
        let mut count = 0;
        for line in text
            .lines()
            .filter_map(|line| line.strip_prefix("# HELP forkyard_"))
        {
            let (name, help) = line.split_once(' ').unwrap();
            assert_eq!(FAMILIES.get(name).map(|it| it.1), Some(help), "{name}");
            assert!(help.ends_with('.') && help.len() > 9, "{line}");
            count += 1;
        }
        assert_eq!(count, FAMILIES.len());
        assert_eq!(include_str!("metrics/families.txt").lines().count(), count);
    }
}

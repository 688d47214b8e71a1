//! The view of applications and of instances that start. The router reports applications, so their values are untrusted.

use super::Span;
use super::processes::{self, list};
use serde::Serialize;
use serde_json::Value;

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct ApplicationRow {
    pub(crate) pool: String,
    pub(crate) name: String,
    pub(crate) group: Option<String>,
    /// The step of an instance that starts.
    pub(crate) starting: Option<Step>,
    pub(crate) instances: u64,
    pub(crate) busy: u64,
    pub(crate) sessions: u64,
    pub(crate) waiting: u64,
    /// In seconds.
    pub(crate) oldest_wait: Option<f64>,
    pub(crate) requests: u64,
    pub(crate) requests_per_second: Option<f64>,
    pub(crate) restarts: u64,
    /// In bytes.
    pub(crate) memory: Option<u64>,
    /// Problems and restarts.
    pub(crate) remarks: Vec<&'static str>,
    pub(crate) pids: Vec<i64>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Step {
    pub(crate) name: String,
    /// Seconds in this step, and since the request for an instance.
    pub(crate) age: f64,
    pub(crate) whole: f64,
}

const REMARKS: [(&str, &str); 4] = [
    ("restarting", "restarting"),
    ("resisting", "new code can't be started"),
    ("in_trouble", "can't be started"),
    ("removed", "removed"),
];

pub(super) fn rows(span: Span<'_>) -> Vec<ApplicationRow> {
    let mut rows = Vec::new();
    for pool in &span.now.status.pools {
        let name = &pool.name;
        for application in processes::applications(pool) {
            rows.push(row(span, name, application));
        }
        let starting = pool.applications.iter().flat_map(|it| &it.starting);
        rows.extend(starting.map(|starting| ApplicationRow {
            pool: name.clone(),
            name: starting.application.clone(),
            starting: Some(Step {
                name: starting.step.clone(),
                age: starting.step_for_ms as f64 / 1e3,
                whole: starting.for_ms as f64 / 1e3,
            }),
            pids: starting.pid.into_iter().map(i64::from).collect(),
            ..ApplicationRow::default()
        }));
    }
    rows
}

fn row(span: Span<'_>, pool: &str, application: &Value) -> ApplicationRow {
    let name = application["name"].as_str().unwrap_or("?");
    let before = span.before.and_then(|before| {
        let pool = before.status.pools.iter().find(|it| it.name == pool)?;
        processes::applications(pool).find(|it| it["name"].as_str() == Some(name))
    });
    let instances = || list(application, "instances");
    let sessions = |instance: &Value| instance["sessions"].as_u64().unwrap_or(0);
    let sum = |numbers: &mut dyn Iterator<Item = u64>| numbers.fold(0, u64::saturating_add);
    let pids: Vec<i64> = instances().filter_map(|it| it["pid"].as_i64()).collect();
    let memory = instances().filter_map(|instance| {
        let pid = i32::try_from(instance["pid"].as_i64()?).ok()?;
        let read = span.now.processes.get(&pid).and_then(|it| it.memory);
        read.or(instance["memory"].as_u64())
    });
    let remarks = REMARKS
        .iter()
        .filter(|(key, _)| application[*key].as_bool() == Some(true));
    ApplicationRow {
        pool: pool.to_owned(),
        name: name.to_owned(),
        group: application["group"].as_str().map(str::to_owned),
        starting: None,
        instances: instances().count() as u64,
        busy: instances().filter(|it| sessions(it) > 0).count() as u64,
        sessions: sum(&mut instances().map(sessions)),
        waiting: sum(&mut ["waiting", "queued"]
            .iter()
            .filter_map(|key| application[*key].as_u64())),
        oldest_wait: application["oldest_wait"].as_f64(),
        requests: requests(application),
        requests_per_second: span.rate(requests(application), before.map(requests)),
        restarts: application["restarts"].as_u64().unwrap_or(0),
        memory: memory.reduce(u64::saturating_add),
        remarks: remarks.map(|(_, remark)| *remark).collect(),
        pids,
    }
}

fn requests(application: &Value) -> u64 {
    application["counters"]["accepted"].as_u64().unwrap_or(0)
}

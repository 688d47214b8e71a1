//! The status as people read it. What is said of applications is their router's word, and read with care.

use super::control::printable;
use crate::control::protocol::{Applications, Starting, Status};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What the system knows of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Use {
    /// Its share of memory, bytes.
    pub(super) memory: Option<u64>,
    /// Processor time so far, seconds.
    pub(super) cpu: Option<f64>,
}

/// The whole table. `uses`: what the system says of a process.
pub(super) fn table(status: &Status, uses: &dyn Fn(i32) -> Use) -> String {
    let mut text = format!(
        "forkyard {}, pid {}, {}\n",
        status.version, status.pid, status.config
    );
    for pool in &status.pools {
        let _ = writeln!(text, "\npool {} on {}", pool.name, pool.listen);
        if let Some(applications) = &pool.applications {
            applications_table(applications, pool.queue, uses, &mut text);
            continue;
        }
        if let Some(error) = &pool.last_error {
            let refusing = if error.refusing {
                ", requests are refused"
            } else {
                ""
            };
            let summary = printable(&error.summary);
            let _ = writeln!(text, "  last error {}{refusing}: {summary}", error.id);
        }
        for generation in &pool.generations {
            let preloader = generation
                .preloader
                .map_or_else(String::new, |pid| format!(", preloader {pid}"));
            let _ = writeln!(
                text,
                "  generation {}, {}, {}, {} workers{preloader}",
                generation.id,
                generation.state,
                generation.pm,
                generation.workers.len()
            );
            super::programs::table(&generation.programs, &mut text);
            for worker in &generation.workers {
                let pid = worker.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
                let _ = writeln!(
                    text,
                    "    {pid:>8}  {:<28} {:>10.1} s  {:>10} requests  {}",
                    worker.stage,
                    worker.for_ms as f64 / 1000.0,
                    worker.requests,
                    printable(&worker.script)
                );
            }
        }
    }
    text
}

fn applications_table(
    of: &Applications,
    unaccepted: Option<u32>,
    uses: &dyn Fn(i32) -> Use,
    text: &mut String,
) {
    let pid = |pid: Option<i32>| pid.map_or_else(|| "none".to_owned(), |pid| pid.to_string());
    let (router, scout) = (pid(of.router), pid(of.scout));
    let nothing = Value::Null;
    let book = of.book.as_ref().unwrap_or(&nothing);
    let _ = writeln!(
        text,
        "  applications: router {router}, scout {scout}, {} of {} instances, {} requests wait{}",
        number(&book["instances"]),
        of.max,
        number(&book["waiting"]),
        unaccepted.map_or_else(String::new, |count| format!(", {count} connections"))
    );
    if of.book.is_none() {
        text.push_str("  the router has not answered\n");
    }
    for application in book["applications"].as_array().into_iter().flatten() {
        one(application, uses, text);
    }
    for starting in &of.starting {
        let root = printable(&starting.application);
        let _ = writeln!(
            text,
            "  starting instance {} of {root} for {:.1} s: {} for {:.1} s{}",
            starting.instance,
            starting.for_ms as f64 / 1000.0,
            printable(&starting.step),
            starting.step_for_ms as f64 / 1000.0,
            starting
                .pid
                .map_or_else(String::new, |pid| format!(", pid {pid}"))
        );
    }
    for error in &of.errors {
        let root = printable(&error.application);
        let _ = writeln!(
            text,
            "  error {} in {root}: {}",
            error.id,
            printable(&error.message)
        );
    }
}

fn one(application: &Value, uses: &dyn Fn(i32) -> Use, text: &mut String) {
    let mut remarks = String::new();
    for (key, remark) in [
        ("restarting", "restarting"),
        ("resisting", "new code can't be started"),
        ("in_trouble", "can't be started"),
    ] {
        if application[key].as_bool() == Some(true) {
            let _ = write!(remarks, ", {remark}");
        }
    }
    if let Some(group) = application["group"].as_str() {
        let _ = write!(remarks, ", group {}", printable(group));
    }
    let waiting = number(&application["waiting"]) + number(&application["queued"]);
    if waiting > 0 {
        let _ = write!(remarks, ", {waiting} requests wait");
    }
    if let Some(oldest) = application["oldest_wait"].as_f64() {
        let _ = write!(remarks, ", the oldest for {oldest:.1} s");
    }
    let name = printable(application["name"].as_str().unwrap_or("?"));
    let _ = writeln!(
        text,
        "  {name}: restarts {}{remarks}",
        number(&application["restarts"])
    );
    for instance in application["instances"].as_array().into_iter().flatten() {
        let pid = instance["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let used = pid.map(uses).unwrap_or_default();
        let memory = used.memory.or(instance["memory"].as_u64());
        let memory = memory.map_or_else(|| "-".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
        let cpu = used
            .cpu
            .map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"));
        let since = |key: &str| match instance[key].as_f64() {
            Some(seconds) => format!("{seconds:.1} s"),
            None => "-".to_owned(),
        };
        let _ = writeln!(
            text,
            "    {:>8}  {:<10} sessions {}, processed {}, up {}, used {} ago, memory {memory}, cpu {cpu}",
            pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            printable(instance["state"].as_str().unwrap_or("?")),
            number(&instance["sessions"]),
            number(&instance["processed"]),
            since("uptime"),
            since("last_used"),
        );
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Applications' numbers for a monitoring system (OpenMetrics).
pub(super) fn metrics(status: &Status) -> String {
    const APPLICATION: &[(&str, &str, &str, &str)] = &[
        (
            "waiting",
            "gauge",
            "requests_waiting",
            "Requests that wait for an instance.",
        ),
        (
            "restarts",
            "gauge",
            "restarts",
            "How often the application was restarted.",
        ),
        (
            "accepted",
            "counter",
            "requests",
            "Requests that asked for an instance.",
        ),
        (
            "queued",
            "counter",
            "requests_queued",
            "Requests that had to wait.",
        ),
        (
            "queue_full",
            "counter",
            "requests_refused_full",
            "Requests refused because too many waited.",
        ),
        (
            "timed_out",
            "counter",
            "requests_timed_out",
            "Requests that waited for too long.",
        ),
        (
            "refused",
            "counter",
            "requests_refused",
            "Requests refused for another reason.",
        ),
        (
            "spawned",
            "counter",
            "instances_started",
            "Instances that came up.",
        ),
        (
            "spawn_failed",
            "counter",
            "instances_failed",
            "Instances that did not.",
        ),
    ];
    let pools = || {
        status
            .pools
            .iter()
            .filter_map(|pool| Some((pool, pool.applications.as_ref()?.book.as_ref()?)))
    };
    let mut text = String::new();
    for (key, kind, name, help) in [
        (
            "instances",
            "gauge",
            "instances",
            "Instances of all applications.",
        ),
        (
            "max",
            "gauge",
            "instances_max",
            "Most instances of all applications.",
        ),
        ("waiting", "gauge", "pool_requests_waiting", "Requests that wait."),
    ] {
        head(name, kind, help, &mut text);
        for (pool, book) in pools() {
            let _ = writeln!(
                text,
                "forkyard_applications_{name}{{pool=\"{}\"}} {}",
                label(&pool.name),
                number(&book[key])
            );
        }
    }
    for (key, kind, name, help) in APPLICATION {
        head(name, kind, help, &mut text);
        let suffix = if *kind == "counter" { "_total" } else { "" };
        for (pool, book) in pools() {
            for application in book["applications"].as_array().into_iter().flatten() {
                let of = match *kind {
                    "counter" => &application["counters"],
                    _ => application,
                };
                let _ = writeln!(
                    text,
                    "forkyard_applications_{name}{suffix}{{pool=\"{}\",application=\"{}\"}} {}",
                    label(&pool.name),
                    label(application["name"].as_str().unwrap_or_default()),
                    number(&of[*key])
                );
            }
        }
    }
    head(
        "instances_starting",
        "gauge",
        "Instances of an application that are being started.",
        &mut text,
    );
    each_starting(status, &mut text, "instances_starting", |starts| {
        starts.len() as f64
    });
    head(
        "start_age_seconds",
        "gauge",
        "How long the oldest start under way of an application has lasted.",
        &mut text,
    );
    each_starting(status, &mut text, "start_age_seconds", |starts| {
        let oldest = starts.iter().map(|starting| starting.for_ms).max();
        oldest.unwrap_or(0) as f64 / 1000.0
    });
    head(
        "oldest_wait_seconds",
        "gauge",
        "How long the oldest request of an application has waited for an instance.",
        &mut text,
    );
    for (pool, book) in pools() {
        for application in book["applications"].as_array().into_iter().flatten() {
            let _ = writeln!(
                text,
                "forkyard_applications_oldest_wait_seconds{{pool=\"{}\",application=\"{}\"}} {}",
                label(&pool.name),
                label(application["name"].as_str().unwrap_or_default()),
                application["oldest_wait"].as_f64().unwrap_or(0.0)
            );
        }
    }
    head(
        "application_instances",
        "gauge",
        "Instances of an application.",
        &mut text,
    );
    for (pool, book) in pools() {
        for application in book["applications"].as_array().into_iter().flatten() {
            let count = application["instances"].as_array().map_or(0, Vec::len);
            let _ = writeln!(
                text,
                "forkyard_applications_application_instances{{pool=\"{}\",application=\"{}\"}} {count}",
                label(&pool.name),
                label(application["name"].as_str().unwrap_or_default()),
            );
        }
    }
    super::programs::metrics(status, &mut text);
    text + "# EOF\n"
}

/// A number for each application of which something is being started.
fn each_starting(status: &Status, text: &mut String, name: &str, value: impl Fn(&[&Starting]) -> f64) {
    for pool in &status.pools {
        let mut by_root: BTreeMap<&str, Vec<&Starting>> = BTreeMap::new();
        for starting in pool.applications.iter().flat_map(|it| &it.starting) {
            by_root.entry(&starting.application).or_default().push(starting);
        }
        for (root, starts) in by_root {
            let _ = writeln!(
                text,
                "forkyard_applications_{name}{{pool=\"{}\",application=\"{}\"}} {}",
                label(&pool.name),
                label(root),
                value(&starts)
            );
        }
    }
}

fn head(name: &str, kind: &str, help: &str, text: &mut String) {
    let _ = writeln!(text, "# TYPE forkyard_applications_{name} {kind}");
    let _ = writeln!(text, "# HELP forkyard_applications_{name} {help}");
}

/// A label's value.
pub(super) fn label(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{Pool, StartError};
    use serde_json::json;

    fn status() -> Status {
        let book = json!({
            "instances": 1, "waiting": 2, "max": 6,
            "applications": [{
                "name": "/srv/\u{1b}a", "waiting": 2, "restarts": 3, "oldest_wait": 1.25, "restarting": true,
                "counters": {"accepted": 9, "queue_full": 1},
                "instances": [{
                    "pid": 77, "state": "busy", "sessions": 1, "processed": 8, "uptime": 5.0, "last_used": 0.5,
                }],
            }],
        });
        let applications = Applications {
            router: Some(5),
            scout: None,
            max: 6,
            starting: vec![Starting {
                instance: 4,
                application: "/srv/b".into(),
                step: "SUBPROCESS_APP_LOAD_OR_EXEC".into(),
                step_for_ms: 1900,
                for_ms: 2000,
                pid: Some(78),
            }],
            errors: vec![StartError {
                application: "/srv/b".into(),
                id: "abc".into(),
                message: "it\nfails".into(),
                time: 0,
            }],
            book: Some(book),
        };
        Status {
            pid: 1,
            version: "1".into(),
            config: "f".into(),
            pools: vec![Pool {
                last_error: None,
                failed_starts: 3,
                name: "s\"x".into(),
                listen: "/run/s".into(),
                queue: Some(0),
                applications: Some(applications),
                generations: Vec::new(),
            }],
        }
    }

    #[test]
    fn applications_are_shown_with_their_instances() {
        let uses = |pid| Use {
            memory: (pid == 77).then_some(3 << 20),
            cpu: Some(1.0),
        };
        assert_eq!(
            table(&status(), &uses),
            "forkyard 1, pid 1, f\n\npool s\"x on /run/s\n  applications: router 5, scout none, 1 of 6 instances, 2 \
             requests wait, 0 connections\n  /srv/?a: restarts 3, restarting, 2 requests wait, the oldest for 1.2 s\n      \
             \u{20}   77  busy       sessions 1, processed 8, up 5.0 s, used 0.5 s ago, memory 3 MiB, cpu 1.0 s\n  \
             starting instance 4 of /srv/b for 2.0 s: SUBPROCESS_APP_LOAD_OR_EXEC for 1.9 s, pid 78\n  \
             error abc in /srv/b: it?fails\n"
        );
    }

    #[test]
    fn metrics_are_well_formed() {
        let text = metrics(&status());
        assert!(text.ends_with("# EOF\n"));
        let wanted = "forkyard_applications_requests_total{pool=\"s\\\"x\",application=\"/srv/\u{1b}a\"} 9\n";
        assert!(text.contains(wanted), "{text}");
        let wanted = "forkyard_applications_start_age_seconds{pool=\"s\\\"x\",application=\"/srv/b\"} 2\n";
        assert!(text.contains(wanted), "{text}");
        assert!(
            text.contains("forkyard_pool_failed_starts_total{pool=\"s\\\"x\"} 3\n"),
            "{text}"
        );
        let types = text.lines().filter(|line| line.starts_with("# TYPE")).count();
        let names: std::collections::BTreeSet<&str> =
            text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        assert_eq!(types, names.len());
    }

    #[test]
    fn nonsense_of_a_router_is_shown_as_nothing() {
        let mut status = status();
        if let Some(applications) = &mut status.pools[0].applications {
            applications.book = Some(json!({"applications": [7, {"instances": [[]]}], "instances": "x"}));
        }
        let text = table(&status, &|_| Use::default());
        assert!(text.contains("0 of 6 instances"), "{text}");
        assert!(metrics(&status).ends_with("# EOF\n"));
    }
}

//! The status as people read it. What is said of applications is their router's word, and read with care.

use super::control::printable;
use crate::control::protocol::{Applications, Status};
use serde_json::Value;
use std::fmt::Write as _;

/// What the system knows of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Use {
    /// Its share of memory, bytes.
    pub(super) memory: Option<u64>,
    /// Processor time so far, milliseconds.
    pub(super) cpu_ms: Option<u64>,
}

/// Adds what the system says of instances and of programs' processes.
pub(super) fn look_at(status: &mut Status, uses: &dyn Fn(i32) -> Use) {
    for pool in &mut status.pools {
        for process in pool.generations.iter_mut().flat_map(|it| &mut it.programs) {
            let used = process.pid.map(uses).unwrap_or_default();
            (process.memory, process.cpu_ms) = (used.memory, used.cpu_ms);
        }
        let book = pool.applications.as_mut().and_then(|it| it.book.as_mut());
        let applications = book.and_then(|book| book.get_mut("applications")?.as_array_mut());
        for application in applications.into_iter().flatten() {
            let instances = application.get_mut("instances").and_then(Value::as_array_mut);
            for instance in instances.into_iter().flatten().filter_map(Value::as_object_mut) {
                let pid = instance.get("pid").and_then(Value::as_i64);
                let used = pid.and_then(|pid| i32::try_from(pid).ok()).map(uses);
                let used = used.unwrap_or_default();
                // Where the system does not tell, the router may know it.
                if let Some(memory) = used.memory {
                    instance.insert("memory".to_owned(), memory.into());
                }
                instance.insert("cpu_ms".to_owned(), used.cpu_ms.into());
            }
        }
    }
}

/// The whole table.
pub(super) fn table(status: &Status) -> String {
    let mut text = format!(
        "forkyard {}, pid {}, {}\n",
        status.version, status.pid, status.config
    );
    for pool in &status.pools {
        let _ = writeln!(text, "\npool {} on {}", pool.name, pool.listen);
        if let Some(why) = &pool.unreachable {
            let _ = writeln!(
                text,
                "  nobody can connect: {why}; a reload binds the socket again where it can"
            );
        }
        if let Some(applications) = &pool.applications {
            applications_table(applications, pool.queue, &mut text);
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

fn applications_table(of: &Applications, unaccepted: Option<u32>, text: &mut String) {
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
        one(application, text);
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

fn one(application: &Value, text: &mut String) {
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
        let version = instance["version"].as_str();
        let since = |key: &str| or_none(instance[key].as_f64().map(|seconds| format!("{seconds:.1} s")));
        let _ = writeln!(
            text,
            "    {:>8}  {:<10} sessions {}, processed {}, up {}, used {} ago, memory {}, cpu {}{}",
            or_none(instance["pid"].as_i64().map(|pid| pid.to_string())),
            printable(instance["state"].as_str().unwrap_or("?")),
            number(&instance["sessions"]),
            number(&instance["processed"]),
            since("uptime"),
            since("last_used"),
            mebibytes(instance["memory"].as_u64()),
            seconds(instance["cpu_ms"].as_u64()),
            version.map_or_else(String::new, |version| format!(", version {}", printable(version))),
        );
    }
}

/// A word that may be missing.
pub(super) fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// An amount of memory.
pub(super) fn mebibytes(bytes: Option<u64>) -> String {
    or_none(bytes.map(|bytes| format!("{} MiB", bytes >> 20)))
}

/// A time in milliseconds.
pub(super) fn seconds(millis: Option<u64>) -> String {
    or_none(millis.map(|millis| format!("{:.1} s", millis as f64 / 1000.0)))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::control::protocol::{Pool, StartError, Starting};
    use serde_json::json;

    pub(in crate::cli) fn status() -> Status {
        let book = json!({
            "instances": 1, "waiting": 2, "max": 6,
            "applications": [{
                "name": "/srv/\u{1b}a", "waiting": 2, "restarts": 3, "oldest_wait": 1.25, "restarting": true,
                "counters": {"accepted": 9, "queue_full": 1},
                "instances": [{
                    "pid": 77, "state": "busy", "sessions": 1, "processed": 8, "uptime": 5.0, "last_used": 0.5,
                    "version": "v\u{1b}2",
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
                unreachable: None,
                queue: Some(0),
                applications: Some(applications),
                generations: Vec::new(),
            }],
        }
    }

    #[test]
    fn applications_are_shown_with_their_instances() {
        let mut status = status();
        look_at(&mut status, &|pid| Use {
            memory: (pid == 77).then_some(3 << 20),
            cpu_ms: Some(1000),
        });
        assert_eq!(
            table(&status),
            "forkyard 1, pid 1, f\n\npool s\"x on /run/s\n  applications: router 5, scout none, 1 of 6 instances, 2 \
             requests wait, 0 connections\n  /srv/?a: restarts 3, restarting, 2 requests wait, the oldest for 1.2 s\n      \
             \u{20}   77  busy       sessions 1, processed 8, up 5.0 s, used 0.5 s ago, memory 3 MiB, cpu 1.0 s, version v?2\n  \
             starting instance 4 of /srv/b for 2.0 s: SUBPROCESS_APP_LOAD_OR_EXEC for 1.9 s, pid 78\n  \
             error abc in /srv/b: it?fails\n"
        );
    }

    #[test]
    fn nonsense_of_a_router_is_shown_as_nothing() {
        let mut status = status();
        if let Some(applications) = &mut status.pools[0].applications {
            applications.book = Some(json!({"applications": [7, {"instances": [[]]}], "instances": "x"}));
        }
        look_at(&mut status, &|_| Use::default());
        let text = table(&status);
        assert!(text.contains("0 of 6 instances"), "{text}");
        assert!(super::super::metrics::metrics(&status).ends_with("# EOF\n"));
    }
}

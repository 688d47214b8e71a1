//! The status as text. The router reports the part about applications, so its values are untrusted.

use super::control::printable;
use super::jobs::age;
use forkyard_protocol::control::{Applications, PoolStatus, ProcessStatus, Status, WorkerStatus};
use forkyard_protocol::counters::ExitCause;
use forkyard_sys::signal;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

/// A process's memory and processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Use {
    /// Proportional share of memory, in bytes.
    pub(super) memory: Option<u64>,
    /// Processor time in milliseconds.
    pub(super) cpu_ms: Option<u64>,
}

/// Adds memory and processor time from the system. An owner's status lacks the pool's counters: they are summed over its applications.
pub(super) fn look_at(status: &mut Status, uses: &dyn Fn(i32) -> Use) {
    let shares = preloaders(status);
    for pool in &mut status.pools {
        let mut sum: Option<u64> = None;
        let mut add = |memory: Option<u64>| {
            if let Some(memory) = memory {
                // The router's numbers are untrusted and may overflow.
                sum = Some(sum.unwrap_or(0).saturating_add(memory));
            }
            memory
        };
        for generation in &mut pool.generations {
            for process in &mut generation.programs {
                let used = process.pid.map(uses).unwrap_or_default();
                (process.memory, process.cpu_ms) = (add(used.memory), used.cpu_ms);
            }
            for worker in &mut generation.workers {
                worker.memory = add(worker.pid.and_then(|pid| uses(pid).memory));
            }
            if let Some(pid) = generation.preloader {
                let shared = shares.get(&pid).copied().unwrap_or(1);
                add(uses(pid).memory.map(|memory| memory / shared));
            }
        }
        let view = pool.applications.as_mut().and_then(|it| it.view.as_mut());
        let applications = view.and_then(|view| view.get_mut("applications")?.as_array_mut());
        let is_own = pool.counts.starts == 0;
        for application in applications.into_iter().flatten() {
            if is_own {
                let accepted = number(&application["counters"]["accepted"]);
                pool.counts.requests = pool.counts.requests.saturating_add(accepted);
            }
            for program in members_mut(application, "programs") {
                let used = use_of(program, uses);
                program.insert("memory".to_owned(), add(used.memory).into());
                program.insert("cpu_ms".to_owned(), used.cpu_ms.into());
                if is_own {
                    pool.cpu_ms += used.cpu_ms.unwrap_or(0);
                }
            }
            for instance in members_mut(application, "instances") {
                let used = use_of(instance, uses);
                // The router's number is the fallback.
                if let Some(memory) = used.memory {
                    instance.insert("memory".to_owned(), memory.into());
                }
                add(instance.get("memory").and_then(Value::as_u64));
                instance.insert("cpu_ms".to_owned(), used.cpu_ms.into());
                if is_own {
                    let sessions = instance.get("sessions").map_or(0, number);
                    *(if sessions > 0 {
                        &mut pool.busy
                    } else {
                        &mut pool.idle
                    }) += 1;
                    pool.cpu_ms += used.cpu_ms.unwrap_or(0);
                }
            }
        }
        pool.memory = sum;
    }
}

fn members_mut<'a>(
    application: &'a mut Value,
    list: &str,
) -> impl Iterator<Item = &'a mut serde_json::Map<String, Value>> {
    let members = application.get_mut(list).and_then(Value::as_array_mut);
    members.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn use_of(process: &serde_json::Map<String, Value>, uses: &dyn Fn(i32) -> Use) -> Use {
    let pid = process.get("pid").and_then(Value::as_i64);
    pid.and_then(|pid| i32::try_from(pid).ok())
        .map(uses)
        .unwrap_or_default()
}

/// Counts the pools of each preloader.
fn preloaders(status: &Status) -> HashMap<i32, u64> {
    let mut pools: HashMap<i32, u64> = HashMap::new();
    for pool in &status.pools {
        let own: BTreeSet<i32> = pool.generations.iter().filter_map(|it| it.preloader).collect();
        for pid in own {
            *pools.entry(pid).or_default() += 1;
        }
    }
    pools
}

/// Returns the milliseconds since `seconds` (since 1970).
fn since_epoch(seconds: u64) -> i64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let passed = now.saturating_sub(std::time::Duration::from_secs(seconds));
    i64::try_from(passed.as_millis()).unwrap_or(i64::MAX)
}

/// Lists a pool's problems, one a line.
pub(super) fn remarks(pool: &PoolStatus) -> Vec<String> {
    let problem = pool.problem.as_deref().map(printable);
    let error = pool.last_error.as_ref().map(|error| {
        let state = match (error.refusing, error.is_over) {
            (true, _) => ", requests are refused",
            (false, true) => ", over: the pool serves",
            (false, false) => "",
        };
        let (id, age) = (&error.id, age(since_epoch(error.time)));
        format!("last error {id}, {age} ago{state}: {}", printable(&error.summary))
    });
    problem
        .into_iter()
        .chain(error)
        .chain(super::full::remark(pool))
        .collect()
}

pub(super) fn details(pool: &PoolStatus) -> String {
    let mut text = format!("pool {} on {}\n", pool.name, pool.listen);
    for remark in remarks(pool) {
        let _ = writeln!(text, "  {remark}");
    }
    summary(pool, &mut text);
    if let Some(releases) = &pool.releases {
        text += &super::releases::of_status(releases);
    }
    if let Some(shares) = &pool.shares {
        let _ = writeln!(text, "  shares: {}", printable(shares));
    }
    if let Some(applications) = &pool.applications {
        applications_table(applications, pool.queue, &mut text);
        return text;
    }
    for generation in &pool.generations {
        let _ = writeln!(
            text,
            "  generation {}, {}, {}, {} workers{}",
            generation.id,
            generation.state,
            generation.pm,
            generation.workers.len(),
            super::boot::preloader(generation)
        );
        super::boot::of_generation(generation, &mut text);
        super::programs::table(&generation.programs, &mut text);
        for worker in &generation.workers {
            let _ = writeln!(
                text,
                "    {:>8}  {:<28} {:>10.1} s  {:>10} requests  {:>8}  {:>8}  {}",
                or_none(worker.pid.map(|pid| pid.to_string())),
                super::full::stage(worker),
                worker.for_ms as f64 / 1000.0,
                worker.requests,
                mebibytes(worker.memory),
                seconds(Some(worker.cpu_ms)),
                printable(&request(worker))
            );
        }
    }
    text
}

/// Returns a worker's current or last request, and its script.
fn request(worker: &WorkerStatus) -> String {
    let WorkerStatus {
        method,
        uri,
        query,
        script,
        ..
    } = worker;
    let mark = if query.is_empty() { "" } else { "?" };
    match method.is_empty() {
        true => script.clone(),
        false => format!("{method} {uri}{mark}{query}  {script}"),
    }
}

/// Returns the pool's resources and counters.
fn summary(pool: &PoolStatus, text: &mut String) {
    let limits = &pool.limits;
    let spare = limits.min_spare_servers.zip(limits.max_spare_servers);
    let _ = writeln!(
        text,
        "  {}, {}: {} busy, {} idle, {} starting of {}{}; {} connections wait of {}, once {}",
        pool.manager(),
        pool.state(),
        pool.busy,
        pool.idle,
        pool.starting,
        limits.max_children,
        spare.map_or_else(String::new, |(min, max)| format!(" ({min} to {max} idle)")),
        or_none(pool.queue.map(|count| count.to_string())),
        or_none(pool.queue_limit.map(|count| count.to_string())),
        pool.counts.queue_max.max(u64::from(pool.queue.unwrap_or(0)))
    );
    let counts = &pool.counts;
    let _ = writeln!(
        text,
        "  requests {}, slow {}, terminated {}, max_children reached {} times, memory {}, cpu {}",
        counts.requests,
        counts.slow,
        counts.terminated,
        counts.max_children_reached,
        mebibytes(pool.memory),
        seconds(Some(pool.cpu_ms))
    );
    text.push_str(&super::numbers::lines(pool));
    let advice = pool.advice.as_deref();
    if let Some(advice) = advice.filter(|it| it.is_followed || it.has_looked && it.chosen != it.max_children)
    {
        let _ = writeln!(text, "  {}", printable(&advice.to_string()));
    }
    let exits = counts.exits.iter().map(|exits| {
        let code = match (exits.cause, exits.code) {
            (ExitCause::Signal, Some(signal)) => format!(" {}", signal::name(signal)),
            (_, Some(code)) => format!(" {code}"),
            (_, None) => exits
                .reason
                .as_ref()
                .map_or_else(String::new, |it| format!(" {}", printable(it))),
        };
        format!(", {}{code} {}", exits.cause.name(), exits.count)
    });
    let exits: String = exits.collect();
    let _ = writeln!(text, "  workers made {}{exits}", counts.starts);
    for refusals in &counts.refusals {
        let words = printable(&refusals.words().to_string());
        let _ = writeln!(text, "  scripts not run: {}, the last: {words}", refusals.count);
    }
    super::programs::left(pool.orphans, text);
}

fn applications_table(of: &Applications, unaccepted: Option<u32>, text: &mut String) {
    let pid = |pid: Option<i32>| pid.map_or_else(|| "none".to_owned(), |pid| pid.to_string());
    let (router, inspector) = (pid(of.router), pid(of.inspector));
    let nothing = Value::Null;
    let view = of.view.as_ref().unwrap_or(&nothing);
    let _ = writeln!(
        text,
        "  applications: router {router}, inspector {inspector}, {} of {} instances, {} requests wait{}",
        number(&view["instances"]),
        of.max,
        number(&view["waiting"]),
        unaccepted.map_or_else(String::new, |count| format!(", {count} connections"))
    );
    if of.view.is_none() {
        text.push_str("  the router has not answered\n");
    }
    for application in view["applications"].as_array().into_iter().flatten() {
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
    super::boot::loads_in_workers(application["connected_to"].as_str(), text);
    let programs = application["programs"].as_array().into_iter().flatten();
    let programs: Vec<ProcessStatus> = programs
        .filter_map(|program| serde_json::from_value(program.clone()).ok())
        .collect();
    super::programs::table(&programs, text);
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

pub(super) fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

pub(super) fn mebibytes(bytes: Option<u64>) -> String {
    or_none(bytes.map(|bytes| format!("{} MiB", bytes >> 20)))
}

pub(super) fn seconds(millis: Option<u64>) -> String {
    or_none(millis.map(|millis| format!("{:.1} s", millis as f64 / 1000.0)))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use forkyard_protocol::control::{
        Boot, GenerationStatus, RewoundTotals, StartError, Starting, WarmUp, WorkerLimits,
    };
    use forkyard_protocol::counters::PoolCounters;
    use serde_json::json;

    pub(crate) fn status() -> Status {
        let view = json!({
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
            inspector: None,
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
            view: Some(view),
        };
        Status {
            pid: 1,
            version: "1".into(),
            config: "f".into(),
            pools: vec![PoolStatus {
                orphans: 0,
                failed_starts: 3,
                name: "s\"x".into(),
                listen: "/run/s".into(),
                queue: Some(0),
                queue_limit: Some(511),
                applications: Some(applications),
                ..PoolStatus::default()
            }],
            skipped: Vec::new(),
            last_reload: None,
            log: None,
            replaced: false,
            daemon: None,
            jobs: None,
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
            details(&status.pools[0]),
            "pool s\"x on /run/s\n  apps, serving: 1 busy, 0 idle, 0 starting of 0; 0 connections wait of 511, once 0\n  \
             requests 9, slow 0, terminated 0, max_children reached 0 times, memory 3 MiB, cpu 1.0 s\n  workers made 0\n  \
             applications: router 5, inspector none, 1 of 6 instances, 2 \
             requests wait, 0 connections\n  /srv/?a: restarts 3, restarting, 2 requests wait, the oldest for 1.2 s\n      \
             \u{20}   77  busy       sessions 1, processed 8, up 5.0 s, used 0.5 s ago, memory 3 MiB, cpu 1.0 s, version v?2\n  \
             starting instance 4 of /srv/b for 2.0 s: SUBPROCESS_APP_LOAD_OR_EXEC for 1.9 s, pid 78\n  \
             error abc in /srv/b: it?fails\n"
        );
    }

    #[test]
    fn a_pool_is_shown_with_its_workers() {
        let worker = WorkerStatus {
            pid: Some(9),
            stage: "Running".into(),
            for_ms: 1500,
            requests: 3,
            script: "/srv/a.php".into(),
            method: "GET".into(),
            uri: "/a.php".into(),
            query: "x=\u{1b}".into(),
            cpu_ms: 250,
            ..WorkerStatus::default()
        };
        let generation = GenerationStatus {
            id: 2,
            state: "serving".into(),
            pm: "dynamic".into(),
            preloader: Some(8),
            preloading: Some("own".into()),
            unfit: Some("a thread\u{1b}".into()),
            boot: Some(Boot {
                mode: "snapshot".into(),
                isolation: Some("rewind".into()),
                because: None,
                took_ms: Some(310),
                warm_up: vec![WarmUp {
                    path: "/a".into(),
                    took_ms: 20,
                }],
                requests: 7,
                rewound: Some(RewoundTotals {
                    requests: 5,
                    micros: 620,
                    pages: 200,
                }),
            }),
            workers: vec![worker],
            ..GenerationStatus::default()
        };
        let mut counts = PoolCounters {
            requests: 7,
            queue_max: 4,
            starts: 3,
            ..PoolCounters::default()
        };
        counts.count_exit(ExitCause::Signal, Some(11), None);
        counts.count_exit(ExitCause::Exit, Some(255), None);
        counts.count_exit(ExitCause::NotPutBack, None, Some("child"));
        let pool = PoolStatus {
            name: "www".into(),
            listen: "/run/w".into(),
            problem: Some("/run/w is gone".into()),
            shares: None,
            queue: Some(1),
            queue_limit: Some(511),
            limits: WorkerLimits {
                max_children: 5,
                min_spare_servers: Some(1),
                max_spare_servers: Some(3),
            },
            busy: 1,
            counts,
            generations: vec![generation],
            ..PoolStatus::default()
        };
        let mut status = Status {
            pools: vec![pool],
            ..status()
        };
        look_at(&mut status, &|pid| Use {
            memory: Some(if pid == 9 { 3 << 20 } else { 4 << 20 }),
            cpu_ms: None,
        });
        assert_eq!(
            details(&status.pools[0]),
            "pool www on /run/w\n  /run/w is gone\n  dynamic, serving: 1 busy, 0 idle, 0 starting of 5 (1 to 3 idle); \
             1 connections wait of 511, once 4\n  requests 7, slow 0, terminated 0, max_children reached 0 times, memory \
             7 MiB, cpu 0.0 s\n  workers made 3, exit 255 1, signal SIGSEGV 1, not_put_back child 1\n  generation 2, serving, dynamic, 1 workers, \
             preloader 8\n    has its own preloader and no zygote: a thread?\n    boots once (snapshot, rewind) in 0.31 s, /a in 0.02 s; 7 requests since, 5 put back in 0.124 ms with 40 pages each\n           9  Running                             1.5 s           3 requests     3 MiB     0.2 s  \
             GET /a.php?x=?  /srv/a.php\n"
        );
    }

    #[test]
    fn nonsense_of_a_router_is_shown_as_nothing() {
        let mut status = status();
        if let Some(applications) = &mut status.pools[0].applications {
            applications.view = Some(json!({"applications": [7, {"instances": [[]]}], "instances": "x"}));
        }
        look_at(&mut status, &|_| Use::default());
        let text = details(&status.pools[0]);
        assert!(text.contains("0 of 6 instances"), "{text}");
        assert!(
            forkyard_web::metrics::metrics(&status, forkyard_web::metrics::Form::OpenMetrics)
                .ends_with("# EOF\n")
        );
    }
}

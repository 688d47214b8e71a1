//! The processes of programs in the status: of those that the daemon starts, and of those that its workers start.

use super::control::printable;
use super::status::{Use, label};
use crate::control::protocol::{Process, Status};
use std::fmt::Write as _;

/// Adds what the system says of each.
pub(super) fn look_at(status: &mut Status, uses: &dyn Fn(i32) -> Use) {
    let generations = status.pools.iter_mut().flat_map(|pool| &mut pool.generations);
    for process in generations.flat_map(|generation| &mut generation.programs) {
        let Some(used) = process.pid.map(uses) else {
            continue;
        };
        process.memory = used.memory;
        process.cpu_ms = used.cpu.map(|seconds| (seconds * 1000.0) as u64);
    }
}

/// A line for each.
pub(super) fn table(processes: &[Process], text: &mut String) {
    for process in processes {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let seconds = |millis: Option<u64>| or_none(millis.map(|it| format!("{:.1} s", it as f64 / 1000.0)));
        let _ = writeln!(
            text,
            "    {:>8}  program {}, {}, up {}, {} requests, {} sessions, restarts {}, memory {}, cpu {}",
            or_none(process.pid.map(|pid| pid.to_string())),
            process.place,
            printable(&process.state),
            seconds(process.uptime_ms),
            process.requests,
            process.sessions,
            process.restarts,
            or_none(process.memory.map(|bytes| format!("{} MiB", bytes >> 20))),
            seconds(process.cpu_ms),
        );
    }
}

/// A number of a process, where there is one.
type Number = fn(&Process) -> Option<f64>;

/// The same for a monitoring system (OpenMetrics), and how often pools' applications could not be started.
pub(super) fn metrics(status: &Status, text: &mut String) {
    const OF_PROCESSES: [(&str, &str, &str, Number); 7] = [
        ("up", "gauge", "Whether the process takes requests.", |it| {
            Some(f64::from(u8::from(it.state == "up")))
        }),
        ("uptime_seconds", "gauge", "How long it has been up.", |it| {
            it.uptime_ms.map(|millis| millis as f64 / 1000.0)
        }),
        ("memory_bytes", "gauge", "Its share of memory.", |it| {
            it.memory.map(|bytes| bytes as f64)
        }),
        ("cpu_seconds", "counter", "Its processor time.", |it| {
            it.cpu_ms.map(|millis| millis as f64 / 1000.0)
        }),
        ("requests", "counter", "Requests that it is done with.", |it| {
            Some(it.requests as f64)
        }),
        ("sessions", "gauge", "Requests that it has now.", |it| {
            Some(it.sessions as f64)
        }),
        (
            "restarts",
            "counter",
            "How often another came up before it.",
            |it| Some(it.restarts as f64),
        ),
    ];
    for (name, kind, help, number) in OF_PROCESSES {
        head(&format!("program_{name}"), kind, help, text);
        let suffix = if kind == "counter" { "_total" } else { "" };
        for pool in &status.pools {
            for generation in &pool.generations {
                for process in &generation.programs {
                    let Some(value) = number(process) else { continue };
                    let _ = writeln!(
                        text,
                        "forkyard_program_{name}{suffix}{{pool=\"{}\",generation=\"{}\",place=\"{}\"}} {value}",
                        label(&pool.name),
                        generation.id,
                        process.place,
                    );
                }
            }
        }
    }
    let help = "How often the pool's application could not be started.";
    head("pool_failed_starts", "counter", help, text);
    for pool in &status.pools {
        let (name, count) = (label(&pool.name), pool.failed_starts);
        let _ = writeln!(
            text,
            "forkyard_pool_failed_starts_total{{pool=\"{name}\"}} {count}"
        );
    }
}

fn head(name: &str, kind: &str, help: &str, text: &mut String) {
    let _ = writeln!(
        text,
        "# TYPE forkyard_{name} {kind}\n# HELP forkyard_{name} {help}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{Generation, Pool};

    fn status() -> Status {
        let process = |place, pid| Process {
            place,
            pid,
            state: if pid.is_some() { "up" } else { "waiting" }.to_owned(),
            uptime_ms: pid.map(|_| 1500),
            requests: 7,
            sessions: 1,
            restarts: 2,
            memory: None,
            cpu_ms: None,
        };
        let generation = Generation {
            id: 3,
            state: "serving".to_owned(),
            pm: "static".to_owned(),
            started: 0,
            preloader: None,
            programs: vec![process(0, Some(77)), process(1, None)],
            workers: Vec::new(),
        };
        let pool = Pool {
            name: "www".to_owned(),
            listen: "/run/s".to_owned(),
            queue: None,
            last_error: None,
            failed_starts: 4,
            applications: None,
            generations: vec![generation],
        };
        Status {
            pid: 1,
            version: "1".to_owned(),
            config: "f".to_owned(),
            pools: vec![pool],
        }
    }

    #[test]
    fn processes_are_shown_with_what_the_system_says() {
        let mut status = status();
        let uses = |pid| Use {
            memory: (pid == 77).then_some(3 << 20),
            cpu: Some(1.25),
        };
        look_at(&mut status, &uses);
        let mut text = String::new();
        table(&status.pools[0].generations[0].programs, &mut text);
        assert_eq!(
            text,
            "          77  program 0, up, up 1.5 s, 7 requests, 1 sessions, restarts 2, memory 3 MiB, cpu 1.2 s\n\
             \u{20}          -  program 1, waiting, up -, 7 requests, 1 sessions, restarts 2, memory -, cpu -\n"
        );
        let mut text = String::new();
        metrics(&status, &mut text);
        for line in [
            "forkyard_program_up{pool=\"www\",generation=\"3\",place=\"1\"} 0\n",
            "forkyard_program_memory_bytes{pool=\"www\",generation=\"3\",place=\"0\"} 3145728\n",
            "forkyard_program_cpu_seconds_total{pool=\"www\",generation=\"3\",place=\"0\"} 1.25\n",
            "forkyard_program_restarts_total{pool=\"www\",generation=\"3\",place=\"0\"} 2\n",
            "forkyard_pool_failed_starts_total{pool=\"www\"} 4\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(!text.contains("memory_bytes{pool=\"www\",generation=\"3\",place=\"1\"}"));
    }
}

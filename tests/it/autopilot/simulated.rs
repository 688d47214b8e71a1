//! Real runs and simulations of the same requests: the daemon settles at the number that its code chooses in a simulated machine
//! with as many processors and as much memory.

#[path = "../../../crates/core/tests/autopilot_sim/chance.rs"]
mod chance;
#[path = "../../../crates/core/tests/autopilot_sim/station.rs"]
mod station;
#[allow(dead_code, reason = "these tests have their own workloads")]
#[path = "../../../crates/core/tests/autopilot_sim/workload.rs"]
mod workload;
#[allow(dead_code, reason = "these tests compare the number only")]
#[path = "../../../crates/core/tests/autopilot_sim/world.rs"]
mod world;

use super::{advice, managers, most, start, under_load};
use crate::support::prelude::*;
use chance::quantile;
use workload::{Container, Kind, Workload, plain};
use world::{Rule, run};

const MIB: f64 = 1_048_576.0;
/// The number stays for so long where it settles.
const STEADY: Duration = Duration::from_secs(2);

/// A load, and what bounds its workers.
struct Load {
    name: &'static str,
    settings: &'static str,
    query: &'static str,
    /// Requests at a time, for each processor. A pool begins with four workers for each processor, and two. If it is not full,
    /// other programs that use the processors do not count.
    requests: f64,
    /// Seconds that a request waits.
    waits: f64,
    /// MiB of the pool.
    memory: Option<f64>,
    /// A part of the reason.
    because: &'static str,
}

const LOADS: [Load; 3] = [
    Load {
        name: "computing",
        settings: "",
        query: "compute=15",
        requests: 4.0,
        waits: 0.0,
        memory: None,
        because: "processor",
    },
    Load {
        name: "waiting",
        settings: "",
        query: "compute=2&wait=20",
        requests: 4.5,
        waits: 0.02,
        memory: None,
        because: "processor",
    },
    Load {
        name: "large",
        settings: "memory_max = \"500M\"\n",
        query: "wait=150&mib=60",
        requests: 8.0,
        waits: 0.15,
        memory: Some(500.0),
        because: "memory; a worker",
    },
];

/// Measurements of a pool's workers and requests, in seconds and MiB.
struct Measured {
    computes: f64,
    uses: f64,
    own: f64,
    shared: f64,
}

impl Measured {
    /// Waits for some requests. `own`: KiB of an idle worker.
    fn of(daemon: &Daemon, pool: &str, own: f64) -> Measured {
        let [computes, uses] = until("numbers of requests", || {
            let numbers = daemon.status(&[pool])["pools"][0]["numbers"].take();
            let mean = |name: &str| {
                let (sum, count) = (numbers[name]["sum"].as_f64()?, numbers[name]["count"].as_f64()?);
                (count >= 100.0).then_some(sum / count)
            };
            Some([mean("cpu")?, mean("memory")? / 1024.0])
        });
        // Workers share the preloader's memory. Without a preloader they share files.
        let shared = match daemon.preloaders(pool).first() {
            Some(preloader) => kib(&format!("/proc/{preloader}/status"), &["VmRSS:"]),
            None => {
                let mut workers = daemon.workers(pool).into_iter();
                workers.find_map(|pid| kib(&format!("/proc/{pid}/status"), &["RssFile:", "RssShmem:"]))
            }
        };
        Measured {
            computes,
            uses,
            own: own / 1024.0,
            shared: shared.expect("a process") / 1024.0,
        }
    }
}

/// Returns the memory of an idle worker that has had a request, in KiB.
fn own_memory(daemon: &Daemon, pool: &str) -> f64 {
    assert_eq!(daemon.get(pool, "work.php").body(), "done");
    until("the memory of a worker", || {
        let workers = daemon.workers(pool).into_iter();
        let memory = workers.filter_map(|pid| kib(&format!("/proc/{pid}/smaps_rollup"), &["Private_"]));
        // A worker without a request has less.
        memory.max_by(f64::total_cmp)
    })
}

/// Sums the lines of a file that begin with these words.
fn kib(path: &str, names: &[&str]) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    let lines = text
        .lines()
        .filter(|line| names.iter().any(|name| line.starts_with(name)));
    Some(
        lines
            .filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok())
            .sum(),
    )
}

/// Returns the number that the autopilot has for this load at the end of a simulation.
fn simulated(load: &Load, measured: &Measured) -> u64 {
    let machine = forkyard_config::resources();
    let kind = Kind {
        share: 1.0,
        run: measured.computes,
        away: load.waits,
        database: 0.0,
        deviation: 0.0,
        peak: measured.uses,
    };
    let workload = Workload {
        own: measured.own,
        shared: measured.shared,
        peak_deviation: 0.0,
        load: |_| 0.9,
        ..plain(load.name, &[kind])
    };
    let container = Container {
        cores: machine.cores,
        memory: load.memory.unwrap_or(machine.memory as f64 / MIB),
    };
    let numbers = run(&workload, container, Rule::Auto, 1).numbers;
    quantile(&numbers[numbers.len() / 2..], 0.5) as u64
}

/// Whether two numbers differ by at most one, or by a fifth.
fn agree(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= 1.max(other / 5)
}

/// Waits until the autopilot has about this number for some time, and returns the number.
fn settled(daemon: &Daemon, load: &Load, pool: &str, expected: u64) -> u64 {
    let (mut since, mut last) = (None, 0);
    until(
        &format!("{}, {pool}: about {expected} workers", load.name),
        || {
            let advice = advice(daemon, pool);
            let now = advice["chosen"].as_u64()?;
            if std::mem::replace(&mut last, now) != now {
                println!("{}, {pool}: simulated {expected}, now {advice}", load.name);
            }
            let is_so = agree(now, expected) && advice["because"].to_string().contains(load.because);
            let begun = since.get_or_insert_with(Instant::now).elapsed();
            if !is_so {
                since = None;
            }
            (is_so && begun >= STEADY).then_some(now)
        },
    )
}

fn settles_as_simulated(load: &Load) {
    for (pool, settings) in managers("\"auto\"") {
        let daemon = start(&[(pool, settings + load.settings)]);
        let requests = (load.requests * forkyard_config::resources().cores).ceil() as usize;
        let own = own_memory(&daemon, pool);
        let (now, expected) = under_load(&daemon, pool, requests, load.query, || {
            wait_until("a look at the pool", || {
                advice(&daemon, pool)["has_looked"] == true
            });
            let expected = simulated(load, &Measured::of(&daemon, pool, own));
            let now = settled(&daemon, load, pool, expected);
            if pool != "static" {
                wait_until("the others to leave", || {
                    daemon.workers(pool).len() as u64 <= most(&daemon, pool)
                });
            }
            (now, expected)
        });
        println!(
            "{}, {pool}: the daemon {now}, the simulation {expected}",
            load.name
        );
        if pool == "static" {
            let (code, text) = daemon.said(&["reload", "--all"]);
            assert_eq!(code, Some(0), "{text}");
            let most = most(&daemon, pool);
            assert!(
                agree(most, expected),
                "{most} after a reload, simulated {expected}"
            );
            daemon.wait_for_workers(pool, most as usize);
        }
    }
}

#[test]
fn requests_that_compute_get_as_many_workers_as_in_the_simulation() {
    settles_as_simulated(&LOADS[0]);
}

#[test]
fn requests_that_wait_get_as_many_workers_as_in_the_simulation() {
    settles_as_simulated(&LOADS[1]);
}

#[test]
fn large_requests_get_as_many_workers_as_in_the_simulation() {
    settles_as_simulated(&LOADS[2]);
}

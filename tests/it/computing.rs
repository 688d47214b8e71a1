//! Requests that use the CPU, on one processor.

use crate::support::prelude::*;
use std::sync::Barrier;

const WORKERS: usize = 4;
const BATCHES: usize = 10;

const PHP: &str = r#"<?php
$begun = hrtime(true);
$cpu = fn() => ($u = getrusage())['ru_utime.tv_sec'] + $u['ru_stime.tv_sec'] + ($u['ru_utime.tv_usec'] + $u['ru_stime.tv_usec']) / 1e6;
if ($_SERVER['QUERY_STRING'] === 'long') touch(__DIR__ . '/long-' . getmypid());
$end = $cpu() + ['computes' => 0.005, 'long' => 0.7, 'sleeps' => 0][$_SERVER['QUERY_STRING']];
while ($cpu() < $end);
if ($_SERVER['QUERY_STRING'] === 'sleeps') usleep(20000);
echo $begun, ' ', hrtime(true);
"#;
const PYTHON: &str = r#"
import os, time
def application(environ, start_response):
    begun = time.monotonic_ns()
    query = environ["QUERY_STRING"]
    if query == "long": open(f"{os.path.dirname(__file__)}/long-{os.getpid()}", "w").close()
    end = time.process_time() + {"computes": 0.005, "long": 0.7, "sleeps": 0}[query]
    while time.process_time() < end: pass
    if query == "sleeps": time.sleep(0.02)
    start_response("200 OK", [])
    return [f"{begun} {time.monotonic_ns()}".encode()]
"#;
const RUBY: &str = r##"
cpu = -> { Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) }
now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) }
run ->(env) {
  begun = now.()
  query = env["QUERY_STRING"]
  File.write("#{__dir__}/long-#{$$}", "") if query == "long"
  over = cpu.() + { "computes" => 0.005, "long" => 0.7, "sleeps" => 0 }[query]
  nil while cpu.() < over
  sleep 0.02 if query == "sleeps"
  [200, {}, ["#{begun} #{now.()}"]]
}
"##;

fn start(runtime: &str, settings: &str) -> Daemon {
    let dir = folder(&[("x.php", PHP), ("wsgi.py", PYTHON), ("config.ru", RUBY)]);
    let settings = format!("max_children = {WORKERS}\n{settings}");
    let text = match runtime {
        "php" => php_pool(dir.path(), &settings, ""),
        other => {
            let application = application_in(other, dir.path(), "");
            pool(dir.path(), "www", &settings, &application)
        }
    };
    fs::write(dir.path().join("forkyard.toml"), text).expect("configuration");
    let status = read_file("/proc/self/status");
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = allowed
        .and_then(|list| list.trim().split([',', '-']).next())
        .expect("a processor");
    let plain = forkyard(&["run"], dir.path());
    let mut command = Command::new("taskset");
    command
        .args(["-c", first])
        .arg(plain.get_program())
        .args(plain.get_args());
    Daemon::launch(dir.path(), command).keeping(dir).ready()
}

fn ask(daemon: &Daemon, query: &str) -> (u64, u64) {
    let answer = daemon.ask("www", &Params::get(&daemon.dir, "x.php", query));
    let body = answer.body();
    let (begun, ended) = body.split_once(' ').unwrap_or_else(|| panic!("{body}"));
    (begun.parse().expect("a time"), ended.parse().expect("a time"))
}

fn beside(daemon: &Daemon, query: &str) -> usize {
    let mut count = 0;
    for _ in 0..BATCHES {
        let together = Barrier::new(WORKERS);
        let times: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let one = || {
                together.wait();
                ask(daemon, query)
            };
            let all: Vec<_> = (0..WORKERS).map(|_| scope.spawn(one)).collect();
            all.into_iter()
                .map(|one| one.join().expect("a request"))
                .collect()
        });
        let is_beside = |this: usize| {
            let mut others = times.iter().enumerate().filter(|(other, _)| *other != this);
            others.any(|(_, other)| other.0 < times[this].1 && times[this].0 < other.1)
        };
        count += (0..WORKERS).filter(|this| is_beside(*this)).count();
    }
    count * 100 / (BATCHES * WORKERS)
}

const RUNTIMES: [&str; 3] = ["php", "wsgi", "rack"];

#[test]
fn workers_that_compute_are_as_many_as_processors() {
    for runtime in RUNTIMES {
        for (settings, waits) in [
            ("pm = \"static\"", true),
            (
                "pm = \"dynamic\"\nstart_servers = 4\nmin_spare_servers = 1\nmax_spare_servers = 4",
                true,
            ),
            ("pm = \"static\"\nwait_for_cpu = false", false),
            ("pm = \"ondemand\"", false),
        ] {
            let daemon = start(runtime, settings);
            wait_until(&format!("{runtime} {settings}"), || {
                let beside = beside(&daemon, "computes");
                if waits { beside < 40 } else { beside > 60 }
            });
        }
    }
}

#[test]
fn workers_that_wait_leave_the_processor_to_others() {
    for runtime in RUNTIMES {
        let daemon = start(runtime, "pm = \"static\"");
        wait_until(runtime, || beside(&daemon, "sleeps") > 80);
    }
}

#[test]
fn a_request_that_takes_longer_than_usual_delays_none() {
    for runtime in RUNTIMES {
        let daemon = start(runtime, "pm = \"static\"");
        wait_until(runtime, || beside(&daemon, "computes") < 40);
        std::thread::scope(|scope| {
            let long: Vec<_> = (0..2).map(|_| scope.spawn(|| ask(&daemon, "long"))).collect();
            wait_until("two long requests", || {
                let files = fs::read_dir(&daemon.dir).expect("files").flatten();
                let begun = files.filter(|file| file.file_name().to_string_lossy().starts_with("long-"));
                begun.count() == 2
            });
            let short = ask(&daemon, "computes");
            for long in long {
                assert!(short.1 < long.join().expect("a request").1, "{runtime}");
            }
        });
    }
}

#[test]
fn nothing_is_lost_while_workers_that_leave_connections_are_replaced() {
    let daemon = start("php", "pm = \"static\"\nreload = \"always\"");
    wait_until("workers know what is usual", || beside(&daemon, "computes") < 40);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&is_over);
        for _ in 0..2 * WORKERS {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    ask(&daemon, "computes");
                }
            });
        }
        for reloads in 1..=3 {
            daemon.signal(Signal::SIGUSR2);
            daemon.wait_for_count("the new workers serve", reloads);
        }
    });
}

//! Metrics of all runtimes, read by strict third-party parsers.

use crate::it::documents::blocks;
use crate::support::prelude::*;

const WSGI: &str = "
import os, time
def application(environ, start):
    if environ.get('QUERY_STRING') == 'exit':
        os._exit(3)
    if environ.get('QUERY_STRING') == 'sleep':
        time.sleep(30)
    start('200 OK', [])
    return [b'wsgi']
";
const CGI: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\ncgi'\n";

const STRICT: &str = "
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
print(json.dumps([[s.name, s.labels, s.value]
                  for family in text_string_to_metric_families(sys.stdin.read())
                  for s in family.samples]))
";

type Samples = BTreeMap<String, f64>;

fn run(mut command: Command, input: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("a pipe");
    let text = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    let _ = writer.join();
    let said = text_of(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}\n{input}");
    String::from_utf8(output.stdout).expect("UTF-8") + &said
}

fn status(daemon: &Daemon, arguments: &[&str]) -> String {
    let arguments = [&["status"], arguments].concat();
    run(forkyard(&arguments, &daemon.dir), "")
}

fn samples(daemon: &Daemon) -> Samples {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]);
    assert_eq!(run(promtool, &status(daemon, &["--metrics=prometheus"])), "");
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", STRICT]);
    let read = run(python, &status(daemon, &["--metrics"]));
    let read: Vec<(String, BTreeMap<String, String>, f64)> = serde_json::from_str(&read).expect("JSON");
    let samples = read.into_iter().map(|(name, labels, value)| {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        (format!("{name}{{{}}}", labels.join(",")), value)
    });
    samples.collect()
}

fn of(samples: &Samples, name: &str, labels: &str) -> f64 {
    let key = format!("forkyard_pool_{name}{{{labels}}}");
    *samples.get(&key).unwrap_or_else(|| panic!("{key}: {samples:#?}"))
}

fn configure(dir: &Path) -> String {
    let path = dir.display();
    let php = |name: &str, settings: &str| pool(dir, name, settings, PHP);
    let user = if is_root() { "" } else { "# " };
    [
        format!("[global]\ncontrol = \"{path}/control.sock\"\n"),
        php("fixed", "pm = \"static\"\nmax_children = 2\n"),
        php(
            "moving",
            "pm = \"dynamic\"\nmax_children = 4\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 2\n",
        ),
        php("called", "pm = \"ondemand\"\nmax_children = 3\n"),
        php(
            "late",
            &format!(
                "pm = \"ondemand\"\nmax_children = 1\nslowlog = \"{path}/slow\"\nrequest_slowlog_timeout = \"200ms\"\n\
                 request_terminate_timeout = \"1s\"\n"
            ),
        ),
        pool(
            dir,
            "python",
            "",
            &format!("runtime = \"wsgi\"\nroot = \"{path}/wsgi\"\n"),
        ),
        pool(
            dir,
            "threads",
            "request_terminate_timeout = \"1s\"\n",
            &format!("runtime = \"wsgi\"\nroot = \"{path}/wsgi\"\nthreads = 2\n"),
        ),
        pool(
            dir,
            "script",
            "pm = \"static\"\nmax_children = 1\nlanes = \"wordpress\"\n",
            &format!("runtime = \"cgi\"\nroot = \"{path}\"\n"),
        ),
        pool(
            dir,
            "released",
            &format!("pm = \"static\"\nmax_children = 1\ngradual = []\nrelease = \"{path}/current\"\n"),
            &format!("runtime = \"cgi\"\nroot = \"{path}/current\"\n"),
        ),
        format!(
            "[pool.sites]\nlisten = {{ address = \"{path}/sites.sock\", mode = \"0666\" }}\nrouting = \"application\"\n\
             [pool.sites.applications]\ndirectories = [\"{path}/apps\"]\n{user}min_uid = 1\nmax = 5\n"
        ),
    ]
    .join("\n")
}

fn start() -> (tempfile::TempDir, Daemon) {
    start_with(&["run"])
}

fn start_with(arguments: &[&str]) -> (tempfile::TempDir, Daemon) {
    let dir = directory();
    let path = dir.path().to_owned();
    for (file, text) in [
        ("a.php", "<?php echo 'php';"),
        ("long.php", "<?php sleep(30);"),
        ("wait.php", "<?php fopen(__DIR__ . '/gate', 'r'); echo 'through';"),
        (
            "burn.php",
            "<?php $end = microtime(true) + 0.2; while (microtime(true) < $end); echo 'burnt';",
        ),
        ("run.cgi", CGI),
        ("releases/1/run.cgi", CGI),
        ("releases/2/run.cgi", CGI),
        ("wsgi/wsgi.py", WSGI),
        ("apps/shop/run.cgi", CGI),
        (
            "apps/shop/forkyard.toml",
            "runtime = \"cgi\"\nentry = \"run.cgi\"\n",
        ),
    ] {
        let file = path.join(file);
        fs::create_dir_all(file.parent().expect("a directory")).expect("mkdir");
        write_program(&file, text);
    }
    symlink("releases/1", path.join("current")).expect("a link");
    if is_root() {
        for file in ["apps/shop", "apps/shop/run.cgi", "apps/shop/forkyard.toml"] {
            chown(path.join(file), Some(33), Some(33)).expect("chown");
        }
    }
    fs::write(path.join("forkyard.toml"), configure(&path)).expect("configuration");
    let daemon = Daemon::launch(&path, forkyard(arguments, &path)).ready();
    (dir, daemon)
}

fn ask(daemon: &Daemon, pool: &str, script: &str, query: &str) -> String {
    let params = match pool {
        "sites" => Params::get(&daemon.dir, "shop", query).with(
            "FORKYARD_APP_ROOT",
            &daemon.dir.join("apps/shop").display().to_string(),
        ),
        _ => Params::get(&daemon.dir, script, query),
    };
    let answer = daemon.ask(pool, &params);
    answer.body()
}

const ASKED: [(&str, &str, &str, u32); 7] = [
    ("fixed", "a.php", "php", 3),
    ("moving", "a.php", "php", 2),
    ("called", "a.php", "php", 1),
    ("python", "app", "wsgi", 2),
    ("script", "run.cgi", "cgi", 4),
    ("released", "current/run.cgi", "cgi", 2),
    ("sites", "", "cgi", 2),
];

fn deploy(daemon: &Daemon, release: &str) {
    let release = daemon.dir.join("releases").join(release).display().to_string();
    run(forkyard(&["deploy", "released", &release], &daemon.dir), "");
}

fn ask_all(daemon: &Daemon) {
    for (pool, script, answer, times) in ASKED {
        for _ in 0..times {
            assert_eq!(ask(daemon, pool, script, ""), answer, "{pool}: {}", daemon.log());
        }
    }
}

/// The metrics once all workers are idle and use no more CPU.
fn settled(daemon: &Daemon) -> Samples {
    until("idle workers", || {
        let now = samples(daemon);
        let busy = now
            .iter()
            .filter(|(name, _)| name.starts_with("forkyard_pool_workers{") && !name.contains("state=idle"));
        let busy: f64 = busy.map(|(_, count)| count).sum();
        (busy == 0.0).then_some(now)
    })
}

const SUMS: [&str; 4] = ["_total", "_bucket", "_count", "_sum"];

/// Each new generation has new caches, and a status has the last state that was read.
fn is_of_caches(name: &str) -> bool {
    let kinds = ["opcache", "apcu", "caches"];
    let rest = name.strip_prefix("forkyard_pool_").unwrap_or_default();
    kinds.iter().any(|kind| rest.starts_with(*kind))
}

fn assert_risen(before: &Samples, after: &Samples) {
    let counters = before.iter().filter(|(name, _)| {
        name.starts_with("forkyard_pool_")
            && !is_of_caches(name)
            && name
                .split('{')
                .next()
                .is_some_and(|name| SUMS.iter().any(|end| name.ends_with(end)))
    });
    for (name, value) in counters {
        let now = after.get(name).unwrap_or_else(|| panic!("{name} is gone"));
        assert!(now >= value, "{name} fell from {value} to {now}");
    }
}

fn assert_documented(samples: &Samples) {
    let text = read_file(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/status.md"));
    let is_of_a_pool = |name: &&str| {
        let kinds = ["forkyard_pool_", "forkyard_daemon_", "forkyard_last_reload_"];
        kinds.iter().any(|kind| name.starts_with(kind)) && !is_of_caches(name)
    };
    let rows = text.lines().filter(|line| line.starts_with("| `forkyard_"));
    let documented: BTreeSet<&str> = rows.flat_map(|row| row.split('`')).filter(is_of_a_pool).collect();
    let names = samples.keys().filter_map(|key| key.split('{').next());
    let names = names.map(|name| {
        SUMS[1..]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name)
    });
    let names = names.chain([
        "forkyard_pool_worker_exits_total",
        "forkyard_pool_scripts_not_run_total",
        "forkyard_pool_requests_in_flight",
        "forkyard_pool_idle_streams",
        "forkyard_pool_deployment_share",
        "forkyard_pool_boot_info",
        "forkyard_pool_boot_requests",
        "forkyard_pool_boot_rewinding_seconds",
        "forkyard_pool_boot_rewound_pages",
        "forkyard_pool_boot_rewound_requests",
        "forkyard_pool_boot_seconds",
        "forkyard_pool_boot_warm_up_seconds",
    ]);
    let there: BTreeSet<&str> = names.filter(is_of_a_pool).collect();
    assert_eq!(documented, there);
}

#[test]
fn the_textfile_collector_takes_the_numbers() {
    let (_dir, daemon) = start();
    ask_all(&daemon);
    let collected = daemon.dir.join("collected");
    fs::create_dir(&collected).expect("mkdir");
    let blocks = blocks::read(&blocks::root().join("docs/reference/status.md"));
    let block = blocks
        .into_iter()
        .find(|block| block.kind == "sh")
        .expect("commands");
    let program = format!(
        "{} status -c {}/forkyard.toml",
        env!("CARGO_BIN_EXE_forkyard"),
        daemon.dir.display()
    );
    let script = block
        .text
        .replace(
            "/var/lib/prometheus/node-exporter",
            &collected.display().to_string(),
        )
        .replace("forkyard status", &program);
    let mut shell = Command::new("sh");
    shell.args(["-ec", &script]);
    run(shell, "");
    let port = free_port();
    let exporter = Command::new("prometheus-node-exporter")
        .args(["--collector.disable-defaults", "--collector.textfile"])
        .arg(format!("--collector.textfile.directory={}", collected.display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _exporter = process::Guard::kill(exporter.expect("prometheus-node-exporter (Debian package)"));
    let address = format!("127.0.0.1:{port}");
    until("node_exporter", || TcpStream::connect(&address).ok().map(drop));
    let page = curl(&[&format!("http://{address}/metrics")]);
    assert_contains(&page, "\nnode_textfile_scrape_error 0\n");
    assert_contains(&page, "\nforkyard_pool_requests_total{pool=\"fixed\"} 3\n");
    assert_contains(&page, "\n# TYPE forkyard_pool_requests_total counter\n");
}

#[test]
fn every_pool_has_numbers() {
    let (_dir, daemon) = start();
    ask_all(&daemon);
    let now = settled(&daemon);
    each(ASKED, |(pool, _, _, times)| {
        let label = format!("pool={pool}");
        assert_eq!(of(&now, "requests_total", &label), f64::from(times), "{pool}");
        assert_eq!(of(&now, "up", &label), 1.0, "{pool}");
        assert!(of(&now, "worker_starts_total", &label) >= 1.0, "{pool}");
        assert!(of(&now, "memory_bytes", &label) > 100_000.0, "{pool}");
        assert!(of(&now, "cpu_seconds_total", &label) < 60.0, "{pool}");
        assert!(of(&now, "workers", &format!("{label},state=idle")) >= 1.0);
        assert_eq!(of(&now, "queue_connections", &label), 0.0, "{pool}");
        assert!(of(&now, "queue_connections_max", &label) >= 1.0, "{pool}");
    });
    for (pool, max) in [("fixed", 2.0), ("moving", 4.0), ("called", 3.0), ("sites", 5.0)] {
        assert_eq!(of(&now, "workers_max", &format!("pool={pool}")), max, "{pool}");
    }
    assert_eq!(of(&now, "spare_workers_min", "pool=moving"), 1.0);
    assert_eq!(of(&now, "spare_workers_max", "pool=moving"), 2.0);
    assert_eq!(now["forkyard_daemon_pools{}"], 9.0);
    assert_documented(&now);
    make_fifo(&daemon.dir.join("gate"));
    let mut busy: Client = daemon.client("fixed");
    busy.send(&Params::get(&daemon.dir, "wait.php", ""), b"")
        .expect("send");
    wait_until("a busy worker", || {
        let now = samples(&daemon);
        of(&now, "workers", "pool=fixed,state=busy") == 1.0
    });
    drop(fs::OpenOptions::new().write(true).open(daemon.dir.join("gate")));
    assert_eq!(busy.answer().expect("an answer").body(), "through");
    let before = of(&settled(&daemon), "cpu_seconds_total", "pool=called");
    assert_eq!(ask(&daemon, "called", "burn.php", ""), "burnt");
    let after = of(&settled(&daemon), "cpu_seconds_total", "pool=called");
    assert!(after - before > 0.02 && after - before < 10.0, "{before} {after}");
}

#[test]
fn ends_of_workers_are_counted_by_cause() {
    let (_dir, daemon) = start();
    ask_all(&daemon);
    for signal in [Signal::SIGSEGV, Signal::SIGSEGV, Signal::SIGKILL] {
        let worker = daemon.wait_for_workers("fixed", 2)[0];
        process::signal(worker, signal);
        wait_until("another worker", || {
            let now = daemon.workers("fixed");
            now.len() == 2 && !now.contains(&worker)
        });
    }
    let params = Params::get(&daemon.dir, "app", "exit");
    let _ = daemon.client("python").request(&params, b"");
    let answer = daemon
        .client("late")
        .request(&Params::get(&daemon.dir, "long.php", ""), b"");
    assert!(answer.expect("an answer").text().contains("504"));
    let params = Params::get(&daemon.dir, "app", "sleep");
    let _ = daemon.client("threads").request(&params, b"");
    let now = until("the ends", || {
        let now = samples(&daemon);
        let is_there = |key: &str| now.contains_key(&format!("forkyard_pool_worker_exits_total{{{key}}}"));
        (is_there("cause=terminated,pool=late") && is_there("cause=exit,code=3,pool=python")).then_some(now)
    });
    for (key, count) in [
        ("cause=signal,pool=fixed,signal=SIGSEGV", 2.0),
        ("cause=signal,pool=fixed,signal=SIGKILL", 1.0),
        ("cause=exit,code=3,pool=python", 1.0),
        ("cause=terminated,pool=late", 1.0),
    ] {
        assert_eq!(of(&now, "worker_exits_total", key), count, "{key}");
    }
    for pool in ["late", "threads"] {
        let counted = of(&now, "terminated_requests_total", &format!("pool={pool}"));
        assert_eq!(counted, 1.0, "{pool}");
        let text = status(&daemon, &[pool]);
        assert_contains(&text, ", terminated 1, ");
    }
    assert_eq!(of(&now, "slow_requests_total", "pool=late"), 1.0);
    assert_eq!(of(&now, "worker_starts_total", "pool=fixed"), 5.0);
}

#[test]
fn no_counter_falls_over_reloads_and_upgrades() {
    let (_dir, daemon) = start();
    let mut before = settled(&daemon);
    for (round, command) in [
        &["reload", "--all"][..],
        &["reload", "--all"],
        &["upgrade"],
        &["reload"],
    ]
    .into_iter()
    .enumerate()
    {
        ask_all(&daemon);
        deploy(&daemon, ["2", "1"][round % 2]);
        let now = settled(&daemon);
        assert_risen(&before, &now);
        run(forkyard(command, &daemon.dir), "");
        let after = until("the new workers", || {
            let status: Value = serde_json::from_str(&status(&daemon, &["--json"])).expect("JSON");
            let pools = status["pools"].as_array().expect("pools");
            let is_done = |pool: &Value| pool["generations"].as_array().is_some_and(|all| all.len() <= 1);
            pools.iter().all(is_done).then(|| settled(&daemon))
        });
        assert_risen(&now, &after);
        for (pool, _, _, times) in ASKED {
            let requests = of(&after, "requests_total", &format!("pool={pool}"));
            let expected = f64::from(times) * (round + 1) as f64;
            assert_eq!(requests, expected, "{pool}, round {round}");
        }
        let release = daemon.dir.join("releases").join(["2", "1"][round % 2]);
        let release = format!("pool=released,release={}", release.display());
        assert_eq!(of(&after, "release_info", &release), 1.0);
        let deployed = of(&after, "deployments_total", "outcome=deployed,pool=released");
        assert_eq!(deployed, (round + 1) as f64);
        before = after;
    }
    assert!(of(&before, "worker_exits_total", "cause=retired,pool=fixed") >= 4.0);
}

#[test]
fn no_counter_falls_when_the_master_is_killed() {
    let (_dir, daemon) = start_with(&["run", "--keeper"]);
    ask_all(&daemon);
    deploy(&daemon, "2");
    run(forkyard(&["reload", "--all"], &daemon.dir), "");
    let before = settled(&daemon);
    let master = |daemon: &Daemon| -> u32 {
        let status: Value = serde_json::from_str(&status(daemon, &["--json"])).expect("JSON");
        status["pid"].as_u64().expect("a number") as u32
    };
    let first = master(&daemon);
    process::signal(first, Signal::SIGKILL);
    daemon.wait_for("workers go on");
    until("another master", || {
        let status: Value = serde_json::from_slice(&daemon.run(&["status", "--json"]).stdout).ok()?;
        (status["pid"] != first).then_some(())
    });
    let after = settled(&daemon);
    for (pool, _, _, times) in ASKED.iter().filter(|(pool, ..)| *pool != "sites") {
        let requests = of(&after, "requests_total", &format!("pool={pool}"));
        assert_eq!(requests, f64::from(*times), "{pool}");
        let starts = |samples| of(samples, "worker_starts_total", &format!("pool={pool}"));
        assert!(starts(&after) >= starts(&before), "{pool}");
    }
    let key = "outcome=deployed,pool=released";
    assert_eq!(of(&after, "deployments_total", key), 1.0);
    assert_contains(
        &status(&daemon, &["released"]),
        &format!("{}/releases/2 is in service", daemon.dir.display()),
    );
}

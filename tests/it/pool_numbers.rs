//! A pool's numbers: busy and saturated time, waits, classes, histograms, routes.

use crate::support::prelude::*;
use forkyard_base::scale;
use forkyard_protocol::numbers::PoolNumbers;

const HELD: &str = "<?php
file_put_contents($_GET['in'], '');
while (!file_exists($_GET['in'] . '.go')) { usleep(1000); clearstatcache(); }
echo 'held';";
const MIXED: &str = "<?php
header('Content-Type: text/plain');
switch ($_GET['n'] % 5) {
    case 0: usleep(300 * ($_GET['n'] % 13)); break;
    case 1: for ($i = 0; $i < 2000 * ($_GET['n'] % 17); $i++); break;
    case 2: http_response_code(404); break;
    case 3: header('Location: /elsewhere'); break;
    default: echo str_repeat('x', $_GET['n'] * 10);
}";

struct Site {
    daemon: Daemon,
}

impl Site {
    fn start(settings: &str, arguments: &[&str]) -> Site {
        let configure = |dir: &Path| with_control(dir) + &php_pool(dir, settings, "");
        let daemon = Daemon::start_by(configure, |dir| forkyard(arguments, dir));
        for (name, text) in [
            ("a.php", "<?php echo 'php';"),
            ("held.php", HELD),
            ("mixed.php", MIXED),
            ("broken.php", "<?php http_response_code(500); echo 'broken';"),
        ] {
            daemon.write(name, text);
        }
        Site { daemon }
    }

    fn numbers(&self) -> PoolNumbers {
        let status = self.daemon.status(&["www"]);
        serde_json::from_value(status["pools"][0]["numbers"].clone()).expect("numbers")
    }

    /// The numbers, and the times before and after they were read.
    fn timed(&self) -> (PoolNumbers, Instant, Instant) {
        let before = Instant::now();
        let numbers = self.numbers();
        (numbers, before, Instant::now())
    }

    /// Sends a request that a worker holds until [`Site::release`].
    fn hold(&self, name: &str) -> Client {
        let client = self.daemon.send("www", &self.held(name));
        self.wait_for(name);
        client
    }

    fn held(&self, name: &str) -> Params {
        let begun = self.daemon.dir.join(name);
        Params::get(&self.daemon.dir, "held.php", &format!("in={}", begun.display()))
    }

    fn wait_for(&self, name: &str) {
        let begun = self.daemon.dir.join(name);
        wait_until("the held request", || begun.exists());
    }

    /// Lets a held request go.
    fn release(&self, name: &str, mut held: Client) {
        self.daemon.write(&format!("{name}.go"), "");
        assert_eq!(held.answer().expect("an answer").body(), "held");
    }

    fn settled(&self, ended: u64) -> PoolNumbers {
        until("all requests counted", || {
            let status = self.daemon.status(&["www"]);
            let pool = &status["pools"][0];
            let numbers: PoolNumbers = serde_json::from_value(pool["numbers"].clone()).expect("numbers");
            let counted: u64 = numbers.requests.counts().iter().sum();
            (pool["busy"] == 0 && counted >= ended).then_some(numbers)
        })
    }
}

/// Checks that a time has grown as much as the clock between two readings.
fn assert_grown(
    (before, after): (f64, f64),
    first: (Instant, Instant),
    second: (Instant, Instant),
    factor: f64,
) {
    let least = (second.0 - first.1).as_secs_f64() * factor;
    let most = (second.1 - first.0).as_secs_f64() * factor;
    let grown = after - before;
    assert!(
        grown >= least - 0.002 && grown <= most + 0.002,
        "{least} <= {grown} <= {most}"
    );
}

#[test]
fn busy_and_saturated_time_are_exact_while_they_pass() {
    let site = Site::start("pm = \"static\"\nmax_children = 2\n", &["run"]);
    site.daemon.wait_for_workers("www", 2);
    let idle = site.numbers();
    assert_eq!((idle.busy_seconds, idle.saturated_seconds), (0.0, 0.0));
    let first = site.hold("one");
    let (one, one_before, one_after) = site.timed();
    let (later, before, after) = site.timed();
    let busy = (one.busy_seconds, later.busy_seconds);
    assert_grown(busy, (one_before, one_after), (before, after), 1.0);
    assert_eq!(later.saturated_seconds, 0.0);
    let second = site.hold("two");
    let (full, full_before, full_after) = site.timed();
    assert!(full.saturated_seconds > 0.0);
    let mut last = full.clone();
    for _ in 0..5 {
        let (now, before, after) = site.timed();
        let times = (full_before, full_after);
        assert_grown((full.busy_seconds, now.busy_seconds), times, (before, after), 2.0);
        let saturated = (full.saturated_seconds, now.saturated_seconds);
        assert_grown(saturated, times, (before, after), 1.0);
        last = now;
    }
    site.release("one", first);
    site.release("two", second);
    let done = site.settled(2);
    assert!(done.saturated_seconds >= last.saturated_seconds);
    assert_eq!(done.requests.success, 2);
    assert_eq!(done.run.count, 2);
    // Both ran at the same time for as long as the pool was saturated.
    assert!(done.run.sum >= done.saturated_seconds * 2.0 - 0.01, "{done:?}");
    let again = site.numbers();
    assert_eq!(again.saturated_seconds, done.saturated_seconds);
    assert_eq!(again.busy_seconds, done.busy_seconds);
    let text = site.daemon.shown(&["status", "www"]);
    assert_contains(&text, "(2 workers), queue not empty ");
    assert_contains(&text, "\n  answers 2xx 2; received ");
}

#[test]
fn numbers_survive_the_death_of_workers_and_of_the_master() {
    let site = Site::start("pm = \"static\"\nmax_children = 2\n", &["run", "--keeper"]);
    for script in ["a.php", "broken.php", "a.php"] {
        site.daemon.get("www", script);
    }
    let mut before = site.settled(3);
    assert_eq!((before.requests.success, before.requests.server_error), (2, 1));
    let mut held = site.hold("one");
    let busy = site.numbers();
    assert!(busy.busy_seconds > before.busy_seconds);
    let status = site.daemon.status(&["www"]);
    let workers = status["pools"][0]["generations"][0]["workers"]
        .as_array()
        .expect("workers");
    let worker = workers
        .iter()
        .find(|worker| worker["stage"] == "Running")
        .expect("a worker");
    process::signal(worker["pid"].as_u64().expect("a pid") as u32, Signal::SIGKILL);
    let _ = held.answer();
    let now = site.settled(4);
    assert!(now.busy_seconds >= busy.busy_seconds, "{now:?} {busy:?}");
    assert_eq!((now.requests.none, now.run.count), (1, 4));
    before = now;
    let routes = site.daemon.shown(&["routes", "www"]);
    assert_contains(&routes, "GET /held.php");
    let master = site.daemon.kept_master();
    process::signal(master, Signal::SIGKILL);
    site.daemon.next_kept_master(master);
    site.daemon.wait_for("workers go on");
    let now = until("the next master", || {
        let output = site.daemon.run(&["status", "--json", "www"]);
        let status: Value = serde_json::from_slice(&output.stdout).ok()?;
        serde_json::from_value::<PoolNumbers>(status["pools"][0]["numbers"].clone()).ok()
    });
    assert_eq!(now.requests, before.requests);
    assert_eq!((now.run, now.memory), (before.run.clone(), before.memory.clone()));
    assert!(now.busy_seconds >= before.busy_seconds);
    site.daemon.get("www", "a.php");
    let now = site.settled(5);
    assert_eq!(now.requests.success, before.requests.success + 1);
}

#[test]
fn a_wait_is_known_by_request_start_and_by_the_queue() {
    let site = Site::start("pm = \"static\"\nmax_children = 2\n", &["run"]);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("a time");
    let begun = now - Duration::from_millis(1500);
    let params = Params::get(&site.daemon.dir, "a.php", "");
    let params = params.with("REQUEST_START", &format!("{:.3}", begun.as_secs_f64()));
    assert_eq!(site.daemon.ask("www", &params).body(), "php");
    let numbers = site.settled(1);
    let waited = numbers.wait.quantile(1.0).expect("a wait") / 1e6;
    assert!((1.4..30.0).contains(&waited), "{waited}");
    assert!(numbers.wait.sum >= 1.49, "{numbers:?}");
    // The queue is measured when the third request is taken, so the waits of the last two since then are known.
    let begin = Instant::now();
    let names = ["one", "two", "three", "four", "five"];
    let mut clients = vec![site.hold(names[0]), site.hold(names[1])];
    clients.extend(
        names[2..]
            .iter()
            .map(|name| site.daemon.send("www", &site.held(name))),
    );
    for (name, client) in names.into_iter().zip(clients) {
        site.wait_for(name);
        let before = site.numbers().busy_seconds;
        wait_until("a while", || site.numbers().busy_seconds > before + 0.3);
        site.release(name, client);
    }
    let after = site.settled(6);
    let most = begin.elapsed().as_secs_f64();
    let waited = after.wait.sum - numbers.wait.sum;
    assert!((0.25..3.0 * most).contains(&waited), "{waited} {most}");
    let queue = after.queue_seconds - numbers.queue_seconds;
    assert!((0.25..most).contains(&queue), "{queue} {most}");
}

#[test]
fn percentiles_are_those_of_the_access_log() {
    let dir = directory();
    let log = dir.path().join("access.log");
    let settings = format!(
        "pm = \"static\"\nmax_children = 2\naccess = {{ log = \"{0}\", format = \"%{{micro}}d %s\" }}\n",
        log.display()
    );
    let site = Site::start(&settings, &["run"]);
    let count = 4_000;
    std::thread::scope(|scope| {
        for client in 0..2 {
            let site = &site;
            scope.spawn(move || {
                let mut kept = site.daemon.client("www").kept();
                for n in (client..count).step_by(2) {
                    let params = Params::get(&site.daemon.dir, "mixed.php", &format!("n={n}"));
                    kept.request(&params, b"").expect("an answer");
                }
            });
        }
    });
    let numbers = site.settled(count as u64);
    let text = read_file(&log);
    let lines: Vec<(u64, &str)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(micros, status)| (micros.parse().expect("a number"), status))
        .collect();
    let mut durations: Vec<u64> = lines.iter().map(|(micros, _)| *micros).collect();
    durations.sort_unstable();
    assert_eq!(durations.len(), count);
    assert_eq!(numbers.run.count, count as u64);
    for part in [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999] {
        let exact = durations[(count as f64 * part).ceil() as usize - 1];
        let found = numbers.run.quantile(part).expect("a value");
        let error = (found / exact as f64 - 1.0).abs();
        assert!(error < 0.0443, "p{part}: {found} {exact}");
    }
    let mut buckets = [0_u64; scale::BUCKETS];
    for micros in &durations {
        buckets[scale::bucket(*micros)] += 1;
    }
    for (index, found) in &numbers.run.buckets {
        assert_eq!(buckets[usize::from(*index)], *found, "bucket {index}");
    }
    for (class, counted) in ["2", "3", "4"].into_iter().zip(&numbers.requests.counts()[1..4]) {
        let logged = lines
            .iter()
            .filter(|(_, status)| status.starts_with(class))
            .count();
        assert_eq!(*counted, logged as u64, "{class}xx");
    }
}

#[test]
fn clients_that_leave_and_requests_that_take_too_long_are_counted() {
    let settings = "pm = \"static\"\nmax_children = 2\nrequest_terminate_timeout = \"1s\"\n";
    let site = Site::start(settings, &["run"]);
    site.daemon.write(
        "big.php",
        "<?php echo str_repeat('x', 100000); file_put_contents($_GET['in'], ''); for ($i = 0; $i < 4000; $i++) { echo str_repeat('x', 10000); }",
    );
    let begun = site.daemon.dir.join("big");
    let query = format!("in={}", begun.display());
    let client = site
        .daemon
        .send("www", &Params::get(&site.daemon.dir, "big.php", &query));
    wait_until("the request", || begun.exists());
    drop(client);
    let numbers = site.settled(1);
    assert_eq!((numbers.aborted, numbers.timed_out), (1, 0), "{numbers:?}");
    assert!(numbers.bytes_in > 100 && numbers.bytes_out > 1_000);
    let mut late = site.hold("late");
    assert!(late.answer().expect("an answer").text().contains("504"));
    let before = numbers.bytes_out;
    let numbers = site.settled(2);
    // The worker has answered with 504.
    let classes = &numbers.requests;
    assert_eq!(
        (numbers.timed_out, classes.server_error, classes.none),
        (1, 1, 0),
        "{numbers:?}"
    );
    assert!(numbers.bytes_out > before);
}

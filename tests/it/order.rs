//! First come, first served: a kept connection's next request queues behind those that already wait.

use crate::support::prelude::*;
use nix::time::{ClockId, clock_gettime};

const WORKERS: usize = 2;
const GREEDY: usize = 12;
const NEWCOMERS: usize = 15;
const TOLERANCE_NANOS: u64 = 1_000_000;
/// The overtaking requests that nine in ten may see. Ideal is one for each worker; on a busy machine a descheduled
/// worker thread delays the requests it holds.
const MOST: usize = 10 * WORKERS;

const PHP: &str = "<?php echo hrtime(true); usleep(5000);";
const PYTHON: &str = r#"
import time
def application(environ, start_response):
    begun = time.monotonic_ns()
    time.sleep(0.005)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(begun).encode()]
"#;

#[derive(Debug, Clone, Copy)]
struct Request {
    before: u64,
    after: u64,
    begun: u64,
    is_newcomer: bool,
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

fn ask(client: &mut Client, params: &Params, is_newcomer: bool) -> Request {
    let before = now();
    client.send(params, b"").expect("send");
    let after = now();
    let begun = client.answer().expect("answer").body().parse().expect("a time");
    Request {
        before,
        after,
        begun,
        is_newcomer,
    }
}

fn saturate(daemon: &Daemon, script: &str) -> Vec<Request> {
    let params = Params::get(&daemon.dir, script, "");
    let (is_over, requests) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let stop = StopAtEnd(&is_over);
        for _ in 0..GREEDY {
            scope.spawn(|| {
                let (mut client, mut own) = (daemon.client("www").kept(), Vec::new());
                while !is_over.load(Ordering::SeqCst) {
                    own.push(ask(&mut client, &params, false));
                }
                requests.lock().expect("lock").extend(own);
            });
        }
        let newcomers = (0..NEWCOMERS).map(|_| ask(&mut daemon.client("www"), &params, true));
        let newcomers: Vec<Request> = newcomers.collect();
        drop(stop);
        requests.lock().expect("lock").extend(newcomers);
    });
    requests.into_inner().expect("lock")
}

fn overtaken(request: &Request, all: &[Request]) -> usize {
    let is_later = |other: &&Request| other.before > request.after + TOLERANCE_NANOS;
    let later = all.iter().filter(is_later);
    later.filter(|other| other.begun < request.begun).count()
}

fn assert_in_order(all: &[Request]) {
    assert!(all.len() > NEWCOMERS + 3 * GREEDY, "{} requests", all.len());
    let counts = |is_newcomer| {
        let those = all
            .iter()
            .filter(move |request| request.is_newcomer == is_newcomer);
        let mut counts: Vec<usize> = those.map(|request| overtaken(request, all)).collect();
        counts.sort_unstable();
        counts
    };
    for (who, counts) in [("newcomers", counts(true)), ("kept connections", counts(false))] {
        let (middle, most) = (counts[counts.len() / 2], counts[counts.len() * 9 / 10]);
        assert!(middle <= WORKERS && most <= MOST, "{who}: {counts:?}");
    }
}

#[test]
fn requests_of_php_are_served_in_the_order_of_arrival() {
    let settings = format!("pm = \"static\"\nmax_children = {WORKERS}\n");
    let daemon = Daemon::start(|dir| php_pool(dir, &settings, ""));
    daemon.wait_for_workers("www", WORKERS);
    daemon.write("slow.php", PHP);
    assert_in_order(&saturate(&daemon, "slow.php"));
}

#[test]
fn requests_of_python_are_served_in_the_order_of_arrival() {
    let root = directory();
    fs::write(root.path().join("wsgi.py"), PYTHON).expect("write");
    let settings = format!("pm = \"static\"\nmax_children = {WORKERS}\n");
    let daemon = Daemon::serving("wsgi", root.path(), &settings, "");
    daemon.wait_for_workers("www", WORKERS);
    assert_in_order(&saturate(&daemon, "page"));
}

/// The kernel may wake a worker alone for connections that it leaves to others: those have to be woken.
#[test]
fn no_worker_sleeps_while_something_waits() {
    let daemon = Daemon::start(|dir| php_pool(dir, "pm = \"static\"\nmax_children = 3\n", ""));
    daemon.wait_for_workers("www", 3);
    daemon.write("short.php", "<?php echo 'short';");
    let hold = "<?php while (!file_exists($_GET['until'])) { usleep(2000); clearstatcache(); } echo 'held';";
    daemon.write("hold.php", hold);
    let short = Params::get(&daemon.dir, "short.php", "");
    for round in 0..20 {
        let go = daemon.dir.join(format!("go{round}"));
        let hold = Params::get(&daemon.dir, "hold.php", &format!("until={}", go.display()));
        let mut kept: Vec<Client> = (0..4).map(|_| daemon.client("www").kept()).collect();
        for client in &mut kept {
            assert_eq!(client.request(&short, b"").expect("answer").body(), "short");
        }
        let mut holders: Vec<Client> = vec![daemon.client("www"), kept.pop().expect("a client")];
        for holder in &mut holders {
            holder.send(&hold, b"").expect("send");
        }
        let mut new = daemon.client("www");
        for client in kept.iter_mut().chain([&mut new]) {
            client.send(&short, b"").expect("send");
        }
        for client in kept.iter_mut().chain([&mut new]) {
            assert_eq!(client.answer().expect("answer").body(), "short");
        }
        fs::write(&go, "").expect("go");
        for holder in &mut holders {
            assert_eq!(holder.answer().expect("answer").body(), "held");
        }
    }
}

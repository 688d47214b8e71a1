//! Kept connections of restored workers: they stay with their worker, or move to a sibling while it is busy.

use super::{PHP, mode_pool, status_of};
use crate::support::prelude::*;

const REQUESTS: u64 = 64;
/// A little more while other processes are created.
const MOST_CALLS: u64 = 50;

const SCRIPT: &str = r#"<?php
while (forkyard_handle_request(function () {
    echo getmypid();
    if (isset($_GET['waits'])) {
        fastcgi_finish_request();
        fread(fopen(__DIR__ . '/waits', 'r'), 1);
    }
}));
"#;

fn daemon(workers: u32) -> Daemon {
    let daemon = Daemon::start(|dir| {
        fs::write(dir.join("worker.php"), SCRIPT).expect("write");
        let settings = format!("pm = \"static\"\nmax_children = {workers}\n");
        with_control(dir)
            + &mode_pool(
                dir,
                "snap",
                "worker.php",
                &settings,
                "worker_mode = \"snapshot\"\n",
            )
    });
    daemon.wait_for_workers("snap", workers as usize);
    daemon
}

fn params(daemon: &Daemon, query: &str) -> Params {
    Params::get(&daemon.dir, "index.php", query)
}

fn is_idle(pid: u32) {
    wait_until("the worker to wait", || {
        let place = read_file(format!("/proc/{pid}/wchan"));
        place.contains("ep")
    });
}

fn calls_of(daemon: &Daemon, act: impl FnOnce()) -> BTreeMap<String, u64> {
    let worker = daemon.wait_for_workers("snap", 1)[0];
    is_idle(worker);
    strace::count(worker, &daemon.dir, || {
        act();
        is_idle(worker);
    })
}

#[test]
fn a_request_costs_few_calls_and_no_thread_on_a_kept_connection_and_a_new_one() {
    let daemon = daemon(1);
    let params = params(&daemon, "");
    let mut client = daemon.client("snap").kept();
    for _ in 0..REQUESTS {
        client.request(&params, b"").expect("answer");
    }
    let kept = calls_of(&daemon, || {
        for _ in 0..REQUESTS {
            assert!(client.request(&params, b"").expect("answer").ended);
        }
    });
    drop(client);
    let new = calls_of(&daemon, || {
        for _ in 0..REQUESTS {
            assert!(daemon.ask("snap", &params).ended);
        }
    });
    for calls in [&kept, &new] {
        let sum: u64 = calls.values().sum();
        assert!(
            sum <= MOST_CALLS * REQUESTS,
            "{} calls for each request: {calls:?}",
            sum as f64 / REQUESTS as f64
        );
        for name in ["clone", "clone3", "sendmsg", "recvmsg"] {
            assert_eq!(calls.get(name), None, "{calls:?}");
        }
    }
    for name in ["epoll_ctl", "accept4"] {
        assert!(kept.get(name).copied().unwrap_or(0) <= 1, "{kept:?}");
    }
}

#[test]
fn more_connections_than_workers_are_all_served_and_no_worker_is_replaced() {
    let daemon = daemon(2);
    let params = params(&daemon, "");
    let mut clients: Vec<_> = (0..7).map(|_| daemon.client("snap").kept()).collect();
    let mut pids = BTreeSet::new();
    for _ in 0..40 {
        for client in &mut clients {
            client.send(&params, b"").expect("send");
        }
        for client in &mut clients {
            let answer = client.answer().expect("answer");
            assert!(answer.ended);
            pids.insert(answer.body());
        }
    }
    assert!(pids.len() <= 2, "{pids:?}");
    let status = status_of(&daemon, "snap");
    assert_eq!(status["counts"]["exits"], json!([]), "{status:#}");
    let held = || -> u64 {
        let status = status_of(&daemon, "snap");
        let workers = status["generations"][0]["workers"]
            .as_array()
            .expect("workers")
            .clone();
        workers.iter().filter_map(|worker| worker["kept"].as_u64()).sum()
    };
    wait_until("all connections to be held", || held() == 7);
    drop(clients);
    wait_until("no connection to be held", || held() == 0);
}

#[test]
fn a_connection_whose_worker_works_on_after_its_answer_is_served_by_a_sibling() {
    let daemon = daemon(2);
    let fifo = daemon.dir.join("waits");
    make_fifo(&fifo);
    let mut client = daemon.client("snap").kept();
    let busy = client
        .request(&params(&daemon, "waits"), b"")
        .expect("answer")
        .body();
    let sibling = client.request(&params(&daemon, ""), b"").expect("answer").body();
    assert_ne!(busy, sibling);
    let mut waits = fs::OpenOptions::new().write(true).open(&fifo).expect("open");
    waits.write_all(b"x").expect("write");
    is_idle(busy.parse().expect("a pid"));
    assert!(process::state(busy.parse().expect("a pid")).is_some());
}

const NATIVE: &str = r#"<?php
$libc = FFI::cdef('
    struct action { uint64_t handler, mask[16]; int flags; uint64_t restorer; };
    struct limit { uint64_t soft, hard; };
    int sigaction(int, const struct action *, struct action *);
    int setrlimit(int, const struct limit *);
    int getrlimit(int, struct limit *);
', 'libc.so.6');
const FSIZE = 1;
const SIGNALS = [13 => 'SIGPIPE', 14 => 'SIGALRM', 15 => 'SIGTERM', 17 => 'SIGCHLD', 27 => 'SIGPROF', 60 => 'SIGRT'];
while (forkyard_handle_request(function () use ($libc) {
    $found = [getmypid()];
    $new = $libc->new('struct action');
    $old = $libc->new('struct action');
    foreach (SIGNALS as $signal => $name) {
        $libc->sigaction($signal, null, FFI::addr($old));
        $found[] = "$name $old->handler " . ($signal == 17 ? $old->flags & 2 : '');
    }
    $limit = $libc->new('struct limit');
    $libc->getrlimit(FSIZE, FFI::addr($limit));
    $found[] = $limit->soft;
    $limit->soft = 1 << 30;
    $libc->setrlimit(FSIZE, FFI::addr($limit));
    foreach (SIGNALS as $signal => $name) {
        // To be ignored; one that is, has its default.
        $libc->sigaction($signal, null, FFI::addr($old));
        $new->handler = in_array($name, ['SIGPIPE', 'SIGCHLD']) ? 0 : 1;
        $new->flags = $name == 'SIGCHLD' ? 2 : 0;
        $libc->sigaction($signal, FFI::addr($new), null);
    }
    echo json_encode($found);
}));
"#;

#[test]
fn signals_and_limits_that_native_code_changes_are_put_back() {
    let daemon = Daemon::start(|dir| {
        fs::write(dir.join("worker.php"), NATIVE).expect("write");
        let settings = "pm = \"static\"\nmax_children = 1\n";
        let application = "worker_mode = \"snapshot\"\nphp_admin_value = { \"ffi.enable\" = \"1\" }\n";
        mode_pool(dir, "snap", "worker.php", settings, application)
    });
    let said = || {
        let answer = daemon.client("snap").request(&params(&daemon, ""), b"");
        answer.expect("answer").body()
    };
    let first = said();
    assert!(first.contains("SIGALRM 0 "), "PHP {PHP}: {first}");
    for _ in 0..3 {
        assert_eq!(said(), first);
    }
}

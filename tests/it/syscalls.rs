//! System calls of a request, counted by strace.

use crate::support::prelude::*;

const REQUESTS: u64 = 50;

/// Counts a process' system calls from one idle wait to the next, while `act` runs: work after the last answer counts,
/// too.
fn count(pid: u32, dir: &Path, act: impl FnOnce()) -> BTreeMap<String, u64> {
    let waits = || {
        wait_until("the process to wait", || {
            let place = read_file(format!("/proc/{pid}/wchan"));
            place.contains("epoll") || place.contains("ep_poll")
        });
    };
    waits();
    strace::count(pid, dir, || {
        act();
        waits();
    })
}

fn daemon() -> (Daemon, u32) {
    daemon_with("")
}

fn daemon_with(settings: &str) -> (Daemon, u32) {
    warmed(Daemon::start(|dir| php_pool(dir, settings, "")), "hello.php")
}

/// A pool of a release.
fn daemon_with_release() -> (Daemon, u32) {
    let daemon = Daemon::start(|dir| {
        fs::create_dir_all(dir.join("releases/1")).expect("a release");
        symlink("releases/1", dir.join("current")).expect("a link");
        let path = dir.display();
        let settings = format!("release = \"{path}/current\"\nrelease_shared = [\"{path}/shared\"]\n");
        php_pool(dir, &settings, "")
    });
    warmed(daemon, "current/hello.php")
}

fn warmed(daemon: Daemon, path: &str) -> (Daemon, u32) {
    let worker = daemon.wait_for_workers("www", 1)[0];
    let script = daemon.write(path, "<?php echo 'Hello, World';");
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    fs::File::options()
        .write(true)
        .open(script)
        .and_then(|file| file.set_modified(old))
        .expect("utimensat");
    for _ in 0..5 {
        assert_eq!(daemon.get("www", path).body(), "Hello, World");
    }
    (daemon, worker)
}

/// Retries until few clients of a count were delayed.
const COUNTS: usize = 5;

tests! {
    fn a_new_connection_costs_accept_read_write_and_close() => costs_accept_read_write_and_close(daemon(), "hello.php");
    fn a_request_of_a_release_costs_no_other_call() => costs_accept_read_write_and_close(daemon_with_release(), "current/hello.php");
}

fn costs_accept_read_write_and_close((daemon, worker): (Daemon, u32), path: &str) {
    let mut counts = 0;
    // A client delayed between connect(2) and write(2) for longer than a worker waits for the first byte is set aside,
    // and costs two more calls of epoll_ctl(2) and one of epoll_wait(2).
    let (calls, put_aside) = loop {
        let calls = count(worker, &daemon.dir, || {
            for _ in 0..REQUESTS {
                assert_eq!(daemon.get("www", path).body(), "Hello, World");
            }
        });
        let put_aside = calls.get("epoll_ctl").copied().unwrap_or(0) / 2;
        counts += 1;
        if put_aside <= REQUESTS / 10 || counts == COUNTS {
            break (calls, put_aside);
        }
    };
    let of = |name: &str| calls.get(name).copied().unwrap_or(0);
    assert!(put_aside <= REQUESTS / 10, "{calls:?}");
    assert_eq!(of("epoll_ctl"), 2 * put_aside, "{calls:?}");
    assert_eq!(
        (of("recvfrom"), of("sendto")),
        (REQUESTS + of("poll"), REQUESTS),
        "{calls:?}"
    );
    assert!(put_aside <= of("poll"), "{calls:?}");
    assert_eq!(of("close"), REQUESTS, "{calls:?}");
    assert!(
        of("accept4") >= REQUESTS && of("accept4") <= 2 * REQUESTS + 1,
        "{calls:?}"
    );
    assert!(of("epoll_wait") <= REQUESTS + 1 + put_aside, "{calls:?}");
    let others = [
        // CPU time of requests over a millisecond, which is common under strace.
        "clock_gettime",
        "chdir",
        "fchdir",
        "fcntl",
        "accept4",
        "recvfrom",
        "sendto",
        "close",
        "epoll_wait",
    ];
    let strange: Vec<_> = calls
        .iter()
        .filter(|(name, count)| !others.contains(&name.as_str()) && **count >= REQUESTS / 2)
        .collect();
    assert!(strange.is_empty(), "calls that nobody knows of: {strange:?}");
    // Programs with debug assertions check a descriptor before they close it.
    assert!(
        of("fcntl") <= 3 * REQUESTS && of("clock_gettime") <= REQUESTS,
        "{calls:?}"
    );
    let sum: u64 = calls.values().sum();
    assert!(
        sum - of("clock_gettime") - of("fcntl") <= 7 * REQUESTS + REQUESTS / 2 + 3 * put_aside + of("poll"),
        "{sum} calls for {REQUESTS} requests: {calls:?}"
    );
}

#[test]
fn a_kept_connection_costs_wait_read_and_write() {
    let (daemon, worker) = daemon();
    let params = Params::get(&daemon.dir, "hello.php", "");
    let mut client = daemon.client("www").kept();
    client.request(&params, b"").expect("answer");
    let calls = count(worker, &daemon.dir, || {
        for _ in 0..REQUESTS {
            assert!(client.request(&params, b"").expect("answer").ended);
        }
    });
    let of = |name: &str| calls.get(name).copied().unwrap_or(0);
    assert_eq!((of("recvfrom"), of("sendto")), (REQUESTS, REQUESTS), "{calls:?}");
    assert!(
        of("accept4") <= 1 && of("close") == 0 && of("epoll_ctl") == 0,
        "{calls:?}"
    );
    assert!(of("epoll_wait") <= REQUESTS + 2, "{calls:?}");
    let sum: u64 = calls.values().sum();
    assert!(
        of("clock_gettime") <= REQUESTS && sum - of("clock_gettime") <= 7 * REQUESTS + REQUESTS / 2,
        "{calls:?}"
    );
}

#[test]
fn an_access_log_costs_one_write() {
    let (daemon, worker) = daemon_with("access.log = \"DIR/access\"\n");
    let params = Params::get(&daemon.dir, "hello.php", "");
    let mut client = daemon.client("www").kept();
    client.request(&params, b"").expect("answer");
    let calls = count(worker, &daemon.dir, || {
        for _ in 0..REQUESTS {
            assert!(client.request(&params, b"").expect("answer").ended);
        }
    });
    let of = |name: &str| calls.get(name).copied().unwrap_or(0);
    assert_eq!((of("write"), of("sendto")), (REQUESTS, REQUESTS), "{calls:?}");
    for name in ["getpeername", "recvmsg", "getrusage"] {
        assert_eq!(of(name), 0, "{calls:?}");
    }
}

#[test]
fn output_that_is_caught_costs_the_master_nothing_where_there_is_none() {
    let (daemon, _) = daemon_with("catch_workers_output = true\n");
    let params = Params::get(&daemon.dir, "hello.php", "");
    let mut client = daemon.client("www").kept();
    client.request(&params, b"").expect("answer");
    let calls = count(daemon.pid(), &daemon.dir, || {
        for _ in 0..REQUESTS {
            assert!(client.request(&params, b"").expect("answer").ended);
        }
    });
    let more: Vec<_> = calls
        .iter()
        .filter(|(name, count)| *name != "epoll_wait" || **count > 1)
        .collect();
    assert!(more.is_empty(), "{calls:?}");
}

/// Answers every request without a body with five bytes.
fn serve_http(listener: UnixListener) {
    for connection in listener.incoming() {
        let mut input = BufReader::new(connection.expect("accept"));
        let mut line = String::new();
        while input.read_line(&mut line).expect("a request") > 0 {
            if line == "\r\n" {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
                input.get_mut().write_all(answer).expect("the answer is taken");
            }
            line.clear();
        }
    }
}

#[test]
fn a_request_that_is_passed_on_by_http_costs_two_waits_two_reads_and_two_writes() {
    let place = directory();
    let address = place.path().join("program.sock");
    let listener = UnixListener::bind(&address).expect("bind");
    fs::set_permissions(&address, fs::Permissions::from_mode(0o666)).expect("chmod");
    std::thread::spawn(move || serve_http(listener));
    let daemon = Daemon::start(|dir| {
        let application = format!("runtime = \"http\"\naddress = \"{}\"\n", address.display());
        pool(dir, "www", "", &application)
    });
    let worker = daemon.wait_for_workers("www", 1)[0];
    let params = Params::get(&daemon.dir, "hello", "");
    let mut client = daemon.client("www").kept();
    assert_eq!(client.request(&params, b"").expect("answer").body(), "hello");
    let calls = count(worker, &daemon.dir, || {
        for _ in 0..REQUESTS {
            assert!(client.request(&params, b"").expect("answer").ended);
        }
    });
    let of = |name: &str| calls.get(name).copied().unwrap_or(0);
    assert_eq!(
        (of("recvfrom"), of("sendto")),
        (2 * REQUESTS, 2 * REQUESTS),
        "{calls:?}"
    );
    assert!(of("epoll_wait") <= 2 * REQUESTS + 2, "{calls:?}");
    let sum: u64 = calls.values().sum();
    assert!(sum <= 6 * REQUESTS + 4, "{calls:?}");
}

#[test]
fn an_idle_daemon_makes_no_call() {
    let daemon = Daemon::start(|dir| {
        (0..20)
            .map(|index| {
                let settings = [
                    "pm = \"ondemand\"\nmax_children = 2\nprocess_idle_timeout = \"5m\"\n",
                    "pm = \"static\"\nmax_children = 1\n",
                ];
                let settings = settings[usize::from(index == 0)];
                pool(dir, &format!("p{index}"), settings, PHP)
            })
            .collect()
    });
    let worker = daemon.wait_for_workers("p0", 1)[0];
    daemon.write("hello.php", "<?php echo 'Hello, World';");
    for pool in ["p0", "p1"] {
        assert!(daemon.get(pool, "hello.php").ended);
    }
    for pid in [daemon.pid(), worker] {
        let mut seen = Vec::new();
        let is_quiet = (0..3).any(|_| {
            let calls = count(pid, &daemon.dir, || {
                let mut nothing = [];
                let _ = nix::poll::poll(&mut nothing, 2_000_u16);
            });
            let is_idle = calls
                .iter()
                .all(|(name, count)| name == "epoll_wait" && *count <= 1);
            seen.push(calls);
            is_idle
        });
        assert!(is_quiet, "process {pid}: {seen:?}");
    }
}

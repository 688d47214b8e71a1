//! Stopping, log rotation, and the death of the master.

use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 2\n";
const SLEEP: &str = "<?php touch($_GET['mark']); $t = hrtime(true); usleep(400000); echo hrtime(true) - $t >= 4e8 ? 'slept' : 'cut';";

fn sleeping(daemon: &Daemon) -> Client {
    let mark = daemon.dir.join("mark");
    let _ = fs::remove_file(&mark);
    daemon.write("sleep.php", SLEEP);
    let query = format!("mark={}", mark.display());
    let client = daemon.send("www", &Params::get(&daemon.dir, "sleep.php", &query));
    wait_until("the request to run", || mark.exists());
    client
}

#[test]
fn quit_lets_requests_finish() {
    let mut daemon = Daemon::start(|dir| php_pool(dir, STATIC, ""));
    daemon.wait_for_workers("www", 2);
    let mut client = sleeping(&daemon);
    daemon.signal(Signal::SIGQUIT);
    assert_eq!(client.answer().expect("answer").body(), "slept");
    assert!(daemon.wait().success());
    assert!(!daemon.socket("www").exists(), "the socket's file is removed");
}

#[test]
fn term_stops_at_once() {
    let mut daemon =
        Daemon::start(|dir| format!("[global]\nlog_level = \"debug\"\n{}", php_pool(dir, STATIC, "")));
    let workers = daemon.wait_for_workers("www", 2);
    for worker in &workers {
        daemon.wait_for(&format!("child {worker} started"));
    }
    daemon.write("long.php", "<?php sleep(60);");
    let mut client = daemon.send("www", &Params::get(&daemon.dir, "long.php", ""));
    daemon.end(Signal::SIGTERM);
    assert!(workers.iter().all(|pid| !process::runs(*pid)));
    assert!(!client.answer().is_ok_and(|answer| answer.ended));
}

#[test]
fn usr1_opens_the_log_again() {
    let daemon = Daemon::start_logged(|dir| php_pool(dir, STATIC, ""), "error.log");
    let log = daemon.dir.join("error.log");
    fs::rename(&log, daemon.dir.join("error.log.1")).expect("rename");
    daemon.signal(Signal::SIGUSR1);
    until("the new log", || {
        fs::read_to_string(&log)
            .ok()?
            .contains("error log file re-opened")
            .then_some(())
    });
}

#[test]
fn a_killed_master_takes_its_workers_along_after_their_requests_and_can_be_replaced() {
    let mut daemon = Daemon::start(|dir| php_pool(dir, STATIC, ""));
    let workers = daemon.wait_for_workers("www", 2);
    let preloaders = daemon.preloaders("www");
    let mut client = sleeping(&daemon);
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    let next = Daemon::start_in(&daemon.dir);
    next.write("pid.php", "<?php echo getmypid();");
    let pid: u32 = next.get("www", "pid.php").body().parse().expect("a pid");
    assert!(!workers.contains(&pid));
    assert_eq!(client.answer().expect("answer").body(), "slept");
    for orphan in workers.into_iter().chain(preloaders) {
        wait_until("the orphans to leave", || !process::runs(orphan));
    }
}

#[test]
fn a_live_socket_is_refused_and_a_stale_one_replaced() {
    let mut daemon = Daemon::start(|dir| php_pool(dir, STATIC, ""));
    let second = daemon.run(&["run"]);
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(78), "{said}");
    assert_contains(&said, &format!("pid {}", daemon.pid()));
    assert_contains(&said, "already listens on");
    daemon.write("pid.php", "<?php echo getmypid();");
    assert!(
        daemon.get("www", "pid.php").ended,
        "the first daemon is not disturbed"
    );
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
}

fn serve_over_tcp(listen: &str, address: &str) {
    let settings = format!("{STATIC}listen = \"{listen}\"\n");
    let daemon = Daemon::start(|dir| php_pool(dir, &settings, ""));
    daemon.write("pid.php", "<?php echo getmypid();");
    let mut client = Client::connect_tcp(address).expect("connect");
    let answer = client
        .request(&Params::get(&daemon.dir, "pid.php", ""), b"")
        .expect("answer");
    assert!(answer.body().parse::<u32>().is_ok());
}

#[test]
fn tcp_pools_serve_on_both_families() {
    let address = format!("127.0.0.1:{}", free_port());
    serve_over_tcp(&address, &address);
    let address = format!("[::1]:{}", free_port());
    if TcpListener::bind("[::1]:0").is_ok() {
        serve_over_tcp(&address, &address);
    }
    let port = free_port();
    serve_over_tcp(&port.to_string(), &format!("127.0.0.1:{port}"));
}

#[test]
fn a_peer_that_is_not_allowed_is_dropped_with_a_line() {
    let port = free_port();
    let settings =
        format!("{STATIC}listen = {{ address = \"127.0.0.1:{port}\", allowed_clients = [\"192.0.2.1\"] }}\n");
    let daemon = Daemon::start(|dir| php_pool(dir, &settings, ""));
    daemon.write("pid.php", "<?php echo getmypid();");
    let mut client = Client::connect_tcp(&format!("127.0.0.1:{port}")).expect("connect");
    let _ = client.send(&Params::get(&daemon.dir, "pid.php", ""), b"");
    assert!(!client.answer().is_ok_and(|answer| answer.ended));
    daemon.wait_for("Connection disallowed: IP address '127.0.0.1' has been dropped.");
}

#[test]
fn daemonize_returns_when_it_is_ready_and_writes_its_pid() {
    let dir = directory();
    let path = dir.path();
    let global = format!(
        "[global]\npid = \"{0}/pid\"\nerror_log = \"{0}/log\"\n",
        path.display()
    );
    fs::write(path.join("forkyard.toml"), global + &php_pool(path, STATIC, "")).expect("configuration");
    let status = forkyard(&["run", "-D"], path).status().expect("forkyard");
    assert!(status.success());
    let pid: u32 = read_file(path.join("pid")).parse().expect("a pid");
    assert!(process::runs(pid));
    process::signal(pid, Signal::SIGQUIT);
    wait_until("the daemon to end", || !process::runs(pid));
    assert!(!path.join("pid").exists());
}

//! The sender of the signal that kills a worker.

use crate::support::prelude::*;

const SETTINGS: &str = "pm = \"static\"\nmax_children = 1\n";
const BUSY: &str = "<?php touch($_GET['mark']); while (true) { usleep(1000); }";
/// The end of php-fpm's message. Only the number of a report follows.
const SECONDS: &str = " seconds from start";

fn worker(daemon: &Daemon) -> u32 {
    daemon.write("up.php", "<?php echo getmypid();");
    daemon.get("www", "up.php").body().parse().expect("a pid")
}

fn busy(daemon: &Daemon) -> Client {
    let mark = daemon.dir.join("mark");
    daemon.write("busy.php", BUSY);
    let query = format!("mark={}", mark.display());
    let client = daemon.send("www", &Params::get(&daemon.dir, "busy.php", &query));
    wait_until("the request to run", || mark.exists());
    client
}

fn is_said(daemon: &Daemon, worker: u32, signal: &str, sender: &str) {
    let line = format!("[pool www] child {worker} was sent signal {signal} by {sender}");
    daemon.wait_for(&line);
    let log = daemon.log();
    let exited = format!("child {worker} exited on signal {signal} after ");
    let own = log
        .lines()
        .find(|line| line.contains(&exited))
        .expect("php-fpm's line");
    let words = own.split(", report ").next().expect("php-fpm's words");
    assert!(words.ends_with(SECONDS), "{own}");
    assert!(log.lines().any(|said| said.ends_with(&line)), "{log}");
}

#[test]
fn an_idle_worker_and_a_busy_one_name_the_process_that_ended_them() {
    for limit in ["", "request_terminate_timeout = \"60s\"\n"] {
        let daemon = Daemon::start(|dir| php_pool(dir, &format!("{SETTINGS}{limit}"), ""));
        let (own, user) = (std::process::id(), nix::unistd::getuid());
        let name = read_file("/proc/self/comm");
        let us = format!("process {own} ({}), user id {user}", name.trim_end());
        for (signal, said) in [
            (Signal::SIGTERM, "15 (SIGTERM)"),
            (Signal::SIGUSR2, "12 (SIGUSR2)"),
        ] {
            let idle = worker(&daemon);
            process::signal(idle, signal);
            is_said(&daemon, idle, said, &us);
            let runs = worker(&daemon);
            assert_ne!(runs, idle);
            let _ = fs::remove_file(daemon.dir.join("mark"));
            let client = busy(&daemon);
            process::signal(runs, signal);
            is_said(&daemon, runs, said, &us);
            drop(client);
        }
    }
}

#[test]
fn another_user_is_named_and_so_is_a_worker_that_ends_itself() {
    let daemon = Daemon::start(|dir| php_pool(dir, SETTINGS, ""));
    let first = worker(&daemon);
    let owner: u32 = process::user_and_group(first)[0].parse().expect("a user");
    let mut kill = Command::new("/bin/sh");
    kill.args(["-c", &format!("echo $$; kill -TERM {first}; exec sleep 1000")]);
    if nix::unistd::getuid().is_root() {
        kill.uid(owner).gid(owner);
    }
    kill.stdout(Stdio::piped());
    let mut sender = kill.spawn().expect("sh");
    let who = format!("process {} (", sender.id());
    daemon.wait_for(&format!("child {first} was sent signal 15 (SIGTERM) by {who}"));
    let log = daemon.log();
    let _ = (sender.kill(), sender.wait());
    let said = format!("child {first} was sent signal 15 (SIGTERM) by {who}");
    let line = log.lines().find(|line| line.contains(&said)).expect("the line");
    assert!(line.ends_with(&format!("), user id {owner}")), "{line}");

    daemon.write("ends.php", "<?php posix_kill(getmypid(), 15); sleep(60);");
    let second = worker(&daemon);
    let _client = daemon.send("www", &Params::get(&daemon.dir, "ends.php", ""));
    is_said(&daemon, second, "15 (SIGTERM)", "itself");
}

#[test]
fn nothing_is_said_of_a_sender_that_nobody_knows() {
    let daemon = Daemon::start(|dir| php_pool(dir, SETTINGS, ""));
    let first = worker(&daemon);
    process::signal(first, Signal::SIGKILL);
    daemon.wait_for(&format!("child {first} exited on signal 9 (SIGKILL)"));
    let second = worker(&daemon);
    process::signal(second, Signal::SIGTERM);
    daemon.wait_for(&format!("child {second} was sent signal 15 (SIGTERM)"));
    assert_lacks(&daemon.log(), &format!("child {first} was sent"));
}

#[test]
fn a_script_and_its_programs_see_no_handler() {
    let daemon = Daemon::start(|dir| php_pool(dir, SETTINGS, ""));
    let script = "<?php echo function_exists('pcntl_signal') ? 'pcntl ' : '', trim(shell_exec('grep SigCgt /proc/self/status; grep SigIgn /proc/self/status'));";
    daemon.write("seen.php", script);
    let body = daemon.get("www", "seen.php").body();
    let masks: Vec<u64> = body
        .split_whitespace()
        .filter_map(|word| u64::from_str_radix(word, 16).ok())
        .collect();
    assert!(!body.contains("pcntl") && masks.len() == 2, "{body}");
    let ended_by = [1, 2, 3, 10, 12, 15].map(|signal| 1_u64 << (signal - 1));
    for mask in masks {
        assert!(ended_by.iter().all(|bit| mask & bit == 0), "{body}");
    }
}

#[test]
fn a_worker_of_a_wrapped_application_names_its_sender_and_keeps_its_own_handler() {
    let daemon = Daemon::start(|dir| {
        let text = "import os, signal\n\
            def application(environ, start_response):\n    \
                if environ['QUERY_STRING']:\n        signal.signal(signal.SIGUSR1, lambda *_: None)\n        os.kill(os.getpid(), signal.SIGUSR1)\n    \
                start_response('200 OK', [('Content-Type', 'text/plain')])\n    \
                return [f'{os.getpid()} {signal.getsignal(signal.SIGTERM)!r}'.encode()]\n";
        fs::write(dir.join("passenger_wsgi.py"), text).expect("write");
        let application = format!("runtime = \"wsgi\"\nroot = {:?}\n", dir);
        pool(dir, "www", SETTINGS, &application)
    });
    let first = daemon.get("www", "x").body();
    let second = daemon
        .ask("www", &Params::get(&daemon.dir, "x", "handles"))
        .body();
    assert_eq!(first, second, "it has a handler, and goes on");
    let (pid, handler) = first.split_once(' ').expect("pid and handler");
    assert_contains(handler, "SIG_DFL");
    let pid = pid.parse().expect("a pid");
    process::signal(pid, Signal::SIGTERM);
    daemon.wait_for(&format!(
        "child {pid} was sent signal 15 (SIGTERM) by process {}",
        std::process::id()
    ));
}

#[test]
fn no_worker_of_many_ends_by_a_signal() {
    let soak = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/soak/starts.py");
    let output = Command::new("python3")
        .args([
            "-B",
            soak,
            "60",
            "--half-open",
            "300",
            "--php",
            env!("FORKYARD_PHP"),
        ])
        .args(["--program", env!("CARGO_BIN_EXE_forkyard")])
        .output()
        .expect("python3");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{said}");
    assert_contains(&said, " 60 answers in ");
    assert_contains(&said, "0 lines of ends by a signal");
}

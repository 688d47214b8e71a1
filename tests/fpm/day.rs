//! What both programs log over a day of operation, line by line.

use super::both::{STOCK, forkyard_fpm, run, without_time};
use super::pair::{Fpm, is_possible};
use super::service::Daemon;
use crate::support::ear;
use crate::support::prelude::*;

const SCRIPTS: &[(&str, &str)] = &[
    ("ok.php", "<?php echo 'ok';"),
    ("log.php", "<?php error_log('said');"),
    ("fatal.php", "<?php nofunc();"),
    ("segv.php", "<?php posix_kill(getmypid(), 11); sleep(9);"),
    ("kill.php", "<?php posix_kill(getmypid(), 9); sleep(9);"),
    ("exit.php", "<?php exit(3);"),
    (
        "hold.php",
        "<?php touch(__DIR__ . '/open/held'); while (!file_exists(__DIR__ . '/go')) { usleep(1000); clearstatcache(); }",
    ),
];

struct Part {
    name: &'static str,
    global: &'static str,
    pool: &'static str,
    run: fn(&Fpm),
}

const PARTS: &[Part] = &[
    Part {
        name: "requests, crashes, logs opened anew, reload, SIGQUIT",
        global: "systemd_interval = 1",
        pool: "catch_workers_output = yes\nphp_admin_flag[log_errors] = on\naccess.log = {DIR}/access",
        run: |fpm| {
            for script in ["ok.php", "log.php", "fatal.php", "exit.php"] {
                ask(fpm, script);
            }
            fpm.wait_for("error", "thrown in");
            for (count, script) in ["segv.php", "kill.php"].into_iter().enumerate() {
                ask(fpm, script);
                fpm.wait_for_count("error", " started", count + 1);
            }
            ask(fpm, "ok.php");
            fpm.signal(Signal::SIGUSR2);
            fpm.wait_for_count("error", "interval set", 2);
            ask(fpm, "ok.php");
            fpm.signal(Signal::SIGQUIT);
        },
    },
    Part {
        name: "no access log and no interval, SIGUSR1, SIGINT",
        global: "systemd_interval = 0",
        pool: "",
        run: |fpm| {
            fpm.wait_for("error", "systemd");
            fpm.signal(Signal::SIGUSR1);
            fpm.wait_for("error", "re-opened");
            fpm.signal(Signal::SIGINT);
        },
    },
    Part {
        name: "a slow request, SIGTERM",
        global: "",
        pool: "slowlog = {DIR}/slow\nrequest_slowlog_timeout = 1",
        run: |fpm| {
            let _held = hold(fpm);
            fpm.wait_for("error", "finished trace of");
            fpm.signal(Signal::SIGTERM);
        },
    },
    Part {
        name: "a request that runs for too long",
        global: "",
        pool: "request_terminate_timeout = 1",
        run: |fpm| {
            let _held = hold(fpm);
            fpm.wait_for("error", " started");
            fpm.signal(Signal::SIGTERM);
        },
    },
    Part {
        name: "max_children of an ondemand pool",
        global: "",
        pool: "pm = ondemand",
        run: |fpm| {
            let _held = hold(fpm);
            let _waiting = send(fpm, "ok.php");
            fpm.wait_for("error", "max_children");
            fpm.signal(Signal::SIGTERM);
        },
    },
    Part {
        name: "process.max",
        global: "process.max = 1",
        pool: "pm = dynamic\npm.max_children = 3\npm.start_servers = 1\npm.min_spare_servers = 1\n\
               pm.max_spare_servers = 1",
        run: |fpm| {
            let _held = hold(fpm);
            let _waiting = send(fpm, "ok.php");
            fpm.wait_for("error", "maximum number of processes");
            fpm.signal(Signal::SIGTERM);
        },
    },
    Part {
        name: "max_requests",
        global: "",
        pool: "pm.max_requests = 2",
        run: |fpm| {
            for count in 1..=2 {
                ask(fpm, "ok.php");
                ask(fpm, "ok.php");
                fpm.wait_for_count("error", " started", count);
            }
            fpm.signal(Signal::SIGTERM);
        },
    },
    Part {
        name: "emergency restart",
        global: "emergency_restart_threshold = 2\nemergency_restart_interval = 1m",
        pool: "",
        run: |fpm| {
            ask(fpm, "segv.php");
            fpm.wait_for("error", " started");
            ask(fpm, "segv.php");
            fpm.wait_for_count("error", "interval set", 2);
            ask(fpm, "ok.php");
            fpm.signal(Signal::SIGTERM);
        },
    },
    Part {
        name: "a reload that can't wait for a request",
        global: "process_control_timeout = 1",
        pool: "",
        run: |fpm| {
            let _held = hold(fpm);
            fpm.signal(Signal::SIGUSR2);
            fpm.wait_for_count("error", "interval set", 2);
            ask(fpm, "ok.php");
            fpm.signal(Signal::SIGQUIT);
        },
    },
];

fn ask(fpm: &Fpm, script: &str) {
    let mut client = Client::connect_tcp(&fpm.address).expect("it listens");
    let _ = client.request(&fpm.params(script, ""), b"");
}

fn send(fpm: &Fpm, script: &str) -> Client {
    let mut client = Client::connect_tcp(&fpm.address).expect("it listens");
    client
        .send(&fpm.params(script, ""), b"")
        .expect("it takes a request");
    client
}

fn hold(fpm: &Fpm) -> Client {
    let client = send(fpm, "hold.php");
    wait_until("the script to run", || fpm.path("open/held").exists());
    client
}

fn plain(line: &str) -> String {
    let line = without_time(line)
        .replace(STOCK, "PROGRAM")
        .replace(forkyard_fpm(), "PROGRAM");
    let mut words: Vec<&str> = Vec::new();
    for word in line.split(' ') {
        let is_number = word.starts_with(|c: char| c == '(' || c.is_ascii_digit());
        match words.last() {
            Some(&"child" | &"pid" | &"after" | &"trace" | &"of" | &"slow" | &"out") if is_number => {
                words.push(if word.ends_with(',') { "N," } else { "N" });
            }
            Some(&"socket") if word.starts_with("fd=") => words.push("fd=N,"),
            _ => words.push(word),
        }
    }
    words.join(" ")
}

/// Lines only php-fpm writes: the slow log stops its worker, and it replaces the worker when logs are reopened.
const OF_STOCK: &[&str] = &[" stopped for tracing", " seems busy "];
const OF_OURS: &[&str] = &[
    " child N was serving ",
    " child N was sent signal ",
    " did not exit in time, ",
];

fn logged(fpm: &Fpm, own: &[&str]) -> Vec<String> {
    let log = fpm.wait_for("error", "exiting, bye-bye!");
    let log = log.replace(&fpm.address, "ADDRESS");
    let lines = log.lines().map(plain);
    lines
        .filter(|line| !own.iter().any(|text| line.contains(text)))
        .collect()
}

#[test]
fn a_day_has_php_fpms_lines() {
    skip_if!(!is_possible());
    let room = directory();
    for part in PARTS {
        let [stock, ours] = [(STOCK, OF_STOCK), (forkyard_fpm(), OF_OURS)].map(|(program, own)| {
            let path = room.path().join("notify");
            let _ = fs::remove_file(&path);
            let _manager = ear(&path);
            let mut command = Command::new(program);
            command.env("NOTIFY_SOCKET", &path);
            let pool = format!("php_admin_value[extension] = posix.so\n{}", part.pool);
            let fpm = Fpm::launch_by(&mut command, part.global, &pool, SCRIPTS);
            let open = fpm.path("open");
            fs::create_dir(&open).expect("writable");
            fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("it is ours");
            fpm.wait_for("error", "systemd monitor");
            (part.run)(&fpm);
            logged(&fpm, own)
        });
        assert_eq!(ours, stock, "{}", part.name);
    }
}

#[test]
fn the_pid_file_has_php_fpms_mode() {
    skip_if!(!is_possible());
    for mask in ["000", "002", "027"] {
        let [stock, ours] = [STOCK, forkyard_fpm()].map(|program| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("umask {mask}; exec {program} \"$@\""), "sh"]);
            let fpm = Fpm::launch_by(&mut command, "", "", SCRIPTS);
            fpm.wait_for("error", "ready to handle connections");
            let data = fs::metadata(fpm.path("pid")).expect("there is a pid file");
            data.permissions().mode() & 0o777
        });
        assert_eq!(ours, stock, "umask {mask}");
    }
}

#[test]
fn php_fpms_settings_are_in_the_info_with_and_without_php_ini() {
    skip_if!(!super::both::is_stock_there());
    for arguments in [&["-i"][..], &["-n", "-i"]] {
        let [stock, ours] = [STOCK, forkyard_fpm()].map(|program| {
            let text = run(program, arguments).stdout;
            let text = text_of(&text);
            let start = text.find("\ncgi-fcgi\n").expect("there is the module");
            let end = text.find("\nCore\n").expect("there is PHP's core");
            text[start..end].to_owned()
        });
        assert_contains(&stock, "cgi.fix_pathinfo");
        assert_eq!(ours, stock, "{arguments:?}");
    }
}

#[test]
fn what_syslog_does_not_take_is_readable_on_standard_error() {
    skip_if!(needs_root());
    let room = directory();
    let file = room.path().join("fpm.conf");
    let socket = room.path().join("fpm.sock");
    let text = format!(
        "[global]\nerror_log = syslog\n[www]\nuser = www-data\nlisten = {}\npm = static\npm.max_children = 1\n",
        socket.display()
    );
    fs::write(&file, text).expect("writable");
    let mut command = Command::new(forkyard_fpm());
    command.args(["-F", "-n", "-y"]).arg(&file);
    command.env("FORKYARD_SYSLOG_SOCKET", room.path().join("none"));
    let daemon = Daemon::run(&mut command);
    let seen = daemon.expect("ready to handle connections");
    assert!(seen.iter().all(|line| line.starts_with("NOTICE: ")), "{seen:#?}");
}

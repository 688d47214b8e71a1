//! HTTP programs that misbehave: each fault is reported, and no process is left.

use super::programs::{ONDEMAND, SERVER, Site};
use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 4\n";

#[test]
fn a_process_that_is_killed_under_load_is_back_and_others_are_asked() {
    let files = [("server.js", SERVER)];
    let site = Site::start(&files, STATIC, "node", "instances = 2");
    site.daemon.wait_for_count("of the application is up", 2);
    let nginx = site.nginx();
    let load: Vec<_> = (0..4)
        .map(|_| {
            Command::new("curl")
                .args(["-s", "-w", "%{http_code}\n", "-o", "/dev/null"])
                .arg(format!("{}?[1-500]", nginx.url("/pid")))
                .stdout(Stdio::piped())
                .spawn()
                .expect("curl")
        })
        .collect();
    let doomed = site.processes()[0];
    process::signal(doomed, Signal::SIGKILL);
    site.daemon
        .wait_for("exited on signal 9 (SIGKILL); it is started again");
    let mut codes = Vec::new();
    for client in load {
        let output = client.wait_with_output().expect("curl");
        codes.extend(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned));
    }
    let good = codes.iter().filter(|code| *code == "200").count();
    // GET requests: those of the failed program are retried with the other one.
    assert_eq!((good, codes.len()), (2000, 2000));
    site.daemon.wait_for_count("of the application is up", 3);
    assert!(!site.wait_for_processes(2).contains(&doomed));
}

#[test]
fn requests_wait_for_the_only_process_and_those_in_its_hands_fail() {
    let files = [("server.js", SERVER)];
    let site = Site::start(&files, STATIC, "node", "");
    let old = site.get("pid");
    wait_until("a second", || {
        let began = site.daemon.log().contains("of the application is up");
        let age = Command::new("ps").args(["-o", "etimes=", "-p", &old]).output();
        let age = String::from_utf8_lossy(&age.expect("ps").stdout)
            .trim()
            .parse::<u32>();
        began && age.is_ok_and(|age| age >= 2)
    });
    let nginx = site.nginx();
    let post = ["-s", "-X", "POST", "-w", "%{http_code}", "-o", "/dev/null"];
    let failed = curl(&[&post[..], &["--data", "x", &nginx.url("/crash")]].concat());
    assert_eq!(failed, "502", "a POST is not sent twice");
    assert_ne!(site.get("pid"), old);
    site.daemon.wait_for("exited with code 3; it is started again");
    assert_eq!(site.daemon.workers("app").len(), 4, "the workers are the same");
}

#[test]
fn a_request_that_ends_its_process_is_not_passed_on_for_ever() {
    let files = [("server.js", SERVER)];
    let site = Site::start(&files, STATIC, "node", "instances = 3");
    site.daemon.wait_for_count("of the application is up", 3);
    assert_starts(&site.daemon.get("app", "crash").text(), "Status: 502");
    site.daemon.wait_for_count("exited with code 3", 2);
    assert!(site.get("pid").parse::<u32>().is_ok());
    assert_eq!(site.daemon.log().matches("exited with code 3").count(), 2);
}

/// The program never starts: the log reports it, no process is left, and once repaired it serves without a reload. It
/// has six seconds: a repaired one is slow on a busy machine.
fn never_up(program: &str, application: &str, summary: &str) {
    let application = format!("start_command = \"node broken.js\"\nstart_timeout = \"6s\"\n{application}");
    let site = Site::start(&[("broken.js", program)], ONDEMAND, "http", &application);
    let mut client = site.daemon.send("app", &Params::get(&site.root, "pid", ""));
    let line = site.daemon.wait_for("the application can't start: ");
    assert!(line.contains(summary), "{line}");
    let refused = client.answer().expect("answer").text();
    assert_starts(&refused, "Status: 503 Service Unavailable\r\n");
    wait_until("another try", || {
        site.get("pid");
        let tries = site.daemon.log().matches("the application can't start: ").count();
        tries > 1
    });
    fs::write(site.root.join("broken.js"), SERVER).expect("write");
    until("the application to serve", || site.get("pid").parse::<u32>().ok());
    site.wait_until_tidy();
    // Failed starts leave no process, though a killed one may take a while to exit.
    site.wait_for_processes(1);
}

#[test]
fn one_that_hangs_or_listens_elsewhere_is_given_up() {
    let elsewhere = "require('http').createServer(() => {}).listen(0, '127.0.0.1');";
    let hangs = "setInterval(() => {}, 1000);";
    let deaf = "const { spawn } = require('child_process');\
                process.on('SIGTERM', () => {}); setInterval(() => {}, 1000);\
                spawn('sleep', ['1000'], { detached: true, stdio: 'ignore' });";
    std::thread::scope(|scope| {
        scope.spawn(|| never_up(elsewhere, "", "and not on the one that it was given"));
        scope.spawn(|| never_up(hangs, "", "longer than 6 s"));
        scope.spawn(|| never_up(deaf, "", "longer than 6 s"));
    });
}

#[test]
fn a_native_one_that_says_nothing_is_given_up() {
    let silent = "process.stdin.resume();";
    let application = "start_command = \"node broken.js\"\nstart_timeout = \"2s\"\nhandshake = true";
    let site = Site::start(&[("broken.js", silent)], STATIC, "http", application);
    site.daemon.wait_for("the application can't start: ");
}

#[test]
fn one_that_goes_to_the_background_is_told_so() {
    let daemon = "if (process.argv[2] !== 'child') {\
        require('child_process').spawn('node', ['broken.js', 'child'], { detached: true, stdio: 'ignore' }).unref();\
        } else { setTimeout(() => {}, 100000); }";
    never_up(daemon, "", "exited with code 0");
}

#[test]
fn one_that_goes_to_the_background_once_it_is_up_is_started_again_and_its_shadow_ended() {
    const PROGRAM: &str = "if (process.argv[2] !== 'child') {\
        require('child_process').spawn('node', ['server.js', 'child'], { detached: true, stdio: 'ignore' }).unref();\
        setTimeout(() => process.exit(0), 1500);\
        } else { require('http').createServer((q, r) => r.end(String(process.pid))).listen(process.env.PORT, '127.0.0.1'); }";
    let site = Site::start(&[("server.js", PROGRAM)], STATIC, "node", "");
    let first: u32 = site.get("pid").parse().expect("a pid");
    site.daemon.wait_for("exited with code 0; it is started again");
    wait_until("the shadow to end", || !process::runs(first));
}

#[test]
fn one_that_closes_its_streams_serves_on() {
    let program = format!(
        "require('fs').closeSync(0); require('fs').closeSync(1); require('fs').closeSync(2);\n{SERVER}"
    );
    let site = Site::start(&[("server.js", &program)], STATIC, "node", "");
    let pid = site.get("pid");
    for _ in 0..20 {
        assert_eq!(site.get("pid"), pid);
    }
}

#[test]
fn one_that_does_not_hear_signals_is_killed_with_its_children() {
    let deaf = format!(
        "process.on('SIGTERM', () => {{}});\
         require('child_process').spawn('sleep', ['1000'], {{ detached: true, stdio: 'ignore' }});\n{SERVER}"
    );
    let pool = format!("{ONDEMAND}process_idle_timeout = \"200ms\"\n");
    let site = Site::start(
        &[("server.js", &deaf)],
        &pool,
        "node",
        "preloader_idle_timeout = \"200ms\"",
    );
    site.get("pid");
    site.wait_for_processes(2);
    site.wait_for_processes(0);
    site.get("pid");
    site.wait_for_processes(2);
}

#[test]
fn while_a_restart_fails_requests_are_answered_at_once() {
    let files = [("server.js", SERVER)];
    let site = Site::start(&files, STATIC, "node", "");
    let pid: u32 = site.get("pid").parse().expect("a pid");
    fs::write(site.root.join("server.js"), "process.exit(9);").expect("write");
    process::signal(pid, Signal::SIGKILL);
    let line = site.daemon.wait_for("the application can't start: ");
    let id = line
        .rsplit("error ")
        .next()
        .expect("an id")
        .trim_end_matches(')')
        .to_owned();
    let answer = site.daemon.get("app", "pid");
    assert_starts(&answer.text(), "Status: 503 Service Unavailable\r\nRetry-After: ");
    assert!(
        !id.is_empty() && answer.body().contains("error "),
        "{}",
        answer.body()
    );
    fs::write(site.root.join("server.js"), SERVER).expect("write");
    site.daemon.wait_for_count("of the application is up", 2);
    assert!(site.get("pid").parse::<u32>().is_ok());
}

#[test]
fn a_client_that_leaves_leaves_nothing_counted() {
    let files = [("server.js", SERVER)];
    let pool = format!("{STATIC}request_terminate_timeout = \"500ms\"\n");
    let site = Site::start(&files, &pool, "node", "instances = 2");
    site.daemon.wait_for_count("of the application is up", 2);
    for _ in 0..3 {
        assert_starts(&site.daemon.get("app", "hang").text(), "Status: 504");
    }
    site.daemon.wait_for_workers("app", 4);
    let pids: BTreeSet<String> = (0..30).map(|_| site.get("pid")).collect();
    assert_eq!(pids.len(), 2, "both are idle");
}

//! How requests of a worker that serves many at a time end, and how the worker does.

use super::concurrent::{APPLICATION, ONE, body, marks, params, send, start};
use crate::support::daemon::{Daemon, application_in, folder, forkyard, pool};
use crate::support::fcgi::Client;
use crate::support::{assert_contains, assert_lacks, assert_starts, process, wait_until};
use nix::sys::signal::Signal;
use std::fs;

fn start_with(global: &str, settings: &str) -> (Daemon, tempfile::TempDir) {
    let root = folder(&[("asgi.py", APPLICATION)]);
    let application = application_in("asgi", root.path(), "");
    let daemon = Daemon::start(|dir| {
        let pool = pool(dir, "www", settings, &application);
        format!("[global]\n{global}\n{pool}").replace("DIR", &dir.display().to_string())
    });
    (daemon, root)
}

#[test]
fn a_reload_waits_for_all_requests_of_a_worker() {
    let (daemon, root) = start(ONE, "");
    let old = daemon.wait_for_workers("www", 1)[0];
    let mut clients: Vec<Client> = (0..6).map(|n| send(&daemon, "until", &n.to_string())).collect();
    wait_until("their beginning", || marks(&root, "begun.").len() == 6);
    daemon.signal(Signal::SIGUSR2);
    wait_until("a new worker", || {
        body(&mut send(&daemon, "pid", "")) != old.to_string()
    });
    assert!(process::runs(old));
    fs::write(root.path().join("go"), "").expect("go");
    for client in &mut clients {
        assert_eq!(body(client), old.to_string());
    }
    wait_until("the lifespan's end", || {
        root.path().join(format!("shutdown.{old}")).exists()
    });
    wait_until("the old worker's end", || !process::runs(old));
}

#[test]
fn streams_without_an_end_are_cancelled_at_the_deadline() {
    let (daemon, root) = start_with("process_control_timeout = \"1s\"", ONE);
    let old = daemon.wait_for_workers("www", 1)[0];
    let streams = (0..3).map(|n| send(&daemon, "endless", &n.to_string()));
    let _streams: Vec<Client> = streams.collect();
    wait_until("all streams", || marks(&root, "open.").len() == 3);
    daemon.signal(Signal::SIGUSR2);
    for n in 0..3 {
        let mark = root.path().join(format!("cancelled.{n}"));
        wait_until("the stream's end", || mark.exists());
    }
    wait_until("the lifespan's end", || {
        root.path().join(format!("shutdown.{old}")).exists()
    });
    wait_until("the old worker's end", || !process::runs(old));
    assert_lacks(&daemon.log(), "killing");
}

#[test]
fn a_request_whose_time_is_up_is_cancelled_and_the_others_go_on() {
    let log = "access = { log = \"DIR/access\", format = \"%s %r\" }\n";
    let settings = format!("{ONE}request_terminate_timeout = \"1s\"\n{log}");
    let (daemon, root) = start_with("", &settings);
    let worker = body(&mut send(&daemon, "pid", ""));
    let mut stuck = send(&daemon, "stuck", "");
    let mut endless = send(&daemon, "endless", "x");
    let answer = stuck.answer().expect("answer");
    assert_starts(&answer.text(), "Status: 504 Gateway Timeout");
    assert!(answer.ended);
    let lines = fs::read_to_string(daemon.dir.join("access")).expect("the access log");
    assert!(lines.lines().any(|line| line == "504 /stuck"), "{lines}");
    wait_until("its end", || root.path().join("cancelled").exists());
    let answer = endless.answer();
    assert!(
        !answer.is_ok_and(|answer| answer.ended),
        "the client sees that it is cut"
    );
    wait_until("its end", || root.path().join("cancelled.x").exists());
    daemon.wait_for("(request: \"GET /stuck\") execution timed out (1.0");
    assert_eq!(body(&mut send(&daemon, "pid", "")), worker);
    let _held = send(&daemon, "hold", "never");
    daemon.wait_for("(request: \"GET /hold?never\") execution timed out");
    wait_until("another worker", || body(&mut send(&daemon, "pid", "")) != worker);
}

#[test]
fn a_worker_that_has_served_its_requests_ends_with_none_lost() {
    let settings = "pm = \"static\"\nmax_children = 2\nmax_requests = 20\n";
    let (daemon, _root) = start(settings, "");
    let mut workers = std::collections::BTreeSet::new();
    let mut kept: Vec<Client> = (0..10).map(|_| daemon.client("www").kept()).collect();
    for _ in 0..30 {
        for client in &mut kept {
            client.send(&params("pid", ""), b"").expect("send");
        }
        for client in &mut kept {
            let answer = client.answer().expect("answer");
            assert!(answer.ended);
            workers.insert(answer.body());
        }
    }
    assert!(workers.len() >= 8, "{} workers for 300 requests", workers.len());
    assert_lacks(&daemon.log(), "WARNING");
}

#[test]
fn each_slow_request_is_written_down() {
    let (daemon, root) = start_with(
        "",
        &format!("{ONE}request_slowlog_timeout = \"300ms\"\nslowlog = \"DIR/slow.log\"\n"),
    );
    let mut clients: Vec<Client> = (0..3).map(|n| send(&daemon, "until", &n.to_string())).collect();
    daemon.wait_for_count("finished trace of ", 3);
    fs::write(root.path().join("go"), "").expect("go");
    for client in &mut clients {
        client.answer().expect("answer");
    }
    let log = daemon.log();
    for n in 0..3 {
        let line = format!("(request: \"GET /until?{n}\") executing too slow");
        assert_eq!(log.matches(&line).count(), 1, "{log}");
    }
}

#[test]
fn an_application_that_exits_ends_its_worker_after_the_others() {
    let source = "import asyncio, os, sys\nsleeping = 0\nasync def application(scope, receive, send):\n    global sleeping\n    \
                  assert scope['type'] == 'http'\n    if scope['query_string'] == b'exit':\n        while not sleeping: await \
                  asyncio.sleep(0.002)\n        sys.exit(3)\n    sleeping += 1\n    if scope['query_string'] == b'sleep': await \
                  asyncio.sleep(0.3)\n    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    await \
                  send({'type': 'http.response.body', 'body': str(os.getpid()).encode()})\n";
    let (daemon, _root) = super::python::start_as("asgi", &[("asgi.py", source)], ONE, "");
    let mut sleeping = send(&daemon, "x", "sleep");
    let mut exiting = send(&daemon, "x", "exit");
    let text = exiting.answer().expect("answer").text();
    assert_starts(&text, "Status: 500 ");
    let pid: u32 = body(&mut sleeping).parse().expect("pid");
    wait_until("the worker's end", || !process::runs(pid));
    assert_ne!(body(&mut send(&daemon, "x", "")), pid.to_string());
}

#[test]
fn status_counts_requests_under_way() {
    let (daemon, root) = start_with(
        "control = \"DIR/control.sock\"",
        &format!("{ONE}status_path = \"/status\"\n"),
    );
    let mut clients: Vec<Client> = (0..4).map(|n| send(&daemon, "until", &n.to_string())).collect();
    wait_until("their beginning", || marks(&root, "begun.").len() == 4);
    let page = body(&mut send(&daemon, "status", "json"));
    let page: serde_json::Value = serde_json::from_str(&page).expect(&page);
    assert_eq!(page["requests in flight"], 5, "{page}");
    assert_eq!(page["active processes"], 1, "{page}");
    let metrics = body(&mut send(&daemon, "status", "openmetrics"));
    assert_contains(&metrics, "\nphpfpm_requests_in_flight 5\n");
    wait_until("the others alone", || {
        let told = crate::support::daemon::forkyard(&["status", "--json"], &daemon.dir).output();
        let told: serde_json::Value =
            serde_json::from_slice(&told.expect("forkyard status").stdout).expect("JSON");
        told.to_string().contains("\"in_flight\":4")
    });
    let metrics = crate::support::daemon::forkyard(&["status", "--metrics"], &daemon.dir).output();
    let metrics = String::from_utf8_lossy(&metrics.expect("forkyard status").stdout).into_owned();
    let sum = "\nforkyard_pool_requests_in_flight{pool=\"www\"} 4\n";
    assert!(metrics.contains(sum), "{metrics}");
    fs::write(root.path().join("go"), "").expect("go");
    for client in &mut clients {
        client.answer().expect("answer");
    }
}

#[test]
fn of_several_requests_the_longest_is_ended_by_command() {
    let (daemon, root) = start_with("control = \"DIR/control.sock\"", ONE);
    let worker = body(&mut send(&daemon, "pid", ""));
    let mut stuck = send(&daemon, "stuck", "");
    wait_until("it to begin", || in_flight(&daemon) == 1);
    let mut waiting = send(&daemon, "until", "x");
    wait_until("the other", || marks(&root, "begun.").len() == 1);
    let terminate = || {
        let mut command = forkyard(&["terminate", &worker], &daemon.dir);
        command.output().expect("forkyard").status.code()
    };
    assert_eq!(terminate(), Some(0));
    let answer = stuck.answer().expect("answer");
    assert_starts(&answer.text(), "Status: 504 Gateway Timeout");
    daemon.wait_for("is ended by forkyard terminate (");
    fs::write(root.path().join("go"), "").expect("go");
    assert_eq!(body(&mut waiting), worker, "the worker goes on");
    wait_until("nothing to be under way", || in_flight(&daemon) == 0);
    assert_eq!(terminate(), Some(70));
    assert_eq!(body(&mut send(&daemon, "pid", "")), worker);
    daemon.signal(Signal::SIGUSR2);
    wait_until("a new worker", || body(&mut send(&daemon, "pid", "")) != worker);
}

fn in_flight(daemon: &Daemon) -> u64 {
    let output = daemon.run(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    status["pools"][0]["generations"][0]["workers"][0]["in_flight"]
        .as_u64()
        .unwrap_or(0)
}

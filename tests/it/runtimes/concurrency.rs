//! Which requests count against `concurrency`: idle streams and WebSockets don't.

use super::concurrent::{APPLICATION, body, marks, params, send};
use super::programs::Site;
use super::websockets::{ASGI, Socket};
use crate::support::daemon::{Daemon, folder, pool};
use crate::support::fcgi::Client;
use crate::support::nginx::{curl, free_port};
use crate::support::{assert_contains, assert_starts, wait_until};
use std::fs;

const MANAGERS: [&str; 3] = [
    "pm = \"static\"\nmax_children = 1\n",
    "pm = \"dynamic\"\nmax_children = 1\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n",
    "pm = \"ondemand\"\nmax_children = 1\n",
];

fn start(settings: &str, concurrency: u32) -> (Daemon, tempfile::TempDir) {
    let root = folder(&[("asgi.py", APPLICATION)]);
    let daemon = Daemon::start(|dir| {
        let application = format!(
            "runtime = \"asgi\"\nroot = \"{}\"\nconcurrency = {concurrency}\n",
            root.path().display()
        );
        let settings = format!("{settings}status_path = \"/status\"\n");
        format!(
            "[global]\ncontrol = \"{}/control.sock\"\n{}",
            dir.display(),
            pool(dir, "www", &settings, &application)
        )
    });
    (daemon, root)
}

fn table(daemon: &Daemon) -> String {
    let output = daemon.run(&["status", "www"]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn idle_streams_do_not_count_against_concurrency() {
    for settings in MANAGERS {
        let (daemon, root) = start(settings, 4);
        let mut streams: Vec<Client> = (0..9).map(|n| send(&daemon, "begins", &n.to_string())).collect();
        wait_until("all of them", || marks(&root, "streams.").len() == 9);
        let pid = body(&mut send(&daemon, "pid", ""));
        assert_eq!(
            daemon.wait_for_workers("www", 1)[0].to_string(),
            pid,
            "{settings}"
        );
        let page = body(&mut send(&daemon, "status", "json"));
        let page: serde_json::Value = serde_json::from_str(&page).expect(&page);
        assert_eq!(page["requests in flight"], 10, "{page}");
        assert!(page["idle streams"].as_u64() >= Some(6), "{page}");
        wait_until("the table", || {
            let table = table(&daemon);
            table.contains("9 in flight (") && table.contains(" idle)")
        });
        fs::write(root.path().join("go"), "").expect("go");
        for stream in &mut streams {
            assert_eq!(body(stream), "begun and over");
        }
        let page = body(&mut send(&daemon, "status", "json"));
        let page: serde_json::Value = serde_json::from_str(&page).expect(&page);
        assert_eq!(
            (&page["requests in flight"], &page["idle streams"]),
            (&1.into(), &0.into()),
            "{page}"
        );
    }
}

#[test]
fn requests_whose_answers_have_not_begun_count_and_a_full_pool_says_so() {
    let (daemon, root) = start("pm = \"static\"\nmax_children = 2\n", 2);
    let mut clients: Vec<Client> = (0..4).map(|n| send(&daemon, "until", &n.to_string())).collect();
    wait_until("as many as may", || marks(&root, "begun.").len() == 4);
    clients.push(send(&daemon, "until", "late"));
    daemon.wait_for(
        "all workers are full, and requests wait: 2 workers have 4 requests (concurrency: 2 each), and 0 idle streams and WebSockets",
    );
    wait_until("the status", || {
        table(&daemon).contains("all workers are full: 4 requests, and 0 idle streams and WebSockets")
    });
    assert_eq!(marks(&root, "begun.").len(), 4, "the fifth waits");
    fs::write(root.path().join("go"), "").expect("go");
    for client in &mut clients {
        client.answer().expect("answer");
    }
    wait_until("room", || !table(&daemon).contains("are full"));
    assert_eq!(
        daemon.log().matches("all workers are full").count(),
        1,
        "{}",
        daemon.log()
    );
}

#[test]
fn idle_streams_are_limited_by_descriptors() {
    // Half of 80 may be idle: 38 of 42 streams are not enough for two more requests to begin.
    let (daemon, root) = start("pm = \"static\"\nmax_children = 1\nrlimit_files = 80\n", 2);
    let mut streams: Vec<Client> = (0..42).map(|n| send(&daemon, "begins", &n.to_string())).collect();
    wait_until("as many as may", || marks(&root, "streams.").len() == 42);
    let mut late = daemon.client("www");
    late.send(&params("begins", "late"), b"").expect("send");
    daemon.wait_for("1 workers have 2 requests (concurrency: 2 each), and 40 idle streams and WebSockets (half of a worker's descriptors: 40 each)");
    assert_eq!(marks(&root, "streams.").len(), 42);
    fs::write(root.path().join("go"), "").expect("go");
    for stream in streams.iter_mut().chain([&mut late]) {
        assert_eq!(body(stream), "begun and over");
    }
}

#[test]
fn idle_websockets_do_not_count_against_concurrency() {
    let port = free_port();
    let pool = format!("pm = \"static\"\nmax_children = 1\nhttp_listen = \"127.0.0.1:{port}\"\n");
    let site = Site::start(
        &[("main.py", &ASGI.replace("VERSION", "one"))],
        &pool,
        "asgi",
        "entry = \"main:app\"\ninterpreter = \"/usr/bin/python3\"\nconcurrency = 2\n",
    );
    let mut sockets = Vec::new();
    for _ in 0..6 {
        let mut socket = Socket::open(&format!("ws://127.0.0.1:{port}/ws"));
        let first = socket.hear();
        assert_starts(&first, "ready ");
        sockets.push(socket);
    }
    let page = curl(&[&format!("http://127.0.0.1:{port}/page")]);
    assert_contains(&page, "\"pid\"");
    for socket in &mut sockets {
        assert!(socket.ask("still").ends_with(" still"));
    }
    drop(site);
}

//! Which requests count against `concurrency`: idle streams and WebSockets don't.

use super::concurrent::{ASGI as LOOP, Bench, body, params};
use super::programs::Site;
use super::websockets::{ASGI, Socket};
use crate::support::prelude::*;

const MANAGERS: [&str; 3] = [
    "pm = \"static\"\nmax_children = 1\n",
    "pm = \"dynamic\"\nmax_children = 1\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n",
    "pm = \"ondemand\"\nmax_children = 1\n",
];

fn start(settings: &str, concurrency: u32) -> Bench {
    Bench::start(
        LOOP,
        concurrency,
        &format!("{settings}status_path = \"/status\"\n"),
    )
}

#[test]
fn idle_streams_do_not_count_against_concurrency() {
    each(MANAGERS, |settings| {
        let bench = start(settings, 4);
        let mut streams: Vec<Client> = (0..9).map(|n| bench.send("begins", &n.to_string())).collect();
        wait_until("all of them", || bench.marks("streams.").len() == 9);
        let pid = bench.get("pid", "");
        assert_eq!(bench.daemon.wait_for_workers("www", 1)[0].to_string(), pid);
        let page = bench.json("status", "json");
        assert_eq!(page["requests in flight"], 10, "{page}");
        assert!(page["idle streams"].as_u64() >= Some(6), "{page}");
        wait_until("the table", || {
            let table = bench.daemon.shown(&["status", "www"]);
            table.contains("9 in flight (") && table.contains(" idle)")
        });
        bench.mark("go");
        for stream in &mut streams {
            assert_eq!(body(stream), "begun and over");
        }
        let page = bench.json("status", "json");
        assert_has(&page, json!({"requests in flight": 1, "idle streams": 0}));
    });
}

#[test]
fn requests_whose_answers_have_not_begun_count_and_a_full_pool_says_so() {
    let bench = start("pm = \"static\"\nmax_children = 2\n", 2);
    let mut clients = bench.hold(4);
    clients.push(bench.send("until", "late"));
    bench.daemon.wait_for(
        "all workers are full, and requests wait: 2 workers have 4 requests (concurrency: 2 each), and 0 idle streams and WebSockets",
    );
    wait_until("the status", || {
        bench
            .daemon
            .shown(&["status", "www"])
            .contains("all workers are full: 4 requests, and 0 idle streams and WebSockets")
    });
    assert_eq!(bench.marks("begun.").len(), 4, "the fifth waits");
    bench.finish(&mut clients);
    wait_until("room", || {
        !bench.daemon.shown(&["status", "www"]).contains("are full")
    });
    assert_eq!(bench.daemon.log().matches("all workers are full").count(), 1);
}

#[test]
fn idle_streams_are_limited_by_descriptors() {
    // Half of 80 may be idle: 38 of 42 streams are not enough for two more requests to begin.
    let bench = start("pm = \"static\"\nmax_children = 1\nrlimit_files = 80\n", 2);
    let mut streams: Vec<Client> = (0..42).map(|n| bench.send("begins", &n.to_string())).collect();
    wait_until("as many as may", || bench.marks("streams.").len() == 42);
    let mut late = bench.daemon.send("www", &params("begins", "late"));
    bench.daemon.wait_for("1 workers have 2 requests (concurrency: 2 each), and 40 idle streams and WebSockets (half of a worker's descriptors: 40 each)");
    assert_eq!(bench.marks("streams.").len(), 42);
    bench.mark("go");
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
        assert_starts(&socket.hear(), "ready ");
        sockets.push(socket);
    }
    assert_contains(&curl(&[&format!("http://127.0.0.1:{port}/page")]), "\"pid\"");
    for socket in &mut sockets {
        assert!(socket.ask("still").ends_with(" still"));
    }
    drop(site);
}

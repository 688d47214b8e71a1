//! How requests of a worker that serves many at a time end, and how the worker does.

use super::concurrent::{ASGI, Bench, KINDS, Kind, ONE, RACK, THREADED, WSGI, at_once, body, params};
use crate::support::prelude::*;

/// A worker of ASGI ends its lifespan before it exits.
fn wait_for_end(bench: &Bench, kind: Kind, worker: u32) {
    if kind.runtime == "asgi" {
        let mark = bench.root.path().join(format!("shutdown.{worker}"));
        wait_until("the lifespan's end", || mark.exists());
    }
    wait_until("the old worker's end", || !process::runs(worker));
}

#[test]
fn a_reload_under_load_loses_nothing_and_waits_for_all_requests() {
    for kind in KINDS {
        let bench = Bench::start(kind, 4, "pm = \"static\"\nmax_children = 2\n");
        bench.daemon.wait_for_workers("www", 2);
        let old: BTreeSet<u32> = bench.daemon.workers("www").into_iter().collect();
        let mut waiting = bench.hold(4);
        let socket = bench.daemon.socket("www");
        let clients: Vec<_> = (0..4)
            .map(|number| {
                let socket = socket.clone();
                std::thread::spawn(move || {
                    let mut kept = Client::connect(&socket).expect("connect").kept();
                    for _ in 0..100 {
                        let answer = if number % 2 == 0 {
                            kept.request(&params("pid", ""), b"")
                        } else {
                            Client::connect(&socket).and_then(|mut one| one.request(&params("pid", ""), b""))
                        };
                        let answer = answer.expect("answer");
                        assert!(answer.ended && !answer.body().is_empty(), "{}", answer.text());
                    }
                })
            })
            .collect();
        bench.daemon.signal(Signal::SIGUSR2);
        clients
            .into_iter()
            .for_each(|client| client.join().expect("a client"));
        wait_until("a new worker", || {
            !old.contains(&bench.get("pid", "").parse().expect("pid"))
        });
        let mut running = old.iter().filter(|pid| process::runs(**pid));
        assert!(running.next().is_some(), "requests are waited for");
        for pid in bench.finish(&mut waiting) {
            assert!(old.contains(&pid.parse().expect("pid")), "{}", kind.runtime);
        }
        old.into_iter().for_each(|pid| wait_for_end(&bench, kind, pid));
    }
}

#[test]
fn a_killed_worker_takes_along_its_requests_and_is_replaced() {
    for kind in KINDS {
        let bench = Bench::start(kind, 4, ONE);
        let mut waiting = bench.hold(3);
        let worker = bench.daemon.wait_for_workers("www", 1)[0];
        process::signal(worker, Signal::SIGKILL);
        for client in &mut waiting {
            assert!(!client.answer().is_ok_and(|answer| answer.ended));
        }
        assert_ne!(bench.get("pid", ""), worker.to_string());
    }
}

#[test]
fn a_worker_that_has_served_its_requests_ends_with_none_lost() {
    for (kind, bound, clients, rounds, least) in
        [(ASGI, 0, 10, 30, 8), (WSGI, 3, 8, 25, 7), (RACK, 3, 8, 25, 7)]
    {
        let bench = Bench::start(
            kind,
            bound,
            "pm = \"static\"\nmax_children = 2\nmax_requests = 20\n",
        );
        let mut kept = bench.kept(clients);
        let workers: BTreeSet<String> = (0..rounds).flat_map(|_| at_once(&mut kept, "pid", "")).collect();
        assert!(
            workers.len() >= least,
            "{} workers of {}",
            workers.len(),
            kind.runtime
        );
        assert_lacks(&bench.daemon.log(), "WARNING");
    }
}

#[test]
fn status_counts_requests_under_way() {
    for kind in KINDS {
        let bench = Bench::start(kind, 6, &format!("{ONE}status_path = \"/status\"\n"));
        let mut clients = bench.hold(4);
        let page = bench.json("status", "json");
        assert_eq!(page["requests in flight"], 5, "{page}");
        assert_eq!(page["active processes"], 1, "{page}");
        let metrics = bench.get("status", "openmetrics");
        assert_contains(&metrics, "\nphpfpm_requests_in_flight 5\n");
        wait_until("the others alone", || in_flight(&bench.daemon) == 4);
        let (_, metrics) = bench.daemon.said(&["status", "--metrics"]);
        assert_contains(&metrics, "\nforkyard_pool_requests_in_flight{pool=\"www\"} 4\n");
        bench.finish(&mut clients);
    }
}

#[test]
fn streams_without_an_end_are_cancelled_at_the_deadline() {
    let bench = Bench::start_with("process_control_timeout = \"1s\"", ASGI, 0, ONE);
    let old = bench.daemon.wait_for_workers("www", 1)[0];
    let streams = (0..3).map(|n| bench.send("endless", &n.to_string()));
    let _streams: Vec<Client> = streams.collect();
    wait_until("all streams", || bench.marks("open.").len() == 3);
    bench.daemon.signal(Signal::SIGUSR2);
    for n in 0..3 {
        let mark = bench.root.path().join(format!("cancelled.{n}"));
        wait_until("the stream's end", || mark.exists());
    }
    wait_until("the lifespan's end", || {
        bench.root.path().join(format!("shutdown.{old}")).exists()
    });
    wait_until("the old worker's end", || !process::runs(old));
    assert_lacks(&bench.daemon.log(), "killing");
}

#[test]
fn a_request_whose_time_is_up_is_cancelled_and_the_others_go_on() {
    let log = "access = { log = \"DIR/access\", format = \"%s %r\" }\n";
    let settings = format!("{ONE}request_terminate_timeout = \"1s\"\n{log}");
    let bench = Bench::start_with("", ASGI, 0, &settings);
    let worker = bench.get("pid", "");
    let mut stuck = bench.send("stuck", "");
    let mut endless = bench.send("endless", "x");
    let answer = stuck.answer().expect("answer");
    assert_starts(&answer.text(), "Status: 504 Gateway Timeout");
    assert!(answer.ended);
    let lines = read_file(bench.daemon.dir.join("access"));
    assert!(lines.lines().any(|line| line == "504 /stuck"), "{lines}");
    wait_until("its end", || bench.root.path().join("cancelled").exists());
    let answer = endless.answer();
    assert!(
        !answer.is_ok_and(|answer| answer.ended),
        "the client sees that it is cut"
    );
    wait_until("its end", || bench.root.path().join("cancelled.x").exists());
    bench
        .daemon
        .wait_for("(request: \"GET /stuck\") execution timed out (1.0");
    assert_eq!(bench.get("pid", ""), worker);
    let _held = bench.send("hold", "never");
    bench
        .daemon
        .wait_for("(request: \"GET /hold?never\") execution timed out");
    wait_until("another worker", || bench.get("pid", "") != worker);
}

#[test]
fn a_long_report_reaches_the_web_server_in_whole() {
    let bench = Bench::start(ASGI, 0, super::threads::QUIET);
    for begun in ["", "begun"] {
        let answer = bench.send("loud", begun).answer().expect("answer");
        assert_eq!(answer.ended, begun.is_empty());
        assert_ends(&answer.error_text(), "xx\n");
        assert!(answer.stderr.len() > 400_000, "{}", answer.stderr.len());
        assert!(!bench.get("pid", "").is_empty());
    }
}

#[test]
fn each_slow_request_is_written_down() {
    let bench = Bench::start_with(
        "",
        ASGI,
        0,
        &format!("{ONE}request_slowlog_timeout = \"300ms\"\nslowlog = \"DIR/slow.log\"\n"),
    );
    let mut clients: Vec<Client> = (0..3).map(|n| bench.send("until", &n.to_string())).collect();
    bench.daemon.wait_for_count("finished trace of ", 3);
    bench.finish(&mut clients);
    let log = bench.daemon.log();
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
    let kind = Kind { text: source, ..ASGI };
    let bench = Bench::start(kind, 0, ONE);
    let mut sleeping = bench.send("x", "sleep");
    let mut exiting = bench.send("x", "exit");
    assert_starts(&exiting.answer().expect("answer").text(), "Status: 500 ");
    let pid: u32 = body(&mut sleeping).parse().expect("pid");
    wait_until("the worker's end", || !process::runs(pid));
    assert_ne!(bench.get("x", ""), pid.to_string());
}

#[test]
fn of_several_requests_the_longest_is_ended_by_command() {
    let bench = Bench::start(ASGI, 0, ONE);
    let worker = bench.get("pid", "");
    let mut stuck = bench.send("stuck", "");
    wait_until("it to begin", || in_flight(&bench.daemon) == 1);
    let mut waiting = bench.send("until", "x");
    wait_until("the other", || bench.marks("begun.").len() == 1);
    let terminate = || {
        let mut command = forkyard(&["terminate", &worker], &bench.daemon.dir);
        command.output().expect("forkyard").status.code()
    };
    assert_eq!(terminate(), Some(0));
    let answer = stuck.answer().expect("answer");
    assert_starts(&answer.text(), "Status: 504 Gateway Timeout");
    bench.daemon.wait_for("is ended by forkyard terminate (");
    bench.mark("go");
    assert_eq!(body(&mut waiting), worker, "the worker goes on");
    wait_until("nothing to be under way", || in_flight(&bench.daemon) == 0);
    assert_eq!(terminate(), Some(70));
    assert_eq!(bench.get("pid", ""), worker);
    bench.daemon.signal(Signal::SIGUSR2);
    wait_until("a new worker", || bench.get("pid", "") != worker);
}

#[test]
fn a_request_whose_time_is_up_is_answered_and_the_worker_ends_after_the_others() {
    for kind in THREADED {
        let bench = Bench::start(kind, 3, &format!("{ONE}request_terminate_timeout = \"1s\"\n"));
        let worker = bench.get("pid", "");
        let mut stuck = bench.send("until", "stuck");
        let answer = stuck.answer().expect("answer");
        assert_starts(&answer.text(), "Status: 504 Gateway Timeout");
        assert!(answer.ended);
        bench
            .daemon
            .wait_for("(request: \"GET /until?stuck\") execution timed out (1.0");
        wait_until("another worker", || bench.get("pid", "") != worker);
        let pid: u32 = worker.parse().expect("pid");
        wait_until("its end", || !process::runs(pid));
        assert_lacks(&bench.daemon.log(), "SIGKILL");
    }
}

#[test]
fn others_are_finished_before_a_worker_with_a_stuck_thread_ends() {
    for kind in THREADED {
        let bench = Bench::start(kind, 200, &format!("{ONE}request_terminate_timeout = \"1s\"\n"));
        let worker: u32 = bench.get("pid", "").parse().expect("pid");
        let mut stuck = bench.send("met", "1000");
        let answer = std::thread::spawn(move || stuck.answer().expect("answer").text());
        let mut others = vec![bench.send("until", "other")];
        while !answer.is_finished() {
            others.push(bench.send("until", "other"));
            pause();
        }
        assert!(answer.join().expect("the client").starts_with("Status: 504"));
        bench.mark("go");
        let finished = others
            .iter_mut()
            .map(body)
            .filter(|body| *body == worker.to_string());
        assert!(finished.count() > 0);
        wait_until("the worker's end", || !process::runs(worker));
    }
}

#[test]
fn each_slow_request_is_written_down_with_its_own_thread_first() {
    for kind in THREADED {
        let settings = format!("{ONE}request_slowlog_timeout = \"700ms\"\nslowlog = \"DIR/slow.log\"\n");
        let bench = Bench::start(kind, 4, &settings);
        assert!(!bench.get("pid", "").is_empty(), "the worker is up");
        let mut clients: Vec<Client> = (0..2).map(|n| bench.send("slow", &n.to_string())).collect();
        clients.push(bench.send("until", "z"));
        bench.daemon.wait_for_count("finished trace of ", 3);
        bench.finish(&mut clients);
        let log = read_file(bench.daemon.dir.join("slow.log"));
        let entries: Vec<&str> = log.split("\n\n").collect();
        assert_eq!(entries.len(), 3, "{log}");
        for (before, entry) in entries.into_iter().enumerate() {
            let (head, tasks) = entry.split_once("task = forkyard-").expect("threads");
            let first = tasks.split("task = ").next().expect("the first");
            let is_slow = head.contains("request = GET /slow?");
            assert_eq!(is_slow, first.contains("inner_call() "), "{entry}");
            assert_eq!(!is_slow, first.contains("on_until() "), "{entry}");
            assert_lacks(tasks, "forkyard/");
            assert_lacks(tasks, "/proc/self/fd");
            let shown = entry.matches("task = forkyard-").count();
            assert!((before + 1..=3).contains(&shown), "{entry}");
        }
    }
}

fn in_flight(daemon: &Daemon) -> u64 {
    let status = daemon.status(&[]);
    status["pools"][0]["generations"][0]["workers"][0]["in_flight"]
        .as_u64()
        .unwrap_or(0)
}

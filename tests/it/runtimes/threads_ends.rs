//! How requests of a worker with several threads end, and how the worker does.

use super::concurrent::{body, marks, params, send};
use super::threads::{LANGUAGES, ONE, start, start_with};
use crate::support::daemon::forkyard;
use crate::support::fcgi::Client;
use crate::support::{assert_lacks, assert_starts, pause, process, wait_until};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::fs;

#[test]
fn a_reload_under_load_loses_nothing() {
    for language in LANGUAGES {
        let (daemon, root) = start(language, 4, "pm = \"static\"\nmax_children = 2\n");
        daemon.wait_for_workers("www", 2);
        let old: BTreeSet<u32> = daemon.workers("www").into_iter().collect();
        let mut waiting: Vec<Client> = (0..4).map(|n| send(&daemon, "until", &n.to_string())).collect();
        wait_until("all", || marks(&root, "begun.").len() == 4);
        let socket = daemon.socket("www");
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
        daemon.signal(Signal::SIGUSR2);
        clients
            .into_iter()
            .for_each(|client| client.join().expect("a client"));
        wait_until("a new worker", || {
            let pid: u32 = body(&mut send(&daemon, "pid", "")).parse().expect("pid");
            !old.contains(&pid)
        });
        assert!(
            old.iter().any(|pid| process::runs(*pid)),
            "requests are waited for"
        );
        fs::write(root.path().join("go"), "").expect("go");
        for client in &mut waiting {
            assert!(old.contains(&body(client).parse().expect("pid")));
        }
        for pid in old {
            wait_until("its end", || !process::runs(pid));
        }
    }
}

#[test]
fn a_killed_worker_takes_along_its_requests_and_is_replaced() {
    for language in LANGUAGES {
        let (daemon, root) = start(language, 4, ONE);
        let mut waiting: Vec<Client> = (0..3).map(|n| send(&daemon, "until", &n.to_string())).collect();
        wait_until("all", || marks(&root, "begun.").len() == 3);
        let worker = daemon.wait_for_workers("www", 1)[0];
        process::signal(worker, Signal::SIGKILL);
        for client in &mut waiting {
            assert!(!client.answer().is_ok_and(|answer| answer.ended));
        }
        assert_ne!(body(&mut send(&daemon, "pid", "")), worker.to_string());
    }
}

#[test]
fn a_worker_that_has_served_its_requests_ends_with_none_lost() {
    for language in LANGUAGES {
        let settings = "pm = \"static\"\nmax_children = 2\nmax_requests = 20\n";
        let (daemon, _root) = start(language, 3, settings);
        let mut workers = BTreeSet::new();
        let mut kept: Vec<Client> = (0..8).map(|_| daemon.client("www").kept()).collect();
        for _ in 0..25 {
            for client in &mut kept {
                client.send(&params("pid", ""), b"").expect("send");
            }
            for client in &mut kept {
                let answer = client.answer().expect("answer");
                assert!(answer.ended);
                workers.insert(answer.body());
            }
        }
        assert!(workers.len() >= 7, "{} workers for 200 requests", workers.len());
        assert_lacks(&daemon.log(), "WARNING");
    }
}

#[test]
fn a_request_whose_time_is_up_is_answered_and_the_worker_ends_after_the_others() {
    for language in LANGUAGES {
        let settings = format!("{ONE}request_terminate_timeout = \"1s\"\n");
        let (daemon, _root) = start(language, 3, &settings);
        let worker = body(&mut send(&daemon, "pid", ""));
        let mut stuck = send(&daemon, "until", "stuck");
        let answer = stuck.answer().expect("answer");
        assert_starts(&answer.text(), "Status: 504 Gateway Timeout");
        assert!(answer.ended);
        daemon.wait_for("(request: \"GET /until?stuck\") execution timed out (1.0");
        wait_until("another worker", || body(&mut send(&daemon, "pid", "")) != worker);
        let pid: u32 = worker.parse().expect("pid");
        wait_until("its end", || !process::runs(pid));
        assert_lacks(&daemon.log(), "SIGKILL");
    }
}

#[test]
fn others_are_finished_before_a_worker_with_a_stuck_thread_ends() {
    for language in LANGUAGES {
        let settings = format!("{ONE}request_terminate_timeout = \"1s\"\n");
        let (daemon, root) = start(language, 200, &settings);
        let worker: u32 = body(&mut send(&daemon, "pid", "")).parse().expect("pid");
        let mut stuck = send(&daemon, "met", "1000");
        let answer = std::thread::spawn(move || stuck.answer().expect("answer").text());
        let mut others = vec![send(&daemon, "until", "other")];
        while !answer.is_finished() {
            others.push(send(&daemon, "until", "other"));
            pause();
        }
        assert!(answer.join().expect("the client").starts_with("Status: 504"));
        fs::write(root.path().join("go"), "").expect("go");
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
    for language in LANGUAGES {
        let settings = format!("{ONE}request_slowlog_timeout = \"700ms\"\nslowlog = \"DIR/slow.log\"\n");
        let (daemon, root) = start(language, 4, &settings);
        assert!(
            !body(&mut send(&daemon, "pid", "")).is_empty(),
            "the worker is up"
        );
        let mut clients: Vec<Client> = (0..2).map(|n| send(&daemon, "slow", &n.to_string())).collect();
        clients.push(send(&daemon, "until", "z"));
        daemon.wait_for_count("finished trace of ", 3);
        fs::write(root.path().join("go"), "").expect("go");
        for client in &mut clients {
            client.answer().expect("answer");
        }
        let log = fs::read_to_string(daemon.dir.join("slow.log")).expect("slow log");
        let entries: Vec<&str> = log.split("\n\n").collect();
        assert_eq!(entries.len(), 3, "{log}");
        for (before, entry) in entries.into_iter().enumerate() {
            let (head, tasks) = entry.split_once("task = forkyard-").expect("threads");
            let first = tasks.split("task = ").next().expect("the first");
            let is_slow = head.contains("request = GET /slow?");
            assert_eq!(is_slow, first.contains("inner_call() "), "{entry}");
            assert_eq!(!is_slow, first.contains("on_until() "), "{entry}");
            assert!(
                !tasks.contains("forkyard/") && !tasks.contains("/proc/self/fd"),
                "{entry}"
            );
            let shown = entry.matches("task = forkyard-").count();
            assert!((before + 1..=3).contains(&shown), "{entry}");
        }
    }
}

#[test]
fn status_counts_requests_under_way_in_threads() {
    for language in LANGUAGES {
        let settings = format!("{ONE}status_path = \"/status\"\n");
        let (daemon, root) = start_with("control = \"DIR/control.sock\"", language, 6, &settings);
        let mut clients: Vec<Client> = (0..4).map(|n| send(&daemon, "until", &n.to_string())).collect();
        wait_until("all", || marks(&root, "begun.").len() == 4);
        let page = body(&mut send(&daemon, "status", "json"));
        let page: serde_json::Value = serde_json::from_str(&page).expect(&page);
        assert_eq!(page["requests in flight"], 5, "{page}");
        wait_until("the others alone", || {
            let told = forkyard(&["status", "--json"], &daemon.dir).output();
            let told: serde_json::Value =
                serde_json::from_slice(&told.expect("forkyard status").stdout).expect("JSON");
            told.to_string().contains("\"in_flight\":4")
        });
        fs::write(root.path().join("go"), "").expect("go");
        for client in &mut clients {
            client.answer().expect("answer");
        }
    }
}

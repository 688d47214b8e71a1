//! Lives of workers and preloaders: how many requests, reloads, status, logs.

use super::{LOOP, ONE, ask, case, say, status_of, worker_pool, write_script};
use crate::support::prelude::*;
use std::sync::atomic::AtomicU64;

#[test]
fn a_worker_ends_after_its_requests_or_when_its_script_does_and_none_is_lost() {
    let ends = "<?php require __DIR__ . '/state.php'; $n = 0;\n\
                do { $more = forkyard_handle_request('handle'); } while ($more && ++$n < 3);\n\
                file_put_contents(__DIR__ . '/ended', 'x', FILE_APPEND);";
    let daemon = Daemon::start(|dir| {
        write_script(dir, LOOP);
        fs::write(dir.join("ends.php"), ends).expect("write");
        worker_pool(dir, "limited", "worker.php", ONE, "loop_requests = 3\n")
            .replace("[pool.limited]\n", "[pool.limited]\nmax_requests_jitter = 0\n")
            + &worker_pool(dir, "ends", "ends.php", ONE, "")
    });
    for pool in ["limited", "ends"] {
        let pids: Vec<String> = (0..9).map(|_| say(&daemon, pool, "pid", "")).collect();
        let mut apart = pids.clone();
        apart.dedup();
        assert_eq!(apart.len(), 3, "{pool}: {pids:?}");
        for three in pids.chunks(3) {
            assert!(three.iter().all(|pid| *pid == three[0]), "{pool}: {pids:?}");
        }
    }
    until("each script to run to its end", || {
        let text = fs::read_to_string(daemon.dir.join("ended")).ok()?;
        (text.len() == 3).then_some(())
    });
    let mut client = daemon.client("limited").kept();
    for token in 0..10 {
        let params = case(&daemon, "", &format!("token={token}"));
        let answer = match client.request(&params, b"") {
            Ok(answer) if answer.ended => answer,
            // A connection may close between two requests; web servers retry.
            _ => {
                client = daemon.client("limited").kept();
                client.request(&params, b"").expect("answer")
            }
        };
        assert_eq!(answer.body(), format!("hello {token}"));
    }
}

#[test]
fn status_ping_and_logs_are_as_in_any_pool() {
    let daemon = Daemon::start(|dir| {
        write_script(dir, LOOP);
        let settings = format!(
            "{ONE}status_path = \"/status\"\nping = {{ path = \"/ping\" }}\n\
             access = {{ log = \"DIR/access.log\", format = \"%m %r %s %f\" }}\n\
             slowlog = \"DIR/slow.log\"\nrequest_slowlog_timeout = \"1s\"\n"
        );
        worker_pool(dir, "www", "worker.php", &settings, "")
    });
    daemon.wait_for_workers("www", 1);
    assert_eq!(daemon.get("www", "ping").body(), "pong");
    assert_eq!(say(&daemon, "www", "", "token=t"), "hello t");
    let status = daemon.get("www", "status?json&full").body();
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(
        status["processes"][0]["script"],
        format!("{}/worker.php", daemon.dir.display()),
        "{status:#}"
    );
    assert_eq!(status["processes"][0]["requests"], 3, "{status:#}");
    let log = until("the line", || {
        let text = fs::read_to_string(daemon.dir.join("access.log")).ok()?;
        text.contains("/index.php").then_some(text)
    });
    assert_contains(
        &log,
        &format!("GET /index.php 200 {}/worker.php", daemon.dir.display()),
    );
    let go = daemon.dir.join("go");
    let mut slow = daemon.send("www", &case(&daemon, "hold", &format!("file={}", go.display())));
    let trace = until("the trace", || {
        let text = fs::read_to_string(daemon.dir.join("slow.log")).ok()?;
        text.contains("forkyard_handle_request() ").then_some(text)
    });
    assert_contains(&trace, "handle() ");
    assert_contains(&trace, "worker.php:1");
    fs::write(&go, "").expect("go");
    assert_eq!(slow.answer().expect("answer").body(), "held");
}

#[test]
fn the_status_shows_the_boot_and_why_workers_have_ended() {
    let ends = "<?php require __DIR__ . '/state.php'; $n = 0;\n\
                do { $more = forkyard_handle_request('handle'); } while ($more && ++$n < 2);";
    let daemon = Daemon::start(|dir| {
        write_script(dir, LOOP);
        fs::write(dir.join("ends.php"), ends).expect("write");
        let settings = format!("{ONE}max_requests_jitter = 0\n");
        let control = with_control(dir);
        let more = "warm_up_requests = [\"/\", \"/?case=pid\"]\nloop_requests = 3\nloop_memory = \"64M\"\n";
        control
            + &worker_pool(dir, "www", "worker.php", &settings, more)
            + &worker_pool(dir, "ends", "ends.php", &settings, "")
    });
    for _ in 0..3 {
        say(&daemon, "www", "", "");
    }
    say(&daemon, "www", "keep", "");
    say(&daemon, "www", "fatal", "");
    drop(daemon.send("www", &case(&daemon, "flood", "")));
    for _ in 0..2 {
        say(&daemon, "ends", "", "");
    }
    let wanted = |pool: &str, causes: &[&str]| {
        until("the causes", || {
            let status = status_of(&daemon, pool);
            let exits = status["counts"]["exits"].as_array()?.clone();
            let found: Vec<_> = exits.iter().filter_map(|it| it["cause"].as_str()).collect();
            (found == causes).then_some(status)
        })
    };
    wanted("ends", &["script_ended"]);
    let status = wanted(
        "www",
        &["loop_requests", "loop_memory", "script_failed", "client_left"],
    );
    let boot = &status["generations"][0]["boot"];
    assert_eq!(boot["mode"], "loop", "{status:#}");
    assert!(boot["took_ms"].is_u64(), "{status:#}");
    let paths: Vec<_> = boot["warm_up"]
        .as_array()
        .expect("warm-up")
        .iter()
        .map(|it| &it["path"])
        .collect();
    assert_eq!(paths, ["/", "/?case=pid"]);
    assert_eq!(boot["requests"], 6, "{status:#}");

    let text = super::status(&daemon, &["www"]);
    assert_contains(&text, "boots once (loop) in ");
    assert_contains(&text, "; 6 requests since");
    assert_contains(&text, ", script_failed 1, client_left 1");
    let metrics = super::status(&daemon, &["--metrics"]);
    for line in [
        "forkyard_pool_boot_info{pool=\"www\",mode=\"loop\"} 1",
        "forkyard_pool_boot_requests{pool=\"www\"} 6",
        "forkyard_pool_worker_exits_total{pool=\"www\",cause=\"loop_memory\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    for name in [
        "forkyard_pool_boot_seconds{pool=\"www\"}",
        "forkyard_pool_boot_warm_up_seconds{pool=\"www\"}",
    ] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
}

#[test]
fn complaints_about_allowed_clients_are_said_with_and_without_a_worker_script() {
    let mut ports = Vec::new();
    let daemon = Daemon::start(|dir| {
        super::write_scripts(dir);
        let mut own = |name: &str| {
            let port = free_port();
            ports.push(port);
            let settings = format!(
                "{ONE}listen = {{ address = \"127.0.0.1:{port}\", allowed_clients = [\"::\"] }}\ncatch_workers_output = true\n"
            );
            match name {
                "www" => super::ordinary_pool(dir, name, &settings, ""),
                _ => worker_pool(dir, name, "worker.php", &settings, ""),
            }
        };
        own("www") + &own("loop")
    });
    for pool in ["www", "loop"] {
        daemon.wait_for(&format!("[pool {pool}] There are no allowed addresses"));
    }
}

fn version(text: &str) -> String {
    format!("<?php while (forkyard_handle_request(function () {{ echo '{text}'; }}));")
}

#[test]
fn a_reload_changes_over_without_a_lost_request_and_a_boot_that_fails_changes_nothing() {
    let daemon = Daemon::start(|dir| {
        write_script(dir, &version("one"));
        worker_pool(
            dir,
            "www",
            "worker.php",
            "pm = \"static\"\nmax_children = 2\n",
            "",
        )
    });
    daemon.wait_for_workers("www", 2);
    assert_eq!(daemon.get("www", "any.php").body(), "one");
    let first = daemon.preloaders("www");

    daemon.write("worker.php", "<?php throw new Exception('not this release');");
    daemon.reload_until("not this release");
    for _ in 0..4 {
        assert_eq!(daemon.get("www", "any.php").body(), "one");
    }
    assert!(process::runs(first[0]));

    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let end = StopAtEnd(&stop);
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut said = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        said.push(daemon.get("www", "any.php").body());
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    said
                })
            })
            .collect();
        let more = |count: u64| {
            let from = answered.load(Ordering::Relaxed);
            wait_until("answers", || answered.load(Ordering::Relaxed) > from + count);
        };
        more(10);
        daemon.write("worker.php", &version("two"));
        daemon.signal(Signal::SIGUSR2);
        wait_until("the new release", || daemon.get("www", "any.php").body() == "two");
        more(10);
        drop(end);
        for client in clients {
            let said = client.join().expect("a client");
            assert!(said.iter().all(|text| text == "one" || text == "two"), "{said:?}");
        }
    });
    // A killed preloader: its workers continue, and further ones come from another boot.
    let preloader = until("one preloader", || match daemon.preloaders("www").as_slice() {
        [only] if *only != first[0] => Some(*only),
        _ => None,
    });
    process::signal(preloader, Signal::SIGKILL);
    let worker = daemon.wait_for_workers("www", 2)[0];
    process::signal(worker, Signal::SIGKILL);
    wait_until("another boot", || {
        let workers = daemon.workers("www");
        workers.len() == 2 && !workers.contains(&worker)
    });
    assert_eq!(ask(&daemon, "www", &case(&daemon, "", ""), b"").body(), "two");
}

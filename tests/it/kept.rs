//! Kept connections never pin a worker.

use crate::support::prelude::*;

fn daemon(workers: u32) -> Daemon {
    let settings = format!("pm = \"static\"\nmax_children = {workers}\n");
    let daemon = Daemon::start(|dir| php_pool(dir, &settings, ""));
    daemon.wait_for_workers("www", workers as usize);
    daemon.write("pid.php", "<?php echo getmypid();");
    daemon.write(
        "hold.php",
        "<?php while (!file_exists($_GET['until'])) { usleep(2000); clearstatcache(); } echo 'held';",
    );
    daemon
}

#[test]
fn more_kept_connections_than_workers_are_all_served() {
    let daemon = daemon(2);
    let params = Params::get(&daemon.dir, "pid.php", "");
    let mut clients: Vec<Client> = (0..12).map(|_| daemon.client("www").kept()).collect();
    for _ in 0..5 {
        for client in &mut clients {
            let answer = client.request(&params, b"").expect("answer");
            assert!(answer.ended && answer.body().parse::<u32>().is_ok());
        }
    }
    assert!(
        daemon.get("www", "pid.php").ended,
        "a new connection is served beside them"
    );
}

#[test]
fn a_slow_request_does_not_hold_the_workers_other_connections() {
    let daemon = daemon(2);
    let params = Params::get(&daemon.dir, "pid.php", "");
    let mut clients: Vec<Client> = (0..8).map(|_| daemon.client("www").kept()).collect();
    for client in &mut clients {
        client.request(&params, b"").expect("answer");
    }
    let go = daemon.dir.join("go");
    let hold = Params::get(&daemon.dir, "hold.php", &format!("until={}", go.display()));
    let mut slow = clients.pop().expect("a client");
    slow.send(&hold, b"").expect("send");
    let begun = Instant::now();
    for _ in 0..3 {
        for client in &mut clients {
            assert!(client.request(&params, b"").expect("answer").ended);
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    fs::write(&go, "").expect("go");
    assert_eq!(slow.answer().expect("answer").body(), "held");
    assert!(
        slow.request(&params, b"").expect("answer").ended,
        "the connection was kept"
    );
}

#[test]
fn a_worn_out_worker_hands_its_connections_on() {
    let settings = "pm = \"static\"\nmax_children = 2\nmax_requests = 5\n";
    let daemon = Daemon::start(|dir| php_pool(dir, settings, ""));
    daemon.write("pid.php", "<?php echo getmypid();");
    let params = Params::get(&daemon.dir, "pid.php", "");
    let mut client = daemon.client("www").kept();
    let mut pids = BTreeSet::new();
    for _ in 0..40 {
        let answer = client.request(&params, b"").expect("answer");
        assert!(answer.ended);
        pids.insert(answer.body());
    }
    assert!(pids.len() >= 8, "{pids:?}");
}

#[test]
fn silent_connections_hold_no_worker() {
    let daemon = daemon(2);
    let silent: Vec<Client> = (0..10).map(|_| daemon.client("www")).collect();
    for _ in 0..4 {
        assert!(daemon.get("www", "pid.php").ended);
    }
    drop(silent);
    assert!(daemon.get("www", "pid.php").ended);
}

#[test]
fn requests_sent_ahead_are_answered_in_turn() {
    let daemon = daemon(1);
    let params = Params::get(&daemon.dir, "pid.php", "");
    let mut client = daemon.client("www").kept();
    for _ in 0..5 {
        client.send(&params, b"").expect("send");
    }
    for _ in 0..5 {
        assert!(client.answer().expect("answer").ended);
    }
}

#[test]
fn a_request_that_kills_its_worker_takes_no_new_connection_along() {
    let daemon = daemon(1);
    daemon.write("end.php", "<?php posix_kill(getmypid(), 9);");
    for _ in 0..3 {
        let worker = daemon.wait_for_workers("www", 1)[0];
        let mut other = daemon.client("www");
        assert!(daemon.get("www", "pid.php").ended);
        process::signal(worker, Signal::SIGSTOP);
        wait_until("the worker to stop", || process::state(worker) == Some('T'));
        let mut killer = daemon.send("www", &Params::get(&daemon.dir, "end.php", ""));
        let params = Params::get(&daemon.dir, "pid.php", "");
        other.send(&params, b"").expect("send");
        process::signal(worker, Signal::SIGCONT);
        assert!(!killer.answer().is_ok_and(|answer| answer.ended));
        let answer = other.answer().expect("answer");
        assert_ne!(answer.body(), worker.to_string());
        assert!(answer.ended, "{}", daemon.log());
    }
}

#[test]
fn kept_requests_are_counted_one_by_one() {
    let settings = "pm = \"static\"\nmax_children = 1\nstatus_path = \"/status\"\n";
    let daemon = Daemon::start(|dir| php_pool(dir, settings, ""));
    daemon.wait_for_workers("www", 1);
    daemon.write("pid.php", "<?php echo getmypid();");
    let params = Params::get(&daemon.dir, "pid.php", "");
    let silent = daemon.client("www");
    let mut client = daemon.client("www").kept();
    for _ in 0..3 {
        assert!(client.request(&params, b"").expect("answer").ended);
    }
    let status = Params::get(&daemon.dir, "status", "json&full");
    let page: Value = serde_json::from_str(&daemon.ask("www", &status).body()).expect("JSON");
    assert_eq!(page["accepted conn"], 4, "{page}");
    assert_eq!(page["processes"][0]["requests"], 4, "{page}");
    assert_has(&page, json!({"active processes": 1, "idle processes": 0}));
    drop(silent);
}

#[test]
fn an_idle_kept_connection_is_no_request_that_takes_too_long() {
    let settings = "pm = \"static\"\nmax_children = 1\nrequest_terminate_timeout = 1\n";
    let daemon = Daemon::start(|dir| php_pool(dir, settings, ""));
    daemon.wait_for_workers("www", 1);
    daemon.write("pid.php", "<?php echo getmypid();");
    daemon.write("endless.php", "<?php while (true) { usleep(1000); }");
    let params = Params::get(&daemon.dir, "pid.php", "");
    let mut idle = daemon.client("www").kept();
    let pid = idle.request(&params, b"").expect("answer").body();
    let endless = Params::get(&daemon.dir, "endless.php", "");
    assert_starts(&daemon.ask("www", &endless).text(), "Status: 504");
    let other = idle
        .request(&params, b"")
        .expect("the connection went on to the next worker")
        .body();
    assert_ne!(pid, other);
}

const ECHO: &str = "<?php echo strlen(file_get_contents('php://input'));";
const UNREAD: &str = "<?php echo 'unread';";

/// Sends a POST and further requests in one write, and in two writes with several cuts.
#[test]
fn requests_that_are_sent_ahead_are_all_answered() {
    let daemon = Daemon::start(|dir| {
        let one = "pm = \"static\"\nmax_children = 1\n";
        let version = format!("runtime = \"php\"\nversion = \"{PHP_VERSION}\"\n");
        let script = format!(
            "{version}worker = \"{}/loop.php\"\nworker_mode = \"loop\"\n",
            dir.display()
        );
        let cgi = format!("runtime = \"cgi\"\nroot = \"{}\"\n", dir.display());
        fs::write(
            dir.join("loop.php"),
            "<?php while (forkyard_handle_request(fn() => print(strlen(file_get_contents('php://input'))))) {}",
        )
        .expect("write");
        php_pool(dir, one, "") + &pool(dir, "loop", one, &script) + &pool(dir, "cgi", one, &cgi)
    });
    daemon.write("echo.php", ECHO);
    daemon.write("unread.php", UNREAD);
    let cgi = daemon.dir.join("echo.cgi");
    write_program(
        &cgi,
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n%s' $(wc -c)\n",
    );
    for (name, script, with_body) in [
        ("www", "echo.php", "5"),
        ("www", "unread.php", "unread"),
        ("loop", "loop.php", "5"),
        ("cgi", "echo.cgi", "5"),
    ] {
        let wire = |params: &Params, body: &[u8]| {
            encoded(&Request {
                keep: true,
                params: &params.pairs(),
                body,
                ..Request::default()
            })
        };
        let params = Params::get(&daemon.dir, script, "");
        let (post, get) = (wire(&params.clone().posting(5), b"12345"), wire(&params, b""));
        let all = [&post[..], &get, &post, &get].concat();
        let without = if with_body == "unread" { "unread" } else { "0" };
        for cut in [
            all.len(),
            post.len() - 9,
            post.len(),
            post.len() + 5,
            post.len() + get.len() - 8,
        ] {
            let mut client = daemon.client(name).kept();
            client.send_raw(&all[..cut]).expect("send");
            client.send_raw(&all[cut..]).expect("send");
            for expected in [with_body, without, with_body, without] {
                let answer = client.answer().expect("answer");
                assert_eq!(
                    (answer.body().trim(), answer.ended),
                    (expected, true),
                    "{name} {script} {cut}"
                );
            }
        }
    }
}

#[test]
fn a_client_that_closes_its_side_in_the_middle_of_the_body_is_answered() {
    let daemon = daemon(1);
    daemon.write("echo.php", ECHO);
    let mut client = daemon.client("www");
    let params = Params::get(&daemon.dir, "echo.php", "").posting(10);
    let wire = params.request(b"0123456789");
    // The client leaves out the end of the body, and the padding and last bytes of its record.
    client.send_raw(&wire[..wire.len() - 8 - 6 - 4]).expect("send");
    client.shut();
    let answer = client.answer().expect("answer");
    // As in php-fpm, no script takes a part of the body for the whole.
    assert!(answer.ended && answer.body() == "0", "{:?}", answer.text());
}

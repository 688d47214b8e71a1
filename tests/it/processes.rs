//! The three process managers, as an operator sees them.

use crate::support::prelude::*;

const PID: &str = "<?php echo getmypid();";
/// Runs until its file exists, so that a test controls how long.
const HOLD: &str =
    "<?php while (!file_exists($_GET['until'])) { usleep(2000); clearstatcache(); } echo getmypid();";
const TELLING_HOLD: &str = "<?php file_put_contents($_GET['until'] . '.pid', getmypid() . \"\\n\"); while (!file_exists($_GET['until'])) { usleep(2000); clearstatcache(); } echo getmypid();";

#[test]
fn static_keeps_max_children_and_replaces_the_dead() {
    let daemon = Daemon::start(|dir| php_pool(dir, "pm = \"static\"\nmax_children = 3\n", ""));
    let before = daemon.wait_for_workers("www", 3);
    process::signal(before[0], Signal::SIGKILL);
    wait_until("a replacement", || {
        let now = daemon.workers("www");
        now.len() == 3 && !now.contains(&before[0])
    });
    daemon.wait_for(&format!("child {} exited on signal 9 (SIGKILL)", before[0]));
    daemon.write("pid.php", PID);
    assert!(daemon.get("www", "pid.php").body().parse::<u32>().is_ok());
}

#[test]
fn workers_and_preloader_are_children_of_the_master_with_titles() {
    let daemon = Daemon::start(|dir| php_pool(dir, "pm = \"static\"\nmax_children = 2\n", ""));
    daemon.wait_for_workers("www", 2);
    assert_eq!(daemon.preloaders("www").len(), 1);
    assert!(process::title(daemon.pid()).starts_with("forkyard: master process ("));
    for worker in daemon.workers("www") {
        let parent = process::status_line(worker, "PPid").expect("PPid");
        assert_eq!(parent, daemon.pid().to_string());
        if is_root() {
            assert_ne!(
                process::status_line(worker, "Uid")
                    .expect("Uid")
                    .split_whitespace()
                    .next(),
                Some("0")
            );
        }
    }
}

#[test]
fn a_worker_that_its_preloader_could_not_tell_of_is_known_and_ends_with_the_daemon() {
    for kind in ["own", "zygote"] {
        let mut daemon = Daemon::start(|dir| {
            let settings = "pm = \"ondemand\"\nmax_children = 1\n";
            let preloader = format!("preloader = \"{kind}\"\n");
            format!(
                "[global]\nlog_level = \"debug\"\n{}",
                php_pool(dir, settings, &preloader)
            )
        });
        daemon.write("pid.php", PID);
        daemon.write("hold.php", TELLING_HOLD);
        let first: u32 = daemon.get("www", "pid.php").body().parse().expect("a pid");
        let preloader = until("a preloader or a zygote alone", || {
            let mut others = process::children(daemon.pid());
            others.retain(|pid| *pid != first);
            (others.len() == 1).then(|| others[0])
        });
        let mute = Failing::start(preloader, &daemon.dir, "sendto,sendmsg,write", "EPIPE");
        process::signal(first, Signal::SIGKILL);
        daemon.wait_for(&format!("child {first} exited on signal 9"));
        let query = format!("until={}", daemon.dir.join("go").display());
        let mut client = daemon.send("www", &Params::get(&daemon.dir, "hold.php", &query));
        let own: u32 = until("a worker that serves", || {
            let pid = fs::read_to_string(daemon.dir.join("go.pid")).ok()?;
            pid.trim_end().parse().ok()
        });
        wait_until("what it says to be lost", || mute.count() > 0);
        process::signal(preloader, Signal::SIGKILL);
        daemon.wait_for(&format!("child {own} started"));
        if kind == "own" {
            daemon.end(Signal::SIGTERM);
            assert!(!process::runs(own), "it ends with the daemon");
        } else {
            daemon.write("go", "");
            assert_eq!(client.answer().expect("an answer").body(), own.to_string());
        }
    }
}

#[test]
fn ondemand_starts_with_none_and_returns_to_none() {
    let settings = "pm = \"ondemand\"\nmax_children = 4\nprocess_idle_timeout = \"1s\"\n";
    let daemon = Daemon::start(|dir| php_pool(dir, settings, "preloader_idle_timeout = \"1s\"\n"));
    wait_until("no process", || process::children(daemon.pid()).is_empty());
    daemon.write("pid.php", PID);
    for _ in 0..2 {
        let pid: u32 = daemon.get("www", "pid.php").body().parse().expect("a pid");
        assert_eq!(daemon.workers("www"), [pid], "one request needs one worker");
        daemon.wait_for_workers("www", 0);
        wait_until("the preloader to be let go", || {
            process::children(daemon.pid()).is_empty()
        });
    }
}

#[test]
fn a_worker_that_had_to_wait_for_a_request_goes_when_it_has_answered() {
    let daemon = Daemon::start(|dir| {
        let settings = "pm = \"ondemand\"\nmax_children = 1\nprocess_idle_timeout = \"1s\"\n";
        with_control(dir) + &php_pool(dir, settings, "")
    });
    daemon.write("pid.php", PID);
    let mut client = daemon.client("www");
    until("the connection to be held", || {
        let status: Value = serde_json::from_slice(&daemon.run(&["status", "--json"]).stdout).ok()?;
        let worker = &status["pools"][0]["generations"][0]["workers"][0];
        (worker["kept"] == 1).then_some(())
    });
    let params = Params::get(&daemon.dir, "pid.php", "");
    let pid = client.request(&params, b"").expect("answer").body();
    assert_eq!(daemon.workers("www"), [pid.parse::<u32>().expect("a pid")]);
    drop(client);
    daemon.wait_for_workers("www", 0);
}

#[test]
fn ondemand_makes_as_many_as_a_burst_needs_and_no_more_than_allowed() {
    let daemon = Daemon::start(|dir| php_pool(dir, "pm = \"ondemand\"\nmax_children = 4\n", ""));
    let go = daemon.dir.join("go");
    daemon.write("hold.php", HOLD);
    let params = Params::get(&daemon.dir, "hold.php", &format!("until={}", go.display()));
    let mut clients: Vec<_> = (0..10).map(|_| daemon.client("www")).collect();
    for client in &mut clients {
        client.send(&params, b"").expect("send");
    }
    daemon.wait_for_workers("www", 4);
    daemon.wait_for("reached max_children setting (4)");
    daemon.write("go", "");
    for client in &mut clients {
        assert!(client.answer().expect("answer").body().parse::<u32>().is_ok());
    }
    assert_eq!(daemon.workers("www").len(), 4);
}

#[test]
fn dynamic_keeps_a_spare_worker_and_shrinks_again() {
    let settings = "pm = \"dynamic\"\nmax_children = 6\nstart_servers = 1\nmin_spare_servers = 1\n\
                    max_spare_servers = 2\nprocess_idle_timeout = \"1s\"\n";
    let daemon = Daemon::start(|dir| php_pool(dir, settings, ""));
    daemon.wait_for_workers("www", 1);
    let go = daemon.dir.join("go");
    daemon.write("hold.php", HOLD);
    let params = Params::get(&daemon.dir, "hold.php", &format!("until={}", go.display()));
    let mut clients: Vec<_> = (0..3).map(|_| daemon.client("www")).collect();
    for client in &mut clients {
        client.send(&params, b"").expect("send");
    }
    daemon.wait_for_workers("www", 4);
    daemon.write("go", "");
    for client in &mut clients {
        client.answer().expect("answer");
    }
    daemon.wait_for_workers("www", 2);
}

#[test]
fn max_requests_replaces_a_worker() {
    let settings = "pm = \"static\"\nmax_children = 1\nmax_requests = 3\n";
    let daemon = Daemon::start(|dir| php_pool(dir, settings, ""));
    daemon.write("pid.php", PID);
    let pids: Vec<String> = (0..9).map(|_| daemon.get("www", "pid.php").body()).collect();
    for three in pids.chunks(3) {
        assert!(three.iter().all(|pid| *pid == three[0]), "{pids:?}");
    }
    assert_ne!(pids[0], pids[3]);
    assert_ne!(pids[3], pids[6]);
}

#[test]
fn process_max_is_shared_by_all_pools() {
    let daemon = Daemon::start(|dir| {
        let mut text = "[global]\nprocess.max = 3\n".to_owned();
        for name in ["one", "two"] {
            let settings = "pm = \"ondemand\"\nmax_children = 3\n";
            text.push_str(&pool(dir, name, settings, PHP));
        }
        text
    });
    let go = daemon.dir.join("go");
    daemon.write("hold.php", HOLD);
    let params = Params::get(&daemon.dir, "hold.php", &format!("until={}", go.display()));
    let mut clients: Vec<_> = (0..6)
        .map(|i| daemon.client(if i % 2 == 0 { "one" } else { "two" }))
        .collect();
    for client in &mut clients {
        client.send(&params, b"").expect("send");
    }
    daemon.wait_for("consider raising 'process.max'");
    let count = || daemon.workers("one").len() + daemon.workers("two").len();
    assert!(count() <= 3);
    daemon.write("go", "");
    for client in &mut clients {
        assert!(client.answer().expect("answer").ended);
        assert!(count() <= 3);
    }
}

#[test]
fn workers_that_die_at_once_are_not_made_in_a_loop() {
    let daemon = Daemon::start(|dir| {
        fs::create_dir(dir.join("gone")).expect("mkdir");
        let settings = "pm = \"static\"\nmax_children = 4\nchdir = \"DIR/gone\"\n";
        let text = php_pool(dir, settings, "");
        fs::remove_dir(dir.join("gone")).ok();
        fs::create_dir(dir.join("gone")).expect("mkdir");
        text
    });
    daemon.wait_for_workers("www", 4);
    fs::remove_dir(daemon.dir.join("gone")).expect("rmdir");
    daemon.reload_until("the old one stays in force");
    assert_eq!(daemon.workers("www").len(), 4);
}

//! One user's load takes nothing from another's applications.

use super::Sites;
use crate::support::prelude::*;

const HANGING: &str = "import os, time\nwhile not os.path.exists(os.path.dirname(__file__) + '/tmp/gate'):\n    time.sleep(0.01)\n\
    def application(environ, start_response):\n    start_response('200 OK', [('Content-Type', 'text/plain')])\n    return [b'late']\n";

#[test]
fn starts_of_one_user_that_hang_leave_another_its_first_answer() {
    skip_if!(needs_root());
    let sites = Sites::start("");
    let names = ["one", "two", "three", "four", "five"];
    let hanging: Vec<(Client, _)> = names
        .iter()
        .map(|name| {
            let root = sites.add(name, 0, &[("passenger_wsgi.py", HANGING)]);
            let params = Params::get(&root, "passenger_wsgi.py", "")
                .with("FORKYARD_APP_ROOT", &root.display().to_string());
            let client = sites.daemon.send("sites", &params);
            (client, root)
        })
        .collect();
    until("four starts hang, and one request waits", || {
        let status = sites.status();
        let applications = status["book"]["applications"].as_array()?.clone();
        let starting: u64 = applications
            .iter()
            .filter_map(|one| one["starting"].as_u64())
            .sum();
        (starting == 4 && status["book"]["waiting"] == 5).then_some(())
    });
    sites.wsgi("quiet", 1, "'quiet'");
    assert_eq!(sites.body("/quiet/"), "quiet");
    for (_, root) in &hanging {
        fs::write(root.join("tmp/gate"), "").expect("write");
    }
    for (mut client, _) in hanging {
        assert_eq!(client.answer().expect("answer").body(), "late");
    }
}

const WAITING: &str = "import os, time\ndef application(environ, start_response):\n    \
    while not os.path.exists(os.path.dirname(__file__) + '/tmp/gate'):\n        time.sleep(0.01)\n    \
    start_response('200 OK', [('Content-Type', 'text/plain')])\n    return [b'late']\n";

#[test]
fn a_user_who_has_all_places_leaves_the_next_that_is_free_to_another() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 2\nmax_per_app = 1");
    let waiting = |count: u64| {
        wait_until("the requests to wait", || {
            sites.status()["book"]["waiting"] == count
        });
    };
    let send = |root: &Path| {
        let params =
            Params::get(root, "passenger_wsgi.py", "").with("FORKYARD_APP_ROOT", &root.display().to_string());
        sites.daemon.send("sites", &params)
    };
    let mut late = Vec::new();
    let roots = ["one", "two"].map(|name| sites.add(name, 0, &[("passenger_wsgi.py", WAITING)]));
    for root in &roots {
        late.extend((0..4).map(|_| send(root)));
    }
    waiting(6);
    let third = sites.add("three", 0, &[("passenger_wsgi.py", WAITING)]);
    late.push(send(&third));
    waiting(7);
    let quiet = sites.wsgi("quiet", 1, "'quiet'");
    let mut client = send(&quiet);
    waiting(8);
    fs::write(roots[0].join("tmp/gate"), "").expect("write");
    assert_eq!(client.answer().expect("answer").body(), "quiet");
    for root in roots.iter().skip(1).chain([&third]) {
        fs::write(root.join("tmp/gate"), "").expect("write");
    }
    for mut client in late {
        assert_eq!(client.answer().expect("answer").body(), "late");
    }
}

#[test]
fn connections_of_one_user_leave_descriptors_to_another() {
    skip_if!(needs_root());
    let sites = Sites::start("max_request_queue_size = 0");
    // The router may have 84 connections, a limit set by the master.
    let limited = Command::new("prlimit")
        .args(["--nofile=160:160", "--pid", &sites.daemon.pid().to_string()])
        .status();
    assert!(limited.expect("prlimit").success());
    let first = sites.companion("router");
    process::signal(first, Signal::SIGKILL);
    until("the next router", || {
        let children = process::children(sites.daemon.pid());
        let is_next = |pid: &u32| *pid != first && process::title(*pid) == "forkyard: router sites";
        children.into_iter().find(is_next)
    });
    let code =
        "while (!file_exists(__DIR__ . '/tmp/gate')) { clearstatcache(); usleep(10000); } echo 'slept';";
    let root = sites.php("sleeper", 0, code);
    sites.php("quiet", 1, "echo 'quiet';");
    let params = Params::get(&root, "index.php", "").with("FORKYARD_APP_ROOT", &root.display().to_string());
    let clients: Vec<Client> = (0..160).map(|_| sites.daemon.send("sites", &params)).collect();
    assert_eq!(sites.body("/quiet/"), "quiet");
    fs::write(root.join("tmp/gate"), "").expect("write");
    let (mut slept, mut refused) = (0, 0);
    for mut client in clients {
        match client.answer().expect("answer").body().as_str() {
            "slept" => slept += 1,
            _ => refused += 1,
        }
    }
    assert!(slept > 10 && refused > 10, "{slept} {refused}");
}

#[test]
fn roots_that_are_not_there_are_some_lines_of_the_log() {
    let sites = Sites::start("");
    for number in 0..40 {
        assert_eq!(sites.get(&format!("/none{number}/")).0, 404);
    }
    let lines = |log: &str| {
        log.lines()
            .filter(|line| line.contains("no application: "))
            .count()
    };
    assert_eq!(lines(&sites.daemon.log()), 10);
}

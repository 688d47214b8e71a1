//! Applications that are dropped in, served, put to sleep, and taken away.

use super::{Sites, USERS};
use crate::support::once_in;
use crate::support::prelude::*;

#[test]
fn applications_of_several_languages_and_users_share_a_socket() {
    let sites = Sites::start("max = 6\nmax_per_app = 1");
    sites.php("shop", 0, "echo 'php ', posix_geteuid(), ' ', basename(__DIR__);");
    sites.wsgi(
        "blog",
        1,
        "f'python {os.geteuid()} {os.path.basename(os.getcwd())}'",
    );
    sites.cgi("old", 1, "echo \"cgi $(id -u) $(basename $(pwd))\"");
    let own = nix::unistd::geteuid().as_raw();
    let user = |number: usize| if is_root() { USERS[number].1 } else { own };
    for _ in 0..3 {
        assert_eq!(sites.body("/shop/"), format!("php {} shop", user(0)));
        assert_eq!(sites.body("/blog/"), format!("python {} blog", user(1)));
        assert_eq!(sites.body("/old/").trim(), format!("cgi {} old", user(1)));
    }
    assert_eq!(sites.instances().len(), 3);
    let (status, body) = sites.get("/nothing/");
    assert_eq!((status, body.as_str()), (404, "There is no such application.\n"));
    sites.php("late", 1, "echo 'late';");
    assert_eq!(sites.body("/late/"), "late");
    if is_root() {
        let nobody = process::status_line(sites.companion("router"), "Uid").expect("status");
        assert!(!nobody.split_whitespace().any(|id| id == "0"), "{nobody}");
    }
}

#[test]
fn router_and_inspector_make_only_the_system_calls_that_they_need() {
    let sites = Sites::start("max = 2");
    sites.cgi("app", 0, "echo app");
    assert_eq!(sites.body("/app/"), "app\n");
    let inspector = sites.companion("inspector");
    let inspectors = process::children(inspector);
    assert!(!inspectors.is_empty());
    for pid in [sites.companion("router"), inspector]
        .into_iter()
        .chain(inspectors)
    {
        assert_eq!(process::status_line(pid, "Seccomp").as_deref(), Some("2"));
        assert_eq!(process::status_line(pid, "NoNewPrivs").as_deref(), Some("1"));
    }
}

#[test]
fn a_request_that_lasts_keeps_no_place_from_other_applications() {
    let sites = Sites::start("max = 2");
    let code = "import os, time\ndef application(environ, start_response):\n    while environ['QUERY_STRING'] == 'hold' and \
                not os.path.exists('go'):\n        time.sleep(0.01)\n    time.sleep(0.005)\n    start_response('200 OK', \
                [('Content-Type', 'text/plain')])\n    return [b'busy']\n";
    let root = sites.add("busy", 0, &[("passenger_wsgi.py", code)]);
    sites.cgi("quiet", 0, "echo quiet");
    let port = sites.nginx.port;
    let held = std::thread::spawn(move || super::get(port, "/busy/?hold").expect("answer"));
    wait_until("its instance", || sites.instances().len() == 1);
    let load = super::visitors(port, &["/busy/"], 3);
    load.wait_for(20);
    for _ in 0..3 {
        assert_eq!(sites.body("/quiet/"), "quiet\n");
        load.wait_for(20);
    }
    assert!(!held.is_finished());
    fs::write(root.join("go"), "").expect("go");
    assert_eq!(held.join().expect("client"), (200, "busy".to_owned()));
    for (status, body) in load.end() {
        assert_eq!((status, body.as_str()), (200, "busy"), "{}", sites.daemon.log());
    }
}

#[test]
fn idle_instances_go_to_sleep_and_the_limit_holds() {
    let sites = Sites::start("max = 2\nmax_idle_time = \"300ms\"");
    for name in ["a", "b", "c", "d"] {
        sites.cgi(name, 0, &format!("echo {name}"));
    }
    let load = super::visitors(sites.nginx.port, &["/a/", "/b/", "/c/", "/d/"], 4);
    let mut most = BTreeSet::new();
    let start = load.count(|_| true);
    while load.count(|_| true) < start + 60 {
        most.insert(sites.instances().len());
    }
    for (status, body) in load.end() {
        assert_eq!(status, 200, "{body}\n{}", sites.daemon.log());
        assert!(["a\n", "b\n", "c\n", "d\n"].contains(&body.as_str()), "{body}");
    }
    assert!(most.iter().all(|count| *count <= 2), "{most:?}");
    wait_until("all to sleep", || sites.instances().is_empty());
    assert_eq!(sites.body("/a/"), "a\n");
}

#[test]
fn an_application_that_is_taken_away_is_no_longer_there() {
    let sites = Sites::start("max = 4\nmax_idle_time = \"300ms\"");
    let root = sites.php("gone", 0, "echo 'here';");
    assert_eq!(sites.body("/gone/"), "here");
    fs::remove_dir_all(root).expect("remove");
    let (status, _) = until("its end", || {
        let answer = sites.get("/gone/");
        (answer.0 != 200).then_some(answer)
    });
    assert_eq!(status, 404);
    wait_until("its instances to end", || sites.instances().is_empty());
}

#[test]
fn what_cannot_be_started_is_said_with_a_name_for_the_error() {
    let sites = Sites::start("max = 4");
    sites.add(
        "broken",
        0,
        &[("passenger_wsgi.py", "import nothing_of_that_name\n")],
    );
    let (status, body) = sites.get("/broken/");
    assert_eq!(status, 503, "{body}");
    let id = body.trim().rsplit(' ').next().expect("an id").to_owned();
    assert_contains(&sites.daemon.wait_for(&id), "sites");
    let status = sites.status();
    let errors = status["errors"].as_array().expect("errors");
    assert!(errors.iter().any(|error| error["id"] == id.as_str()), "{status}");
    assert!(sites.instances().is_empty());
}

fn explained(sites: &Sites, body: &str) -> String {
    let id = body.trim().rsplit(' ').next().expect("an id");
    assert_eq!(
        body.trim(),
        format!("The application could not be started. Error ID: {id}")
    );
    assert!(sites.daemon.wait_for(&format!("(error {id})")).contains("sites"));
    let output = sites.forkyard(&["error", id]);
    text_of(&[output.stdout, output.stderr].concat())
}

#[test]
fn a_start_that_is_refused_has_a_report_of_its_own() {
    let sites = Sites::start("max = 4");
    let broken = &[("passenger_wsgi.py", "import nothing_of_that_name\n")];
    let root = sites.add("broken", 0, broken);
    let (status, first) = sites.get("/broken/");
    assert_eq!(status, 503, "{first}");
    assert!(explained(&sites, &first).contains("nothing_of_that_name"));
    // A start that fails earlier would replace that report.
    let changed = root.join("forkyard.toml");
    fs::write(&changed, "concurrency = 2\n").expect("it is ours");
    if is_root() {
        chown(&changed, Some(33), Some(33)).expect("chown");
    }
    let second = until("a start after the first is forgiven", || {
        let body = exited(503, sites.get("/broken/"));
        (body != first).then_some(body)
    });
    let said = explained(&sites, &second);
    assert_contains(&said, "set threads instead");
    assert_contains(&said, "/apps/broken");
}

/// Instances of killed routers ignore the order to leave, so there are more than the limit.
#[test]
fn an_order_that_is_denied_has_an_id_for_its_visitors() {
    // The master kills them ten seconds after the order: on a slow machine before the third order.
    once_in(3, || {
        let sites = Sites::start("max = 1");
        let has = |state: &str| {
            let view = sites.status()["book"].to_string();
            view.contains(&format!("\"state\":\"{state}\"")).then_some(())
        };
        sites.php("three", 0, "echo 'three';");
        let mut stopped = Vec::new();
        for name in ["one", "two"] {
            let root = sites.php(name, 0, "echo getmypid();");
            let pid: u32 = sites.body(&format!("/{name}/")).parse().expect("a pid");
            until("the end of its request", || has("idle"));
            process::signal(pid, Signal::SIGSTOP);
            stopped.push(pid);
            let output = sites.forkyard(&["restart", "--blocking", root.to_str().expect("a path")]);
            assert_success(&output);
            until("the instance to be told", || has("stopping"));
            let router = sites.companion("router");
            process::signal(router, Signal::SIGKILL);
            wait_until("its end", || !process::runs(router));
        }
        let (status, body) = sites.get("/three/");
        let denied = match status {
            503 => Ok(explained(&sites, &body)),
            _ => Err(format!("{status}: {body}")),
        };
        for pid in stopped.into_iter().filter(|pid| process::runs(*pid)) {
            process::signal(pid, Signal::SIGCONT);
        }
        wait_until("a place", || sites.get("/three/") == (200, "three".to_owned()));
        drop(sites);
        let said = denied?;
        assert_contains(&said, "there are 2 instances, and no more may be");
        Ok(())
    });
}

#[test]
fn where_visitors_may_see_it_the_report_is_what_they_get() {
    let sites = Sites::start_with("max = 4", "friendly_error_pages = true\n");
    sites.add(
        "broken",
        0,
        &[("passenger_wsgi.py", "import nothing_of_that_name\n")],
    );
    let page = exited(503, sites.get("/broken/"));
    assert_contains(&page, "<html");
    assert_contains(&page, "nothing_of_that_name");
}

#[test]
fn requests_cost_the_master_nothing() {
    let sites = Sites::start("max = 1");
    sites.php("shop", 0, "echo 'sold';");
    assert_eq!(sites.body("/shop/"), "sold");
    let mut seen = Vec::new();
    let is_free = (0..3).any(|_| {
        let calls = strace::count(sites.daemon.pid(), &sites.daemon.dir, || {
            for _ in 0..50 {
                assert_eq!(sites.body("/shop/"), "sold");
            }
        });
        let count = |call: &str| calls.get(call).copied().unwrap_or(0);
        let beats = count("sendto");
        let of_beats = beats + count("ioctl") + count("clock_gettime") + count("epoll_wait").min(beats);
        let is_free = beats <= 30 && calls.values().sum::<u64>() <= 4 + of_beats;
        seen.push(calls);
        is_free
    });
    assert!(is_free, "{seen:?}");
}

#[test]
fn a_program_that_does_not_stay_up_is_failing() {
    let sites = Sites::start("max = 3");
    let source = "const fs = require('fs');\n\
                  require('http').createServer((request, response) => response.end('well')).listen(process.env.PORT, '127.0.0.1');\n\
                  if (!fs.existsSync(__dirname + '/database')) setTimeout(() => { throw new Error('no database'); }, 150);\n";
    let root = sites.add("shop", 0, &[("app.js", source)]);
    let body = until("a refusal with an id", || {
        let (status, body) = sites.get("/shop/");
        (status == 503 && body.contains("rror")).then_some(body)
    });
    let mut words = body.split(|c: char| !c.is_ascii_hexdigit());
    let id = words
        .find(|word| word.len() == 8)
        .unwrap_or_else(|| panic!("no id: {body}"));
    let report = sites.forkyard(&["error", id]);
    let report = text_of(&report.stdout);
    assert!(
        report.contains("does not stay up: Error: no database"),
        "{body} {report}"
    );
    wait_until("its program to be failing", || {
        sites.get("/shop/");
        let text = sites.status()["book"].to_string();
        text.contains("\"state\":\"failing\"")
    });
    let status = sites.status();
    assert!(status["errors"].to_string().contains("no database"), "{status}");
    fs::write(root.join("database"), "").expect("write");
    wait_until("the application", || {
        sites.get("/shop/") == (200, "well".to_owned())
    });
}

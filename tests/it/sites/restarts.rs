//! Restarts under load.

use super::{Sites, visitors};
use crate::support::prelude::*;

fn deploy(root: &Path, file: &str, code: &str) {
    let made = root.join(".new");
    fs::write(&made, code).expect("write");
    let owner = fs::metadata(root).expect("owner");
    if is_root() {
        chown(&made, Some(owner.uid()), Some(owner.gid())).expect("chown");
    }
    fs::rename(made, root.join(file)).expect("rename");
    fs::write(root.join("tmp/restart.txt"), "").expect("touch");
}

fn wsgi(body: &str) -> String {
    format!(
        "import time\ntime.sleep(0.05)\ndef application(environ, start_response):\n    start_response('200 OK', \
         [('Content-Type', 'text/plain')])\n    time.sleep(0.005)\n    return [b'{body}']\n"
    )
}

fn no_request_is_lost(is_rolling: bool) {
    let sites = Sites::start(&format!("max = 4\nrolling_restarts = {is_rolling}"));
    let root = sites.add("app", 0, &[("passenger_wsgi.py", &wsgi("one"))]);
    assert_eq!(sites.body("/app/"), "one");
    let load = visitors(sites.nginx.port, &["/app/"], 6);
    load.wait_for(40);
    for body in ["second", "the third"] {
        deploy(&root, "passenger_wsgi.py", &wsgi(body));
        wait_until("a new answer", || load.count(|(_, seen)| seen == body) > 0);
        load.wait_for(40);
    }
    wait_until("the end of the restart", || {
        let status = sites.status();
        let application = &status["book"]["applications"][0];
        application["restarting"] == false
    });
    let answers = load.end();
    let bad = answers.iter().find(|(status, _)| *status != 200);
    assert_eq!(bad, None, "{}", sites.daemon.log());
    assert_eq!(sites.body("/app/"), "the third");
}

tests! {
    fn a_blocking_restart_loses_no_request() => no_request_is_lost(false);
    fn a_rolling_restart_loses_no_request() => no_request_is_lost(true);
}

fn gated(body: &str) -> String {
    format!(
        "import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.01)\n{}",
        wsgi(body)
    )
}

#[test]
fn no_request_waits_for_a_restart_while_a_place_is_free() {
    let sites = Sites::start("max = 4");
    let root = sites.add("app", 0, &[("passenger_wsgi.py", &wsgi("one"))]);
    assert_eq!(sites.body("/app/"), "one");
    deploy(&root, "passenger_wsgi.py", &gated("second"));
    assert_eq!(sites.body("/app/"), "one");
    sites.daemon.wait_for("restarting");
    for _ in 0..5 {
        assert_eq!(sites.body("/app/"), "one");
    }
    fs::write(root.join("go"), "").expect("go");
    wait_until("the new code", || sites.body("/app/") == "second");
}

#[test]
fn an_application_may_say_that_its_restarts_do_not_roll() {
    let sites = Sites::start("max = 4");
    let files = [
        ("passenger_wsgi.py", wsgi("one")),
        ("forkyard.toml", "rolling_restarts = false\n".to_owned()),
    ];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let root = sites.add("app", 0, &files);
    assert_eq!(sites.body("/app/"), "one");
    deploy(&root, "passenger_wsgi.py", &gated("second"));
    let port = sites.nginx.port;
    let waits = std::thread::spawn(move || super::get(port, "/app/").expect("answer"));
    sites.daemon.wait_for("restarting");
    fs::write(root.join("go"), "").expect("go");
    assert_eq!(waits.join().expect("client"), (200, "second".to_owned()));
}

#[test]
fn a_restart_in_a_full_pool_has_requests_wait_for_the_new_code() {
    let sites = Sites::start("max = 1");
    let root = sites.add("app", 0, &[("passenger_wsgi.py", &wsgi("one"))]);
    assert_eq!(sites.body("/app/"), "one");
    deploy(&root, "passenger_wsgi.py", &wsgi("second"));
    assert_eq!(sites.body("/app/"), "second");
}

fn node(body: &str) -> String {
    format!(
        "require('http').createServer((request, response) => setTimeout(() => response.end('{body}'), 5))\n  \
         .listen(process.env.PORT);\n"
    )
}

#[test]
fn a_rolling_restart_of_a_program_loses_no_request_and_broken_code_does_not_end_the_old() {
    let sites = Sites::start("max = 4\nrolling_restarts = true");
    let root = sites.add("app", 0, &[("app.js", &node("old"))]);
    assert_eq!(sites.body("/app/"), "old");
    let load = visitors(sites.nginx.port, &["/app/"], 3);
    load.wait_for(20);
    deploy(&root, "app.js", "throw new Error('nothing works');\n");
    sites.daemon.wait_for("the old instances go on");
    load.wait_for(60);
    let answers = load.end();
    let bad = answers.iter().find(|answer| **answer != (200, "old".to_owned()));
    assert_eq!(bad, None, "{}", sites.daemon.log());
    let load = visitors(sites.nginx.port, &["/app/"], 3);
    deploy(&root, "app.js", &node("new code"));
    wait_until("a new answer", || load.count(|(_, seen)| seen == "new code") > 0);
    load.wait_for(40);
    wait_until("the end of the restart", || {
        let status = sites.status();
        status["book"]["applications"][0]["restarting"] == false
    });
    let answers = load.end();
    let bad = answers.iter().find(|(status, _)| *status != 200);
    assert_eq!(bad, None, "{}", sites.daemon.log());
    assert_eq!(sites.body("/app/"), "new code");
}

#[test]
fn broken_code_does_not_end_the_old_in_a_rolling_restart() {
    let sites = Sites::start("max = 4\nrolling_restarts = true");
    let root = sites.add("app", 0, &[("passenger_wsgi.py", &wsgi("old"))]);
    assert_eq!(sites.body("/app/"), "old");
    let load = visitors(sites.nginx.port, &["/app/"], 4);
    load.wait_for(20);
    deploy(&root, "passenger_wsgi.py", "import nothing_of_that_name\n");
    sites.daemon.wait_for("can't be started");
    load.wait_for(40);
    let answers = load.end();
    let bad = answers.iter().find(|answer| **answer != (200, "old".to_owned()));
    assert_eq!(bad, None, "{}", sites.daemon.log());
    deploy(&root, "passenger_wsgi.py", &wsgi("new code"));
    wait_until("the new code", || sites.body("/app/") == "new code");
}

//! A pool added by a reload: the reload succeeds once it has workers, and fails if it can't start them.

use super::trials::workers;
use crate::support::prelude::*;

const PMS: [(&str, &str); 3] = [
    ("static", "pm = \"static\"\nmax_children = 1\n"),
    (
        "dynamic",
        "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n",
    ),
    ("ondemand", "pm = \"ondemand\"\nmax_children = 1\n"),
];

const GOOD_PYTHON: &str = "def application(environ, start):\n    start('200 OK', [])\n    return [b'well']\n";
const GOOD_NODE: &str =
    "require('http').createServer((_, response) => response.end('well')).listen(process.env.PORT)\n";

const APPLICATIONS: [(&str, &str, &str, &str); 2] = [
    ("wsgi", "wsgi.py", GOOD_PYTHON, "import no_such_module\n"),
    ("node", "app.js", GOOD_NODE, "throw new Error('no')\n"),
];

fn configure(dir: &Path, others: &[(String, &str, &str)]) -> String {
    let mut text = with_control(dir);
    let mut add = |name: &str, pm: &str, runtime: &str| {
        let root = dir.join(name);
        let application = format!("runtime = {runtime:?}\nroot = {root:?}\n");
        text += &pool(dir, name, pm, &application);
    };
    add("first", PMS[2].1, "wsgi");
    for (name, pm, runtime) in others {
        add(name, pm, runtime);
    }
    text
}

fn lay(dir: &Path, name: &str, file: &str, code: &str) {
    let root = dir.join(name);
    make_folder(&root);
    fs::write(root.join(file), code).expect("write");
}

fn start() -> Daemon {
    Daemon::start(|dir| {
        lay(dir, "first", "wsgi.py", GOOD_PYTHON);
        configure(dir, &[])
    })
}

fn reload_with(daemon: &Daemon, others: &[(String, &str, &str)]) -> (Option<i32>, String) {
    let text = configure(&daemon.dir, others);
    fs::write(daemon.dir.join("forkyard.toml"), text).expect("configuration");
    daemon.said(&["reload"])
}

#[test]
fn a_pool_that_begins_is_added_with_a_worker_or_has_failed() {
    let daemon = start();
    let mut others = Vec::new();
    for (runtime, file, good, broken) in APPLICATIONS {
        for (kind, pm) in PMS {
            for (state, code) in [("good", good), ("broken", broken)] {
                let name = format!("{runtime}-{kind}-{state}");
                lay(&daemon.dir, &name, file, code);
                others.push((name.clone(), pm, runtime));
                let (code, text) = reload_with(&daemon, &others);
                if kind == "ondemand" || state == "good" {
                    assert_eq!(code, Some(0), "{name}: {text}");
                    assert_contains(&text, &format!("added {name}\n"));
                    assert_eq!(workers(&daemon, &name) > 0, kind != "ondemand", "{name}");
                } else {
                    assert_eq!(code, Some(70), "{name}: {text}");
                    let failed = format!("failed {name}: no worker came up (error ");
                    assert!(text.contains(&failed), "{text}");
                    assert_contains(&text, "requests are refused until a retry succeeds");
                    assert_lacks(&text, &format!("added {name}\n"));
                    names_its_error(&daemon, &text);
                }
                if state == "broken" {
                    others.pop();
                    reload_with(&daemon, &others);
                }
            }
        }
    }
}

fn names_its_error(daemon: &Daemon, text: &str) {
    let id = text
        .split("(error ")
        .nth(1)
        .and_then(|rest| rest.split(')').next());
    let id = id.expect("an id");
    let report = exited(Some(0), daemon.said(&["error", id]));
    assert!(report.contains(id), "{report}");
}

#[test]
fn a_pool_without_a_worker_that_fails_again_has_failed() {
    let daemon = start();
    let others = [("shop".to_owned(), PMS[0].1, "wsgi")];
    lay(&daemon.dir, "shop", "wsgi.py", "import no_such_module\n");
    exited(Some(70), reload_with(&daemon, &others));
    for _ in 0..2 {
        let text = exited(Some(70), daemon.said(&["reload", "--all"]));
        assert_contains(&text, "failed shop: no worker came up (error ");
        assert_contains(&text, "replaced first: ");
        names_its_error(&daemon, &text);
    }
    lay(&daemon.dir, "shop", "wsgi.py", GOOD_PYTHON);
    let text = exited(Some(0), daemon.said(&["reload", "--all"]));
    assert_contains(&text, "replaced shop: ");
}

#[test]
fn a_pool_that_begins_without_room_for_a_worker_has_failed() {
    let daemon = start();
    let limited = |others: &[(String, &str, &str)]| {
        let text = configure(&daemon.dir, others).replace("[global]\n", "[global]\nprocess.max = 1\n");
        fs::write(daemon.dir.join("forkyard.toml"), text).expect("configuration");
        daemon.said(&["reload"])
    };
    lay(&daemon.dir, "one", "wsgi.py", GOOD_PYTHON);
    lay(&daemon.dir, "two", "wsgi.py", GOOD_PYTHON);
    let mut others = vec![("one".to_owned(), PMS[0].1, "wsgi")];
    exited(Some(0), limited(&others));
    others.push(("two".to_owned(), PMS[0].1, "wsgi"));
    let text = exited(Some(70), limited(&others));
    assert_contains(&text, "failed two: process.max leaves no room");
    exited(Some(0), limited(&others[1..]));
    lay(&daemon.dir, "three", "wsgi.py", GOOD_PYTHON);
    let text = exited(Some(0), limited(&[("three".to_owned(), PMS[0].1, "wsgi")]));
    assert_contains(&text, "added three\n");
    assert_contains(&text, "removed two\n");
    assert_eq!(workers(&daemon, "three"), 1);
}

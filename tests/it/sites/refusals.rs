//! The inspector's refusals: an id for visitors, and a report for the owner.

use super::{Sites, USERS};
use crate::support::prelude::*;

const PHP: (&str, &str) = ("index.php", "<?php echo 'it runs';");

struct Case {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    then: fn(&Path),
    status: u16,
    said: &'static str,
}

const WRITTEN: usize = 10;

fn nothing(_: &Path) {}

fn give(path: &Path, uid: u32) {
    chown(path, Some(uid), Some(uid)).expect("chown");
}

fn open(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o777)).expect("chmod");
}

const CASES: [Case; 18] = [
    Case {
        name: "typo",
        files: &[PHP, ("forkyard.toml", "max_instance = 1\n")],
        then: nothing,
        status: 503,
        said: "forkyard.toml:1:1: error: max_instance: unknown key; did you mean min_instances?",
    },
    Case {
        name: "syntax",
        files: &[PHP, ("forkyard.toml", "max_requests = \n")],
        then: nothing,
        status: 503,
        said: "forkyard.toml:1:",
    },
    Case {
        name: "runtime",
        files: &[("forkyard.toml", "runtime = \"rust\"\n")],
        then: nothing,
        status: 503,
        said: "a handler in Rust needs its own pool",
    },
    Case {
        name: "entry",
        files: &[("shop.py", ""), ("forkyard.toml", "entry = \"shop.py\"\n")],
        then: nothing,
        status: 503,
        said: "does not show the runtime; add one",
    },
    Case {
        name: "passenger",
        files: &[PHP, ("Passengerfile.json", "{")],
        then: nothing,
        status: 503,
        said: "Passengerfile.json",
    },
    Case {
        name: "link",
        files: &[PHP],
        then: |root| {
            symlink("/etc/hostname", root.join("forkyard.toml")).expect("link");
        },
        status: 503,
        said: "forkyard.toml is no regular file; a link is not followed",
    },
    Case {
        name: "writable",
        files: &[PHP, ("forkyard.toml", "")],
        then: |root| open(&root.join("forkyard.toml")),
        status: 503,
        said: "forkyard.toml: everybody may write to it; chmod o-w it",
    },
    Case {
        name: "names",
        files: &[PHP, ("forkyard.toml", "")],
        then: |root| {
            fs::hard_link(root.join("forkyard.toml"), root.join("other")).expect("link");
        },
        status: 503,
        said: "forkyard.toml has 2 names, and may be another user's file; copy it",
    },
    Case {
        name: "author",
        files: &[PHP, ("forkyard.toml", "")],
        then: |root| give(&root.join("forkyard.toml"), USERS[1].1),
        status: 503,
        said: "forkyard.toml belongs to user 34, the application to user 33",
    },
    Case {
        name: "long",
        files: &[PHP],
        then: |root| {
            fs::write(root.join("forkyard.toml"), "#\n".repeat(300_000)).expect("write");
            give(&root.join("forkyard.toml"), USERS[0].1);
        },
        status: 503,
        said: "forkyard.toml is longer than 65536 bytes; shorten it",
    },
    Case {
        name: "open",
        files: &[PHP],
        then: open,
        status: 503,
        said: "everybody may write to this directory, so its owner can't be known; chmod o-w it",
    },
    Case {
        name: "startup",
        files: &[PHP],
        then: |root| give(&root.join("index.php"), USERS[1].1),
        status: 503,
        said: "index.php belongs to user 34 and",
    },
    Case {
        name: "startup-names",
        files: &[PHP],
        then: |root| {
            fs::hard_link(root.join("index.php"), root.join("other")).expect("link");
        },
        status: 503,
        said: "index.php has 2 names",
    },
    Case {
        name: "python",
        files: &[("passenger_wsgi.py", "")],
        then: |root| {
            fs::create_dir_all(root.join(".venv/bin")).expect("mkdir");
            fs::write(root.join(".venv/bin/python"), "").expect("write");
            for name in [".venv", ".venv/bin", ".venv/bin/python"] {
                give(&root.join(name), USERS[1].1);
            }
        },
        status: 503,
        said: ".venv belongs to user 34, the application to user 33",
    },
    Case {
        name: "setting",
        files: &[PHP, ("forkyard.toml", "threads = 3\n")],
        then: nothing,
        status: 503,
        said: "threads",
    },
    Case {
        name: "command",
        files: &[("forkyard.toml", "runtime = \"http\"\n")],
        then: nothing,
        status: 503,
        said: "start_command",
    },
    Case {
        name: "empty",
        files: &[("notes.txt", "")],
        then: nothing,
        status: 404,
        said: "is no application: it has none of",
    },
    Case {
        name: "unclear",
        files: &[("main.py", "print(1)\n")],
        then: nothing,
        status: 404,
        said: "main.py alone does not show the runtime; name it in forkyard.toml",
    },
];

fn error(sites: &Sites, uid: u32, id: &str) -> (bool, String) {
    let uid = uid.to_string();
    let output = Command::new("setpriv")
        .args(["--reuid", &uid, "--regid", &uid, "--clear-groups"])
        .arg(env!("CARGO_BIN_EXE_forkyard"))
        .args(["error", "--socket"])
        .arg(sites.daemon.dir.join("control.sock"))
        .arg(id)
        .output()
        .expect("forkyard");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    (output.status.success(), text)
}

fn id_in(body: &str) -> &str {
    let id = body.trim_end().rsplit_once("Error ID: ").map(|(_, id)| id);
    id.unwrap_or_else(|| panic!("no id: {body}"))
}

#[test]
fn each_refusal_has_an_id_and_a_report_for_the_owner() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 3");
    for (at, case) in CASES.iter().enumerate() {
        let root = sites.add(case.name, 0, case.files);
        (case.then)(&root);
        let (status, body) = sites.get(&format!("/{}/", case.name));
        assert_eq!(status, case.status, "{}: {body}", case.name);
        assert!(!body.contains(case.said) && !body.contains("apps"), "{body}");
        let id = id_in(&body).to_owned();
        let said = |(done, text): (bool, String)| (done, text.contains(case.said));
        until("the report", || error(&sites, 0, &id).0.then_some(()));
        assert_eq!(said(error(&sites, 0, &id)), (true, true), "{}: root", case.name);
        let own = error(&sites, USERS[0].1, &id);
        assert!(own.1.contains(&id), "{}: {}", case.name, own.1);
        assert_eq!(said(own), (true, true), "{}: its owner", case.name);
        let others = error(&sites, USERS[1].1, &id);
        assert_eq!(said(others), (false, false), "{}: another user", case.name);
        let is_logged = sites.daemon.log().contains(&format!("(error {id})"));
        assert!(is_logged || at >= WRITTEN, "{}", case.name);
    }
    let again = || id_in(&sites.get("/typo/").1).to_owned();
    assert_eq!(again(), again());
    let status = sites.status();
    let errors = status["errors"].as_array().expect("errors");
    assert_eq!(errors.len(), CASES.len(), "{errors:?}");
    let (status, body) = sites.get("/missing/");
    assert_eq!((status, body.as_str()), (404, "There is no such application.\n"));
}

#[test]
fn one_who_restarts_a_refused_application_is_told_the_id() {
    let sites = Sites::start_with("max = 3", "friendly_error_pages = true\n");
    let root = sites.add("typo", 0, CASES[0].files);
    let output = sites.forkyard(&["restart", "--wait", &root.display().to_string()]);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(
        !output.status.success() && said.contains("see forkyard error"),
        "{said}"
    );
    let id = said
        .split("error ID ")
        .nth(1)
        .and_then(|rest| rest.split(')').next());
    let id = id.expect("an id").to_owned();
    let report = sites.forkyard(&["error", &id]);
    let report = String::from_utf8(report.stdout).expect("text");
    assert!(report.contains(CASES[0].said), "{report}");
    let (status, page) = sites.get("/typo/");
    assert_eq!(status, 503);
    assert!(page.contains(&id) && page.contains("max_instance"), "{page}");
}

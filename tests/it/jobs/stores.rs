//! The outcome and time of a push while the store fails.

use super::postgresql::Server;
use super::{Client, Jobs};
use crate::support::prelude::*;

/// A push may take 2 s; the rest is for a busy machine.
const LONGEST: Duration = Duration::from_secs(5);

const PHP: &str = r#"<?php
try {
    $id = forkyard_push('mail', 'echo');
    echo "stored $id";
} catch (Forkyard\PushUnknown $unknown) {
    echo 'unknown ', strlen($unknown->ref), ' ', $unknown->getMessage();
} catch (RuntimeException $refused) {
    echo 'refused ', $refused->getMessage();
}
"#;

const WSGI: &str = r#"
import forkyard

def application(environ, start_response):
    try:
        text = f"stored {forkyard.jobs.push('mail', 'echo')}"
    except forkyard.jobs.PushUnknown as unknown:
        text = f"unknown {len(unknown.ref)} {unknown}"
    except forkyard.jobs.PushError as refused:
        text = f"refused {refused}"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [text.encode()]
"#;

const RACK: &str = r##"
run(lambda do |env|
  text = begin
    "stored #{Forkyard::Jobs.push('mail', 'echo')}"
  rescue Forkyard::Jobs::PushUnknown => unknown
    "unknown #{unknown.ref.length} #{unknown.message}"
  rescue Forkyard::Jobs::PushError => refused
    "refused #{refused.message}"
  end
  [200, { "content-type" => "text/plain" }, [text]]
end)
"##;

fn with_pages(dir: &Path) -> String {
    super::with_pages(dir, PHP, WSGI, RACK)
}

/// The outcome and time of a push by each library, the socket and the command line.
fn told(jobs: &Jobs) -> Vec<(&'static str, String, Duration)> {
    let timed = |name: &'static str, push: &dyn Fn() -> String| {
        let begun = Instant::now();
        let said = push();
        (name, said, begun.elapsed())
    };
    let of_answer = |answer: &Value| {
        let word = match (answer["result"] == "pushed", answer["is_unknown"] == true) {
            (true, _) => "stored",
            (_, true) => "unknown",
            (_, false) => "refused",
        };
        format!("{word} {}", answer["message"].as_str().unwrap_or_default())
    };
    let push = json!({"command": "push", "job": {"queue": "mail", "kind": "echo"}});
    vec![
        timed("PHP", &|| jobs.daemon.get("www", "push.php").body().to_owned()),
        timed("Python", &|| jobs.daemon.get("wsgi", "/").body().to_owned()),
        timed("Ruby", &|| jobs.daemon.get("rack", "/").body().to_owned()),
        timed("socket", &|| of_answer(&Client::connect(&jobs.dir()).ask(&push))),
        timed("command", &|| {
            let mut command = forkyard(&["jobs", "push", "mail", "echo"], &jobs.dir());
            let output = command.output().expect("forkyard");
            let word = match output.status.code() {
                Some(0) => "stored",
                Some(75) => "unknown",
                Some(70) => "refused",
                code => panic!("{code:?}: {output:?}"),
            };
            format!("{word} {}", String::from_utf8_lossy(&output.stderr))
        }),
    ]
}

/// Checks that no job is stored, the wait is short, and the reason is given. The first push may come before the failure is
/// known.
fn assert_refused(jobs: &Jobs, row: &str, words: &[&str]) {
    for (number, (client, said, took)) in told(jobs).into_iter().enumerate() {
        println!("{row}, {client}: {} ms: {said}", took.as_millis());
        let is_refused = said.starts_with("refused ")
            || (number == 0 && said.starts_with("unknown 32 ") && row.starts_with("hanging"));
        assert!(is_refused, "{row}, {client}: {said}");
        assert!(
            words.iter().any(|word| said.contains(word)),
            "{row}, {client}: {said}, and not {words:?}"
        );
        assert!(took < LONGEST, "{row}, {client}: {took:?}: {said}");
    }
}

fn assert_stored(jobs: &Jobs, row: &str) {
    let push = json!({"command": "push", "job": {"queue": "mail", "kind": "echo"}});
    wait_until("a store that is well", || jobs.ask(&push)["result"] == "pushed");
    for (client, said, took) in told(jobs) {
        assert!(said.starts_with("stored "), "after {row}, {client}: {said}");
        assert!(took < LONGEST, "after {row}, {client}: {took:?}");
    }
}

struct Holding(Child);

impl Holding {
    fn start(file: &Path, script: &str) -> Holding {
        let script = format!(
            "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\n{script}\n\
             print('held', flush=True)\nsys.stdin.read()\n"
        );
        let mut child = Command::new("/usr/bin/python3")
            .args(["-c", &script])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line, "held\n");
        Holding(child)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn fill(path: &Path) -> process::Mounted {
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=4m,mode=777", "tmpfs"]);
    assert!(mount.arg(path).status().expect("mount").success());
    let full = fs::write(path.join("filler"), vec![0; 8 << 20]);
    assert!(full.is_err(), "there is no room left");
    process::Mounted(path.to_owned())
}

#[test]
fn a_store_that_can_not_be_opened_is_told_of_at_once_and_tried_again() {
    skip_if!(needs_root());
    let start = |prepare: &dyn Fn(&Path)| {
        let daemon = Daemon::start(|dir| {
            let text = with_pages(dir);
            prepare(&dir.join("store"));
            text
        });
        Jobs { daemon }
    };
    let empty = |store: &Path, mode: u32| {
        let file = store.join("jobs.db");
        fs::write(&file, "").expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("chmod");
    };
    let corrupt = start(&|store| {
        empty(store, 0o666);
        fs::write(store.join("jobs.db"), vec![b'x'; 8192]).expect("noise");
    });
    assert_refused(&corrupt, "corrupt at start", &["not a database"]);
    // The daemon still reports figures.
    let stats = corrupt.ask(&json!({"command": "stats"}));
    assert_eq!(
        (&stats["store_up"], &stats["queues"][0]["name"]),
        (&json!(false), &json!("mail"))
    );
    fs::remove_file(corrupt.dir().join("store/jobs.db")).expect("it");
    assert_stored(&corrupt, "corrupt at start");
    drop(corrupt);

    let holding = std::cell::RefCell::new(None);
    let locked = start(&|store| {
        empty(store, 0o666);
        let lock = "c.execute('BEGIN EXCLUSIVE')\nc.execute('CREATE TABLE t (a)')";
        *holding.borrow_mut() = Some(Holding::start(&store.join("jobs.db"), lock));
    });
    assert_refused(&locked, "locked at start", &["locked", "not open yet"]);
    holding.take().expect("it").end();
    assert_stored(&locked, "locked at start");
    drop(locked);

    let read_only = start(&|store| empty(store, 0o444));
    assert_refused(&read_only, "read-only at start", &["readonly"]);
    let file = read_only.dir().join("store/jobs.db");
    fs::set_permissions(file, fs::Permissions::from_mode(0o666)).expect("chmod");
    assert_stored(&read_only, "read-only at start");
    drop(read_only);

    let gone = start(&|store| fs::remove_dir(store).expect("an empty directory"));
    assert_refused(&gone, "gone at start", &["unable to open"]);
    make_folder(&gone.dir().join("store"));
    assert_stored(&gone, "gone at start");
    drop(gone);

    let directory = std::cell::RefCell::new(None);
    let full = start(&|store| {
        std::mem::forget(fill(store));
        *directory.borrow_mut() = Some(store.to_owned());
    });
    let store = directory.take().expect("a directory");
    let mounted = process::Mounted(store.clone());
    assert_refused(&full, "full at start", &["full", "disk I/O error"]);
    fs::remove_file(store.join("filler")).expect("the filler");
    assert_stored(&full, "full at start");
    drop(mounted);
}

#[test]
fn a_server_that_hangs_is_told_of_in_time_whether_it_did_so_before_or_does_so_now() {
    skip_if!(needs_root());
    let server = Server::start();
    let start = || {
        let daemon = Daemon::start(|dir| {
            let text = with_pages(dir);
            let file = format!("store = \"{}/store/jobs.db\"", dir.display());
            text.replace(&file, &format!("store = \"{}\"", server.url()))
        });
        Jobs { daemon }
    };
    server.hang(true);
    let at_start = start();
    assert_refused(
        &at_start,
        "hanging at start",
        &["not open yet", "did not answer", "timeout"],
    );
    server.hang(false);
    assert_stored(&at_start, "hanging at start");
    server.hang(true);
    assert_refused(
        &at_start,
        "hanging while it runs",
        &["not answered", "not come to this in time"],
    );
    server.hang(false);
    assert_stored(&at_start, "hanging while it runs");
}

#[test]
fn a_store_that_fails_while_it_is_used_is_told_of_at_once_and_tried_again() {
    skip_if!(needs_root());
    let jobs = Jobs {
        daemon: Daemon::start(with_pages),
    };
    assert_stored(&jobs, "the start");
    let keeper = jobs.keeper_of_jobs(jobs.daemon.pid());
    let file = jobs.dir().join("store/jobs.db");
    let failed = jobs.push("fail", json!({"attempts": 1}));
    jobs.wait(failed);
    let figures = || jobs.ask(&json!({"command": "stats"}));
    assert_eq!(figures()["queues"][0]["failed"], 1);
    let locked = Holding::start(&file, "c.execute('BEGIN IMMEDIATE')");
    assert_refused(&jobs, "locked while it runs", &["locked"]);
    // Nothing is known that is newer.
    let last = figures();
    assert_eq!(
        (&last["store_up"], &last["queues"][0]["failed"]),
        (&json!(false), &json!(1))
    );
    locked.end();
    assert_stored(&jobs, "locked while it runs");
    for (row, error, word) in [
        ("full", "ENOSPC", "full"),
        ("read-only", "EROFS", "disk I/O error"),
    ] {
        let failing = Failing::in_threads(keeper, &jobs.dir(), "pwrite64", error);
        assert_refused(&jobs, &format!("{row} while it runs"), &[word]);
        failing.end();
        assert_stored(&jobs, &format!("{row} while it runs"));
    }
    let held = Failing::hold(keeper, &jobs.dir(), "pwrite64", 600_000);
    assert_refused(
        &jobs,
        "hanging while it runs",
        &["not answered", "not come to this in time"],
    );
    held.end();
    assert_stored(&jobs, "hanging while it runs");
    let away = jobs.dir().join("away.db");
    fs::rename(&file, &away).expect("a file");
    assert_refused(&jobs, "gone while it runs", &["the file is gone"]);
    fs::rename(&away, &file).expect("a file");
    assert_stored(&jobs, "gone while it runs");
    let spoil = "c.execute('PRAGMA writable_schema = ON')\n\
                 c.execute(\"UPDATE sqlite_schema SET rootpage = 999999 WHERE name = 'job'\")\n\
                 c.execute('PRAGMA schema_version = 4711')";
    Holding::start(&file, spoil).end();
    assert_refused(&jobs, "corrupt while it runs", &["malformed"]);
}

/// A push with a known ref returns that job in any state.
#[test]
fn a_job_has_a_name_of_its_own_while_it_is_kept() {
    let more = "[jobs.queue.other]\npool = \"www\"\nscript = \"@DIR/jobs.php\"\n";
    let jobs = Jobs::start_with("", "max_children = 1", "", more);
    let push = |queue: &str, reference: &str| {
        let job = json!({"queue": queue, "kind": "echo", "ref": reference, "payload": "x"});
        jobs.ask(&json!({"command": "push", "job": job}))["jobs"][0].clone()
    };
    let first = push("mail", "order/7");
    assert_eq!(first["existed"], false);
    let name = json!({"queue": "mail", "ref": "order/7"});
    let by_name = |command: &str| {
        let mut request = name.clone();
        request["command"] = json!(command);
        jobs.ask(&request)
    };
    assert_eq!(by_name("wait")["job"]["state"], "done");
    assert_eq!(
        push("mail", "order/7"),
        json!({"id": first["id"], "existed": true})
    );
    assert_eq!(
        (&by_name("show")["job"]["id"], &by_name("show")["job"]["ref"]),
        (&first["id"], &json!("order/7"))
    );
    assert_ne!(push("other", "order/7")["id"], first["id"]);
    let later = jobs.push("echo", json!({"ref": "later", "in_ms": 600_000}));
    let waited = jobs.ask(&json!({"command": "wait", "queue": "mail", "ref": "later", "timeout_ms": 1}));
    assert_has(&waited["job"], json!({"id": later, "state": "scheduled"}));
    let cancelled = jobs.ask(&json!({"command": "cancel", "queue": "mail", "ref": "later"}));
    assert_eq!(cancelled["count"], 1);
    assert_eq!(jobs.show(later)["state"], "cancelled");
    let unknown = jobs.ask(&json!({"command": "show", "queue": "mail", "ref": "nothing"}));
    assert_contains(unknown["message"].as_str().unwrap_or_default(), "no such job");
}

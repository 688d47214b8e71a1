//! The store file: after a stop, copied, damaged, and of another version.

use super::Jobs;
use crate::support::prelude::*;

fn backed_up(dir: &Path, file: &str) -> (Option<i32>, String, String) {
    let to = dir.join(file).display().to_string();
    let output = forkyard(&["jobs", "backup", &to], dir)
        .output()
        .expect("forkyard");
    let text = |bytes: Vec<u8>| text_of(&bytes);
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_file_has_all_jobs_after_a_stop_and_a_copy_has_them_at_any_time() {
    let mut jobs = Jobs::start("max_children = 1", "");
    let dir = jobs.dir();
    let first = jobs.done("echo", json!({"payload": "first"}))["id"].clone();
    let (code, said, errors) = backed_up(&dir, "copy.db");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(said.ends_with("copy.db: 1 jobs\n"), "{said}");
    let (code, _, errors) = backed_up(&dir, "copy.db");
    assert_eq!(code, Some(73));
    assert_contains(&errors, "there already");
    jobs.done("echo", json!({}));
    jobs.daemon.end(Signal::SIGTERM);
    let store = dir.join("store/jobs.db");
    assert!(!dir.join("store/jobs.db-wal").exists(), "all is in the file");
    let (code, said, _) = backed_up(&dir, "second.db");
    assert_eq!((code, said.contains(": 2 jobs")), (Some(0), true), "{said}");
    fs::write(&store, fs::read(dir.join("copy.db")).expect("the copy")).expect("the store");
    let again = jobs.again();
    let found = again.show(first.as_i64().expect("a number"));
    assert_eq!(found["result"], "\"first\" mail ", "{found}");
    let list = again.ask(&json!({"command": "list"}));
    assert_eq!(list["jobs"].as_array().map(Vec::len), Some(1));
}

#[test]
fn of_a_damaged_file_a_copy_has_what_can_be_read() {
    let mut jobs = Jobs::start("max_children = 1", "");
    let dir = jobs.dir();
    jobs.ask(&json!({"command": "pause", "queue": "mail"}));
    let job = json!({"queue": "mail", "kind": "echo", "payload": "x".repeat(900)});
    jobs.ask(&json!({"command": "push", "jobs": vec![job; 500]}));
    jobs.daemon.end(Signal::SIGTERM);
    let store = dir.join("store/jobs.db");
    let pages = fs::metadata(&store).expect("the store").len() / 4096;
    let file = fs::File::options().write(true).open(&store).expect("the store");
    file.write_all_at(&[0xA5; 5 * 4096], pages / 2 * 4096)
        .expect("noise");
    drop(file);
    let (code, _, errors) = backed_up(&dir, "copy.db");
    assert_eq!(code, Some(65), "{errors}");
    assert_contains(&errors, "is damaged");
    assert_contains(&errors, "what could be read");
    fs::write(&store, fs::read(dir.join("copy.db")).expect("the copy")).expect("the store");
    let again = jobs.again();
    let queues = again.ask(&json!({"command": "queues"}));
    let waiting = queues["queues"][0]["waiting"].as_u64().unwrap_or(0);
    assert!((400..500).contains(&waiting), "{queues}");
    assert_eq!(queues["queues"][0]["paused"], true);
}

#[test]
fn a_store_of_a_later_version_is_refused_with_what_to_do() {
    let mut jobs = Jobs::start("max_children = 1", "");
    jobs.done("echo", json!({}));
    jobs.daemon.end(Signal::SIGTERM);
    // user_version in the file's header.
    let store = jobs.dir().join("store/jobs.db");
    let file = fs::File::options().write(true).open(&store).expect("the store");
    file.write_all_at(&99_u32.to_be_bytes(), 60).expect("a version");
    let again = jobs.again();
    let log = again.daemon.wait_for("has version 99");
    assert_contains(
        &log,
        "a later forkyard wrote it; install that one, or put back the copy",
    );
}

//! A full, broken or read-only disk, and a process killed between two system calls.

use super::Jobs;
use crate::support::prelude::*;

#[test]
fn a_store_that_can_not_be_written_to_refuses_pushes_and_loses_no_result() {
    let jobs = Jobs::start("max_children = 1", "");
    jobs.daemon.write("page.php", "<?php echo 'a page';");
    let keeper = jobs.keeper_of_jobs(jobs.daemon.pid());
    let faults = [
        ("pwrite64", "EIO", "disk I/O error"),
        ("pwrite64", "ENOSPC", "full"),
        ("pwrite64", "EROFS", "disk I/O error"),
        ("fdatasync", "EIO", "may not be on the disk"),
    ];
    for (number, (call, error, says)) in faults.into_iter().enumerate() {
        let gate = format!("gate {error} of {call}");
        let long = jobs.push("gate", json!({"payload": gate}));
        jobs.wait_for_start(long, 1);
        let failing = Failing::in_threads(keeper, &jobs.dir(), call, error);
        let push = json!({"command": "push", "job": {"queue": "mail", "kind": "echo"}});
        let refused = jobs.ask(&push);
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(
            refused["result"] == "error" && refused["is_temporary"] == true && message.contains(says),
            "{error}: {refused}"
        );
        jobs.daemon
            .wait_for_count("the store can't be written to", number + 1);
        // The job ends in between: the pool's only worker then serves a page.
        jobs.open(&gate);
        assert_eq!(jobs.daemon.get("www", "page.php").body(), "a page");
        failing.end();
        jobs.daemon
            .wait_for_count("the store can be written to again", number + 1);
        let done = jobs.wait(long);
        assert_eq!(
            (&done["state"], &done["attempt"], &done["result"]),
            (&json!("done"), &json!(1), &json!("through")),
            "{error} of {call}"
        );
        assert_eq!(jobs.done("echo", json!({}))["state"], "done");
    }
    assert_eq!(jobs.keeper_of_jobs(jobs.daemon.pid()), keeper, "it went on");
}

/// Runs the store program until it is killed at its system call of this number; returns whether it was.
fn killed_at(number: usize, store: &Path, told: &Path) -> bool {
    let program = Path::new(env!("CARGO_BIN_EXE_forkyard")).with_file_name("examples/job_store");
    let kill = format!("inject=all:signal=KILL:when={number}");
    let status = Command::new("strace")
        .args(["-f", "-o", "/dev/null", "-e", "trace=all", "-e", &kill])
        .arg(&program)
        .args([Path::new("work"), store, told])
        .stderr(Stdio::null())
        .status()
        .expect("strace");
    let check = Command::new(program)
        .args([Path::new("check"), store, told])
        .output();
    let check = check.expect("the program");
    assert!(check.status.success(), "killed at {number}: {check:?}");
    !status.success()
}

/// `scripts/store-faults` does this for every call.
#[test]
fn what_was_told_is_kept_when_the_process_is_killed_between_two_calls() {
    let dir = directory();
    let mut killed = 0;
    for number in (60..1_500).step_by(67) {
        let store = dir.path().join(format!("{number}.db"));
        let told = dir.path().join(format!("{number}.told"));
        if !killed_at(number, &store, &told) {
            break;
        }
        killed += 1;
    }
    assert!(killed > 3, "killed {killed} times only");
}

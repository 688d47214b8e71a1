//! Failing requests: the answer is an ordinary pool's, and the worker is sound for the next one.

use super::{ask, both, case, say};
use crate::support::prelude::*;

const REPLACED: &str = "a worker is replaced: its script has failed";

#[test]
fn after_each_kind_of_failure_the_next_request_is_served() {
    let daemon = both(
        "request_terminate_timeout = \"20s\"\nping = { path = \"/ping\" }\n",
        "",
    );
    let rows = [
        ("fatal", "Cannot declare class Noted", "printed"),
        (
            "memory",
            "Allowed memory size of 8388608 bytes exhausted",
            "shutdown",
        ),
        ("time limit", "Maximum execution time of 1 second exceeded", ""),
        ("in shutdown", "Cannot declare class Noted", "body first"),
        (
            "throws in shutdown",
            "Uncaught RuntimeException: thrown late",
            "body",
        ),
        (
            "exception handler throws",
            "Uncaught RuntimeException: instead of it",
            "",
        ),
        (
            "throws in output",
            "Uncaught RuntimeException: thrown in output",
            "",
        ),
    ];
    each(rows, |(name, problem, body)| {
        let mut answers = Vec::new();
        for pool in ["www", "loop"] {
            let answer = ask(&daemon, pool, &case(&daemon, name, ""), b"");
            assert!(answer.ended, "{name}");
            assert_contains(&answer.error_text(), problem);
            assert_eq!(answer.body(), body, "{name} in {pool}");
            answers.push(answer.text());
            assert_eq!(say(&daemon, pool, "", "token=next"), "hello next", "{name}");
        }
        assert_eq!(answers[0], answers[1], "{name}");
        daemon.wait_for(problem);
    });
    assert_eq!(
        daemon.wait_for_count(REPLACED, 4).matches("[pool loop]").count(),
        1
    );
    let before = say(&daemon, "loop", "pid", "");
    for name in ["exit", "exception"] {
        say(&daemon, "loop", name, "token=x");
        assert_eq!(say(&daemon, "loop", "pid", ""), before, "{name}");
    }
    say(&daemon, "loop", "nested exit", "");
    assert_ne!(say(&daemon, "loop", "pid", ""), before);
}

#[test]
fn workers_that_are_killed_or_whose_client_leaves_are_made_anew() {
    let daemon = both("", "");
    let pid = || say(&daemon, "loop", "pid", "").parse::<u32>().expect("a pid");
    let first = pid();
    assert!(!ask(&daemon, "loop", &case(&daemon, "crash", ""), b"").ended);
    daemon.wait_for("exited on signal 11 (SIGSEGV");
    let second = pid();
    assert_ne!(second, first);
    process::signal(second, Signal::SIGKILL);
    wait_until("another worker", || !process::runs(second));
    let third = pid();
    assert_ne!(third, second);
    drop(daemon.send("loop", &case(&daemon, "flood", "")));
    wait_until("another worker", || !process::runs(third));
    assert_ne!(pid(), third);
}

#[test]
fn a_request_past_its_time_is_terminated() {
    let daemon = both("request_terminate_timeout = \"1s\"\n", "");
    let answer = ask(&daemon, "loop", &case(&daemon, "sleep", ""), b"");
    assert_starts(&answer.text(), "Status: 504 Gateway Timeout\r\n");
    let line = daemon.wait_for("execution timed out");
    let script = format!(
        "script '{}/worker.php' (request: \"GET /index.php?case=sleep\")",
        daemon.dir.display()
    );
    assert!(line.contains("[pool loop]") && line.contains(&script), "{line}");
    assert_eq!(say(&daemon, "loop", "", "token=next"), "hello next");
}

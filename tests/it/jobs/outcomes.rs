//! Outcomes of jobs.

use super::Jobs;
use crate::support::prelude::*;

fn ended(job: &Value) -> (&str, u64, &str) {
    let text = |name: &str| job[name].as_str().unwrap_or("");
    (text("state"), job["attempt"].as_u64().unwrap_or(0), text("error"))
}

#[test]
fn a_job_ends_as_its_answer_says() {
    let jobs = Jobs::start("max_children = 4", "attempts = 2\n");
    let done = jobs.done("echo", json!({"payload": {"to": "you"}, "tenant": "acme"}));
    assert_eq!(ended(&done), ("done", 1, ""));
    assert_eq!(done["result"], "{\"to\":\"you\"} mail acme");
    let flaky = jobs.done("flaky", json!({}));
    assert_eq!((ended(&flaky), &flaky["failures"]), (("done", 2, ""), &json!(1)));
    let failed = jobs.done("fail", json!({}));
    assert_eq!(ended(&failed), ("failed", 2, "status 500"));
    assert_eq!(
        ended(&jobs.done("fail", json!({"attempts": 1}))),
        ("failed", 1, "status 500")
    );
    assert_eq!(ended(&jobs.done("snooze", json!({}))), ("done", 2, ""));
    assert_eq!(ended(&jobs.done("unwanted", json!({}))), ("discarded", 1, ""));
    let late = jobs.done("echo", json!({"in_ms": 30, "expires_ms": 1}));
    assert_eq!(ended(&late), ("failed", 1, ""));
    let id = late["id"].as_i64().expect("id");
    assert!(jobs.starts().iter().all(|(job, ..)| *job != id));
}

/// Verdicts of any bytes count, and late ones are failures.
#[test]
fn a_verdict_is_read_whatever_its_bytes_and_one_that_is_late_is_a_failure() {
    let jobs = Jobs::start("max_children = 4", "attempts = 3\n");
    let once = |kind: &str, payload: &str| jobs.done(kind, json!({"payload": payload, "attempts": 1}));
    // fail=café in Latin-1; final, although two tries are left.
    let latin = once("header", "ZmFpbD1jYWbp");
    assert_eq!(ended(&latin), ("failed", 1, "caf\u{fffd}"));
    let dead = jobs.done("header", json!({"payload": "ZGVhZD1ubyBzdWNoIHVzZXI="}));
    assert_eq!(ended(&dead), ("failed", 1, "no such user"));
    assert_has(&dead, json!({"outcome": "failed", "failures": 1}));
    let late = " came after a part of the answer was sent";
    for (kind, payload, said) in [
        ("late", "snooze=2s", "\"Forkyard-Job: snooze=2s\""),
        ("late", "ok", "\"Forkyard-Job: ok\""),
        ("late-status", "", "status 500"),
        ("late-error", "", "a fatal error"),
    ] {
        let job = once(kind, payload);
        assert_eq!(
            ended(&job),
            ("failed", 1, format!("{said}{late}").as_str()),
            "{job}"
        );
    }
    // Another try with another payload; one that is too long is an error.
    let again = jobs.done("again", json!({"payload": "the first"}));
    assert_eq!(
        (ended(&again), &again["result"]),
        (("done", 2, ""), &json!("given the next"))
    );
    assert_eq!(
        (&again["failures"], &again["ends"][0]["outcome"]),
        (&json!(0), &json!("snoozed"))
    );
    let long = once("again-long", "");
    assert_eq!(ended(&long).2, "its next payload has more than 262144 bytes");
}

/// As wp-cron.php: it ends its answer first and then works.
#[test]
fn a_job_that_has_ended_its_answer_goes_on() {
    let jobs = Jobs::start("max_children = 2", "attempts = 1\n");
    let job = |verdict: &str| {
        let id = jobs.push("cron", json!({"payload": verdict}));
        wait_until("the end of its answer", || {
            jobs.dir().join("out/answered").exists()
        });
        assert_eq!(jobs.show(id)["state"], "running");
        jobs.open("cron");
        let job = jobs.wait(id);
        for name in ["cron", "answered"] {
            fs::remove_file(jobs.dir().join("out").join(name)).expect("a file");
        }
        job
    };
    let done = job("warning");
    assert_eq!(
        (ended(&done), &done["status"]),
        (("done", 1, ""), &json!("warning"))
    );
    assert_eq!(done["result"], "begun and done");
    assert_eq!(ended(&job("fail=no")), ("failed", 1, "no"));
}

#[test]
fn a_crash_is_no_failure_and_the_second_in_a_row_quarantines() {
    let jobs = Jobs::start_with("control = \"@DIR/control.sock\"\n", "max_children = 2", "", "");
    let once = jobs.done("crash-once", json!({}));
    assert_eq!(ended(&once), ("done", 2, ""));
    assert_eq!((&once["failures"], &once["crashes"]), (&json!(0), &json!(0)));
    let twice = jobs.done("crash", json!({}));
    let (state, attempts, error) = ended(&twice);
    assert_eq!((state, attempts), ("quarantined", 2));
    assert_starts(error, "worker ");
    assert_contains(error, "exited on signal 9 (SIGKILL); see: forkyard error ");
    // The report that it names, in three forms; another user can't read it.
    let id = error.rsplit(' ').next().expect("an id").to_owned();
    let report = |arguments: &[&str]| {
        let all: Vec<&str> = ["error", &id].iter().chain(arguments).copied().collect();
        let output = forkyard(&all, &jobs.dir()).output().expect("forkyard");
        assert_success(&output);
        text_of(&output.stdout)
    };
    let text = report(&[]);
    for expected in [
        &format!("id        {id}"),
        "pool      www",
        "/jobs/mail/crash?job=",
        "SIGKILL",
        "jobs.php",
        "How to solve it",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let json: Value = serde_json::from_str(&report(&["--json"])).expect("JSON");
    assert_eq!(json["error"]["id"], id.as_str());
    let status = forkyard(&["status", "--json"], &jobs.dir())
        .output()
        .expect("status");
    let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_has(
        &status["pools"][0],
        json!({"failed_starts": 0, "last_error": null}),
    );
    jobs.daemon.wait_for("is quarantined at start 2: worker");
    let id = twice["id"].as_i64().expect("id");
    assert_eq!(jobs.ask(&json!({"command": "retry", "id": id}))["count"], 1);
    assert_eq!(ended(&jobs.wait(id)).1, 4);
}

#[test]
fn a_job_that_takes_too_long_or_is_cancelled_is_ended() {
    let jobs = Jobs::start("max_children = 2", "attempts = 1\n");
    let late = jobs.push("long", json!({"timeout_ms": 50}));
    let cancelled = jobs.push("long", json!({}));
    let pid = jobs.wait_for_start(cancelled, 1);
    let answer = jobs.ask(&json!({"command": "cancel", "id": cancelled}));
    assert_eq!((&answer["count"], &answer["ending"]), (&json!(0), &json!(1)));
    assert_eq!(ended(&jobs.wait(late)), ("failed", 1, "its time was over"));
    assert_eq!(ended(&jobs.wait(cancelled)), ("cancelled", 1, "it was cancelled"));
    wait_until("the end of the worker", || !process::runs(pid));
    assert_eq!(jobs.done("echo", json!({}))["state"], "done");
}

#[test]
fn steps_come_in_order_and_what_is_done_is_not_repeated() {
    let jobs = Jobs::start("max_children = 1", "");
    let steps =
        |payload: Value, steps: &[&str]| jobs.done("steps", json!({"payload": payload, "steps": steps}));
    let shown = |job: &Value| -> Vec<(String, String, String)> {
        let steps = job["steps"].as_array().cloned().unwrap_or_default();
        let text = |step: &Value, name: &str| step[name].as_str().unwrap_or("").to_owned();
        steps
            .iter()
            .map(|step| (text(step, "name"), text(step, "status"), text(step, "output")))
            .collect()
    };
    let row =
        |name: &str, status: &str, output: &str| (name.to_owned(), status.to_owned(), output.to_owned());
    let job = steps(
        json!({"a": "ok", "b": "not_applicable", "flaky": "warning"}),
        &["a", "b", "flaky"],
    );
    assert_eq!(
        shown(&job),
        [
            row("a", "ok", "a"),
            row("b", "not_applicable", ""),
            row("flaky", "warning", "flaky")
        ]
    );
    assert_eq!((ended(&job).1, &job["status"]), (2, &json!("warning")));
    let id = job["id"].as_i64().expect("id");
    assert_eq!(jobs.starts().iter().filter(|(job, ..)| *job == id).count(), 4);
    let stopped = steps(json!({"a": "ok", "b": "error", "c": "ok"}), &["a", "b", "c"]);
    assert_eq!(
        shown(&stopped),
        [row("a", "ok", "a"), row("b", "error", "b"), row("c", "", "")]
    );
    assert_eq!((ended(&stopped).0, &stopped["status"]), ("done", &json!("error")));
}

#[test]
fn why_a_job_failed_is_its_exception_and_a_result_that_is_cut_says_so() {
    let jobs = Jobs::start_with("", "max_children = 1", "attempts = 1\n", "");
    jobs.daemon.write(
        "jobs.php",
        "<?php if ($_SERVER['FORKYARD_JOB_KIND'] == 'cut') { echo str_repeat('x', 200000); exit; }
         throw new DomainException(\"no route\\nto the host\");",
    );
    let failed = jobs.done("throw", json!({}));
    let why = "DomainException: no route (status 500)";
    assert_eq!(ended(&failed), ("failed", 1, why));
    let cut = jobs.done("cut", json!({}));
    assert_eq!(cut["result"].as_str().map(str::len), Some(65_536));
    assert_eq!(cut["result_cut"], 200_000 - 65_536);
    let shown = |arguments: &[&str]| {
        let output = forkyard(arguments, &jobs.dir()).output().expect("forkyard");
        text_of(&output.stdout)
    };
    let id = |job: &Value| job["id"].to_string();
    assert!(shown(&["jobs", "list"]).contains(why));
    assert!(shown(&["jobs", "show", &id(&cut)]).contains(" [134464 bytes left out]"));
    let shown_failed = shown(&["jobs", "show", &id(&failed)]);
    for name in ["pushed: 20", "started: 20", "ended: 20", "took: "] {
        assert!(shown_failed.contains(name), "{name}: {shown_failed}");
    }
    // Any ended job can be run again or forgotten by hand.
    assert_eq!(shown(&["jobs", "retry", &id(&cut)]), "1 changed\n");
    let again = jobs.wait(cut["id"].as_i64().expect("a number"));
    assert_eq!((&again["state"], &again["attempt"]), (&json!("done"), &json!(2)));
    assert_eq!(
        shown(&["jobs", "purge", "--state", "failed", "--queue", "mail"]),
        "1 changed\n"
    );
    assert_eq!(shown(&["jobs", "purge", &id(&cut)]), "1 changed\n");
    assert_eq!(jobs.ask(&json!({"command": "list"}))["jobs"], json!([]));
}

#[test]
fn many_failures_are_few_lines_of_the_log() {
    let mut jobs = Jobs::start("max_children = 4", "attempts = 1\n");
    let job = json!({"queue": "mail", "kind": "fail"});
    jobs.ask(&json!({"command": "push", "jobs": vec![job; 200]}));
    wait_until("all have failed", || {
        let queues = jobs.ask(&json!({"command": "queues"}));
        queues["queues"][0]["failed"] == 200
    });
    jobs.daemon.signal(Signal::SIGTERM);
    assert!(jobs.daemon.wait().success());
    let log = jobs.daemon.log();
    assert_eq!(log.matches("has failed at start 1").count(), 6, "{log}");
    assert_contains(
        &log,
        "195 more jobs of queue mail have failed within a minute, the last one so: job ",
    );
}

#[test]
fn a_warning_of_a_step_is_not_hidden_by_a_later_start() {
    let jobs = Jobs::start("max_children = 1", "");
    let payload = json!({"a": "warning", "flaky": "ok"});
    let done = jobs.done("steps", json!({"steps": ["a", "flaky"], "payload": payload}));
    assert_has(&done, json!({"attempt": 2, "status": "warning"}));
}

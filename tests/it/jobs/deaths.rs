//! Jobs while processes are replaced or killed.

use super::{Jobs, configuration};
use crate::support::prelude::*;

/// A job that outlives an event, and another after it.
fn goes_on(jobs: &Jobs, gate: &str, happens: impl FnOnce(&Jobs)) {
    let long = jobs.push("gate", json!({"payload": gate}));
    let pid = jobs.wait_for_start(long, 1);
    happens(jobs);
    assert_eq!(jobs.done("echo", json!({}))["state"], "done", "others are served");
    assert!(process::runs(pid), "the job's worker goes on");
    jobs.open(gate);
    let done = jobs.wait(long);
    assert_has(&done, json!({"state": "done", "attempt": 1, "result": "through"}));
}

#[test]
fn a_reload_and_an_upgrade_let_a_long_job_finish() {
    let global = "control = \"DIR/control.sock\"\nprocess_control_timeout = \"1s\"\n";
    let jobs = Jobs::start_with(global, "max_children = 2\nreload = \"always\"\n", "", "");
    goes_on(&jobs, "reload", |jobs| {
        assert_success(&forkyard(&["reload"], &jobs.dir()).output().expect("reload"));
    });
    let before = jobs.keeper_of_jobs(jobs.daemon.pid());
    goes_on(&jobs, "upgrade", |jobs| {
        assert_success(&forkyard(&["upgrade"], &jobs.dir()).output().expect("upgrade"));
    });
    let kept = jobs.push("gate", json!({"payload": "never"}));
    let late = jobs.push(
        "gate",
        json!({"payload": "never", "timeout_ms": 2_000, "attempts": 1}),
    );
    let workers = [jobs.wait_for_start(kept, 1), jobs.wait_for_start(late, 1)];
    assert_success(&forkyard(&["upgrade"], &jobs.dir()).output().expect("upgrade"));
    jobs.ask(&json!({"command": "cancel", "id": kept}));
    assert_eq!(jobs.wait(kept)["state"], "cancelled");
    let late = jobs.wait(late);
    assert_has(&late, json!({"state": "failed", "outcome": "timed_out"}));
    assert!(
        workers.iter().all(|pid| !process::runs(*pid)),
        "their workers are ended"
    );
    wait_until("the end of the old process", || !process::runs(before));
    assert_ne!(jobs.keeper_of_jobs(jobs.daemon.pid()), before);
}

/// After a reload that moves a queue to another pool, kept workers follow the new pool's time to leave.
#[test]
fn workers_that_a_reload_keeps_take_over_how_long_they_may_take_to_leave() {
    let user = if is_root() { "user = \"www-data\"\n" } else { "" };
    let version = env!("FORKYARD_PHP");
    let other = format!(
        "[pool.other]\nlisten = {{ address = \"@DIR/other.sock\", mode = \"0666\" }}\n{user}pm = \"ondemand\"\n\
         max_children = 3\n[pool.other.application]\nruntime = \"php\"\nversion = \"{version}\"\n"
    );
    let jobs = Jobs::start_with(
        "process_control_timeout = \"100ms\"\n",
        "max_children = 1\n",
        "timeout = \"10m\"\n",
        &other,
    );
    let daemon = &jobs.daemon;
    daemon.write(
        "hold.php",
        "<?php file_put_contents(__DIR__ . '/out/held', getmypid() . \"\\n\"); while (true) sleep(60);",
    );
    let _client = daemon.send("www", &Params::get(&daemon.dir, "hold.php", ""));
    let held: u32 = until("the request to run", || {
        let said = fs::read_to_string(daemon.dir.join("out/held")).ok()?;
        said.strip_suffix('\n')?.parse().ok()
    });
    let path = daemon.dir.join("forkyard.toml");
    let text = read_file(&path);
    let elsewhere = text.replace("pool = \"www\"", "pool = \"other\"");
    assert_ne!(elsewhere, text);
    fs::write(&path, &elsewhere).expect("the configuration");
    daemon.signal(Signal::SIGUSR2);
    let done = daemon.wait_for("reload done");
    assert_contains(&done, "nothing changed for: ");
    assert_lacks(&done, "replaced");
    assert!(process::runs(held));
    let more = elsewhere.replace("max_children = 1\n", "max_children = 2\n");
    fs::write(&path, more).expect("the configuration");
    daemon.signal(Signal::SIGUSR2);
    process::wait_for_end(held);
}

#[test]
fn a_job_is_not_started_again_as_long_as_its_worker_has_it() {
    let jobs = Jobs::start("max_children = 2", "");
    let long = jobs.push("gate", json!({"payload": "kept"}));
    let waits = jobs.push("echo", json!({"in_ms": 200}));
    jobs.wait_for_start(long, 1);
    let before = jobs.keeper_of_jobs(jobs.daemon.pid());
    process::signal(before, Signal::SIGKILL);
    jobs.daemon.wait_for("the process that keeps them (pid");
    assert_eq!(jobs.wait(waits)["state"], "done");
    assert_eq!(jobs.show(long)["state"], "running");
    assert_eq!(jobs.starts().iter().filter(|(id, ..)| *id == long).count(), 1);
    jobs.open("kept");
    let done = jobs.wait(long);
    assert_has(&done, json!({"state": "done", "attempt": 2, "crashes": 0}));
}

#[test]
fn a_job_whose_keeper_was_killed_ends_when_it_is_cancelled_or_its_time_is_over() {
    let daemon = Daemon::start(|dir| configuration(dir, "", "max_children = 3\n", "", ""));
    let jobs = Jobs { daemon };
    let gate = |more: Value| {
        let mut job = json!({"payload": "never", "attempts": 1, "key": more["key"]});
        job["timeout_ms"] = more["timeout_ms"].clone();
        jobs.push("gate", job)
    };
    let cancelled = gate(json!({"key": "a"}));
    let late = gate(json!({"key": "b", "timeout_ms": 1_000}));
    let workers = [jobs.wait_for_start(cancelled, 1), jobs.wait_for_start(late, 1)];
    let keeper = jobs.keeper_of_jobs(jobs.daemon.pid());
    process::signal(keeper, Signal::SIGKILL);
    wait_until("another process", || {
        let next = jobs.keeper_of_jobs(jobs.daemon.pid());
        next != keeper
    });
    jobs.ask(&json!({"command": "cancel", "id": cancelled}));
    assert_eq!(jobs.wait(cancelled)["state"], "cancelled");
    let late = jobs.wait(late);
    assert_has(
        &late,
        json!({"state": "failed", "outcome": "timed_out", "error": "its time was over"}),
    );
    process::wait_for_ends(&workers);
    assert_ne!(gate(json!({"key": "a", "timeout_ms": 1})), cancelled);
}

#[test]
fn a_killed_master_lets_jobs_go_on() {
    let daemon = Daemon::start_kept(|dir| configuration(dir, "", "max_children = 2\n", "", ""));
    let jobs = Jobs { daemon };
    goes_on(&jobs, "kept", |jobs| {
        process::signal(jobs.daemon.kept_master(), Signal::SIGKILL);
        jobs.daemon.wait_for_count("ready to handle connections", 2);
    });
}

#[test]
fn what_runs_when_the_daemon_stops_is_run_by_the_next() {
    let mut first = Jobs::start_with("process_control_timeout = \"1s\"\n", "max_children = 1\n", "", "");
    let long = first.push("gate", json!({"payload": "next"}));
    first.wait_for_start(long, 1);
    first.daemon.end(Signal::SIGTERM);
    let jobs = first.again();
    jobs.open("next");
    let done = jobs.wait(long);
    assert_has(&done, json!({"state": "done", "crashes": 0, "failures": 0}));
}

#[test]
fn a_job_goes_on_alone_when_the_whole_daemon_is_killed() {
    let mut first = Jobs::start("max_children = 2\n", "");
    let long = first.push("gate", json!({"payload": "alone"}));
    let pid = first.wait_for_start(long, 1);
    process::signal(first.keeper_of_jobs(first.daemon.pid()), Signal::SIGKILL);
    first.daemon.signal(Signal::SIGKILL);
    first.daemon.wait();
    let jobs = first.again();
    // By then the new daemon has looked at its own workers.
    assert_eq!(jobs.done("echo", json!({"in_ms": 1_200}))["state"], "done");
    let shown = jobs.show(long);
    assert_has(&shown, json!({"state": "running", "attempt": 1}));
    assert!(process::runs(pid), "its worker goes on");
    jobs.open("alone");
    let done = jobs.wait(long);
    assert_eq!((&done["state"], &done["attempt"]), (&json!("done"), &json!(2)));
    assert_eq!(
        done["ends"],
        json!([{
            "attempt": 1, "outcome": "lost", "error": "the process that kept it died", "ended_ms": done["ends"][0]["ended_ms"]
        }])
    );
}

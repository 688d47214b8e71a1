//! Sequences: jobs from one source, in order.

use super::Jobs;
use crate::support::prelude::*;

fn command(jobs: &Jobs, arguments: &[&str]) -> Command {
    let whole: Vec<&str> = ["jobs"].iter().chain(arguments).copied().collect();
    forkyard(&whole, &jobs.dir())
}

fn ended(jobs: &Jobs, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command(jobs, arguments).output().expect("forkyard");
    let text = |bytes: Vec<u8>| text_of(&bytes);
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn newest(jobs: &Jobs) -> Value {
    jobs.ask(&json!({"command": "sequence-list"}))["sequences"][0].clone()
}

fn given(sequence: &Value) -> u64 {
    sequence["given"].as_u64().unwrap_or(0)
}

#[test]
fn a_file_s_lines_become_jobs_lazily_and_once_though_processes_are_killed() {
    let jobs = Jobs::start("max_children = 4", "");
    let mut text = String::new();
    for line in 0..100 {
        let _ = writeln!(text, "line {line}");
    }
    fs::write(jobs.dir().join("lines"), &text).expect("lines");
    let path = jobs.dir().join("lines").display().to_string();
    let feed = [
        "push",
        "mail",
        "line",
        "--each-line",
        &path,
        "--sequence",
        "all",
        "--ahead",
        "10",
        "--wait",
        "--json",
    ];
    jobs.ask(&json!({"command": "pause", "queue": "mail"}));
    let mut feeder = command(&jobs, &feed)
        .stdout(Stdio::null())
        .spawn()
        .expect("forkyard");
    wait_until("jobs are waiting", || given(&newest(&jobs)) >= 10);
    process::signal(jobs.keeper_of_jobs(jobs.daemon.pid()), Signal::SIGKILL);
    jobs.ask(&json!({"command": "resume", "queue": "mail"}));
    wait_until("the source is read on", || given(&newest(&jobs)) > 20);
    jobs.ask(&json!({"command": "pause", "queue": "mail"}));
    let sequence = newest(&jobs);
    assert!(
        sequence["waiting"].as_u64().is_some_and(|waiting| waiting < 20),
        "{sequence}"
    );
    feeder.kill().expect("kill");
    feeder.wait().expect("the feeder");
    jobs.ask(&json!({"command": "resume", "queue": "mail"}));
    let (code, shown, errors) = ended(&jobs, &feed);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{shown}");
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let sequence = &shown["sequence"];
    for (name, count) in [
        ("given", 100),
        ("total", 100),
        ("done", 100),
        ("waiting", 0),
        ("failed", 0),
    ] {
        assert_eq!(sequence[name], count, "{name}: {sequence}");
    }
    let lines = read_file(jobs.dir().join("out/lines"));
    let mut lines: Vec<&str> = lines.lines().collect();
    let mut wanted: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    wanted.sort_unstable();
    assert_eq!(lines, wanted, "each line is a job");
    let list = jobs.ask(&json!({"command": "list", "limit": 1000}));
    assert_eq!(
        list["jobs"].as_array().map(Vec::len),
        Some(100),
        "and no line is two"
    );
}

#[test]
fn a_command_s_lines_are_all_there_are_only_if_it_ends_well() {
    let jobs = Jobs::start("max_children = 2", "attempts = 1\n");
    let lines = "printf '{\"n\":1}\\n{\"n\":2}\\n'";
    let json = ["--content-type", "application/json"];
    let push = |kind: &'static str, command: &'static str, more: &[&'static str]| {
        let first = ["push", "mail", kind, "--each-line-of", command, "--json"];
        ended(&jobs, &[&first[..], &json[..], more].concat())
    };
    let (code, shown, _) = push("echo", lines, &["--wait"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(
        (code, &shown["sequence"]["done"]),
        (Some(0), &json!(2)),
        "{shown}"
    );
    let list = jobs.ask(&json!({"command": "list"}));
    let id = list["jobs"][0]["id"].as_i64().expect("a job");
    assert_eq!(jobs.show(id)["result"], "{\"n\":2} mail ");
    let (code, ..) = push("fail", "echo 1", &["--wait"]);
    assert_eq!((code, &newest(&jobs)["failed"]), (Some(70), &json!(1)));
    // A source that breaks off leaves its sequence open; its jobs are cancelled by hand.
    jobs.ask(&json!({"command": "pause", "queue": "mail"}));
    let (code, _, errors) = push("echo", "echo 1; exit 3", &[]);
    assert_eq!(
        (code, errors.contains("exit status: 3")),
        (Some(70), true),
        "{errors}"
    );
    let open = newest(&jobs);
    assert_eq!((&open["state"], &open["waiting"]), (&json!("open"), &json!(1)));
    let id = open["id"].to_string();
    let (code, shown, _) = ended(&jobs, &["cancel-sequence", &id]);
    let line = shown.lines().nth(1).unwrap_or_default();
    assert_eq!((code, line.contains("cancelled")), (Some(0), true), "{shown}");
    let cancelled = newest(&jobs);
    assert_has(&cancelled, json!({"waiting": 0, "cancelled": 1}));
    assert_eq!(ended(&jobs, &["sequence", &id, "--wait"]).0, Some(70));
    let (_, shown, _) = ended(&jobs, &["sequences"]);
    assert_eq!(shown.lines().count(), 4, "{shown}");
}

#[test]
fn jobs_whose_addition_is_not_answered_are_added_again_from_the_same_place() {
    let dir = directory();
    let socket = dir.path().join("jobs.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    listener.set_nonblocking(true).expect("a listener");
    fs::write(dir.path().join("lines"), "a\nb\n").expect("lines");
    let mut command = forkyard(&["jobs", "push", "mail", "line"], dir.path());
    command.arg("--each-line").arg(dir.path().join("lines"));
    command.arg("--socket").arg(&socket);
    let child = command.stdout(Stdio::piped()).spawn().expect("forkyard");
    let accept = || {
        let (stream, _) = until("a connection", || listener.accept().ok());
        stream.set_nonblocking(false).expect("a connection");
        BufReader::new(stream)
    };
    let hear = |stream: &mut BufReader<UnixStream>| -> Value {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a request");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    };
    let answer = |stream: &mut BufReader<UnixStream>, state: &str, given: u64| {
        let sequence = json!({
            "id": 7, "queue": "mail", "state": state, "given": given, "waiting": given,
            "running": 0, "done": 0, "failed": 0, "cancelled": 0, "begun_ms": 0,
        });
        let answer = json!({"result": "sequence", "sequence": sequence});
        writeln!(stream.get_mut(), "{answer}").expect("an answer");
    };
    let mut hanging = accept();
    assert_eq!(hear(&mut hanging)["command"], "sequence-begin");
    answer(&mut hanging, "open", 0);
    let added = hear(&mut hanging);
    let mut next = accept();
    assert_eq!(hear(&mut next), added);
    answer(&mut next, "open", 2);
    assert_eq!(hear(&mut next)["command"], "sequence-end");
    answer(&mut next, "complete", 2);
    assert_success(&child.wait_with_output().expect("forkyard"));
}

//! Tests of the socket and the command line.

use super::{Client, Jobs};
use crate::support::prelude::*;

/// Runs `forkyard jobs`: exit code, output, errors.
fn command(jobs: &Jobs, arguments: &[&str]) -> (Option<i32>, String, String) {
    let whole: Vec<&str> = ["jobs"].iter().chain(arguments).copied().collect();
    let output = forkyard(&whole, &jobs.dir()).output().expect("forkyard");
    (
        output.status.code(),
        text_of(&output.stdout),
        text_of(&output.stderr),
    )
}

const CONTROL: &str = "control = \"@DIR/control.sock\"\n";

#[test]
fn the_command_line_does_what_the_socket_does() {
    let schedule = "[jobs.schedule.nightly]\nqueue = \"mail\"\nkind = \"echo\"\ncron = \"30 2 * * *\"\npayload = \"7\"\n";
    let jobs = Jobs::start_with(CONTROL, "max_children = 2", "attempts = 1\n", schedule);
    let (code, shown, errors) = command(
        &jobs,
        &[
            "push",
            "mail",
            "echo",
            "--payload",
            "[1]",
            "--tenant",
            "t",
            "--wait",
        ],
    );
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert_contains(&shown, "mail/echo: done");
    assert_contains(&shown, "result: [1] mail t");
    assert_eq!(command(&jobs, &["push", "mail", "fail", "--wait"]).0, Some(70));
    let (_, listed, _) = command(&jobs, &["list", "--state", "failed"]);
    let line = listed.lines().nth(1).unwrap_or_else(|| panic!("{listed}"));
    assert!(line.contains("fail") && line.contains("status 500"), "{listed}");
    assert_eq!(
        command(&jobs, &["discard", "--state", "failed", "--queue", "mail"]).1,
        "1 changed\n"
    );
    assert_eq!(
        command(&jobs, &["pause", "mail", "--reason", "a move"]).1,
        "done\n"
    );
    let (_, pushed, _) = command(&jobs, &["push", "mail", "echo", "--key", "k"]);
    assert_eq!(
        command(&jobs, &["push", "mail", "echo", "--key", "k"]).1,
        format!("{} (was there already)\n", pushed.trim())
    );
    let (_, queues, _) = command(&jobs, &["queues"]);
    assert_contains(&queues, "paused");
    assert_contains(&queues, "www");
    let id: i64 = pushed.trim().parse().expect("a number");
    assert_eq!(jobs.show(id)["state"], "waiting");
    assert_eq!(command(&jobs, &["resume", "mail"]).1, "done\n");
    assert_eq!(command(&jobs, &["wait", pushed.trim()]).0, Some(0));
    let (_, schedules, _) = command(&jobs, &["schedules"]);
    assert_contains(&schedules, "nightly");
    assert_contains(&schedules, "30 2 * * *");
    let (_, now, _) = command(&jobs, &["run-now", "nightly"]);
    let (_, shown, _) = command(&jobs, &["wait", now.trim()]);
    assert_contains(&shown, "result: 7 mail");
    let (_, stats, _) = command(&jobs, &["--json", "stats"]);
    let stats: Value = serde_json::from_str(&stats).expect("JSON");
    assert_eq!(stats["queues"][0]["ended"], json!({"done": 3, "failed": 1}));
    let status = |option: &str| {
        let arguments: Vec<&str> = ["status", option]
            .into_iter()
            .filter(|it| !it.is_empty())
            .collect();
        text_of(&forkyard(&arguments, &jobs.dir()).output().expect("status").stdout)
    };
    assert_contains(&status(""), "QUARANTINED");
    let json: Value = serde_json::from_str(&status("--json")).expect("JSON");
    assert_eq!(json["jobs"]["stats"]["queues"][0]["name"], "mail");
    let metrics = status("--metrics");
    assert_contains(
        &metrics,
        "forkyard_jobs_ended_total{queue=\"mail\",outcome=\"done\"} 3",
    );
    assert_contains(&metrics, "# TYPE forkyard_jobs_run_seconds histogram");
    assert_contains(&metrics, "forkyard_jobs_run_seconds_count{queue=\"mail\"} 4");
    assert_contains(
        &metrics,
        "forkyard_jobs_wait_seconds_bucket{le=\"+Inf\",queue=\"mail\"} 4",
    );
    let (code, _, errors) = command(&jobs, &["push", "nowhere", "echo"]);
    assert_eq!(
        (
            code,
            errors.contains("there is no queue \"nowhere\"; there are mail")
        ),
        (Some(70), true),
        "{errors}"
    );
}

#[test]
fn commands_refuse_jobs_and_queues_that_do_not_exist() {
    let jobs = Jobs::start_with(CONTROL, "max_children = 2", "attempts = 1\n", "");
    let (_, pushed, _) = command(&jobs, &["push", "mail", "echo"]);
    let done = pushed.trim();
    assert_eq!(command(&jobs, &["wait", done]).0, Some(0));
    for name in ["retry", "cancel", "discard", "purge"] {
        for job in [&["999"][..], &["--queue", "mail", "--ref", "none"]] {
            let (code, said, errors) = command(&jobs, &[&[name], job].concat());
            assert_eq!((code, said.as_str()), (Some(70), ""), "{name} {job:?}");
            assert_contains(&errors, "there is no such job");
        }
    }
    // What there is to change may be nothing.
    for rest in [&[done][..], &["--state", "waiting"]] {
        let (code, said, _) = command(&jobs, &[&["cancel"], rest].concat());
        assert_eq!((code, said.as_str()), (Some(0), "0 changed\n"), "{rest:?}");
    }
    for name in ["pause", "resume"] {
        let (code, said, errors) = command(&jobs, &[name, "mial"]);
        assert_eq!((code, said.as_str()), (Some(70), ""), "{name}");
        assert_contains(&errors, "there is no queue \"mial\"");
    }
    assert_eq!(command(&jobs, &["cancel-sequence", "999"]).0, Some(70));
    let push = ["push", "mail", "echo", "--each-line", "/nonexistent"];
    assert_eq!(command(&jobs, &push).0, Some(70));
    let (_, sequences, _) = command(&jobs, &["sequences"]);
    assert!(!sequences.contains("open"), "{sequences}");
}

#[test]
fn a_command_reads_the_configuration_once() {
    let jobs = Jobs::start("max_children = 1", "");
    let trace = jobs.dir().join("trace");
    let command = forkyard(&["jobs", "queues"], &jobs.dir());
    let output = Command::new("strace")
        .args(["-f", "-e", "trace=openat", "-o"])
        .arg(&trace)
        .arg(command.get_program())
        .args(command.get_args())
        .output()
        .expect("strace");
    assert_success(&output);
    let opened = read_file(trace);
    assert_eq!(opened.matches("forkyard.toml\"").count(), 1, "{opened}");
}

#[test]
fn commands_reach_the_jobs_while_the_configuration_is_invalid() {
    let jobs = Jobs::start("max_children = 4", "");
    let file = jobs.dir().join("forkyard.toml");
    let valid = read_file(&file);
    for wrong in [
        valid.replace("max_children = 4", "max_children = \"four\""),
        format!(
            "[global]\ninclude = [\"none.toml\"]\nx = 1\n{}",
            valid.replace("[global]\n", "")
        ),
    ] {
        assert_ne!(wrong, valid);
        write_file(&file, &wrong);
        let (code, pushed, errors) = command(&jobs, &["push", "mail", "echo"]);
        assert_eq!(code, Some(0), "{wrong}{errors}");
        assert_contains(&errors, " is not valid (see forkyard check -c ");
        assert_eq!(command(&jobs, &["wait", pushed.trim()]).0, Some(0));
    }
    write_file(&file, "[global\n");
    let (code, _, errors) = command(&jobs, &["queues"]);
    assert_eq!(code, Some(78));
    assert_contains(&errors, ": error: ");
}

#[test]
fn many_jobs_are_pushed_at_once_or_none_of_them() {
    let jobs = Jobs::start("max_children = 4", "");
    let mut client = Client::connect(&jobs.dir());
    let several = |last: &str| {
        let job = |queue: &str| json!({"queue": queue, "kind": "echo"});
        json!({"command": "push", "jobs": [job("mail"), job("mail"), job(last)]})
    };
    assert_eq!(client.ask(&several("mial"))["result"], "error");
    let pushed = client.ask(&several("mail"));
    assert_eq!(pushed["jobs"].as_array().map(Vec::len), Some(3));
    wait_until("three jobs are done", || {
        let list = client.ask(&json!({"command": "list"}));
        let list = list["jobs"].as_array().cloned().unwrap_or_default();
        list.len() == 3 && list.iter().all(|job| job["state"] == "done")
    });
    let refused = client.ask(&json!({"command": "fly"}));
    assert_contains(
        refused["message"].as_str().unwrap_or_default(),
        "no command \"fly\"",
    );
    assert_eq!(client.ask(&json!({"command": "queues"}))["result"], "queues");
}

#[test]
fn a_list_has_filters_and_pages() {
    let jobs = Jobs::start_with(CONTROL, "max_children = 2", "attempts = 1\n", "");
    let steps = jobs.done(
        "steps",
        json!({"payload": {"a": "ok", "b": "warning"}, "steps": ["a", "b"]}),
    );
    let key = jobs.done("echo", json!({"key": "k/1", "tenant": "T"}));
    let failed = jobs.done("fail", json!({}));
    let later = jobs.show(jobs.push("echo", json!({"in_ms": 600_000, "tenant": "T"})));
    let ids = |jobs: &[&Value]| -> Vec<i64> { jobs.iter().filter_map(|job| job["id"].as_i64()).collect() };
    let list = |more: &[&str]| -> Vec<i64> {
        let (code, said, errors) = command(&jobs, &[&["--json", "list"], more].concat());
        assert_eq!(code, Some(0), "{more:?}: {errors}");
        let answer: Value = serde_json::from_str(&said).expect("JSON");
        ids(&answer["jobs"]
            .as_array()
            .expect("jobs")
            .iter()
            .collect::<Vec<_>>())
    };
    let last = failed["id"].to_string();
    for (filter, expected) in [
        (&["--status", "warning"][..], ids(&[&steps])),
        (&["--step", "b"], ids(&[&steps])),
        (&["--step", "c"], Vec::new()),
        (&["--key", "k/1"], ids(&[&key])),
        (&["--tenant", "T"], ids(&[&later, &key])),
        (&["--tenant", "T", "--state", "scheduled"], ids(&[&later])),
        (&["--since", "1h"], ids(&[&later, &failed, &key, &steps])),
        (&["--until", "1h"], Vec::new()),
        (&["--limit", "2"], ids(&[&later, &failed])),
        (&["--limit", "2", "--before", &last], ids(&[&key, &steps])),
    ] {
        assert_eq!(list(filter), expected, "{filter:?}");
    }
    let (_, _, more) = command(&jobs, &["list", "--limit", "2"]);
    assert_eq!(more, format!("forkyard: there may be more: --before {last}\n"));
    let (code, _, errors) = command(&jobs, &["list", "--status", "bad"]);
    assert_eq!(code, Some(70), "{errors}");
    assert_contains(&errors, "no status \"bad\"");
}

#[test]
fn a_payload_has_any_bytes_and_a_kind_any_text() {
    let jobs = Jobs::start_with(CONTROL, "max_children = 2", "", "");
    let bytes = jobs.done("bytes", json!({"payload_base64": "AP/+Cg=="}));
    assert_eq!(bytes["result"], "00fffe0a application/octet-stream");
    assert_has(&bytes, json!({"payload_base64": "AP/+Cg==", "payload": null}));
    // Text that looks like JSON is stored as text.
    let (_, id, _) = command(
        &jobs,
        &[
            "push",
            "mail",
            "bytes",
            "--content-type",
            "application/x-laravel",
            "--payload",
            "\"a\"",
        ],
    );
    let text = jobs.wait(id.trim().parse().expect("a number"));
    assert_eq!(text["result"], "226122 application/x-laravel");
    assert_eq!(text["payload"], "\"a\"");
    let kind = jobs.done("Closure (web.php:12) #ü?%", json!({}));
    let path = "/jobs/mail/Closure%20(web.php:12)%20%23%C3%BC%3F%25?job=";
    assert_starts(kind["result"].as_str().unwrap_or_default(), path);
}

#[test]
fn a_client_that_waits_is_answered_once() {
    Jobs::start("max_children = 2", "").assert_waits_are_answered_once();
}

#[test]
fn jobs_wait_for_their_time_and_for_each_other() {
    let jobs = Jobs::start("max_children = 4", "");
    let later = jobs.push("echo", json!({"in_ms": 300}));
    assert_eq!(jobs.show(later)["state"], "scheduled");
    let gate = |tenant: &str| {
        jobs.push(
            "gate",
            json!({"payload": "both", "serial": "account/7", "tenant": tenant}),
        )
    };
    let (first, second) = (gate("a"), gate("b"));
    jobs.wait_for_start(first, 1);
    assert_eq!(jobs.show(second)["state"], "blocked");
    jobs.open("both");
    assert_eq!(jobs.wait(second)["state"], "done");
    let done = jobs.wait(later);
    let waited = done["started_ms"].as_i64().unwrap_or(0) - done["pushed_ms"].as_i64().unwrap_or(0);
    assert!(waited >= 300, "{done}");
}

/// Each command in the manual's table of a services monitor works as written.
#[test]
fn the_equivalents_of_a_services_monitor_work() {
    let schedule = "[jobs.schedule.nightly]\nqueue = \"mail\"\nkind = \"echo\"\ncron = \"30 2 * * *\"\n";
    let jobs = Jobs::start_with(CONTROL, "max_children = 2", "", schedule);
    let lines = jobs.daemon.write("lines", "a\nb\n").display().to_string();
    let id = jobs.push("line", json!({"tenant": "t", "payload": "x", "key": "service/1"}));
    jobs.wait(id);
    let begun = command(
        &jobs,
        &["--json", "push", "mail", "line", "--each-line", &lines, "--wait"],
    );
    let sequence: Value = serde_json::from_str(&begun.1).unwrap_or_else(|_| panic!("{begun:?}"));
    let sequence = sequence["sequence"]["id"].to_string();
    let page = include_str!("../../../docs/reference/jobs.md");
    let (_, table) = page
        .split_once("### For users of a services monitor")
        .expect("the section");
    let rows = table
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    let rows: Vec<&str> = rows.skip(2).collect();
    for word in [
        "CHECK",
        "QUERY",
        "JOBLIST",
        "REGTASKS",
        "QTASK",
        "QSERVICE",
        "LSSERV",
        "ENTITIES",
        "WHOS",
        "FORMAT HR",
        "FORMAT JSON",
        "NOOP",
        "STOP",
        "SHUTDWN",
        "EXIT",
        "HELP",
    ] {
        assert!(
            rows.iter().any(|row| row.contains(&format!("`{word}`"))),
            "{word}"
        );
    }
    let mut count = 0;
    for row in rows {
        for written in row.split('`').filter(|text| text.starts_with("forkyard ")) {
            let id = if written.contains("sequence") {
                sequence.clone()
            } else {
                id.to_string()
            };
            let words = written.split(' ').skip(1).map(|word| match word {
                "QUEUE" => "mail",
                "KIND" => "line",
                "PATTERN" => "service/*",
                "FILE" => &lines,
                "NAME" => "t",
                "ID" => &id,
                word => word,
            });
            let words: Vec<&str> = words.collect();
            let output = forkyard(&words, &jobs.dir()).output().expect("forkyard");
            let said = text_of(&output.stdout);
            assert!(
                output.status.success() && !said.is_empty(),
                "{written}: {output:?}"
            );
            let shows = match written {
                "forkyard jobs kinds" => vec!["mail", "line", "jobs.php", "nightly", "DONE"],
                "forkyard jobs connections" => vec!["pid ", "connections", "all"],
                "forkyard jobs last --by key" => vec!["line", "service/1"],
                "forkyard jobs sequences" => vec!["complete"],
                _ => Vec::new(),
            };
            assert!(shows.iter().all(|text| said.contains(text)), "{written}: {said}");
            count += 1;
        }
    }
    assert!(count >= 13, "{count}");
}

//! A hostile application can't harm others through jobs.

use super::{Client, Jobs, configuration};
use crate::support::prelude::*;

/// Speaks to the jobs' socket as a user: lines of standard input are requests, or `open COUNT`, `half COUNT BYTES`.
const SPEAKER: &str = r#"
import select, socket, sys
path, kept = sys.argv[1], []

def connect():
    client = socket.socket(socket.AF_UNIX)
    # Without a time limit: a connection that finds no room waits.
    client.connect(path)
    client.settimeout(60)
    return client

def count(clients):
    """How many of them the process has not let go of: there is nothing to read, not even the end."""
    return len(clients) - len(select.select(clients, [], [], 0)[0])

for line in sys.stdin:
    words = line.split()
    if words[0] == "open":
        kept = [connect() for _ in range(int(words[1]))]
        # All of them have been looked at when the last is.
        try:
            last = connect()
            last.sendall(b"{}\n")
            last.recv(100)
        except OSError:
            pass
        print(count(kept), flush=True)
        kept = []
    elif words[0] == "half":
        said = b""
        for _ in range(int(words[1])):
            client = connect()
            kept.append(client)
            try:
                client.sendall(b"x" * int(words[2]))
            except OSError:
                pass
        for client in select.select(kept, [], [], 30)[0]:
            try:
                said = client.recv(200) or said
            except OSError:
                pass
        print(said.decode().strip() or "nothing", flush=True)
        kept = []
    else:
        client = connect()
        client.sendall(line.encode())
        print(client.makefile().readline().strip(), flush=True)
"#;

fn speak(jobs: &Jobs, user: &str, lines: &[String]) -> Vec<String> {
    let mut speaker = Command::new("setpriv")
        .args([
            "--reuid",
            user,
            "--regid",
            "nogroup",
            "--clear-groups",
            "/usr/bin/python3",
            "-c",
            SPEAKER,
        ])
        .arg(jobs.dir().join("jobs.sock"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("setpriv");
    let mut input = speaker.stdin.take().expect("input");
    for line in lines {
        writeln!(input, "{line}").expect("a line");
    }
    drop(input);
    let output = BufReader::new(speaker.stdout.take().expect("output"));
    let said = output.lines().map(|line| line.expect("text")).collect();
    speaker.wait().expect("the speaker");
    said
}

fn answers(jobs: &Jobs, user: &str, requests: &[Value]) -> Vec<Value> {
    let lines: Vec<String> = requests.iter().map(Value::to_string).collect();
    let said = speak(jobs, user, &lines);
    said.iter()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

#[test]
fn a_user_gets_at_no_job_of_a_queue_that_is_not_its_own() {
    skip_if!(needs_root());
    let jobs = Jobs::start("max_children = 1\n", "");
    let running = jobs.push("gate", json!({"payload": "open", "key": "secret"}));
    jobs.wait_for_start(running, 1);
    let sequence = jobs.ask(&json!({"command": "sequence-begin", "queue": "mail"}))["sequence"]["id"].clone();
    let requests = [
        json!({"command": "push", "job": {"queue": "mail", "kind": "echo"}}),
        json!({"command": "show", "id": running}),
        json!({"command": "wait", "id": running}),
        json!({"command": "list", "queue": "mail"}),
        json!({"command": "count", "queue": "mail"}),
        json!({"command": "pause", "queue": "mail"}),
        json!({"command": "cancel", "state": "running", "queue": "mail"}),
        json!({"command": "sequence-show", "id": sequence}),
        json!({"command": "sequence-add", "id": sequence, "from": 0, "jobs": [{"queue": "mail", "kind": "echo"}]}),
        json!({"command": "sequence-list"}),
    ];
    // `wait` would be answered at the job's end, so it comes last.
    for (request, answer) in requests.iter().zip(answers(&jobs, "games", &requests[..2])) {
        assert_eq!(answer["result"], "error", "{request}: {answer}");
        assert!(!answer.to_string().contains("secret"), "{answer}");
    }
    for (request, answer) in requests[3..].iter().zip(answers(&jobs, "games", &requests[3..])) {
        assert_eq!(answer["result"], "error", "{request}: {answer}");
    }
    let changes = [
        json!({"command": "cancel", "id": running}),
        json!({"command": "cancel", "state": "running"}),
        json!({"command": "retry", "id": running}),
        json!({"command": "progress", "id": running, "attempt": 1, "percent": 99}),
        json!({"command": "sequence-cancel", "id": sequence}),
    ];
    for (request, answer) in changes.iter().zip(answers(&jobs, "games", &changes)) {
        assert!(
            answer["count"].as_i64().unwrap_or(0) == 0 && answer["ending"].as_i64().unwrap_or(0) == 0,
            "{request}: {answer}"
        );
    }
    let shown = jobs.show(running);
    assert_has(&shown, json!({"state": "running", "progress": null}));
    let shown = jobs.ask(&json!({"command": "sequence-show", "id": sequence}));
    assert_eq!(shown["sequence"]["state"], "open");
    jobs.open("open");
    assert_eq!(jobs.wait(running)["state"], "done");
    let waited = answers(&jobs, "games", &requests[2..3]);
    assert_eq!(waited[0]["result"], "error", "{waited:?}");
}

/// The pool's user controls the queues that the pool runs, and no others.
#[test]
fn an_owner_looks_after_its_own_queues() {
    skip_if!(needs_root());
    let more = "[pool.other]\nlisten = \"@DIR/other.sock\"\nuser = \"games\"\npm = \"ondemand\"\nmax_children = 1\n\
                [pool.other.application]\nruntime = \"php\"\nversion = \"@PHP\"\n\
                [jobs.queue.other]\npool = \"other\"\nscript = \"@DIR/jobs.php\"\n";
    let more = more.replace("@PHP", env!("FORKYARD_PHP"));
    // The jobs user may do everything.
    let keeper = |user: &str| format!("user = \"{user}\"\n[jobs.queue.mail]");
    let daemon = Daemon::start(|dir| {
        let text = configuration(dir, "", "max_children = 1\n", "", &more);
        text.replace(&keeper("www-data"), &keeper("nobody"))
    });
    let jobs = Jobs { daemon };
    let later = json!({"in_ms": 600_000});
    for tenant in ["A", "A", "B"] {
        jobs.push("echo", json!({"in_ms": 600_000, "tenant": tenant}));
        jobs.push(
            "echo",
            json!({"in_ms": 600_000, "tenant": tenant, "queue": "other"}),
        );
    }
    jobs.push("line", later);
    let own = |requests: &[Value]| answers(&jobs, "www-data", requests);
    let seen = own(&[
        json!({"command": "list"}),
        json!({"command": "count"}),
        json!({"command": "count", "tenant": "A", "kind": "echo"}),
        json!({"command": "queues"}),
        json!({"command": "stats"}),
    ]);
    let list = seen[0]["jobs"].as_array().expect("jobs");
    assert!(
        list.len() == 4 && list.iter().all(|job| job["queue"] == "mail"),
        "{list:?}"
    );
    assert_eq!(seen[1]["counts"], json!({"scheduled": 4}));
    assert_eq!(seen[2]["counts"], json!({"scheduled": 2}));
    for queues in [&seen[3]["queues"], &seen[4]["queues"]] {
        assert_eq!(
            (queues.as_array().map(Vec::len), &queues[0]["name"]),
            (Some(1), &json!("mail"))
        );
    }
    let cancel = json!({"command": "cancel", "state": "scheduled", "tenant": "A", "kind": "echo"});
    assert_eq!(own(&[cancel])[0]["count"], 2);
    let count = |queue: &str| jobs.ask(&json!({"command": "count", "queue": queue}))["counts"].clone();
    assert_eq!(count("mail"), json!({"cancelled": 2, "scheduled": 2}));
    assert_eq!(count("other"), json!({"scheduled": 3}));
    let retry = json!({"command": "retry", "state": "cancelled", "tenant": "B"});
    let paused = own(&[
        json!({"command": "pause", "queue": "mail"}),
        retry,
        json!({"command": "pause", "queue": "other"}),
    ]);
    assert_eq!(
        (&paused[0]["result"], &paused[1]["count"], &paused[2]["result"]),
        (&json!("done"), &json!(0), &json!("error"))
    );
    let queues = jobs.ask(&json!({"command": "queues"}));
    let is_paused = |name: &str| {
        let queues = queues["queues"].as_array().expect("queues");
        queues
            .iter()
            .any(|queue| queue["name"] == name && queue["paused"] == true)
    };
    assert!(is_paused("mail") && !is_paused("other"), "{queues}");
}

#[test]
fn a_flood_of_connections_and_of_half_requests_keeps_no_other_from_pushing() {
    skip_if!(needs_root());
    let jobs = Jobs::start("max_children = 1\n", "");
    let mut other = Client::connect(&jobs.dir());
    let queues = json!({"command": "queues"});
    assert_eq!(other.ask(&queues)["result"], "queues");
    let said = speak(&jobs, "games", &["open 300".to_owned()]);
    let open: usize = said[0].parse().expect("a number");
    assert!((200..=256).contains(&open), "{said:?}");
    assert_eq!(other.ask(&queues)["result"], "queues");
    assert_eq!(jobs.done("echo", json!({}))["state"], "done");
    let said = speak(&jobs, "games", &[format!("half 100 {}", 1 << 20)]);
    assert!(said[0].contains("too much is pushed at once"), "{said:?}");
    assert!(
        said[0].contains("\"is_temporary\":true"),
        "who feeds a sequence asks again: {said:?}"
    );
    assert_eq!(jobs.done("echo", json!({}))["state"], "done");
    let kinds: Vec<Value> = (0..5_000)
        .map(|_| json!({"queue": "mail", "kind": "unwanted"}))
        .collect();
    let pushed = answers(&jobs, "www-data", &[json!({"command": "push", "jobs": kinds})]);
    assert_eq!(pushed[0]["result"], "pushed");
}

#[test]
fn a_payload_that_is_too_long_and_what_is_no_request_are_refused_and_cost_nothing() {
    let jobs = Jobs::start("max_children = 1\n", "");
    let mut client = Client::connect(&jobs.dir());
    let long =
        json!({"command": "push", "job": {"queue": "mail", "kind": "echo", "payload": "x".repeat(300_000)}});
    let refused = client.ask(&long);
    assert_contains(refused["message"].as_str().unwrap_or_default(), "max_payload");
    let stream = until("the socket", || {
        UnixStream::connect(jobs.dir().join("jobs.sock")).ok()
    });
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    let mut stream = BufReader::new(stream);
    for noise in [
        &b"\0\xff\n"[..],
        b"{\"command\":\n",
        b"[[[[[[[[\n",
        b"{\"command\":\"push\",\"jobs\":[{}]}\n",
    ] {
        stream.get_mut().write_all(noise).expect("noise");
        let mut line = String::new();
        stream.read_line(&mut line).expect("an answer");
        assert_starts(&line, "{\"result\":\"error\"");
    }
    assert_eq!(jobs.done("echo", json!({}))["state"], "done");
}

//! Out-of-band work in pools of one application, coordinated by the workers.

use super::python;
use super::rack::Application;
use crate::support::prelude::*;

const FILE: &str = r##"
def note(text) = File.write("log", "#{text} #{Process.pid}\n", mode: "a")
Forkyard.out_of_band do
  note("begin")
  sleep 0.01 until File.exist?("go")
  note("end")
end
run ->(env) { [200, { "Forkyard-Request-OOB-Work" => "true" }, [Process.pid.to_s]] }
"##;

const COROUTINE: &str = r#"
import asyncio, os, forkyard

@forkyard.out_of_band
async def work():
    await asyncio.sleep(0)
    while os.path.exists("hold"):
        await asyncio.sleep(0.01)
    raise LookupError("no such cache")

async def application(scope, receive, send):
    assert scope["type"] == "http"
    headers = [(b"x-passenger-request-oob-work", b"true")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
"#;

fn lines(root: &Path) -> Vec<String> {
    let text = fs::read_to_string(root.join("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn working(daemon: &Daemon) -> Vec<String> {
    let params = Params::get(&daemon.dir, "status", "full&json").with("SCRIPT_NAME", "/status");
    let body = daemon.ask("www", &params).body();
    let page: Value = serde_json::from_str(&body).expect(&body);
    let rows = page["processes"].as_array().expect("processes").clone();
    let works = |row: &&Value| row["state"] == "Working";
    let text = |row: &Value| format!("{} {}", row["pid"], row["request method"]);
    rows.iter().filter(works).map(text).collect()
}

#[test]
fn one_worker_at_a_time_works_and_the_others_serve() {
    works_one_after_the_other("");
    works_one_after_the_other("threads = 2\n");
}

fn works_one_after_the_other(threads: &str) {
    let settings = "pm = \"static\"\nmax_children = 3\nstatus_path = \"/status\"\n";
    let application = Application::start_with(&[("config.ru", FILE)], settings, threads);
    let (daemon, root) = (&application.daemon, application.root.path());
    let ask = || {
        let answer = application.get("x", "");
        assert_lacks(&answer.text().to_ascii_lowercase(), "oob-work");
        answer.body()
    };
    let first = ask();
    wait_until("its work", || !lines(root).is_empty());
    assert_eq!(lines(root), [format!("begin {first}")]);
    assert_eq!(working(daemon), [format!("{first} \"OOBW\"")]);
    let others: BTreeSet<String> = until("answers of both others", || {
        let mut clients: Vec<_> = (0..4).map(|_| daemon.client("www")).collect();
        let params = Params::get(&daemon.dir, "x", "");
        for client in &mut clients {
            client.send(&params, b"").expect("send");
        }
        let answers = clients
            .iter_mut()
            .map(|client| client.answer().expect("answer").body());
        let answers: BTreeSet<String> = answers.collect();
        assert!(!answers.contains(&first), "a request waited for the work");
        (answers.len() == 2).then_some(answers)
    });
    assert_eq!(lines(root).len(), 1, "they wait for their turn");
    fs::write(root.join("go"), "").expect("go");
    let all = until("everybody's work", || {
        let lines = lines(root);
        (lines.len() >= 6).then_some(lines)
    });
    for pair in all.chunks(2) {
        assert_eq!(pair[1], pair[0].replace("begin", "end"), "{all:?}");
    }
    for other in others {
        assert!(all.contains(&format!("end {other}")), "{all:?}");
    }
    assert_eq!(working(daemon), [] as [String; 0]);
}

#[test]
fn work_that_fails_is_logged_and_the_worker_serves_on() {
    let settings = "pm = \"static\"\nmax_children = 1\n";
    let (daemon, _root) = python::start_as("asgi", &[("asgi.py", COROUTINE)], settings, "");
    let pid = daemon.get("www", "x").body();
    for count in 1..4 {
        let line = daemon.wait_for_count(
            "[pool www] out-of-band work failed: LookupError: no such cache (",
            count,
        );
        assert_contains(&line, "asgi.py:9)");
        assert_eq!(daemon.get("www", "x").body(), pid);
    }
}

#[test]
fn a_request_has_to_wait_where_there_is_one_worker_and_too_long_work_ends_it() {
    let settings = "pm = \"static\"\nmax_children = 1\nrequest_terminate_timeout = \"1s\"\n";
    let (daemon, root) = python::start_as("asgi", &[("asgi.py", COROUTINE)], settings, "");
    fs::write(root.path().join("hold"), "").expect("hold");
    let pid: u32 = daemon.get("www", "x").body().parse().expect("pid");
    assert_contains(&daemon.wait_for("execution timed out"), "OOBW");
    fs::remove_file(root.path().join("hold")).expect("go on");
    assert_ne!(daemon.get("www", "x").body(), pid.to_string());
    assert!(!process::runs(pid));
}

#[test]
fn connections_that_a_worker_keeps_are_served_while_it_works() {
    let settings = "pm = \"static\"\nmax_children = 2\n";
    let application = Application::start_with(&[("config.ru", FILE)], settings, "");
    let (daemon, root) = (&application.daemon, application.root.path());
    let mut client = daemon.client("www").kept();
    let params = Params::get(&daemon.dir, "x", "");
    let first = client.request(&params, b"").expect("answer").body();
    wait_until("its work", || !lines(root).is_empty());
    assert_eq!(lines(root), [format!("begin {first}")]);
    assert_ne!(client.request(&params, b"").expect("answer").body(), first);
    fs::write(root.join("go"), "").expect("go");
}

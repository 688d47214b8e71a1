//! The log of slow requests, for runtimes other than PHP.

use super::fastcgi_programs::{ODD, pid_of};
use crate::it::rust_handler::example;
use crate::support::prelude::*;

const SETTINGS: &str = "status_path = \"/status\"\nslowlog = \"DIR/slow.log\"\n\
     request_slowlog_timeout = \"300ms\"\ncatch_workers_output = true\n";

struct Site {
    daemon: Daemon,
    root: tempfile::TempDir,
}

impl Site {
    fn start(runtime: &str, name: &str, text: &str) -> Site {
        Site::start_with(runtime, &[(name, text)], "")
    }

    fn start_with(runtime: &str, files: &[(&str, &str)], more: &str) -> Site {
        let root = folder(files);
        let application = application_in(runtime, root.path(), "");
        let daemon = Daemon::start(|dir| pool(dir, "www", &format!("{SETTINGS}{more}"), &application));
        daemon.wait_for_workers("www", 1);
        Site { daemon, root }
    }

    fn get(&self, path: &str) -> String {
        self.daemon.get("www", path).body()
    }

    /// The answer to a slow request that ends after this many log entries are complete or failed.
    fn slow(&self, path: &str, done: usize, failed: usize) -> String {
        let (script, query) = path.split_once('?').expect("a query");
        let params = Params::get(&self.daemon.dir, script, query);
        let mut client = self.daemon.send("www", &params);
        self.entries(done, failed);
        let told = self.root.path().join("told");
        fs::write(&told, "").expect("write");
        let body = client.answer().expect("answer").body();
        fs::remove_file(told).expect("remove");
        body
    }

    fn entries(&self, done: usize, failed: usize) -> Vec<String> {
        if done > 0 {
            self.daemon.wait_for_count("finished trace of ", done);
        }
        if failed > 0 {
            self.daemon.wait_for_count("failed to trace child ", failed);
        }
        let text = fs::read_to_string(self.daemon.dir.join("slow.log")).unwrap_or_default();
        let root = self.root.path().display().to_string();
        let entries = text
            .split("\n\n")
            .map(|entry| entry.trim().replace(&root, "ROOT"));
        entries.collect()
    }

    /// The calls of a request, after as many entries as are complete with its own.
    fn calls_of(&self, how: &str, done: usize) -> String {
        assert_eq!(self.slow(&format!("x?{how}"), done, 0), "whole");
        self.without_header(&self.entries(done, 0)[done - 1])
    }

    fn calls(&self) -> String {
        let entries = self.entries(1, 0);
        assert_eq!(entries.len(), 1, "{entries:?}");
        self.without_header(&entries[0])
    }

    fn without_header(&self, entry: &str) -> String {
        let worker = self.daemon.workers("www")[0];
        let mut lines = entry.lines();
        let first = lines.next().unwrap_or_default();
        assert!(first.ends_with(&format!("]  [pool www] pid {worker}")), "{entry}");
        let second = lines.next().unwrap_or_default();
        assert!(second.starts_with("script_filename = "), "{entry}");
        let third = lines.next().unwrap_or_default();
        assert!(third.starts_with("request = GET /"), "{entry}");
        let call = |line: &str| line.replace("[0x0000000000000000] ", "");
        lines.map(call).collect::<Vec<_>>().join("\n")
    }
}

const WSGI: &str = r#"import os, re, signal, socket, time
import faulthandler
def told(): return os.access("told", os.F_OK)
def answer(start, text):
    start("200 OK", [("Content-Type", "text/plain")])
    return [text.encode()]

def sleep():
    begun = time.monotonic()
    while not told(): time.sleep(0.1)
    return "whole" if time.monotonic() - begun >= 0.3 else "cut"

def read():
    ours, theirs = socket.socketpair()
    ours.settimeout(0.1)
    while not told():
        try: return str(ours.recv(1))
        except TimeoutError: pass
    return "whole"

def compute():
    count = 0
    while not told():
        count += 1
    return "whole"

def hold():
    # One call in C that lets no other Python run.
    begun = time.monotonic()
    re.match(r"(a|a)*b", "a" * 24)
    return "whole" if time.monotonic() - begun > 0.4 else "fast"

def application(environ, start):
    how = environ["QUERY_STRING"]
    if how == "pid":
        return answer(start, str(os.getpid()))
    return answer(start, globals()[how]())
"#;

#[test]
fn wsgi_shows_pythons_calls_and_is_not_disturbed() {
    let site = Site::start("wsgi", "wsgi.py", WSGI);
    let pid = site.get("x?pid");
    for (index, (how, lines)) in [
        ("sleep", "sleep() ROOT/wsgi.py:10\n"),
        ("read", ""),
        ("compute", ""),
        ("hold", "hold() ROOT/wsgi.py:30\n"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(site.slow(&format!("x?{how}"), index + 1, 0), "whole");
        let entries = site.entries(index + 1, 0);
        let calls = site.without_header(&entries[index]);
        assert!(calls.contains(lines), "{how}: {calls}");
        assert!(
            calls.contains(&format!("{how}() ROOT/wsgi.py:")),
            "{how}: {calls}"
        );
        assert!(calls.ends_with("application() ROOT/wsgi.py:37"), "{how}: {calls}");
        assert!(entries[index].contains(&format!("\nrequest = GET /x?{how}\n")));
    }
    assert_eq!(site.get("x?pid"), pid, "it is the same worker");
    let status = Params::get(&site.daemon.dir, "status", "").with("SCRIPT_NAME", "/status");
    let status = site.daemon.ask("www", &status).body();
    let slow = status.lines().find(|line| line.starts_with("slow requests:"));
    assert!(slow.is_some_and(|line| line.ends_with(" 4")), "{status}");
}

#[test]
fn there_are_as_many_calls_as_are_wanted() {
    let files = [("wsgi.py", WSGI)];
    let site = Site::start_with("wsgi", &files, "request_slowlog_trace_depth = 1\n");
    site.slow("x?sleep", 1, 0);
    assert_eq!(site.calls(), "sleep() ROOT/wsgi.py:10");
}

#[test]
fn an_application_that_spoils_the_answer_is_left_alone() {
    let spoil = r#"
def gone():
    signal.signal(51, signal.SIG_DFL)
    return sleep()

def ignored():
    signal.signal(51, signal.SIG_IGN)
    return sleep()

def other():
    signal.signal(51, lambda *_: None)
    return sleep()

def unregistered():
    faulthandler.unregister(51)
    return sleep()

def ours():
    sockets = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
    for number in sockets:
        try:
            with socket.socket(fileno=os.dup(number)) as found:
                is_pair = found.family == socket.AF_UNIX and found.type == socket.SOCK_STREAM
                if is_pair and not found.getsockname() and found.getpeername() == "":
                    if not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        yield number
        except OSError:
            pass

def closed():
    # The one of the request has a name: it was accepted.
    for number in ours():
        os.close(number)
    return sleep()

def nonsense():
    for number in ours():
        os.write(number, b"x" * 1000)
    signal.signal(51, lambda *_: [os.write(number, b"\xff\n  File \"\0\n" * 1000) for number in ours()])
    return sleep()

def flood():
    for number in ours():
        os.set_blocking(number, False)
        try:
            while True:
                os.write(number, b"\0" * 1000)
        except OSError:
            pass
    signal.signal(51, signal.SIG_DFL)
    return sleep()
"#;
    let text = WSGI.replace("def application", &format!("{spoil}\ndef application"));
    let (unhandled, silent) = ("it does not handle the signal", "it was asked and did not tell");
    for (how, why) in [
        ("gone", unhandled),
        ("ignored", unhandled),
        ("other", silent),
        ("unregistered", unhandled),
        ("closed", "its end of the socket is closed"),
        ("nonsense", silent),
        ("flood", unhandled),
    ] {
        let site = Site::start("wsgi", "wsgi.py", &text);
        let pid = site.get("x?pid");
        assert_eq!(site.slow(&format!("x?{how}"), 0, 1), "whole", "{how}");
        let entries = site.entries(0, 1);
        assert!(entries[0].ends_with("\n+++ dump failed"), "{how}: {entries:?}");
        assert!(!entries[0].contains("[0x"), "{how}: {entries:?}");
        assert_eq!(site.get("x?pid"), pid, "{how}: it lives");
        let log = site.daemon.log();
        assert!(log.contains(why) && !log.contains("exited on signal"), "{how}");
    }
}

#[test]
fn an_application_may_have_the_signal() {
    let text = format!(
        "{WSGI}\nasked = []\nimport forkyard\n@forkyard.after_fork\ndef take():\n    \
         signal.signal(51, lambda *_: asked.append(1))\n\ndef count():\n    return str(len(asked))\n"
    );
    let site = Site::start("wsgi", "wsgi.py", &text);
    assert_eq!(site.slow("x?sleep", 0, 1), "whole");
    let entries = site.entries(0, 1);
    assert!(entries[0].ends_with("+++ dump failed"), "{entries:?}");
    assert_eq!(site.get("x?count"), "0");
}

const ASGI: &str = r#"import asyncio, os, time
def told(): return os.access("told", os.F_OK)
async def inner():
    while not told(): await asyncio.sleep(0.1)

async def outer():
    await inner()

async def other():
    await asyncio.get_running_loop().create_future()

kept = []

async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["query_string"] == b"await":
        kept.append(asyncio.create_task(other(), name="another"))
        await outer()
    elif scope["query_string"] == b"gather":
        await asyncio.gather(inner(), outer())
    else:
        while not told(): time.sleep(0.1)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"whole"})
"#;

#[test]
fn asgi_shows_what_its_tasks_wait_for() {
    let site = Site::start("asgi", "asgi.py", ASGI);
    let calls = site.calls_of("await", 1);
    let tasks: Vec<&str> = calls.split("task = ").collect();
    assert_eq!(tasks.len(), 3, "{calls}");
    let request = tasks
        .iter()
        .find(|task| task.contains("application()"))
        .expect("a task");
    assert_contains(
        request,
        "inner() ROOT/asgi.py:4\nouter() ROOT/asgi.py:7\napplication() ROOT/asgi.py:19",
    );
    assert_contains(&calls, "task = another\nother() ROOT/asgi.py:10");
    assert_lacks(&calls, "serve()");
    let calls = site.calls_of("gather", 2);
    assert_eq!(calls.matches("inner() ROOT/asgi.py:4").count(), 2, "{calls}");
}

#[test]
fn an_event_loop_that_is_blocked_shows_by_what() {
    let site = Site::start("asgi", "asgi.py", ASGI);
    assert_eq!(site.slow("x?block", 1, 0), "whole");
    let calls = site.calls();
    assert_eq!(calls, "application() ROOT/asgi.py:23");
    let again = site.calls_of("block", 2);
    assert_eq!(again, calls, "what came late belongs to no other request");
}

const RACK: &str = r##"def asleep
  begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  sleep 0.1 until File.exist?("told")
  Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun >= 0.3 ? "whole" : "cut"
end

def compute
  count = 0
  count += 1 until File.exist?("told")
  "whole"
end

def silenced
  Thread.list.find { |thread| thread.name == "forkyard" }.kill
  asleep
end

run ->(env) { [200, { "content-type" => "text/plain" }, [send(env["QUERY_STRING"])]] }
"##;

#[test]
fn rack_shows_rubys_calls_and_is_not_disturbed() {
    let site = Site::start("rack", "config.ru", RACK);
    let calls = site.calls_of("asleep", 1);
    assert_starts(&calls, "sleep() ROOT/config.ru:3\nasleep() ROOT/config.ru:3\n");
    assert_ends(&calls, " ROOT/config.ru:18");
    assert_lacks(&calls, "/proc/self");
    assert_contains(&site.calls_of("compute", 2), "compute() ROOT/config.ru:9\n");
    assert_eq!(site.slow("x?silenced", 2, 1), "whole");
    let entries = site.entries(2, 1);
    assert!(entries[2].ends_with("x?silenced\n+++ dump failed"), "{entries:?}");
}

#[test]
fn workers_that_can_be_asked_leave_in_order() {
    for (runtime, name, text) in [
        ("wsgi", "wsgi.py", WSGI),
        ("asgi", "asgi.py", ASGI),
        ("rack", "config.ru", RACK),
    ] {
        let site = Site::start(runtime, name, text);
        let worker = site.daemon.workers("www")[0];
        process::signal(site.daemon.pid(), Signal::SIGKILL);
        wait_until("the worker's end", || !process::runs(worker));
    }
}

#[test]
fn cgi_shows_the_programs_that_are_waited_for() {
    let text = "#!/bin/sh\nsleep 1.5 >&2\nprintf 'Content-Type: text/plain\\n\\nwhole'\n";
    let site = Site::start("cgi", "slow.cgi", text);
    let params = Params::get(site.root.path(), "slow.cgi", "");
    assert_eq!(site.daemon.ask("www", &params).body(), "whole");
    let programs = site.calls();
    let lines: Vec<&str> = programs.lines().collect();
    assert_eq!(lines.len(), 2, "{programs}");
    assert!(
        lines[0].starts_with("program = pid ") && lines[0].ends_with(": /bin/sh ROOT/slow.cgi"),
        "{programs}"
    );
    assert!(
        lines[1].contains(", state S") && lines[1].ends_with(": sleep 1.5"),
        "{programs}"
    );
}

#[test]
fn fastcgi_shows_the_program_and_what_it_has_started() {
    let root = folder(&[("odd.py", ODD)]);
    let application = application_in("fastcgi", root.path(), "start_command = \"python3 odd.py slow\"");
    let daemon = Daemon::start(|dir| pool(dir, "www", SETTINGS, &application));
    let site = Site { daemon, root };
    let answer = site.daemon.get("www", "x?a=b");
    let pid = pid_of(&answer);
    assert!(
        answer.ended && answer.body().ends_with("served=1"),
        "it goes on: {}",
        answer.text()
    );
    let entry = site.entries(1, 0).remove(0);
    assert_contains(&entry, "\nrequest = GET /x?a=b");
    let lines: Vec<&str> = entry
        .lines()
        .filter(|line| line.starts_with("program = "))
        .collect();
    assert_eq!(lines.len(), 2, "{entry}");
    let program = format!("program = pid {pid}, state S");
    assert!(
        lines[0].starts_with(&program) && lines[0].ends_with(": python3 odd.py slow"),
        "{entry}"
    );
    assert!(
        lines[1].contains(", state S") && lines[1].ends_with(": sleep 1.5"),
        "{entry}"
    );
    assert_eq!(
        pid_of(&site.daemon.get("www", "x")),
        pid,
        "the program is the same"
    );
}

#[test]
fn a_rust_handler_is_named_by_its_request() {
    let configure = |dir: &Path| pool(dir, "hello", SETTINGS, "runtime = \"rust\"\n");
    let daemon = Daemon::start_by(configure, |dir| example("responder", dir));
    let params = Params::get(&daemon.dir, "x", "a=b").with("CONTENT_LENGTH", "4");
    let mut client = daemon.client("hello");
    let whole = params.request(b"body");
    let (begin, end) = whole.split_at(whole.len() - 8);
    client.send_raw(begin).expect("send");
    daemon.wait_for("executing too slow");
    let log = daemon.dir.join("slow.log");
    let text = until("an entry", || {
        fs::read_to_string(&log).ok().filter(|text| !text.is_empty())
    });
    assert_contains(&text, "\nrequest = GET /x?a=b\n");
    assert_lacks(&text, "+++");
    client.send_raw(end).expect("send");
    assert!(client.answer().expect("answer").body().contains("4 bytes"));
}

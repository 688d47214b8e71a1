//! ASGI applications that serve many requests at a time in each worker.

use super::python::start_as;
use crate::it::sites::heartbeat::hold;
use crate::support::daemon::Daemon;
use crate::support::fcgi::{Client, Params};
use crate::support::{assert_lacks, is_root, once_in, pause, until, wait_until};
use forkyard::fastcgi::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// `met` requests wait for each other, `until` a file exists; `most` is the peak.
pub(in crate::it) const APPLICATION: &str = r#"
import asyncio, contextvars, os, time

here = os.path.dirname(os.path.abspath(__file__))
under_way, most, ticks, gone = 0, 0, 0, 0
name = contextvars.ContextVar("name", default="none")
kept = set()

def exists(file):
    return os.path.exists(os.path.join(here, file))

def mark(file):
    open(os.path.join(here, file), "w").close()

async def until(test):
    while not test():
        await asyncio.sleep(0.002)

async def answer(send, text, more=False):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": str(text).encode(), "more_body": more})

async def application(scope, receive, send):
    global under_way, most, gone
    if scope["type"] == "lifespan":
        while True:
            step = (await receive())["type"]
            if step == "lifespan.shutdown":
                mark(f"shutdown.{os.getpid()}")
            await send({"type": step + ".complete"})
            if step == "lifespan.shutdown":
                return
    under_way += 1
    most = max(most, under_way)
    try:
        await globals()["on_" + scope["path"].strip("/")](scope, receive, send, scope["query_string"].decode())
    finally:
        under_way -= 1

async def on_met(scope, receive, send, query):
    await until(lambda: most >= int(query))
    await answer(send, os.getpid())

async def on_until(scope, receive, send, query):
    mark(f"begun.{query}.{os.getpid()}")
    await until(lambda: exists("go"))
    await answer(send, os.getpid())

async def on_begins(scope, receive, send, query):
    await answer(send, "begun", more=True)
    mark(f"streams.{query}")
    await until(lambda: exists("go"))
    await send({"type": "http.response.body", "body": b" and over"})

async def on_file(scope, receive, send, query):
    mark(f"waits.{query}")
    await until(lambda: exists(query.split(".")[0]))
    await answer(send, os.getpid())

async def on_hold(scope, receive, send, query):
    mark(f"held.{os.getpid()}")
    while not exists(query):
        time.sleep(0.002)
    await answer(send, os.getpid())

async def on_pid(scope, receive, send, query):
    await answer(send, os.getpid())

async def on_most(scope, receive, send, query):
    await answer(send, most)

async def on_name(scope, receive, send, query):
    before = name.get()
    name.set(query)
    await until(lambda: most >= 2)
    await answer(send, f"{before} {name.get()}")

async def on_task(scope, receive, send, query):
    async def tick():
        while not exists("stop"):
            await asyncio.sleep(0.002)
        mark("ticked")
    kept.add(asyncio.get_running_loop().create_task(tick()))
    await answer(send, "begun")

async def on_stream(scope, receive, send, query):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    try:
        for count in range(int(query)):
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
            mark(f"sent.{count}")
        await send({"type": "http.response.body"})
    finally:
        mark("over")

async def on_events(scope, receive, send, query):
    global gone
    await answer(send, "begun\n", more=True)
    mark(f"open.{query}")
    message = await receive()
    assert message == {"type": "http.request", "body": b"", "more_body": False}, message
    assert (await receive())["type"] == "http.disconnect"
    gone += 1
    await send({"type": "http.response.body", "body": b"into the void"})

async def on_gone(scope, receive, send, query):
    await until(lambda: gone >= int(query))
    await answer(send, gone)

async def on_endless(scope, receive, send, query):
    try:
        await answer(send, "begun\n", more=True)
        mark(f"open.{query}")
        await asyncio.sleep(3600)
    finally:
        mark(f"cancelled.{query}")

async def on_stuck(scope, receive, send, query):
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        mark("cancelled")
        raise

async def on_pieces(scope, receive, send, query):
    mark("reads")
    pieces, more = [], True
    while more:
        message = await receive()
        pieces.append(len(message["body"]))
        more = message["more_body"]
    await answer(send, pieces)

async def on_echo(scope, receive, send, query):
    if query:
        await until(lambda: exists(query))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    more = True
    while more:
        message = await receive()
        assert len(message["body"]) <= 1_000_000
        more = message["more_body"]
        await send({"type": "http.response.body", "body": message["body"], "more_body": more})
"#;

pub(super) fn start(settings: &str, application: &str) -> (Daemon, tempfile::TempDir) {
    start_as("asgi", &[("asgi.py", APPLICATION)], settings, application)
}

pub(super) const ONE: &str = "pm = \"static\"\nmax_children = 1\ncatch_workers_output = true\n";

pub(super) fn params(path: &str, query: &str) -> Params {
    Params::get(Path::new("/srv"), path, query)
}

pub(super) fn send(daemon: &Daemon, path: &str, query: &str) -> Client {
    let mut client = daemon.client("www");
    client.send(&params(path, query), b"").expect("send");
    client
}

pub(super) fn body(client: &mut Client) -> String {
    client.answer().expect("answer").body()
}

pub(super) fn marks(root: &tempfile::TempDir, begin: &str) -> Vec<String> {
    let entries = fs::read_dir(root.path()).expect("directory");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with(begin)).collect()
}

#[test]
fn requests_of_one_worker_wait_at_the_same_time() {
    let (daemon, _root) = start(ONE, "");
    let mut clients: Vec<Client> = (0..64).map(|_| send(&daemon, "met", "64")).collect();
    let worker = daemon.wait_for_workers("www", 1)[0].to_string();
    for client in &mut clients {
        assert_eq!(body(client), worker);
    }
}

#[test]
fn there_are_never_more_than_concurrency_allows() {
    let (daemon, root) = start(ONE, "concurrency = 3\n");
    let mut kept: Vec<Client> = (0..3).map(|_| daemon.client("www").kept()).collect();
    for client in &mut kept {
        client.request(&params("pid", ""), b"").expect("answer");
    }
    let mut clients: Vec<Client> = (0..5)
        .map(|number| send(&daemon, "until", &number.to_string()))
        .collect();
    for (client, number) in kept.iter_mut().zip(5..) {
        client
            .send(&params("until", &number.to_string()), b"")
            .expect("send");
    }
    wait_until("those that may begin", || marks(&root, "begun.").len() >= 3);
    fs::write(root.path().join("go"), "").expect("go");
    for client in clients.iter_mut().chain(&mut kept) {
        client.answer().expect("answer");
    }
    assert_eq!(body(&mut send(&daemon, "most", "")), "3");
    let (daemon, _root) = start(ONE, "concurrency = 1\n");
    let mut clients: Vec<Client> = (0..8).map(|_| send(&daemon, "pid", "")).collect();
    for client in &mut clients {
        client.answer().expect("answer");
    }
    assert_eq!(body(&mut send(&daemon, "most", "")), "1");
}

#[test]
fn tasks_run_on_while_nothing_is_asked() {
    let (daemon, root) = start(ONE, "");
    assert_eq!(body(&mut send(&daemon, "task", "")), "begun");
    fs::write(root.path().join("stop"), "").expect("stop");
    wait_until("the task", || root.path().join("ticked").exists());
}

#[test]
fn each_request_has_a_context_of_its_own() {
    let (daemon, _root) = start(ONE, "");
    let mut clients = ["a", "b"].map(|query| send(&daemon, "name", query));
    assert_eq!([0, 1].map(|n| body(&mut clients[n])), ["none a", "none b"]);
}

#[test]
fn an_application_waits_while_its_client_does_not_read() {
    let (daemon, root) = start(ONE, "");
    let mut client = send(&daemon, "stream", "50");
    wait_until("the first piece", || {
        let others = body(&mut send(&daemon, "pid", ""));
        assert!(!others.is_empty(), "others are served meanwhile");
        !marks(&root, "begun").is_empty() || root.path().join("asgi.py").exists()
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    let sent = marks(&root, "sent.").len();
    assert!(
        sent < 5,
        "{sent} MB were taken from the application that nobody reads"
    );
    let answer = client.answer().expect("answer");
    assert!(answer.ended);
    assert_eq!(answer.body().len(), 50_000_000);
    until("its end", || fs::remove_file(root.path().join("over")).ok());
    drop(send(&daemon, "stream", "50"));
    wait_until("the end of the other", || root.path().join("over").exists());
}

#[test]
fn a_body_comes_as_fast_as_the_application_reads_it() {
    let (daemon, root) = start(ONE, "");
    let body: Vec<u8> = (0..20_000_000_u32).map(|n| (n / 7) as u8).collect();
    let params = params("echo", "go")
        .with("REQUEST_METHOD", "POST")
        .with("CONTENT_LENGTH", &body.len().to_string());
    let (mut reader, mut writer) = daemon.client("www").split();
    let sent = std::thread::spawn({
        let body = body.clone();
        move || writer.send(&params, &body)
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(
        !sent.is_finished(),
        "the worker has read what the application did not want yet"
    );
    fs::write(root.path().join("go"), "").expect("go");
    let answer = reader.answer().expect("answer");
    sent.join().expect("the sender").expect("send");
    let head = b"Status: 200 OK\r\ncontent-type: text/plain\r\n\r\n".len();
    assert!(answer.stdout[head..] == body, "{} bytes", answer.stdout.len());
}

#[test]
fn what_has_come_of_a_body_is_given_in_one_piece() {
    let (daemon, root) = start(ONE, "");
    let params = params("pieces", "")
        .with("REQUEST_METHOD", "POST")
        .with("CONTENT_LENGTH", "150000");
    let pairs = params.pairs();
    let encoded = |body: &[u8]| {
        let mut wire = Vec::new();
        let request = Request {
            params: &pairs,
            body,
            ..Request::default()
        };
        request.encode(&mut wire);
        wire
    };
    // An empty body still has its end record: a header of eight bytes.
    let head = encoded(b"").len() - 8;
    let whole = encoded(&[b'x'; 150_000]);
    let mut client = daemon.client("www");
    client.send_raw(&whole[..head]).expect("send");
    wait_until("the application to wait", || root.path().join("reads").exists());
    let _holder = send(&daemon, "hold", "go");
    until("the loop to be held up", || marks(&root, "held.").pop());
    client.send_raw(&whole[head..]).expect("send");
    fs::write(root.path().join("go"), "").expect("go");
    assert_eq!(body(&mut client), "[150000]");
}

#[test]
fn open_streams_leave_others_alone_and_end_when_their_clients_leave() {
    let (daemon, root) = start(ONE, "concurrency = 30\n");
    let streams = (0..25).map(|n| send(&daemon, "events", &n.to_string()));
    let streams: Vec<Client> = streams.collect();
    wait_until("all streams", || marks(&root, "open.").len() == 25);
    body(&mut send(&daemon, "pid", ""));
    drop(streams);
    assert_eq!(body(&mut send(&daemon, "gone", "25")), "25");
    assert_lacks(&daemon.log(), "Traceback");
}

#[test]
fn a_request_whose_client_left_makes_room_when_the_application_has_answered() {
    let (daemon, root) = start(ONE, "concurrency = 5\n");
    for file in ["first", "second", "third"] {
        let clients: Vec<Client> = (0..4)
            .map(|number| send(&daemon, "file", &format!("{file}.{number}")))
            .collect();
        wait_until("all requests", || {
            marks(&root, &format!("waits.{file}")).len() == 4
        });
        drop(clients);
        body(&mut send(&daemon, "pid", ""));
        fs::write(root.path().join(file), "").expect("a file");
    }
    assert_lacks(&daemon.log(), "Traceback");
}

pub(super) fn shares(daemon: &Daemon, root: &tempfile::TempDir, requests: usize) -> BTreeMap<String, u32> {
    let mut clients = Vec::new();
    for number in 1..=requests {
        clients.push(send(daemon, "until", &number.to_string()));
        wait_until("its beginning", || marks(root, "begun.").len() >= number);
    }
    fs::write(root.path().join("go"), "").expect("go");
    let mut shares = BTreeMap::new();
    for client in &mut clients {
        *shares.entry(body(client)).or_default() += 1;
    }
    shares
}

#[test]
fn new_connections_go_to_the_worker_with_the_least_to_do() {
    once_in(5, || {
        let (daemon, root) = start("pm = \"static\"\nmax_children = 3\n", "");
        daemon.wait_for_workers("www", 3);
        let shares = shares(&daemon, &root, 30);
        let is_even = shares.len() == 3 && shares.values().all(|share| (4..=15).contains(share));
        is_even.then_some(()).ok_or_else(|| format!("{shares:?}"))
    });
}

#[test]
fn a_loop_that_is_held_up_lets_siblings_serve() {
    let settings = "pm = \"static\"\nmax_children = 2\n";
    let (daemon, root) = start(settings, "");
    daemon.wait_for_workers("www", 2);
    let mut kept: Vec<Client> = (0..8).map(|_| daemon.client("www").kept()).collect();
    for client in &mut kept {
        client.request(&params("pid", ""), b"").expect("answer");
    }
    let mut holder = send(&daemon, "hold", "go");
    let held = until("the worker that is held up", || marks(&root, "held.").pop());
    let held = held.trim_start_matches("held.").to_owned();
    for round in 0..3 {
        for client in &mut kept {
            let answer = client.request(&params("pid", ""), b"").expect("answer").body();
            assert_ne!(answer, held, "round {round}");
        }
        assert_ne!(body(&mut send(&daemon, "pid", "")), held);
    }
    fs::write(root.path().join("go"), "").expect("go");
    assert_eq!(body(&mut holder), held);
}

/// A sibling may take the connection that a busy worker was woken for; then no event wakes its loop.
#[test]
fn a_worker_that_was_held_up_takes_part_again_when_a_sibling_has_taken_what_had_waited() {
    if crate::skip::needs_root() {
        return;
    }
    let (daemon, root) = start("pm = \"static\"\nmax_children = 2\n", "");
    daemon.wait_for_workers("www", 2);
    // During a request a worker checks whether its loop is delayed. A tracer stops that check.
    let mut waiting = send(&daemon, "until", "");
    let mark = until("its beginning", || marks(&root, "begun.").pop());
    let idle = mark.rsplit('.').next().expect("a pid").to_owned();
    let mut tracer = hold(idle.parse().expect("a pid"));
    let mut kept: Vec<Client> = (0..4).map(|_| daemon.client("www").kept()).collect();
    let ask = |client: &mut Client| client.request(&params("pid", ""), b"").expect("answer").body();
    let other = ask(&mut kept[0]);
    assert!(other != idle && kept.iter_mut().all(|client| ask(client) == other));
    let mut holder = send(&daemon, "hold", "free");
    until("the hold", || marks(&root, "held.").pop());
    let mut waits = send(&daemon, "pid", "");
    (0..10).for_each(|_| pause());
    fs::write(root.path().join("free"), "").expect("write");
    assert_eq!(
        [body(&mut holder), body(&mut waits)],
        [other.clone(), other.clone()]
    );
    drop(tracer.stdin.take());
    tracer.wait().expect("the tracer");
    fs::remove_file(root.path().join(format!("held.{other}"))).expect("remove");
    let mut holder = kept.remove(0);
    holder.send(&params("hold", "again"), b"").expect("send");
    let held = until("the hold", || marks(&root, "held.").pop());
    let held = held.trim_start_matches("held.").to_owned();
    let free = if held == other { &idle } else { &other };
    for client in &mut kept {
        assert_eq!(&ask(client), free);
    }
    fs::write(root.path().join("again"), "").expect("write");
    assert_eq!(body(&mut holder), held);
    fs::write(root.path().join("go"), "").expect("go");
    assert_eq!(body(&mut waiting), idle);
}

#[test]
fn an_ondemand_pool_grows_when_a_loop_is_held_up_and_not_while_requests_wait() {
    let mut settings = "pm = \"ondemand\"\nmax_children = 3\n".to_owned();
    if is_root() {
        settings += "process.priority = -19\n";
    }
    once_in(10, || {
        let (daemon, root) = start(&settings, "");
        let mut waiting: Vec<Client> = (0..20).map(|_| send(&daemon, "until", "")).collect();
        until("the first worker", || marks(&root, "begun.").pop());
        let served: BTreeSet<String> = (0..5).map(|_| body(&mut send(&daemon, "pid", ""))).collect();
        let had_one = served.len() == 1 && daemon.workers("www").len() == 1;
        let mut holder = send(&daemon, "hold", "later");
        let held = until("the hold", || marks(&root, "held.").pop());
        let held = held.trim_start_matches("held.").to_owned();
        assert_ne!(body(&mut send(&daemon, "pid", "")), held);
        fs::write(root.path().join("go"), "").expect("go");
        fs::write(root.path().join("later"), "").expect("later");
        assert_eq!(body(&mut holder), held);
        for client in &mut waiting {
            client.answer().expect("answer");
        }
        had_one
            .then_some(())
            .ok_or_else(|| format!("served by {served:?} while all waited"))
    });
}

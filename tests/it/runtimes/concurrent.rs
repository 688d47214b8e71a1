//! Applications that serve many requests at a time in each worker: ASGI on a loop, WSGI and Rack in threads.

use super::threads;
use crate::it::sites::heartbeat::hold;
use crate::support::once_in;
use crate::support::prelude::*;

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

async def on_loud(scope, receive, send, query):
    if query:
        await answer(send, query, more=True)
    raise ValueError("x" * 400_000)

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
        mark("reads")
        await until(lambda: exists(query))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    more = True
    while more:
        message = await receive()
        assert len(message["body"]) <= 1_000_000
        more = message["more_body"]
        await send({"type": "http.response.body", "body": message["body"], "more_body": more})
"#;

/// A runtime, its application, and the key that bounds the requests of a worker.
#[derive(Clone, Copy, Debug)]
pub(in crate::it) struct Kind {
    pub runtime: &'static str,
    pub file: &'static str,
    pub text: &'static str,
    pub bound: &'static str,
}

pub(in crate::it) const ASGI: Kind = Kind {
    runtime: "asgi",
    file: "asgi.py",
    text: APPLICATION,
    bound: "concurrency",
};
pub(super) const WSGI: Kind = Kind {
    runtime: "wsgi",
    file: "wsgi.py",
    text: threads::PYTHON,
    bound: "threads",
};
pub(super) const RACK: Kind = Kind {
    runtime: "rack",
    file: "config.ru",
    text: threads::RUBY,
    bound: "threads",
};
pub(super) const KINDS: [Kind; 3] = [ASGI, WSGI, RACK];
pub(in crate::it) const THREADED: [Kind; 2] = [WSGI, RACK];

pub(super) const ONE: &str = "pm = \"static\"\nmax_children = 1\ncatch_workers_output = true\n";

pub(super) fn params(path: &str, query: &str) -> Params {
    Params::get(Path::new("/srv"), path, query)
}

pub(super) fn body(client: &mut Client) -> String {
    client.answer().expect("answer").body()
}

pub(super) struct Bench {
    pub daemon: Daemon,
    pub root: tempfile::TempDir,
}

impl Bench {
    pub(super) fn start(kind: Kind, bound: u32, settings: &str) -> Bench {
        Bench::start_with("", kind, bound, settings)
    }

    /// Starts a daemon with a control socket and a pool, whose workers serve `bound` requests at a time (0: the default).
    pub(super) fn start_with(global: &str, kind: Kind, bound: u32, settings: &str) -> Bench {
        let root = folder(&[(kind.file, kind.text)]);
        let bound = match bound {
            0 => String::new(),
            bound => format!("{} = {bound}\n", kind.bound),
        };
        let application = application_in(kind.runtime, root.path(), &bound);
        let daemon = Daemon::start(|dir| {
            let pool = pool(dir, "www", settings, &application);
            format!("[global]\ncontrol = \"DIR/control.sock\"\n{global}\n{pool}")
        });
        Bench { daemon, root }
    }

    pub(super) fn send(&self, path: &str, query: &str) -> Client {
        self.daemon.send("www", &params(path, query))
    }

    pub(super) fn get(&self, path: &str, query: &str) -> String {
        body(&mut self.send(path, query))
    }

    pub(super) fn json(&self, path: &str, query: &str) -> Value {
        let text = self.get(path, query);
        parsed(&text)
    }

    /// Sends requests that wait for `go`, and waits until all are under way.
    pub(super) fn hold(&self, count: usize) -> Vec<Client> {
        let clients = (0..count).map(|n| self.send("until", &n.to_string())).collect();
        wait_until("requests under way", || self.marks("begun.").len() == count);
        clients
    }

    /// Lets requests go on that wait for `go`, and returns their answers.
    pub(super) fn finish<'c>(&self, clients: impl IntoIterator<Item = &'c mut Client>) -> Vec<String> {
        self.mark("go");
        clients.into_iter().map(body).collect()
    }

    pub(super) fn kept(&self, count: usize) -> Vec<Client> {
        (0..count).map(|_| self.daemon.client("www").kept()).collect()
    }

    pub(super) fn mark(&self, name: &str) {
        fs::write(self.root.path().join(name), "").expect("a mark");
    }

    pub(super) fn marks(&self, begin: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.path()).expect("directory");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| name.starts_with(begin)).collect()
    }
}

/// Sends a request over each connection before any answer is read, and returns the bodies.
pub(super) fn at_once(clients: &mut [Client], path: &str, query: &str) -> Vec<String> {
    for client in &mut *clients {
        client.send(&params(path, query), b"").expect("send");
    }
    let answers = clients.iter_mut().map(|client| client.answer().expect("answer"));
    answers
        .map(|answer| {
            assert!(answer.ended);
            answer.body()
        })
        .collect()
}

pub(super) fn post(path: &str, query: &str, body: &[u8]) -> Params {
    params(path, query).posting(body.len())
}

#[test]
fn requests_of_one_worker_wait_at_the_same_time() {
    for (kind, bound, count) in [(ASGI, 0, 64), (WSGI, 8, 8), (RACK, 8, 8)] {
        let bench = Bench::start(kind, bound, ONE);
        let mut clients = bench.kept(count);
        let worker = bench.daemon.wait_for_workers("www", 1)[0].to_string();
        let answers = at_once(&mut clients, "met", &count.to_string());
        assert!(answers.iter().all(|pid| *pid == worker), "{}", kind.runtime);
        let mut kept = bench.kept(20);
        for _ in 0..50 {
            assert_eq!(at_once(&mut kept, "pid", ""), vec![worker.clone(); 20]);
        }
    }
}

#[test]
fn there_are_never_more_requests_than_a_worker_may_have() {
    for kind in KINDS {
        let bench = Bench::start(kind, 3, ONE);
        let mut kept = bench.kept(3);
        at_once(&mut kept, "pid", "");
        let mut clients: Vec<Client> = (0..7).map(|n| bench.send("until", &n.to_string())).collect();
        for (client, number) in kept.iter_mut().zip(7..) {
            let params = params("until", &number.to_string());
            client.send(&params, b"").expect("send");
        }
        wait_until("those that may begin", || bench.marks("begun.").len() >= 3);
        bench.finish(clients.iter_mut().chain(&mut kept));
        assert_eq!(bench.get("most", ""), "3", "{}", kind.runtime);
        let bench = Bench::start(kind, 1, ONE);
        at_once(&mut bench.kept(8), "pid", "");
        assert_eq!(bench.get("most", ""), "1", "{}", kind.runtime);
    }
}

#[test]
fn slow_requests_leave_fast_ones_alone() {
    for kind in KINDS {
        let bench = Bench::start(kind, 3, ONE);
        let mut slow = bench.hold(2);
        let mut kept = bench.kept(1);
        for _ in 0..100 {
            assert!(!bench.get("pid", "").is_empty());
            assert!(!at_once(&mut kept, "pid", "")[0].is_empty());
        }
        bench.finish(&mut slow);
    }
}

#[test]
fn an_answer_waits_for_its_client_and_ends_when_that_leaves() {
    each(KINDS, |kind| {
        let bench = Bench::start(kind, 2, ONE);
        let mut client = bench.send("stream", "50");
        assert!(!bench.get("pid", "").is_empty(), "others are served meanwhile");
        std::thread::sleep(Duration::from_millis(300));
        let sent = bench.marks("sent.").len();
        assert!(sent < 5, "{sent} MB were taken that nobody reads");
        assert!(!bench.get("pid", "").is_empty());
        let answer = client.answer().expect("answer");
        assert!(answer.ended);
        assert_eq!(answer.body().len(), 50_000_000);
        until("its end", || fs::remove_file(bench.root.path().join("over")).ok());
        drop(bench.send("stream", "50"));
        until("the end of the other", || bench.marks("over").pop());
        let mut clients = bench.hold(2);
        bench.finish(&mut clients);
    });
}

#[test]
fn a_body_is_read_as_fast_as_the_application_wants_it() {
    for kind in KINDS {
        let bench = Bench::start(kind, 2, ONE);
        let body: Vec<u8> = (0..20_000_000_u32).map(|n| (n / 7) as u8).collect();
        let (mut reader, mut writer) = bench.daemon.client("www").split();
        let sent = std::thread::spawn({
            let body = body.clone();
            move || writer.send(&post("echo", "go", &body), &body)
        });
        until("its beginning", || bench.marks("reads").pop());
        std::thread::sleep(Duration::from_millis(300));
        assert!(!sent.is_finished(), "nobody wanted it yet");
        bench.mark("go");
        let answer = reader.answer().expect("answer");
        sent.join().expect("the sender").expect("send");
        let text = &answer.stdout;
        let head = text.windows(4).position(|end| end == b"\r\n\r\n");
        let head = head.expect("a head") + 4;
        assert!(text[head..] == body, "{}: {} bytes", kind.runtime, text.len());
    }
}

fn shares(bench: &Bench, requests: usize) -> BTreeMap<String, u32> {
    let mut clients = Vec::new();
    for number in 1..=requests {
        clients.push(bench.send("until", &number.to_string()));
        wait_until("its beginning", || bench.marks("begun.").len() >= number);
    }
    let mut shares = BTreeMap::new();
    for pid in bench.finish(&mut clients) {
        *shares.entry(pid).or_default() += 1;
    }
    shares
}

#[test]
fn new_connections_go_to_the_worker_with_the_least_to_do() {
    for (kind, bound, requests, even) in [
        (ASGI, 0, 30, 4..=15),
        (WSGI, 10, 24, 6..=10),
        (RACK, 10, 24, 6..=10),
    ] {
        once_in(5, || {
            let bench = Bench::start(kind, bound, "pm = \"static\"\nmax_children = 3\n");
            bench.daemon.wait_for_workers("www", 3);
            let shares = shares(&bench, requests);
            let is_even = shares.len() == 3 && shares.values().all(|share| even.contains(share));
            is_even
                .then_some(())
                .ok_or_else(|| format!("{}: {shares:?}", kind.runtime))
        });
    }
}

#[test]
fn tasks_run_on_while_nothing_is_asked() {
    let bench = Bench::start(ASGI, 0, ONE);
    assert_eq!(bench.get("task", ""), "begun");
    bench.mark("stop");
    wait_until("the task", || bench.root.path().join("ticked").exists());
}

#[test]
fn each_request_has_a_context_of_its_own() {
    let bench = Bench::start(ASGI, 0, ONE);
    let mut clients = ["a", "b"].map(|query| bench.send("name", query));
    assert_eq!([0, 1].map(|n| body(&mut clients[n])), ["none a", "none b"]);
}

#[test]
fn what_has_come_of_a_body_is_given_in_one_piece() {
    let bench = Bench::start(ASGI, 0, ONE);
    let bytes = [b'x'; 150_000];
    let (head, rest) = post("pieces", "", &bytes).request_in_two(&bytes);
    let mut client = bench.daemon.client("www");
    client.send_raw(&head).expect("send");
    wait_until("the application to wait", || {
        bench.root.path().join("reads").exists()
    });
    let _holder = bench.send("hold", "go");
    until("the loop to be held up", || bench.marks("held.").pop());
    client.send_raw(&rest).expect("send");
    bench.mark("go");
    assert_eq!(body(&mut client), "[150000]");
}

#[test]
fn open_streams_leave_others_alone_and_end_when_their_clients_leave() {
    let bench = Bench::start(ASGI, 30, ONE);
    let streams = (0..25).map(|n| bench.send("events", &n.to_string()));
    let streams: Vec<Client> = streams.collect();
    wait_until("all streams", || bench.marks("open.").len() == 25);
    bench.get("pid", "");
    drop(streams);
    assert_eq!(bench.get("gone", "25"), "25");
    assert_lacks(&bench.daemon.log(), "Traceback");
}

#[test]
fn a_request_whose_client_left_makes_room_when_the_application_has_answered() {
    let bench = Bench::start(ASGI, 5, ONE);
    for file in ["first", "second", "third"] {
        let clients: Vec<Client> = (0..4)
            .map(|number| bench.send("file", &format!("{file}.{number}")))
            .collect();
        wait_until("all requests", || {
            bench.marks(&format!("waits.{file}")).len() == 4
        });
        drop(clients);
        bench.get("pid", "");
        bench.mark(file);
    }
    assert_lacks(&bench.daemon.log(), "Traceback");
}

#[test]
fn a_loop_that_is_held_up_lets_siblings_serve() {
    let bench = Bench::start(ASGI, 0, "pm = \"static\"\nmax_children = 2\n");
    bench.daemon.wait_for_workers("www", 2);
    let mut kept = bench.kept(8);
    for client in &mut kept {
        client.request(&params("pid", ""), b"").expect("answer");
    }
    let mut holder = bench.send("hold", "go");
    let held = until("the worker that is held up", || bench.marks("held.").pop());
    let held = held.trim_start_matches("held.").to_owned();
    for round in 0..3 {
        for client in &mut kept {
            let answer = client.request(&params("pid", ""), b"").expect("answer").body();
            assert_ne!(answer, held, "round {round}");
        }
        assert_ne!(bench.get("pid", ""), held);
    }
    bench.mark("go");
    assert_eq!(body(&mut holder), held);
}

/// A sibling may take the connection that a busy worker was woken for; then no event wakes its loop.
#[test]
fn a_worker_that_was_held_up_takes_part_again_when_a_sibling_has_taken_what_had_waited() {
    skip_if!(needs_root());
    let bench = Bench::start(ASGI, 0, "pm = \"static\"\nmax_children = 2\n");
    bench.daemon.wait_for_workers("www", 2);
    // During a request a worker checks whether its loop is delayed. A tracer stops that check.
    let mut waiting = bench.send("until", "");
    let mark = until("its beginning", || bench.marks("begun.").pop());
    let idle = mark.rsplit('.').next().expect("a pid").to_owned();
    let mut tracer = hold(idle.parse().expect("a pid"));
    let mut kept = bench.kept(4);
    let ask = |client: &mut Client| client.request(&params("pid", ""), b"").expect("answer").body();
    let other = ask(&mut kept[0]);
    assert!(other != idle && kept.iter_mut().all(|client| ask(client) == other));
    let mut holder = bench.send("hold", "free");
    until("the hold", || bench.marks("held.").pop());
    let mut waits = bench.send("pid", "");
    (0..10).for_each(|_| pause());
    bench.mark("free");
    assert_eq!(
        [body(&mut holder), body(&mut waits)],
        [other.clone(), other.clone()]
    );
    drop(tracer.stdin.take());
    tracer.wait().expect("the tracer");
    fs::remove_file(bench.root.path().join(format!("held.{other}"))).expect("remove");
    let mut holder = kept.remove(0);
    holder.send(&params("hold", "again"), b"").expect("send");
    let held = until("the hold", || bench.marks("held.").pop());
    let held = held.trim_start_matches("held.").to_owned();
    let free = if held == other { &idle } else { &other };
    for client in &mut kept {
        assert_eq!(&ask(client), free);
    }
    bench.mark("again");
    assert_eq!(body(&mut holder), held);
    bench.mark("go");
    assert_eq!(body(&mut waiting), idle);
}

#[test]
fn an_ondemand_pool_grows_when_a_loop_is_held_up_and_not_while_requests_wait() {
    let mut settings = "pm = \"ondemand\"\nmax_children = 3\n".to_owned();
    if is_root() {
        settings += "process.priority = -19\n";
    }
    once_in(10, || {
        let bench = Bench::start(ASGI, 0, &settings);
        let mut waiting: Vec<Client> = (0..20).map(|_| bench.send("until", "")).collect();
        until("the first worker", || bench.marks("begun.").pop());
        let served: BTreeSet<String> = (0..5).map(|_| bench.get("pid", "")).collect();
        let had_one = served.len() == 1 && bench.daemon.workers("www").len() == 1;
        let mut holder = bench.send("hold", "later");
        let held = until("the hold", || bench.marks("held.").pop());
        let held = held.trim_start_matches("held.").to_owned();
        assert_ne!(bench.get("pid", ""), held);
        bench.mark("go");
        bench.mark("later");
        assert_eq!(body(&mut holder), held);
        for client in &mut waiting {
            client.answer().expect("answer");
        }
        had_one
            .then_some(())
            .ok_or_else(|| format!("served by {served:?} while all waited"))
    });
}

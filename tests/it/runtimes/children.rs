//! Child processes of a Python application: multiprocessing's start methods, forks, and exits.

use super::python::start_as;
use crate::support::prelude::*;

const APPLICATION: &str = r#"
import concurrent.futures, multiprocessing, os, sys, time
import forkyard

def square(number):
    return number * number

def leave_mark(path):
    open(path, "w").close()
    time.sleep(600)

@forkyard.after_fork
def begin():
    global kept
    kept = None

def on_executor(method):
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(square, 7).result(timeout=60)

def on_pool(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map(square, [1, 2, 3])

def on_kept(method):
    global kept
    kept = kept or concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method))
    kept.submit(square, 7).result(timeout=60)
    return next(iter(kept._processes))

def on_terminated(method):
    mark = os.path.join(os.getcwd(), f"mark.{os.getpid()}")
    child = multiprocessing.get_context(method).Process(target=leave_mark, args=(mark,))
    child.start()
    while not os.path.exists(mark):
        time.sleep(0.005)
    child.terminate()
    child.join(30)
    os.unlink(mark)
    return child.exitcode

def on_fork(_):
    child = os.fork()
    if child == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)
    return child

def on_pid(_):
    return os.getpid()

def text_of(path, query):
    try:
        return str(globals()["on_" + path.strip("/")](query))
    except BaseException as error:
        return repr(error)

def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [text_of(environ["PATH_INFO"], environ["QUERY_STRING"]).encode()]

async def app(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("no lifespan")
    text = text_of(scope["path"], scope["query_string"].decode())
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": text.encode()})
"#;

const KINDS: [(&str, &str, &str); 3] = [
    ("wsgi", "", "entry = \"wsgi:application\"\n"),
    ("wsgi", "", "threads = 4\nentry = \"wsgi:application\"\n"),
    ("asgi", "", "entry = \"wsgi:app\"\n"),
];
const METHODS: [&str; 3] = ["fork", "spawn", "forkserver"];

fn start(kind: (&str, &str, &str)) -> (Daemon, tempfile::TempDir) {
    let (interface, settings, application) = kind;
    let settings = format!("pm = \"static\"\nmax_children = 1\ncatch_workers_output = true\n{settings}");
    start_as(interface, &[("wsgi.py", APPLICATION)], &settings, application)
}

fn params(daemon: &Daemon, path: &str, query: &str) -> Params {
    Params::get(&daemon.dir, "", query)
        .with("SCRIPT_NAME", "")
        .with("PATH_INFO", path)
}

fn ask(daemon: &Daemon, path: &str, query: &str) -> String {
    daemon.ask("www", &params(daemon, path, query)).body()
}

/// Asks the application about each way that multiprocessing starts a process.
fn assert_answers(daemon: &Daemon, path: &str, wanted: &str) {
    for method in METHODS {
        assert_eq!(ask(daemon, path, method), wanted, "{method}: {}", daemon.log());
    }
}

fn each_kind(test: impl Fn(&Daemon) + Sync) {
    std::thread::scope(|scope| {
        for kind in KINDS {
            let test = &test;
            scope.spawn(move || {
                let (daemon, _root) = start(kind);
                test(&daemon);
            });
        }
    });
}

#[test]
fn every_start_method_of_multiprocessing_works() {
    each_kind(|daemon| {
        let worker = ask(daemon, "/pid", "");
        assert_answers(daemon, "/executor", "49");
        assert_answers(daemon, "/pool", "[1, 4, 9]");
        assert_eq!(ask(daemon, "/pid", ""), worker, "{}", daemon.log());
        assert_lacks(&daemon.log(), "Traceback");
    });
}

#[test]
fn a_child_that_is_terminated_leaves_its_worker_alone() {
    each_kind(|daemon| {
        let worker = ask(daemon, "/pid", "");
        each(METHODS, |method| {
            assert_eq!(ask(daemon, "/terminated", method), "-15");
            assert_eq!(ask(daemon, "/pid", ""), worker, "{method}: {}", daemon.log());
        });
    });
}

#[test]
fn a_worker_ends_with_the_executor_that_it_keeps() {
    for method in METHODS {
        each_kind(|daemon| {
            let worker: u32 = ask(daemon, "/pid", "").parse().expect("a pid");
            let child: u32 = ask(daemon, "/kept", method).parse().expect("a pid");
            assert!(process::runs(child));
            daemon.signal(Signal::SIGUSR2);
            wait_until("the worker and its child to end", || {
                !process::runs(worker) && !process::runs(child)
            });
            assert_lacks(&daemon.log(), "SIGKILL");
        });
    }
}

/// A worker's child lives on while nothing listens on the address any more.
pub(super) fn assert_child_keeps_no_descriptor(mut daemon: Daemon, port: u16, path: &str, kind: &str) {
    let address = format!("127.0.0.1:{port}");
    let mut client = Client::connect_tcp(&address).expect("connect");
    let child = client
        .request(&params(&daemon, path, ""), b"")
        .expect("an answer")
        .body();
    let child: u32 = child.parse().expect("a pid");
    drop(client);
    daemon.signal(Signal::SIGQUIT);
    daemon.wait();
    let bound = TcpListener::bind(&address);
    let is_alive = process::runs(child);
    process::signal(child, Signal::SIGKILL);
    assert!(is_alive, "{kind}");
    assert!(bound.is_ok(), "{kind}: {bound:?}");
}

#[test]
fn a_child_of_a_worker_does_not_keep_its_descriptors() {
    std::thread::scope(|scope| {
        for (interface, settings, application) in KINDS {
            scope.spawn(move || {
                let port = free_port();
                let settings = format!("listen = \"127.0.0.1:{port}\"\n{settings}");
                let (daemon, _root) = start((interface, &settings, application));
                assert_child_keeps_no_descriptor(daemon, port, "/fork", interface);
            });
        }
    });
}

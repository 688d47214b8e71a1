//! WSGI and Rack applications with several threads in each worker.

use super::concurrent::{body, marks, params, send, shares};
use crate::support::daemon::{Daemon, directory, make_writable, pool};
use crate::support::fcgi::{Client, Params};
use crate::support::{assert_lacks, assert_starts, once_in, place_library, process, until, wait_until};
use forkyard::fastcgi::Request;
use std::collections::BTreeSet;
use std::fs;

const PYTHON: &str = r#"
import os, sys, threading, time
here = os.path.dirname(os.path.abspath(__file__))
lock, under_way, most = threading.Lock(), 0, 0
local = threading.local()

def exists(file):
    return os.path.exists(os.path.join(here, file))

def mark(file):
    open(os.path.join(here, file), "w").close()

def wait(test):
    while not test():
        time.sleep(0.002)

def application(environ, start_response):
    global under_way, most
    with lock:
        under_way += 1
        most = max(most, under_way)
    try:
        path, query = environ["PATH_INFO"].strip("/"), environ["QUERY_STRING"]
        answer = globals()["on_" + path](environ, start_response, query)
        if isinstance(answer, list):
            return answer
        if answer is not None:
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [str(answer).encode()]
        return parts(start_response, query)
    finally:
        with lock:
            under_way -= 1

def on_met(environ, start_response, query):
    wait(lambda: most >= int(query))
    return os.getpid()

def on_until(environ, start_response, query):
    mark(f"begun.{query}.{os.getpid()}")
    wait(lambda: exists("go"))
    return os.getpid()

def on_pid(environ, start_response, query):
    return os.getpid()

def on_most(environ, start_response, query):
    return most

def on_flags(environ, start_response, query):
    return f"{str(environ['wsgi.multithread']).lower()} {os.environ.get('RAILS_MAX_THREADS')}"

def on_thread(environ, start_response, query):
    before, local.name = getattr(local, "name", "none"), query
    wait(lambda: most >= 2)
    return f"{environ['QUERY_STRING']} {local.name}"

def on_raise(environ, start_response, query):
    raise ValueError(f"broken {query}")

def on_exit(environ, start_response, query):
    sys.exit(3)

def on_errors(environ, start_response, query):
    wait(lambda: most >= 2)
    environ["wsgi.errors"].write(f"said by {query}\n")
    return "told"

def on_echo(environ, start_response, query):
    if query:
        mark("reads")
        wait(lambda: exists(query))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ["wsgi.input"].read()]

def on_count(environ, start_response, query):
    count = 0
    while part := environ["wsgi.input"].read(65536):
        count += len(part)
    return count

def on_stream(environ, start_response, query):
    return None

def parts(start_response, query):
    start_response("200 OK", [("Content-Type", "text/plain")])
    try:
        for count in range(int(query)):
            yield b"x" * 1_000_000
            mark(f"sent.{count}")
    finally:
        mark("over")

def inner_call():
    wait(lambda: exists("go"))

def on_slow(environ, start_response, query):
    mark(f"begun.{query}")
    inner_call()
    return os.getpid()
"#;

const RUBY: &str = r##"
HERE = __dir__
LOCK = Mutex.new
$under_way = $most = 0

class Application
  def exists(file) = File.exist?(File.join(HERE, file))
  def mark(file) = File.write(File.join(HERE, file), "")

  def wait
    sleep 0.002 until yield
  end

  def call(env)
    LOCK.synchronize { $most = [$most, $under_way += 1].max }
    begin
      answer = __send__("on_#{env["PATH_INFO"].delete("/")}", env, env["QUERY_STRING"])
      answer.is_a?(Array) ? answer : [200, { "content-type" => "text/plain" }, [answer.to_s]]
    ensure
      LOCK.synchronize { $under_way -= 1 }
    end
  end

  def on_met(_, query)
    wait { $most >= query.to_i }
    Process.pid
  end

  def on_until(_, query)
    mark("begun.#{query}.#{Process.pid}")
    wait { exists("go") }
    Process.pid
  end

  def on_pid(*) = Process.pid
  def on_most(*) = $most
  def on_flags(env, _) = "#{env["rack.multithread"]} #{ENV["RAILS_MAX_THREADS"]}"

  def on_thread(env, query)
    Thread.current[:name] = query
    wait { $most >= 2 }
    "#{env["QUERY_STRING"]} #{Thread.current[:name]}"
  end

  def on_raise(_, query) = raise("broken #{query}")
  def on_exit(*) = exit(3)

  def on_errors(env, query)
    wait { $most >= 2 }
    env["rack.errors"].puts("said by #{query}")
    "told"
  end

  def on_echo(env, query)
    unless query.empty?
      mark("reads")
      wait { exists(query) }
    end
    env["rack.input"].read
  end

  def on_count(env, _)
    count = 0
    while (part = env["rack.input"].read(65536))
      count += part.bytesize
    end
    count
  end

  def on_stream(_, query)
    body = Enumerator.new do |parts|
      query.to_i.times do |count|
        parts << "x" * 1_000_000
        mark("sent.#{count}")
      end
    ensure
      mark("over")
    end
    [200, { "content-type" => "text/plain" }, body]
  end

  def inner_call = wait { exists("go") }

  def on_slow(_, query)
    mark("begun.#{query}")
    inner_call
    Process.pid
  end
end
run Application.new
"##;

pub(in crate::it) const LANGUAGES: [(&str, &str, &str); 2] =
    [("wsgi", "wsgi.py", PYTHON), ("rack", "config.ru", RUBY)];
pub(super) const ONE: &str = "pm = \"static\"\nmax_children = 1\ncatch_workers_output = true\n";

pub(super) fn start_with(
    global: &str,
    (runtime, file, text): (&str, &str, &str),
    threads: u32,
    settings: &str,
) -> (Daemon, tempfile::TempDir) {
    place_library();
    let root = directory();
    fs::write(root.path().join(file), text).expect("write");
    make_writable(root.path());
    let application = format!(
        "runtime = \"{runtime}\"\nroot = \"{}\"\nthreads = {threads}\n",
        root.path().display()
    );
    let daemon = Daemon::start(|dir| {
        let pool = pool(dir, "www", settings, &application);
        format!("[global]\n{global}\n{pool}").replace("DIR", &dir.display().to_string())
    });
    (daemon, root)
}

pub(super) fn start(
    language: (&str, &str, &str),
    threads: u32,
    settings: &str,
) -> (Daemon, tempfile::TempDir) {
    start_with("", language, threads, settings)
}

fn post(path: &str, query: &str, body: &[u8]) -> Params {
    params(path, query)
        .with("REQUEST_METHOD", "POST")
        .with("CONTENT_LENGTH", &body.len().to_string())
}

#[test]
fn requests_of_one_worker_are_served_at_the_same_time() {
    for language in LANGUAGES {
        let (daemon, _root) = start(language, 8, ONE);
        let mut clients: Vec<Client> = (0..8).map(|_| send(&daemon, "met", "8")).collect();
        let worker = daemon.wait_for_workers("www", 1)[0].to_string();
        for client in &mut clients {
            assert_eq!(body(client), worker);
        }
        assert_eq!(
            body(&mut send(&daemon, "flags", "")).split(' ').next(),
            Some("true")
        );
        let mut kept: Vec<Client> = (0..20).map(|_| daemon.client("www").kept()).collect();
        for _ in 0..50 {
            for client in &mut kept {
                client.send(&params("pid", ""), b"").expect("send");
            }
            for client in &mut kept {
                assert_eq!(body(client), worker);
            }
        }
    }
}

#[test]
fn a_pool_for_database_connections_can_be_sized_by_the_threads() {
    let rack = LANGUAGES[1];
    let (daemon, _root) = start(rack, 7, ONE);
    assert_eq!(body(&mut send(&daemon, "flags", "")), "true 7");
    let own = format!("{ONE}env = {{ RAILS_MAX_THREADS = \"20\" }}\n");
    let (daemon, _root) = start(rack, 7, &own);
    assert_eq!(body(&mut send(&daemon, "flags", "")), "true 20");
    let (daemon, _root) = start(rack, 1, ONE);
    assert_eq!(body(&mut send(&daemon, "flags", "")), "false ");
}

#[test]
fn there_are_never_more_requests_than_threads() {
    for language in LANGUAGES {
        let (daemon, root) = start(language, 3, ONE);
        let mut clients: Vec<Client> = (0..7).map(|n| send(&daemon, "until", &n.to_string())).collect();
        wait_until("those that may begin", || marks(&root, "begun").len() == 3);
        fs::write(root.path().join("go"), "").expect("go");
        for client in &mut clients {
            client.answer().expect("answer");
        }
        assert_eq!(body(&mut send(&daemon, "most", "")), "3");
    }
}

#[test]
fn slow_requests_leave_fast_ones_alone() {
    for language in LANGUAGES {
        let (daemon, root) = start(language, 3, ONE);
        let mut slow: Vec<Client> = (0..2).map(|n| send(&daemon, "until", &n.to_string())).collect();
        wait_until("their beginning", || marks(&root, "begun").len() == 2);
        let mut kept = daemon.client("www").kept();
        for _ in 0..100 {
            assert!(!body(&mut send(&daemon, "pid", "")).is_empty());
            let answer = kept.request(&params("pid", ""), b"").expect("answer");
            assert!(!answer.body().is_empty());
        }
        fs::write(root.path().join("go"), "").expect("go");
        for client in &mut slow {
            client.answer().expect("answer");
        }
    }
}

#[test]
fn each_request_has_its_own_environment_input_and_errors() {
    for language in LANGUAGES {
        let (daemon, _root) = start(language, 4, ONE);
        let mut clients = ["a", "b"].map(|query| send(&daemon, "thread", query));
        assert_eq!([0, 1].map(|n| body(&mut clients[n])), ["a a", "b b"]);
        let mut clients = ["a", "b"].map(|query| send(&daemon, "errors", query));
        for (client, name) in clients.iter_mut().zip(["a", "b"]) {
            let answer = client.answer().expect("answer");
            assert_eq!(
                String::from_utf8_lossy(&answer.stderr),
                format!("said by {name}\n")
            );
        }
        let bodies = [b'x', b'y', b'z'].map(|byte| vec![byte; 3_000_000]);
        let sent = bodies.clone().map(|body| {
            let (reader, mut writer) = daemon.client("www").split();
            let sender =
                std::thread::spawn(move || writer.send(&post("echo", "", &body), &body).expect("send"));
            (reader, sender)
        });
        for ((mut reader, sender), sent) in sent.into_iter().zip(bodies) {
            let answer = reader.answer().expect("answer");
            sender.join().expect("the sender");
            assert!(answer.body().as_bytes() == sent, "{}", answer.stdout.len());
        }
    }
}

#[test]
fn exceptions_and_exits_are_those_of_one_request() {
    for language in LANGUAGES {
        let (daemon, root) = start(language, 3, ONE);
        let worker = body(&mut send(&daemon, "pid", ""));
        let mut waiting = send(&daemon, "until", "x");
        until("its beginning", || marks(&root, "begun").pop());
        let answer = send(&daemon, "raise", "it").answer().expect("answer");
        assert_starts(&answer.text(), "Status: 500 ");
        assert!(answer.ended);
        assert!(String::from_utf8_lossy(&answer.stderr).contains("broken it"));
        daemon.wait_for("broken it");
        assert_eq!(body(&mut send(&daemon, "pid", "")), worker);
        let answer = send(&daemon, "exit", "").answer().expect("answer");
        assert_starts(&answer.text(), "Status: 500 ");
        let pid: u32 = worker.parse().expect("pid");
        assert!(process::runs(pid));
        fs::write(root.path().join("go"), "").expect("go");
        assert_eq!(body(&mut waiting), worker);
        wait_until("its end", || !process::runs(pid));
        assert_ne!(body(&mut send(&daemon, "pid", "")), worker);
    }
}

#[test]
fn a_body_is_read_as_fast_as_the_application_wants_it() {
    for language in LANGUAGES {
        let (daemon, root) = start(language, 2, ONE);
        let body = vec![b'x'; 20_000_000];
        let (mut reader, mut writer) = daemon.client("www").split();
        let sent = std::thread::spawn({
            let body = body.clone();
            move || writer.send(&post("echo", "go", &body), &body)
        });
        until("its beginning", || marks(&root, "reads").pop());
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!sent.is_finished(), "nobody wanted it yet");
        fs::write(root.path().join("go"), "").expect("go");
        let answer = reader.answer().expect("answer");
        sent.join().expect("the sender").expect("send");
        assert!(answer.body().as_bytes() == body);
    }
}

#[test]
fn an_answer_waits_for_its_client_and_ends_when_that_leaves() {
    for language in LANGUAGES {
        let (daemon, root) = start(language, 2, ONE);
        let mut client = send(&daemon, "stream", "30");
        std::thread::sleep(std::time::Duration::from_millis(300));
        let sent = marks(&root, "sent.").len();
        assert!(sent < 5, "{sent} MB were taken that nobody reads");
        assert!(!body(&mut send(&daemon, "pid", "")).is_empty());
        let answer = client.answer().expect("answer");
        assert!(answer.ended);
        assert_eq!(answer.body().len(), 30_000_000);
        fs::remove_file(root.path().join("over")).expect("it is over");
        drop(send(&daemon, "stream", "30"));
        until("the end of the other", || marks(&root, "over").pop());
        let mut clients: Vec<Client> = (0..2).map(|n| send(&daemon, "until", &n.to_string())).collect();
        wait_until("both", || marks(&root, "begun").len() == 2);
        fs::write(root.path().join("go"), "").expect("go");
        for client in &mut clients {
            client.answer().expect("answer");
        }
    }
}

#[test]
fn a_client_that_leaves_or_falls_silent_in_its_body_frees_its_thread() {
    for language in LANGUAGES {
        let settings = format!("{ONE}client_timeout = \"1s\"\n");
        let (daemon, _root) = start(language, 2, &settings);
        let half = |path: &str| {
            let params = params(path, "")
                .with("REQUEST_METHOD", "POST")
                .with("CONTENT_LENGTH", "10");
            let mut client = daemon.client("www");
            let pairs = params.pairs();
            let mut wire = Vec::new();
            let request = Request {
                params: &pairs,
                body: b"12345",
                ..Request::default()
            };
            request.encode(&mut wire);
            client.send_raw(&wire[..wire.len() - 8]).expect("send");
            client
        };
        drop([half("count"), half("count")]);
        let silent = [half("count"), half("count")];
        assert!(!body(&mut send(&daemon, "pid", "")).is_empty());
        drop(silent);
        assert_lacks(&daemon.log(), "ERROR");
    }
}

#[test]
fn the_least_busy_worker_takes_a_connection() {
    for language in LANGUAGES {
        once_in(5, || {
            let (daemon, root) = start(language, 10, "pm = \"static\"\nmax_children = 3\n");
            daemon.wait_for_workers("www", 3);
            let shares = shares(&daemon, &root, 24);
            let is_even = shares.len() == 3 && shares.values().all(|share| (6..=10).contains(share));
            is_even.then_some(()).ok_or_else(|| format!("{shares:?}"))
        });
    }
}

#[test]
fn an_ondemand_pool_grows_when_all_threads_are_busy() {
    for language in LANGUAGES {
        let (daemon, root) = start(language, 3, "pm = \"ondemand\"\nmax_children = 2\n");
        let mut clients = vec![send(&daemon, "until", "0")];
        for number in 1..4 {
            wait_until("the one before", || marks(&root, "begun.").len() == number);
            assert!(
                number == 1 || daemon.wait_for_workers("www", 1).len() == 1,
                "one has threads for all"
            );
            clients.push(send(&daemon, "until", &number.to_string()));
        }
        wait_until("another worker", || marks(&root, "begun.").len() == 4);
        daemon.wait_for_workers("www", 2);
        fs::write(root.path().join("go"), "").expect("go");
        let pids: BTreeSet<String> = clients.iter_mut().map(body).collect();
        assert_eq!(pids.len(), 2);
    }
}

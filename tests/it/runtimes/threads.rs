//! WSGI and Rack applications with several threads in each worker.

use super::concurrent::{Bench, ONE, RACK, THREADED, body, params, post};
use crate::support::prelude::*;

pub(super) const PYTHON: &str = r#"
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

def on_loud(environ, start_response, query):
    wait(lambda: most >= 4)
    environ["wsgi.errors"].write(query * 200_000 + "\n")
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

pub(super) const RUBY: &str = r##"
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

  def on_loud(env, query)
    wait { $most >= 4 }
    env["rack.errors"].puts(query * 200_000)
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

#[test]
fn a_pool_for_database_connections_can_be_sized_by_the_threads() {
    assert_eq!(Bench::start(RACK, 7, ONE).get("flags", ""), "true 7");
    let own = format!("{ONE}env = {{ RAILS_MAX_THREADS = \"20\" }}\n");
    assert_eq!(Bench::start(RACK, 7, &own).get("flags", ""), "true 20");
    assert_eq!(Bench::start(RACK, 1, ONE).get("flags", ""), "false ");
}

#[test]
fn each_request_has_its_own_environment_input_and_errors() {
    for kind in THREADED {
        let bench = Bench::start(kind, 4, ONE);
        assert_eq!(bench.get("flags", "").split(' ').next(), Some("true"));
        let mut clients = ["a", "b"].map(|query| bench.send("thread", query));
        assert_eq!([0, 1].map(|n| body(&mut clients[n])), ["a a", "b b"]);
        let mut clients = ["a", "b"].map(|query| bench.send("errors", query));
        for (client, name) in clients.iter_mut().zip(["a", "b"]) {
            let answer = client.answer().expect("answer");
            assert_eq!(
                String::from_utf8_lossy(&answer.stderr),
                format!("said by {name}\n")
            );
        }
        let bodies = [b'x', b'y', b'z'].map(|byte| vec![byte; 3_000_000]);
        let sent = bodies.clone().map(|body| {
            let (reader, mut writer) = bench.daemon.client("www").split();
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

/// The daemon's log does not get what workers write.
pub(super) const QUIET: &str = "pm = \"static\"\nmax_children = 1\n";

#[test]
fn a_long_error_text_is_whole_for_each_of_several_threads() {
    for kind in THREADED {
        let bench = Bench::start(kind, 4, QUIET);
        let mut clients = ["a", "b", "c", "d"].map(|query| bench.send("loud", query));
        for (client, name) in clients.iter_mut().zip(["a", "b", "c", "d"]) {
            let answer = client.answer().expect("answer");
            let seen = (answer.stderr.len(), answer.stderr.first(), answer.ended);
            assert_eq!(seen, (200_001, name.as_bytes().first(), true), "{}", kind.runtime);
            assert_eq!(answer.body(), "told");
        }
        // A client that reads nothing holds up its own thread alone.
        let deaf = bench.send("loud", &"e".repeat(20));
        assert!(!bench.get("pid", "").is_empty());
        drop(deaf);
        assert!(!bench.get("pid", "").is_empty());
    }
}

#[test]
fn exceptions_and_exits_are_those_of_one_request() {
    for kind in THREADED {
        let bench = Bench::start(kind, 3, ONE);
        let worker = bench.get("pid", "");
        let mut waiting = bench.send("until", "x");
        until("its beginning", || bench.marks("begun").pop());
        let answer = bench.send("raise", "it").answer().expect("answer");
        assert_starts(&answer.text(), "Status: 500 ");
        assert!(answer.ended);
        assert!(String::from_utf8_lossy(&answer.stderr).contains("broken it"));
        bench.daemon.wait_for("broken it");
        assert_eq!(bench.get("pid", ""), worker);
        let answer = bench.send("exit", "").answer().expect("answer");
        assert_starts(&answer.text(), "Status: 500 ");
        let pid: u32 = worker.parse().expect("pid");
        assert!(process::runs(pid));
        bench.mark("go");
        assert_eq!(body(&mut waiting), worker);
        wait_until("its end", || !process::runs(pid));
        assert_ne!(bench.get("pid", ""), worker);
    }
}

#[test]
fn a_client_that_leaves_or_falls_silent_in_its_body_frees_its_thread() {
    for kind in THREADED {
        let bench = Bench::start(kind, 2, &format!("{ONE}client_timeout = \"1s\"\n"));
        let half = |path: &str| {
            let mut client = bench.daemon.client("www");
            let wire = params(path, "").posting(10).request(b"12345");
            client.send_raw(&wire[..wire.len() - 8]).expect("send");
            client
        };
        drop([half("count"), half("count")]);
        let silent = [half("count"), half("count")];
        assert!(!bench.get("pid", "").is_empty());
        drop(silent);
        assert_lacks(&bench.daemon.log(), "ERROR");
    }
}

#[test]
fn an_ondemand_pool_grows_when_all_threads_are_busy() {
    for kind in THREADED {
        let bench = Bench::start(kind, 3, "pm = \"ondemand\"\nmax_children = 2\n");
        let mut clients = vec![bench.send("until", "0")];
        for number in 1..4 {
            wait_until("the one before", || bench.marks("begun.").len() == number);
            assert!(
                number == 1 || bench.daemon.wait_for_workers("www", 1).len() == 1,
                "one has threads for all"
            );
            clients.push(bench.send("until", &number.to_string()));
        }
        wait_until("another worker", || bench.marks("begun.").len() == 4);
        bench.daemon.wait_for_workers("www", 2);
        bench.mark("go");
        let pids: BTreeSet<String> = clients.iter_mut().map(body).collect();
        assert_eq!(pids.len(), 2);
    }
}

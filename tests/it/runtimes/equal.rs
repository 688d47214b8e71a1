//! What holds for every runtime: one table, and the same requests for each of its rows.

use crate::it::rust_handler::example;
use crate::support::prelude::*;

const POOL: &str = "hello";

struct Runtime {
    name: &'static str,
    script: &'static str,
    file: &'static str,
    text: &'static str,
    application: &'static str,
    answer: &'static str,
    /// The slow log's text after the header, for a worker that waits for the body.
    slow: &'static str,
    counts_memory: bool,
}

const RUNTIMES: [Runtime; 7] = [
    Runtime {
        name: "php",
        script: "app.php",
        file: "app.php",
        text: "<?php $n = strlen(file_get_contents('php://input')); header('X-Own: yes'); echo \"got $n\";",
        application: concat!("version = \"", env!("FORKYARD_PHP"), "\"\n"),
        answer: "got 4",
        slow: "] file_get_contents() ROOT/app.php:1\n",
        counts_memory: true,
    },
    Runtime {
        name: "cgi",
        script: "app.cgi",
        file: "app.cgi",
        text: "#!/bin/sh\nn=$(wc -c)\nprintf 'Content-Type: text/plain\\r\\nX-Own: yes\\r\\n\\r\\ngot %s' $n\n",
        application: "root = \"ROOT\"\n",
        answer: "got 4",
        slow: ": wc -c\n",
        counts_memory: true,
    },
    Runtime {
        name: "http",
        script: "app",
        file: "app.py",
        text: r#"
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def do_PUT(self):
        body = b"got %d" % len(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("X-Own", "yes")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#,
        application: "address = \"127.0.0.1:PORT\"\n",
        answer: "got 4",
        slow: "",
        counts_memory: false,
    },
    Runtime {
        name: "wsgi",
        script: "app",
        file: "wsgi.py",
        text: "def application(environ, start):\n    n = len(environ['wsgi.input'].read())\n    \
               start('200 OK', [('X-Own', 'yes')])\n    return [b'got %d' % n]\n",
        application: "root = \"ROOT\"\n",
        answer: "got 4",
        slow: "] application() ROOT/wsgi.py:2\n",
        counts_memory: true,
    },
    Runtime {
        name: "asgi",
        script: "app",
        file: "asgi.py",
        text: r#"
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    n, more = 0, True
    while more:
        message = await receive()
        n, more = n + len(message["body"]), message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"X-Own", b"yes")]})
    await send({"type": "http.response.body", "body": b"got %d" % n})
"#,
        application: "root = \"ROOT\"\n",
        answer: "got 4",
        slow: "] application() ROOT/asgi.py:7\n",
        counts_memory: true,
    },
    Runtime {
        name: "rack",
        script: "app",
        file: "config.ru",
        text: "run ->(env) { [200, { 'X-Own' => 'yes' }, [\"got #{env['rack.input'].read.bytesize}\"]] }\n",
        application: "root = \"ROOT\"\n",
        answer: "got 4",
        slow: "() ROOT/config.ru:1\n",
        counts_memory: true,
    },
    Runtime {
        name: "rust",
        script: "app",
        file: "unused",
        text: "",
        application: "",
        answer: "read 4 bytes",
        slow: "",
        counts_memory: false,
    },
];

struct Site {
    runtime: &'static Runtime,
    daemon: Daemon,
    root: tempfile::TempDir,
    _program: Option<process::Guard>,
}

impl Site {
    fn start(runtime: &'static Runtime, settings: &str) -> Site {
        let root = directory();
        let path = root.path();
        let file = path.join(runtime.file);
        write_program(&file, runtime.text);
        let port = free_port();
        let program = (runtime.name == "http").then(|| super::serve_http(&file, port));
        let application = runtime
            .application
            .replace("ROOT", &path.display().to_string())
            .replace("PORT", &port.to_string());
        let application = format!("runtime = \"{}\"\n{application}", runtime.name);
        let user = if is_root() { "user = \"www-data\"\n" } else { "" };
        let settings = format!("{user}{}", settings.replace("ROOT", &path.display().to_string()));
        let text = with_control(path) + &pool(path, POOL, &settings, &application);
        fs::write(path.join("forkyard.toml"), text).expect("write");
        let command = match runtime.name {
            "rust" => example("responder", path),
            _ => forkyard(&["run"], path),
        };
        let daemon = Daemon::launch(path, command).ready();
        Site {
            runtime,
            daemon,
            root,
            _program: program,
        }
    }

    fn params(&self) -> Params {
        Params::get(self.root.path(), self.runtime.script, "a=b")
            .with("REQUEST_METHOD", "PUT")
            .with("CONTENT_LENGTH", "4")
            .with("REMOTE_USER", "alice")
            .with("HTTP_AUTHORIZATION", "Basic YWxpY2U6c2VjcmV0")
    }

    fn put(&self) -> Answer {
        let answer = self.daemon.client(POOL).request(&self.params(), b"body");
        answer.expect("an answer")
    }

    fn hold(&self) -> (Client, Vec<u8>) {
        let (head, rest) = self.params().request_in_two(b"body");
        let mut client = self.daemon.client(POOL);
        client.send_raw(&head).expect("send");
        (client, rest)
    }

    fn page(&self, path: &str, query: &str) -> String {
        let params = Params::get(self.root.path(), path, query);
        let answer = self.daemon.client(POOL).request(&params, b"");
        answer.expect("an answer").body()
    }

    fn status(&self) -> Value {
        let text = self.page("status", "full&json");
        parsed(&text)
    }

    /// Waits for a worker's row in the status page that matches, and returns it.
    fn wait_for_row(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        until(&format!("{}: {what}", self.runtime.name), || {
            let status = self.status();
            status["processes"]
                .as_array()?
                .iter()
                .find(|row| is(row))
                .cloned()
        })
    }

    fn script(&self) -> String {
        self.root.path().join(self.runtime.script).display().to_string()
    }
}

fn assert_describes(site: &Site, row: &Value) {
    let name = site.runtime.name;
    for (field, expected) in [
        ("request method", Value::from("PUT")),
        ("request uri", format!("/{}?a=b", site.runtime.script).into()),
        ("content length", 4.into()),
        ("user", "alice".into()),
        ("script", site.script().into()),
    ] {
        assert_eq!(row[field], expected, "{name}, {field}: {row}");
    }
    let micros = row["request duration"].as_u64().expect("a number");
    assert!((1..60_000_000).contains(&micros), "{name}: {row}");
}

const FORMAT: &str = "%n %m %r %q %Q %s %l %u %f %d %{milli}d %{micro}d %M %{kilo}M %C %{user}C %{system}C %p %P %R \
                      %{X-Own}o %{REQUEST_URI}e %{%Y}t %{%Y}T %%";

fn assert_logged(site: &Site, line: &str, worker: u64) {
    let name = site.runtime.name;
    let fields: Vec<&str> = line.split(' ').collect();
    assert_eq!(fields.len(), 25, "{name}: {line}");
    let path = format!("/{}", site.runtime.script);
    let (script, pid, master) = (site.script(), worker.to_string(), site.daemon.pid().to_string());
    let uri = format!("{path}?a=b");
    for (at, expected) in [
        (0, POOL),
        (1, "PUT"),
        (2, &path),
        (3, "a=b"),
        (4, "?"),
        (5, "200"),
        (6, "4"),
        (7, "alice"),
        (8, &script),
        (17, &pid),
        (18, &master),
        (19, "-"),
        (20, if name == "rust" { "-" } else { "yes" }),
        (21, &uri),
        (24, "%"),
    ] {
        assert_eq!(fields[at], expected, "{name}, {at}: {line}");
    }
    let number = |at: usize| -> f64 {
        let number = fields[at].parse();
        number.unwrap_or_else(|error| panic!("{name}, {at}: {error}: {line}"))
    };
    assert!((0.3..60.0).contains(&number(9)), "{name}: {line}");
    assert!((number(9) * 1e3 - number(10)).abs() < 1.0, "{name}: {line}");
    assert!((number(10) * 1e3 - number(11)).abs() < 1.0, "{name}: {line}");
    assert_eq!(number(12) > 0.0, site.runtime.counts_memory, "{name}: {line}");
    assert!(
        number(12) < 1e9 && (number(12) / 1024.0 - number(13)).abs() <= 1.0,
        "{name}: {line}"
    );
    assert!((0.0..200.0).contains(&number(14)), "{name}: {line}");
    assert!(
        (number(14) - number(15) - number(16)).abs() < 0.02,
        "{name}: {line}"
    );
    assert!(number(22) >= 2024.0 && number(23) >= number(22), "{name}: {line}");
}

fn assert_slow(site: &Site, worker: u64) {
    let name = site.runtime.name;
    let expected = format!(
        "WARNING: [pool {POOL}] child {worker}, script '{}' (request: \"PUT /{}?a=b\") executing too slow (",
        site.script(),
        site.runtime.script
    );
    let line = site.daemon.wait_for("executing too slow");
    assert_contains(&line, &expected);
    assert_ends(&line, " sec), logging");
    let log = site.root.path().join("slow.log");
    let entry = until(&format!("{name}: an entry"), || {
        fs::read_to_string(&log).ok().filter(|text| !text.is_empty())
    });
    let header = format!(
        "]  [pool {POOL}] pid {worker}\nscript_filename = {}\n{}",
        site.script(),
        if name == "php" {
            String::new()
        } else {
            format!("request = PUT /{}?a=b\n", site.runtime.script)
        }
    );
    assert!(entry.contains(&header), "{name}: {entry}");
    let (_, calls) = entry.split_once(&header).expect("a header");
    let calls = calls.replace(&site.root.path().display().to_string(), "ROOT");
    assert!(calls.contains(site.runtime.slow), "{name}: {entry}");
    assert_eq!(calls.is_empty(), site.runtime.slow.is_empty(), "{name}: {entry}");
    assert!(!calls.contains("+++"), "{name}: {entry}");
}

/// `forkyard top` shows a request in flight.
fn assert_topped(site: &Site, worker: u64) {
    let name = site.runtime.name;
    let arguments = ["top", "--once", "--json", "--interval", "1ms"];
    let frame = parsed(&site.daemon.shown(&arguments));
    let mut workers = frame["workers"].as_array().expect("workers").iter();
    let row = workers.find(|row| row["pid"] == worker);
    let row = row.unwrap_or_else(|| panic!("{name}: {frame}"));
    assert_eq!(
        (&row["is_busy"], &row["pool"]),
        (&true.into(), &POOL.into()),
        "{name}: {row}"
    );
    assert_starts(row["request"].as_str().expect("a text"), "PUT /");
    assert!(row["age"].as_f64().is_some_and(|age| age > 0.2), "{name}: {row}");
    let pool = &frame["pools"][0];
    assert_eq!(
        (&pool["busy"], &pool["state"]),
        (&1.into(), &"serving".into()),
        "{name}: {pool}"
    );
}

fn is_seen_logged_and_reloaded(runtime: &'static Runtime) {
    let settings = format!(
        "pm = \"static\"\nmax_children = 2\nreload = \"always\"\nping.path = \"/ping\"\nping.response = \"here\"\n\
         status_path = \"/status\"\nslowlog = \"ROOT/slow.log\"\nrequest_slowlog_timeout = \"300ms\"\n\
         access = {{ log = \"ROOT/access.log\", format = '{FORMAT}', suppress_path = [\"/status\", \"/ping\"] }}\n"
    );
    let site = Site::start(runtime, &settings);
    let name = runtime.name;
    let old = site.daemon.wait_for_workers(POOL, 2);
    assert_eq!(site.page("ping", ""), "here", "{name}");
    let is_of_us = |row: &Value| row["request method"] == "PUT";

    let (mut client, rest) = site.hold();
    let row = site.wait_for_row("a request that runs", |row| {
        is_of_us(row) && row["state"] == "Running"
    });
    assert_describes(&site, &row);
    assert_eq!(
        (
            row["last request cpu"].as_f64(),
            row["last request memory"].as_u64()
        ),
        (Some(0.0), Some(0)),
        "{name}: php-fpm says nothing of a request that runs"
    );
    let worker = row["pid"].as_u64().expect("a number");
    assert!(old.contains(&(worker as u32)), "{name}");
    assert_slow(&site, worker);
    assert_topped(&site, worker);
    assert_eq!(site.status()["slow requests"], 1, "{name}");

    site.daemon.signal(Signal::SIGUSR2);
    wait_until(
        &format!("{name}: two new workers beside the one that is busy"),
        || {
            let now = site.daemon.workers(POOL);
            let new = now.iter().filter(|pid| !old.contains(pid)).count();
            new == 2 && now.contains(&(worker as u32))
        },
    );
    assert!(
        site.put().body().contains(runtime.answer),
        "{name}: the new ones serve"
    );
    client.send_raw(&rest).expect("send");
    let answer = client.answer().expect("an answer");
    assert!(
        answer.body().contains(runtime.answer) && answer.ended,
        "{name}: {}",
        answer.text()
    );
    let log = read_file(site.root.path().join("access.log"));
    let is_its = |line: &&str| line.contains(&format!(" {worker} ")) && line.contains(" PUT ");
    let line = log.lines().rfind(is_its);
    assert_logged(&site, line.unwrap_or_else(|| panic!("{name}: {log}")), worker);
    wait_until(&format!("{name}: the old workers' end"), || {
        let now = site.daemon.workers(POOL);
        !now.iter().any(|pid| old.contains(pid))
    });

    let row = until(&format!("{name}: a request that has ended"), || {
        let (mut other, rest) = site.hold();
        assert!(site.put().body().contains(runtime.answer), "{name}");
        other.send_raw(&rest).expect("send");
        other.answer().expect("an answer");
        let status = site.status();
        let mut rows = status["processes"].as_array()?.iter();
        rows.find(|row| is_of_us(row) && row["state"] == "Idle").cloned()
    });
    assert_describes(&site, &row);
    assert!(
        !old.contains(&(row["pid"].as_u64().expect("a number") as u32)),
        "{name}"
    );
    let cpu = row["last request cpu"].as_f64().expect("a number");
    assert!((0.0..400.0).contains(&cpu), "{name}: {row}");
    let memory = row["last request memory"].as_u64().expect("a number");
    assert_eq!(memory > 0, runtime.counts_memory, "{name}: {row}");
    assert!(memory < 1 << 30, "{name}: {row}");
    assert!(row["requests"].as_u64().is_some_and(|count| count >= 1), "{name}");
}

fn is_limited(runtime: &'static Runtime) {
    let settings =
        "pm = \"static\"\nmax_children = 1\nmax_requests = 2\nrequest_terminate_timeout = \"1s\"\n";
    let site = Site::start(runtime, settings);
    let name = runtime.name;
    let first = site.daemon.wait_for_workers(POOL, 1);
    for _ in 0..2 {
        assert!(site.put().body().contains(runtime.answer), "{name}");
    }
    wait_until(&format!("{name}: another worker"), || {
        let now = site.daemon.workers(POOL);
        now.len() == 1 && now != first
    });
    assert!(!site.daemon.log().contains("exited on signal"), "{name}");
    let (mut client, _rest) = site.hold();
    let answer = client.answer().expect("an answer");
    assert!(
        answer.text().starts_with("Status: 504 Gateway Timeout\r\n") && answer.ended,
        "{name}: {}",
        answer.text()
    );
    let line = site.daemon.wait_for("execution timed out");
    assert_contains(&line, &format!("(request: \"PUT /{}?a=b\")", runtime.script));
    if !matches!(name, "asgi" | "http") {
        site.daemon.wait_for("exited on signal 15 (SIGTERM)");
    }
    assert!(
        site.put().body().contains(runtime.answer),
        "{name}: another has its place"
    );
}

fn writes_json(runtime: &'static Runtime) {
    let site = Site::start(
        runtime,
        "pm = \"static\"\nmax_children = 1\naccess = { log = \"ROOT/access.log\", format = \"json\" }\n",
    );
    let name = runtime.name;
    let agent = "a\"b\\c\u{1}\u{e9}";
    let params = site.params().with("HTTP_USER_AGENT", agent);
    let answer = site.daemon.client(POOL).request(&params, b"body");
    assert!(
        answer.expect("an answer").body().contains(runtime.answer),
        "{name}"
    );
    let lines = crate::it::access::objects(&site.root.path().join("access.log"));
    let [line] = lines.as_slice() else {
        panic!("{name}: {lines:?}");
    };
    let path = format!("/{}", runtime.script);
    for (field, expected) in [
        ("pool", Value::from(POOL)),
        ("pid", site.daemon.workers(POOL)[0].into()),
        ("remote_addr", "127.0.0.1".into()),
        ("user", "alice".into()),
        ("host", "localhost".into()),
        ("method", "PUT".into()),
        ("request_uri", format!("{path}?a=b").into()),
        ("uri", path.into()),
        ("query", "a=b".into()),
        ("script", site.script().into()),
        ("content_length", 4.into()),
        ("status", 200.into()),
        ("referer", "".into()),
        ("user_agent", agent.into()),
    ] {
        assert_eq!(line[field], expected, "{name}, {field}: {line}");
    }
    assert!(
        line["duration"].is_f64() && line["cpu"].is_f64(),
        "{name}: {line}"
    );
    let memory = line["memory"].as_u64().expect("a number");
    assert_eq!(memory > 0, runtime.counts_memory, "{name}: {line}");
}

#[test]
fn every_runtime_writes_json() {
    RUNTIMES.iter().for_each(writes_json);
}

fn is_replaced_at_once(runtime: &'static Runtime) {
    let settings = "pm = \"static\"\nmax_children = 2\nstatus_path = \"/status\"\n";
    let site = Site::start(runtime, settings);
    let name = runtime.name;
    let crashes = 4;
    for crash in 1..=crashes {
        site.daemon.wait_for_workers(POOL, 2);
        let (client, _rest) = site.hold();
        let row = site.wait_for_row("a request that runs", |row| {
            row["request method"] == "PUT" && row["state"] == "Running"
        });
        process::signal(row["pid"].as_u64().expect("a number") as u32, Signal::SIGKILL);
        drop(client);
        site.daemon.wait_for_count("exited on signal 9 (SIGKILL)", crash);
        assert!(site.put().body().contains(runtime.answer), "{name}");
    }
    site.daemon.wait_for_workers(POOL, 2);
    let log = site.daemon.log();
    for held_back in ["the next try is in", "the next is made in", "no worker is left"] {
        assert!(!log.contains(held_back), "{name}: {log}");
    }
}

tests! {
    fn every_runtime_s_workers_that_crash_at_work_are_replaced_at_once() => RUNTIMES.iter().for_each(is_replaced_at_once);
    fn every_runtime_is_seen_logged_and_reloaded() => RUNTIMES.iter().for_each(is_seen_logged_and_reloaded);
    fn every_runtime_is_limited() => RUNTIMES.iter().for_each(is_limited);
}

/// The least numbers were found by trial, so the table of runtimes has to be right.
#[test]
fn a_worker_serves_with_the_least_descriptors_that_are_accepted() {
    for runtime in &RUNTIMES {
        let dir = directory();
        let application = format!(
            "runtime = \"{}\"\n{}",
            runtime.name,
            runtime
                .application
                .replace("ROOT", &dir.path().display().to_string())
        );
        let application = application.replace("PORT", "9");
        let text = pool(dir.path(), POOL, "rlimit_files = 1\n", &application);
        fs::write(dir.path().join("forkyard.toml"), text).expect("write");
        let said = exited(Some(78), said_by(&mut forkyard(&["check"], dir.path())));
        let problem = "[pool hello] rlimit_files: 1 open files are too few for a worker of ";
        assert_contains(&said, problem);
        let least = said.split_once("; give at least ").expect("a remedy").1;
        let least = least.split_once(',').expect("the other remedy").0;
        let site = Site::start(runtime, &format!("rlimit_files = {least}\n"));
        let answer = site.put().body();
        assert!(
            answer.contains(runtime.answer),
            "{least}: {answer} {}",
            site.daemon.log()
        );
    }
}

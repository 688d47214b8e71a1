//! Python's WSGI (PEP 3333), in workers that are forked from a loaded application.

use crate::support::prelude::*;

const ECHO: &str = r#"
import os
loaded = os.getpid()
def application(environ, start_response):
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Type", "text/plain")])
    yield f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {environ['QUERY_STRING']} {len(body)}\n".encode()
    yield f"{loaded != os.getpid()}\n".encode()
"#;

/// A file for each path: behavior that the interface allows or forbids.
const CASES: &str = r#"
import atexit, os, sys, time, io
from wsgiref.validate import validator

PLAIN = [("Content-Type", "text/plain")]

class Body:
    def __init__(self, parts, name):
        self.parts, self.name = iter(parts), name
    def __iter__(self):
        return self
    def __next__(self):
        return next(self.parts)
    def close(self):
        open(self.name, "w").close()

@validator
def valid(environ, start):
    data = environ["wsgi.input"].read(10)
    rest = b"".join(environ["wsgi.input"])
    environ["wsgi.errors"].write("said to the web server\n")
    environ["wsgi.errors"].flush()
    start("200 OK", PLAIN)
    return [b"%d %d" % (len(data), len(rest))]

def write(environ, start):
    put = start("200 OK", PLAIN)
    put(b"written, ")
    return [b"returned"]

def replaced(environ, start):
    start("200 OK", PLAIN)
    try:
        raise ValueError("before anything was sent")
    except ValueError:
        start("503 Service Unavailable", PLAIN, sys.exc_info())
    return [b"sorry"]

def late(environ, start):
    start("200 OK", PLAIN)
    yield b"begun"
    try:
        raise ValueError("too late")
    except ValueError:
        start("500 Internal Server Error", PLAIN, sys.exc_info())
    yield b"never sent"

def twice(environ, start):
    start("200 OK", PLAIN)
    start("200 OK", PLAIN)
    return [b"x"]

def silent(environ, start):
    return [b"x"]

def smuggler(environ, start):
    start("200 OK", [("X-A", "1\r\nX-B: 2")])
    return [b"x"]

def text(environ, start):
    start("200 OK", PLAIN)
    return ["text"]

def closed(environ, start):
    start("200 OK", PLAIN)
    return Body([b"a", b"", b"b"], "closed.mark")

def fails(environ, start):
    start("200 OK", PLAIN)
    return Body((1 / 0 for _ in range(1)), "failed.mark")

def endless(environ, start):
    start("200 OK", PLAIN)
    def parts():
        while True:
            yield b"x" * 10000
    return Body(parts(), "left.mark")

def stream(environ, start):
    start("200 OK", PLAIN)
    yield b"first\n"
    while not os.path.exists("go.mark"):
        time.sleep(0.005)
    yield b"second\n"

def large(environ, start):
    start("200 OK", PLAIN + [("Content-Length", "30000000")])
    return environ["wsgi.file_wrapper"](io.BytesIO(b"0123456789" * 3000000), 8192)

def nothing(environ, start):
    start("204 No Content", [])
    return [b"not to be sent"]

def sized(environ, start):
    start("200 OK", PLAIN)
    return [b"12345"]

def leave(environ, start):
    sys.exit("enough")

def pid(environ, start):
    start("200 OK", PLAIN)
    return [str(os.getpid()).encode()]

def keys(environ, start):
    start("200 OK", PLAIN)
    names = ["SCRIPT_NAME", "PATH_INFO", "CONTENT_LENGTH", "wsgi.url_scheme", "HTTP_PROXY"]
    return [repr([environ.get(name) for name in names]).encode()]

atexit.register(lambda: open(f"exit.{os.getpid()}", "w").close())

def application(environ, start):
    return globals().get(environ["PATH_INFO"].strip("/"), keys)(environ, start)
"#;

struct Site {
    daemon: Daemon,
    root: tempfile::TempDir,
}

impl Site {
    fn start(files: &[(&str, &str)], settings: &str, application: &str) -> Site {
        let root = folder(files);
        let daemon = Daemon::serving("wsgi", root.path(), settings, application);
        Site { daemon, root }
    }

    fn cases() -> Site {
        let settings = "pm = \"static\"\nmax_children = 2\ncatch_workers_output = true\n";
        Site::start(&[("wsgi.py", CASES)], settings, "")
    }

    fn get(&self, path: &str) -> Answer {
        self.daemon.get("www", path)
    }

    fn wait_for_file(&self, name: &str) {
        let path = self.root.path().join(name);
        wait_until(name, || path.exists());
    }

    fn nginx(&self, locations: &str) -> Nginx {
        let socket = self.daemon.socket("www");
        Nginx::start(&locations.replace("SOCKET", &socket.display().to_string()), "")
    }
}

#[test]
fn an_application_is_loaded_once_and_answers_in_workers() {
    let site = Site::start(&[("wsgi.py", ECHO)], "pm = \"static\"\nmax_children = 2\n", "");
    let daemon = &site.daemon;
    let params = Params::get(&daemon.dir, "some/path", "a=b")
        .with("REQUEST_METHOD", "POST")
        .with("CONTENT_LENGTH", "200000");
    let answer = daemon.put("www", &params, &[b'x'; 200_000]);
    assert_eq!(answer.body(), "POST /some/path a=b 200000\nTrue\n");
    daemon.wait_for_workers("www", 2);
    assert_eq!(daemon.preloaders("www").len(), 1);
}

#[test]
fn the_interface_is_kept_to() {
    let site = Site::cases();
    let get = |path: &str| site.get(path);
    for body in [&b""[..], b"0123456789abc"] {
        let params = Params::get(&site.daemon.dir, "valid", "").posting(body.len());
        let answer = site.daemon.client("www").request(&params, body).expect("answer");
        let (first, rest) = (body.len().min(10), body.len().saturating_sub(10));
        assert_eq!(
            answer.body(),
            format!("{first} {rest}"),
            "{}",
            answer.error_text()
        );
        assert_eq!(answer.error_text(), "said to the web server\n");
    }
    assert_eq!(get("write").body(), "written, returned");
    let replaced = get("replaced");
    assert!(replaced.text().starts_with("Status: 503 Service Unavailable\r\n"));
    assert_eq!(replaced.body(), "sorry");
    assert_eq!(get("closed").body(), "ab");
    site.wait_for_file("closed.mark");
    let rows = [
        ("twice", "start_response was called before"),
        ("silent", "before it called start_response"),
        ("smuggler", "a line break"),
        ("text", "is str, not bytes"),
        ("fails", "ZeroDivisionError"),
    ];
    each(rows, |(path, why)| {
        let answer = get(path);
        assert_starts(&answer.text(), "Status: 500 ");
        assert_contains(&answer.error_text(), why);
        assert!(answer.ended);
        site.daemon.wait_for(why);
    });
    site.wait_for_file("failed.mark");
    let late = get("late");
    assert_eq!(late.body(), "begun");
    assert!(!late.ended, "the web server has to see that something is missing");
    site.daemon.wait_for("ValueError: too late");
    assert_eq!(get("nothing").body(), "");
    assert!(get("sized").text().contains("Content-Length: 5\r\n"));
    let params = Params::get(&site.daemon.dir, "sized", "").with("REQUEST_METHOD", "HEAD");
    let head = site.daemon.ask("www", &params);
    assert!(head.text().contains("Content-Length: 5\r\n") && head.body().is_empty());
    let large = get("large");
    assert_eq!(large.body().len(), 30_000_000);
    assert!(large.ended);
}

#[test]
fn a_path_is_split_as_the_application_is_mounted() {
    let site = Site::cases();
    let params = Params::get(&site.daemon.dir, "some/path", "").with("HTTP_PROXY", "http://evil");
    let whole = site.daemon.ask("www", &params);
    assert_eq!(whole.body(), "['', '/some/path', None, 'http', None]");
    let split = params
        .with("SCRIPT_NAME", "/some")
        .with("PATH_INFO", "/path")
        .with("HTTPS", "on");
    let split = site.daemon.ask("www", &split);
    assert_eq!(split.body(), "['/some', '/path', None, 'https', None]");

    let settings = "pm = \"static\"\nmax_children = 1\nenv = { SCRIPT_NAME = \"/app\" }\n";
    let mounted = Site::start(&[("wsgi.py", CASES)], settings, "");
    let nginx = mounted.nginx(
        "location /app { include /etc/nginx/fastcgi_params; fastcgi_pass unix:SOCKET; }\n\
         location / { return 404; }",
    );
    for (path, seen) in [
        ("/app", "['/app', '', None, 'http', None]"),
        ("/app/a%20b?c", "['/app', '/a b', None, 'http', None]"),
        ("/applied", "['', '/applied', None, 'http', None]"),
        ("/app/%C3%A4", "['/app', '/Ã¤', None, 'http', None]"),
    ] {
        assert_eq!(curl(&[&nginx.url(path)]), seen, "{path}");
    }
}

#[test]
fn an_answer_streams_and_is_given_up_when_the_client_leaves() {
    let site = Site::cases();
    let nginx = site.nginx(
        "location / { include /etc/nginx/fastcgi_params; fastcgi_buffering off; fastcgi_pass unix:SOCKET; }",
    );
    let mut client = open(nginx.port, "/stream");
    read_until(&mut client, "first\n");
    fs::write(site.root.path().join("go.mark"), "").expect("write");
    read_until(&mut client, "second\n");

    let mut client = open(nginx.port, "/endless");
    read_until(&mut client, "xxxx");
    drop(client);
    site.wait_for_file("left.mark");
    assert_eq!(site.get("sized").body(), "12345");
}

#[test]
fn a_body_of_unknown_length_is_read_to_its_end() {
    let site = Site::start(&[("wsgi.py", ECHO)], "pm = \"static\"\nmax_children = 1\n", "");
    let nginx = site.nginx(
        "location / { include /etc/nginx/fastcgi_params; fastcgi_request_buffering off; fastcgi_pass unix:SOCKET; }",
    );
    let file = site.root.path().join("body");
    fs::write(&file, vec![b'x'; 3_000_000]).expect("write");
    assert_eq!(upload(&file, &nginx.url("/up")), "POST /up  3000000\nTrue\n");
}

#[test]
fn a_worker_whose_application_exits_or_which_is_retired_ends_in_order() {
    let site = Site::start(&[("wsgi.py", CASES)], "pm = \"static\"\nmax_children = 1\n", "");
    let first = site.get("pid").body();
    let answer = site.get("leave");
    assert!(answer.text().starts_with("Status: 500 ") && answer.ended);
    assert!(answer.error_text().contains("sys.exit"));
    site.wait_for_file(&format!("exit.{first}"));
    let second = site.get("pid").body();
    assert_ne!(first, second);
    site.daemon.signal(Signal::SIGUSR2);
    site.wait_for_file(&format!("exit.{second}"));
    assert_ne!(site.get("pid").body(), second);
    let failed = ["exited on signal", "Traceback"];
    let log = site.daemon.log();
    assert!(!failed.iter().any(|word| log.contains(word)), "{log}");
}

#[test]
fn the_peak_of_memory_is_on_the_status_page() {
    let site = Site::start(
        &[("wsgi.py", CASES)],
        "pm = \"static\"\nmax_children = 2\nstatus_path = \"/status\"\n",
        "",
    );
    // A worker that shows the page has begun another request; the other one still shows its last. A connection occupies
    // the preferred worker while the other one answers, then releases it for the page.
    wait_until("memory on the status page", || {
        let held = site.daemon.client("www");
        site.get("sized");
        drop(held);
        let status = site.get("status?full").body();
        let sizes = status
            .lines()
            .filter_map(|line| line.strip_prefix("last request memory:"));
        sizes
            .map(|size| size.trim().parse::<u64>().expect("bytes"))
            .any(|bytes| bytes > 1 << 20)
    });
}

pub(super) fn open(port: u16, path: &str) -> TcpStream {
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    client.write_all(request.as_bytes()).expect("request");
    client
}

pub(super) fn read_until(stream: &mut TcpStream, text: &str) {
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(text) {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).expect(text);
        assert_ne!(count, 0, "no {text:?} in {:?}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..count]);
    }
}

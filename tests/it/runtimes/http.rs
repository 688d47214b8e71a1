//! A program that speaks HTTP, behind FastCGI: Python's own server.

use crate::support::prelude::*;

const PROGRAM: &str = r#"
import hashlib, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while True:
                size = int(self.rfile.readline(), 16)
                parts.append(self.rfile.read(size))
                self.rfile.readline()
                if size == 0:
                    return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def say(self, text, status=200):
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/headers":
            self.say(self.requestline + "\n" + str(self.headers))
        elif path == "/port":
            self.say(str(self.client_address[1]))
        elif path == "/chunks":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for n in range(1000):
                self.wfile.write(b"5\r\nline\n\r\n")
            self.wfile.write(b"0\r\n\r\n")
        elif path == "/open":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"until the end")
            self.close_connection = True
        elif path == "/short":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"short")
            self.close_connection = True
        elif path == "/silent":
            self.close_connection = True
        elif path == "/noise":
            self.wfile.write(b"this is no HTTP\r\n\r\n")
            self.close_connection = True
        elif path == "/large":
            self.say("x" * 20_000_000)
        elif path == "/gone":
            # As a server that closes a kept connection after a time.
            self.say("gone")
            self.close_connection = True
        else:
            self.say("nothing here", 404)

    do_HEAD = do_GET

    def do_POST(self):
        data = self.body()
        self.say(f"{len(data)} {hashlib.md5(data).hexdigest()}")

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

struct Site {
    daemon: Daemon,
    program: process::Guard,
    _dir: tempfile::TempDir,
}

impl Site {
    fn start() -> Site {
        let dir = directory();
        let file = dir.path().join("program.py");
        fs::write(&file, PROGRAM).expect("write");
        let port = free_port();
        let program = super::serve_http(&file, port);
        let daemon = Daemon::start(|dir| {
            let application = format!("runtime = \"http\"\naddress = \"127.0.0.1:{port}\"\n");
            pool(dir, "www", "", &application)
        });
        Site {
            daemon,
            program,
            _dir: dir,
        }
    }

    fn get(&self, path: &str) -> Answer {
        self.daemon.get("www", path)
    }
}

#[test]
fn every_form_of_answer_is_passed_on() {
    let site = Site::start();
    assert_eq!(site.get("chunks").body(), "line\n".repeat(1000));
    assert!(!site.get("chunks").text().contains("Transfer-Encoding"));
    assert_eq!(site.get("open").body(), "until the end");
    assert_eq!(site.get("large").body().len(), 20_000_000);
    assert!(site.get("none").text().starts_with("Status: 404 Not Found\r\n"));
    let params = Params::get(&site.daemon.dir, "large", "").with("REQUEST_METHOD", "HEAD");
    let head = site.daemon.ask("www", &params);
    assert!(head.text().contains("Content-Length: 20000000\r\n") && head.body().is_empty());
    let headers = site.get("headers?a=b").body();
    for line in [
        "GET /headers?a=b HTTP/1.1",
        "Host: localhost",
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-Proto: http",
    ] {
        assert!(headers.lines().any(|seen| seen == line), "{line} in {headers}");
    }
}

#[test]
fn the_connection_is_kept_and_replaced_when_the_program_closes_it() {
    let site = Site::start();
    let port = site.get("port").body();
    for _ in 0..5 {
        assert_eq!(site.get("port").body(), port);
    }
    assert_eq!(site.get("gone").body(), "gone");
    let next = site.get("port").body();
    assert_ne!(next, port);
    assert_eq!(site.get("port").body(), next);
}

#[test]
fn what_is_no_answer_is_told() {
    let mut site = Site::start();
    for (path, line) in [
        ("silent", "it closed the connection without an answer"),
        ("noise", "it is not HTTP/1.1"),
    ] {
        let answer = site.get(path);
        assert_starts(&answer.text(), "Status: 502 Bad Gateway");
        assert!(answer.ended);
        site.daemon.wait_for(line);
    }
    let cut = site.get("short");
    assert_eq!(cut.body(), "short");
    assert!(!cut.ended, "the web server has to see that something is missing");
    site.daemon.wait_for("an answer of the application is cut short");
    assert_eq!(site.get("none").body(), "nothing here", "the worker serves on");
    site.program.0.kill().expect("kill");
    site.program.0.wait().expect("wait");
    assert!(site.get("none").text().starts_with("Status: 502"));
    site.daemon.wait_for("the application can't be reached");
}

#[test]
fn bodies_pass_through_nginx_with_and_without_a_length() {
    let site = Site::start();
    let nginx = Nginx::start(
        &format!(
            "location / {{ include /etc/nginx/fastcgi_params; fastcgi_request_buffering off; fastcgi_pass unix:{}; }}",
            site.daemon.socket("www").display()
        ),
        "",
    );
    let body: Vec<u8> = (0..3_000_000u32).map(|n| (n / 3) as u8).collect();
    let file = site.daemon.dir.join("body");
    fs::write(&file, &body).expect("write");
    assert_starts(&upload(&file, &nginx.url("/")), "3000000 ");
    assert_eq!(
        curl(&["--data-binary", "", &nginx.url("/")]),
        "0 d41d8cd98f00b204e9800998ecf8427e"
    );
}

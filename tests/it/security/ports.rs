//! A pool's program listens on a port of 127.0.0.1, which any local user may take once it is free.

use super::{NOBODY, needs_root};
use crate::support::prelude::*;

const PROGRAM: &str = r#"
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = f"{os.getpid()} {os.environ['PORT']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass

ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;

const THIEF: &str = r#"
import os, socket, sys, threading
os.setgroups([])
os.setgid(UID)
os.setuid(UID)
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if sys.argv[2] == "lo":
    server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
while True:
    try:
        server.bind(("127.0.0.1", int(sys.argv[1])))
        break
    except OSError:
        pass
server.listen(128)
print("taken", flush=True)
def serve(client):
    while client.recv(65536):
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen")
    client.close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"#;

const SELF_CALLER: &str = r#"
const http = require("http");
const port = process.env.PORT;
http.createServer(async (request, response) => {
  if (request.url === "/port") return response.end(port);
  if (request.url === "/inner") return response.end(`inner ${request.headers.cookie}`);
  const answer = await fetch(`http://localhost:${port}/inner`, { headers: { cookie: "session=secret" } });
  response.end(await answer.text());
}).listen(port);
"#;

const LISTENER: &str = r#"
import errno, os, socket, sys
os.setgroups([])
os.setgid(UID)
os.setuid(UID)
for family, address in (socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::"):
    for option in None, socket.SO_REUSEADDR, socket.SO_REUSEPORT:
        server = socket.socket(family)
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if option:
            server.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            server.bind((address, int(sys.argv[1])))
            server.listen(1)
            print("listens on", address)
        except OSError as error:
            # Without IPv6 there is nothing to be had there.
            if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                raise
            print("refused")
"#;

struct Thief(process::Guard);

impl Thief {
    fn send(port: &str, device: &str) -> Thief {
        let child = Command::new("/usr/bin/python3")
            .args(["-c", &THIEF.replace("UID", &NOBODY.to_string()), port, device])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        Thief(process::Guard::kill(child))
    }

    fn wait_until_taken(&mut self) {
        let mut line = String::new();
        BufReader::new(self.0.0.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("a line");
        assert_eq!(line, "taken\n");
    }
}

fn http_socket(dir: &Path) -> String {
    dir.join("http.sock").display().to_string()
}

#[test]
fn whoever_takes_a_programs_port_gets_none_of_its_requests() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        fs::write(dir.join("program.py"), PROGRAM).expect("write");
        let settings = format!(
            "user = \"www-data\"\npm = \"static\"\nmax_children = 1\nhttp_listen = \"{}\"\n",
            http_socket(dir)
        );
        let application = application_in("http", dir, "start_command = \"python3 program.py\"\n");
        pool(dir, "www", &settings, &application)
    });
    let socket = http_socket(&daemon.dir);
    each(["", "lo"], |device| {
        let said = daemon.get("www", "x").body();
        let (pid, port) = said.split_once(' ').expect("pid and port");
        daemon.signal(Signal::SIGSTOP);
        let mut thief = Thief::send(port, device);
        process::signal(pid.parse().expect("a pid"), Signal::SIGKILL);
        thief.wait_until_taken();
        let (answer, page) = std::thread::scope(|scope| {
            let by_fastcgi = scope.spawn(|| daemon.get("www", "x").body());
            let by_http = scope.spawn(|| {
                curl(&[
                    "-s",
                    "--unix-socket",
                    &socket,
                    "-b",
                    "session=secret",
                    "http://x/",
                ])
            });
            wait_until("connections that were refused", || {
                let are_over = by_fastcgi.is_finished() || by_http.is_finished();
                are_over || refused(port) >= 2
            });
            daemon.signal(Signal::SIGCONT);
            (
                by_fastcgi.join().expect("an answer"),
                by_http.join().expect("an answer"),
            )
        });
        for said in [&answer, &page] {
            assert!(said.contains(' ') && !said.contains(pid), "{said}");
        }
    });
}

#[test]
fn nobody_else_listens_on_the_port_of_a_program_of_node() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        fs::write(dir.join("app.js"), SELF_CALLER).expect("write");
        let settings = "user = \"www-data\"\npm = \"static\"\nmax_children = 1\n";
        let application = application_in("node", dir, "start_command = \"sh -c 'node app.js; exit'\"\n");
        pool(dir, "www", settings, &application)
    });
    let port = daemon.get("www", "port").body();
    let output = Command::new("/usr/bin/python3")
        .args(["-c", &LISTENER.replace("UID", &NOBODY.to_string()), &port])
        .output()
        .expect("python3");
    let said = text_of(&output.stdout);
    let tries: Vec<&str> = said.lines().collect();
    assert_eq!(
        tries,
        ["refused"; 12],
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(daemon.get("www", "x").body(), "inner session=secret");
}

fn refused(port: &str) -> usize {
    let table = read_file("/proc/net/tcp");
    let port = format!(":{:04X}", port.parse::<u16>().expect("a port"));
    let is_closing = |line: &&str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        words.get(2).is_some_and(|remote| remote.ends_with(&port))
            && matches!(words.get(3), Some(&("04" | "05" | "06")))
    };
    table.lines().filter(is_closing).count()
}

#[test]
fn a_program_that_something_else_starts_may_be_any_users() {
    skip_if!(needs_root());
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        listener.local_addr().expect("an address").port().to_string()
    };
    let mut other = Thief::send(&port, "");
    other.wait_until_taken();
    let daemon = Daemon::start(|dir| {
        let settings = "user = \"www-data\"\npm = \"static\"\nmax_children = 1\n";
        let application = format!("runtime = \"http\"\naddress = \"127.0.0.1:{port}\"\n");
        pool(dir, "www", settings, &application)
    });
    assert_eq!(daemon.get("www", "x").body(), "stolen");
}

//! Answers shorter than their Content-Length: behind nginx the browser sees at once that they are cut.

use super::fastcgi_programs::compiled;
use crate::support::prelude::*;

type Short = (&'static str, &'static str, &'static str, &'static str);

const PHP: &str = "<?php header('Content-Length: 100000'); echo 'four'; flush(); ini_set('memory_limit', '3M'); \
                   str_repeat('x', 1 << 27);";
const WORKER: &str =
    "<?php while (forkyard_handle_request(function () { include __DIR__ . '/short.php'; }));";

const SHORT: [Short; 10] = [
    ("php", "short.php", PHP, "version = \"VERSION\"\n"),
    (
        "php",
        "loop.php",
        WORKER,
        "version = \"VERSION\"\nworker = \"FILE\"\nworker_mode = \"loop\"\n",
    ),
    (
        "php",
        "snapshot.php",
        WORKER,
        "version = \"VERSION\"\nworker = \"FILE\"\nworker_mode = \"snapshot\"\n",
    ),
    (
        "cgi",
        "short.cgi",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\nContent-Length: 100000\\r\\n\\r\\nfour'\nexit 1\n",
        "root = \"DIR\"\n",
    ),
    (
        "wsgi",
        "wsgi.py",
        "def application(environ, start):\n    start('200 OK', [('Content-Length', '100000')])\n    yield b'four'\n    \
         raise ValueError\n",
        "root = \"DIR\"\n",
    ),
    (
        "wsgi",
        "short_wsgi.py",
        "def application(environ, start):\n    start('200 OK', [('Content-Length', '100000')])\n    return [b'four']\n",
        "root = \"DIR\"\nentry = \"short_wsgi.py\"\n",
    ),
    (
        "asgi",
        "asgi.py",
        r#"
async def application(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"Content-Length", b"100000")]})
        await send({"type": "http.response.body", "body": b"four", "more_body": True})
        raise ValueError
"#,
        "root = \"DIR\"\n",
    ),
    (
        "rack",
        "config.ru",
        "run ->(env) { [200, { 'Content-Length' => '100000' }, ['four']] }\n",
        "root = \"DIR\"\n",
    ),
    (
        "http",
        "short_http.py",
        r#"
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        self.wfile.write(b"four")
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#,
        "address = \"127.0.0.1:PORT\"\n",
    ),
    ("fastcgi", "unused", "", "program = \"PROGRAM\"\n"),
];

/// Their connections close without END_REQUEST. Without buffering nginx takes that for the end of a complete answer.
const BROKEN_OFF: [&str; 3] = ["wsgi.py", "asgi.py", "short_http.py"];

fn ask(nginx: &Nginx, path: &str) -> Option<i32> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--output", "/dev/null", "--max-time", "60"]);
    let status = command.arg(nginx.url(path)).status();
    status.expect("curl (Debian package curl)").code()
}

fn serve(dir: &Path, port: u16, short: &Short, name: &str) -> (String, Option<process::Guard>) {
    let (runtime, file, text, application) = short;
    let path = dir.join(file);
    write_program(&path, text);
    let program = (*runtime == "http").then(|| super::serve_http(&path, port));
    let application = application
        .replace("DIR", &dir.display().to_string())
        .replace("FILE", &path.display().to_string())
        .replace("VERSION", env!("FORKYARD_PHP"))
        .replace("PORT", &port.to_string())
        .replace("PROGRAM", &compiled().display().to_string());
    let application = format!("runtime = \"{runtime}\"\n{application}");
    (pool(dir, name, "", &application), program)
}

#[test]
fn a_browser_sees_at_once_that_an_answer_is_cut() {
    const CUT: Option<i32> = Some(18);
    let names: Vec<String> = (0..SHORT.len()).map(|index| format!("p{index}")).collect();
    let mut programs = Vec::new();
    let port = free_port();
    let daemon = Daemon::start(|dir| {
        let mut text = String::new();
        for (short, name) in SHORT.iter().zip(&names) {
            let (pool, program) = serve(dir, port, short, name);
            text.push_str(&pool);
            programs.extend(program);
        }
        text
    });
    let (mut server, mut upstreams) = ("keepalive_timeout 1h;\n".to_owned(), String::new());
    for ((_, file, ..), name) in SHORT.iter().zip(&names) {
        let socket = daemon.socket(name).display().to_string();
        upstreams.push_str(&format!(
            "upstream {name} {{ server unix:{socket}; keepalive 4; }}\n"
        ));
        for buffering in ["on", "off"] {
            server.push_str(&format!(
                "location /{name}/{buffering} {{ include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME {}; \
                 fastcgi_keep_conn on; fastcgi_buffering {buffering}; fastcgi_pass {name}; }}\n",
                daemon.dir.join(file).display()
            ));
        }
    }
    let nginx = Nginx::start(&server, &upstreams);
    for ((runtime, file, ..), name) in SHORT.iter().zip(&names) {
        for buffering in ["on", "off"] {
            if buffering == "off" && BROKEN_OFF.contains(file) {
                continue;
            }
            let status = ask(&nginx, &format!("/{name}/{buffering}?short"));
            assert_eq!(status, CUT, "{runtime}, {file}, buffering {buffering}");
        }
    }
}

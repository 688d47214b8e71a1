//! A new program has to live for a while after it is ready: if it exits, the old one stays.

use super::super::runtimes::fastcgi_programs::ODD;
use super::trials::{PMS, workers};
use crate::support::prelude::*;

const NODE: &str = "
const fs = require('fs');
require('http').createServer((_, response) => response.end('well')).listen(process.env.PORT, () => {
    if (fs.existsSync('after')) setTimeout(() => process.exit(1), Number(fs.readFileSync('after')));
});
";

const HTTP: &str = "
import http.server, os, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'well')
server = http.server.ThreadingHTTPServer(('127.0.0.1', int(os.environ['PORT'])), Handler)
if os.path.exists('after'):
    threading.Timer(int(open('after').read()) / 1000, os._exit, [1]).start()
server.serve_forever()
";

const FASTCGI_ENDS: &str = "
import os, threading
if os.path.exists('after'):
    threading.Timer(int(open('after').read()) / 1000, os._exit, [1]).start()
";

pub(in super::super) fn program(runtime: &str) -> (&'static str, String, &'static str) {
    match runtime {
        "node" => ("app.js", NODE.to_owned(), ""),
        "http" => (
            "serve.py",
            HTTP.to_owned(),
            "start_command = \"python3 serve.py\"\n",
        ),
        _ => (
            "serve.py",
            format!("{FASTCGI_ENDS}{ODD}"),
            "start_command = \"python3 serve.py well\"\n",
        ),
    }
}

fn application(root: &Path, runtime: &str) -> String {
    let (file, text, start) = program(runtime);
    fs::write(root.join(file), text).expect("write");
    application_in(runtime, root, start)
}

fn the_old_one_serves(runtime: &str) {
    let daemon = Daemon::start(|dir| {
        let mut text = with_control(dir);
        for (name, pm, _) in PMS {
            let root = dir.join(name);
            make_folder(&root);
            let pm = pm
                .replace(
                    "max_children = 2\nstart_servers = 1",
                    "max_children = 3\nstart_servers = 2",
                )
                .replace("max_spare_servers = 1", "max_spare_servers = 2");
            text += &pool(dir, name, &pm, &application(&root, runtime));
        }
        text
    });
    for (name, _, stays) in PMS {
        let ask = |label: &str| {
            let body = daemon.ask(name, &Params::get(&daemon.dir, "x", "")).body();
            assert!(body == "well" || body.starts_with("pid="), "{label}: {body}");
        };
        let after = daemon.dir.join(name).join("after");
        for millis in ["0", "50", "300"] {
            let label = format!("{runtime} {name} {millis}");
            ask(&label);
            let settled = match name {
                "dynamic" => 2,
                _ => u64::from(stays),
            };
            wait_until("its workers", || workers(&daemon, name) == settled);
            fs::write(&after, millis).expect("write");
            let (code, text) = daemon.said(&["restart", name, "--wait"]);
            assert_eq!(code, Some(70), "{label}: {text}");
            assert!(text.contains("failed"), "{label}: {text}");
            for _ in 0..if stays { 4 } else { 0 } {
                ask(&label);
            }
            fs::remove_file(&after).expect("remove");
            ask(&label);
            let (code, text) = daemon.said(&["error"]);
            assert_eq!(code, Some(0), "{label}: {text}");
        }
        let (code, text) = daemon.said(&["restart", name, "--wait"]);
        assert_eq!(code, Some(0), "{runtime} {name}: {text}");
        ask(name);
    }
}

tests! {
    fn a_node_program_that_ends_after_it_listens_does_not_take_over() => the_old_one_serves("node");
    fn an_http_program_that_ends_after_it_listens_does_not_take_over() => the_old_one_serves("http");
    fn a_fastcgi_program_that_ends_after_it_answers_does_not_take_over() => the_old_one_serves("fastcgi");
}
